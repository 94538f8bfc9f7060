"""Test-retest: how far the scores of a network differ between repeats of one image, lesion or frame."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
