"""Read image files: pictures, DICOM and MedMNIST's ``.npz``, as 8-bit RGB pixels."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
