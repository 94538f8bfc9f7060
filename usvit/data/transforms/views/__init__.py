"""ImageNet-style augmentation of upstream images. It does not respect the physics of ultrasound images."""

from usvit.data.transforms.views.cpu import Views, test_view
from usvit.data.transforms.views.gpu import DeviceViews, resolve_on

__all__ = ["DeviceViews", "Views", "resolve_on", "test_view"]
