"""Scaling laws of a network's shape (Alabdulmohsin et al. 2023, Getting ViT in shape).

``planning`` writes a sweep of shapes as a study, ``fitting`` fits the loss as a function of shape and compute, and
``prediction`` derives the best shape for a compute budget.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
