"""Preprocessing, and augmentation of ultrasound (``policies``) and upstream images (``views``)."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .batch_draws import BatchDraws as BatchDraws
    from .batch_draws import box_of as box_of
    from .batch_draws import draw_batch as draw_batch
    from .controlled_changes import CHANGES as CHANGES
    from .controlled_changes import ControlledChange as ControlledChange
    from .device_policies import augment_batch as augment_batch
    from .geometry import CELLS as CELLS
    from .geometry import lesion_cells as lesion_cells
    from .policies import POLICIES as POLICIES
    from .policies import Augment as Augment
    from .policies import Policy as Policy
    from .policies import make_augment as make_augment
    from .preprocessing import CentreSquare as CentreSquare
    from .preprocessing import Preprocessing as Preprocessing
    from .preprocessing import cropped as cropped
    from .views.cpu import TestResize as TestResize
    from .views.cpu import Views as Views
    from .views.cpu import make_views as make_views
    from .views.cpu import test_view as test_view
    from .views.gpu import DeviceViews as DeviceViews
    from .views.gpu import resolve_on as resolve_on
    from .views.gpu_crops import cut_batch as cut_batch
    from .views.rng import seeded as seeded
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
