"""The embedded data set: breast-ultrasound images from a physical model, made on the spot.

What tells the class is known by construction, namely the signs (signs.py) and nothing else, and
both can be taken away (``PhantomSpec.ablate``). No image of a person went into it.
"""

from usvit.data.phantom.render import Patient, RenderedImage, render_image, sample_patient
from usvit.data.phantom.signs import SIGN_LAWS
from usvit.data.phantom.spec import GENERATOR_VERSION, PhantomSpec
from usvit.data.phantom.write import write_phantom

__all__ = [
    "GENERATOR_VERSION",
    "SIGN_LAWS",
    "Patient",
    "PhantomSpec",
    "RenderedImage",
    "render_image",
    "sample_patient",
    "write_phantom",
]
