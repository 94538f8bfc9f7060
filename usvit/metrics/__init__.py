"""Statistics on arrays, each with its 95 % confidence interval; images of one group (patient) count together."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
