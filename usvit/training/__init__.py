"""Training: the loop, its state and checkpoints, tasks, optimizers, losses, and several processes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
