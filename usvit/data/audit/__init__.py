"""Audit of a data set: problems that are found before any model is trained on it."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
