"""From predictions to metrics: what reads tables and run directories, and computes every figure of metrics.json."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
