"""Experiments: cross-validation, hold-out, pre-training and transfer, each from a configuration to a run directory."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
