"""Loading: decoded pixels, batches for training, and data sets for use from Python."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
