"""``usvit node``: receives images, scores studies, and sends the results back."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
