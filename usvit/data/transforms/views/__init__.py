"""ImageNet-style augmentation of upstream images. It does not respect the physics of ultrasound images."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
