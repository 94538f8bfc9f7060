"""Explanations of a trained network: attention, saliency maps, and their agreement with lesion masks."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
