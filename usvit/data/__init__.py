"""Images and their labels: reading, data sets, splits, near-duplicates, transforms, loading."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
