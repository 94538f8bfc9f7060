"""What is done to an upstream image between the file and the network: ImageNet-style, not ultrasound-safe."""

from usvit.data.views.device import DeviceViews, resolve_on
from usvit.data.views.host import Views, test_view

__all__ = ["DeviceViews", "Views", "resolve_on", "test_view"]
