"""Splits: groups that stay together, folds, and the images that a network has seen."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
