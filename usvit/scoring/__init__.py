"""Batch scoring of images and DICOM files, prediction in Python, and external tests of the scores."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
