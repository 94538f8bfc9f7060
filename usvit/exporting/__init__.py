"""Export of a network for use elsewhere: safetensors, ONNX, or a MONAI bundle."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
