"""ImageNet-style augmentation of upstream images. It does not respect the physics of ultrasound images."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .cpu import Views as Views
    from .cpu import test_view as test_view
    from .gpu import DeviceViews as DeviceViews
    from .gpu import resolve_on as resolve_on
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
