from .cpu import Views as Views
from .cpu import test_view as test_view
from .gpu import DeviceViews as DeviceViews
from .gpu import resolve_on as resolve_on
