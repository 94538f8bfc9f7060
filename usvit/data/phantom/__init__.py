"""The phantom: a synthetic data set of breast-ultrasound images from a physical model.

By construction, only the lesion and its signs (``signs``) depend on the class, and either can be removed
(``PhantomSpec.ablate``). No images of people were used.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .marks import text_line as text_line
    from .render import FINEST_GRID as FINEST_GRID
    from .render import Patient as Patient
    from .render import RenderedImage as RenderedImage
    from .render import cut_lesion as cut_lesion
    from .render import render_image as render_image
    from .render import sample_patient as sample_patient
    from .sentences import WORDING as WORDING
    from .sentences import descriptors as descriptors
    from .sentences import sentence as sentence
    from .signs import SIGN_LAWS as SIGN_LAWS
    from .signs import Signs as Signs
    from .spec import CLASS_SHARE as CLASS_SHARE
    from .spec import GENERATOR_VERSION as GENERATOR_VERSION
    from .spec import PhantomSpec as PhantomSpec
    from .write import write_phantom as write_phantom
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
