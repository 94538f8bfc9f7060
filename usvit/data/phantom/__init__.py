"""The phantom: a synthetic data set of breast-ultrasound images from a physical model.

By construction, only the lesion and its signs (``signs``) depend on the class, and either can be removed
(``PhantomSpec.ablate``). No images of people were used.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
