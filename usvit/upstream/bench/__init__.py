"""Benchmarks: speed and memory of networks by the papers' protocols, each measured in its own process."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
