"""Experiments from configuration to run directory: cross-validation, hold-out, pre-training, transfer, and tests."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
