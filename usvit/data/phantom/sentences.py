"""The sentence of a report that describes a phantom's lesion by the descriptors of the BI-RADS Atlas.

Source: ACR BI-RADS Atlas, 5th ed. (2013), Ultrasound: shape, orientation, margin, echo pattern and posterior features.
The limits between two descriptors, on the true signs of the generator, are our choice: each descriptor is found in at
least a tenth of lesions, except an anechoic and an isoechoic echo pattern. Neither the class nor a category is named.
"""

from collections.abc import Mapping

import numpy as np

from usvit.data.phantom.signs import Signs

_IRREGULAR, _SPICULATED, _INDISTINCT_MM = 0.09, 0.16, 0.8
_ROUND = (0.87, 1.15)
_SHADOWING, _ENHANCING = 0.25, -0.25
_HETEROGENEOUS_DB, _ANECHOIC_DB, _ISOECHOIC_DB = 2.5, -22.5, -13.0

WORDING: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "shape": {
        "oval": ("oval in shape", "an oval shape", "ovoid", "elliptical"),
        "round": ("round in shape", "a round shape", "rounded", "spherical"),
        "irregular": ("irregular in shape", "an irregular shape", "of irregular contour", "neither oval nor round"),
    },
    "orientation": {
        "parallel": ("parallel to the skin", "parallel orientation", "wider than tall", "in the plane of the tissue"),
        "not parallel": (
            "not parallel to the skin",
            "non-parallel orientation",
            "taller than wide",
            "across the planes",
        ),
    },
    "margin": {
        "circumscribed": ("circumscribed margin", "well-defined margins", "a sharp edge", "smooth, sharp margin"),
        "indistinct": ("indistinct margin", "ill-defined margins", "a blurred edge", "no clear demarcation"),
        "spiculated": ("spiculated margin", "spiculations", "radiating lines at the edge", "a stellate margin"),
    },
    "echo pattern": {
        "anechoic": ("anechoic", "without internal echoes", "an anechoic echo pattern"),
        "hypoechoic": ("hypoechoic", "darker than fat", "a hypoechoic echo pattern"),
        "isoechoic": ("isoechoic", "as bright as fat", "an isoechoic echo pattern"),
        "heterogeneous": ("heterogeneous", "of mixed echogenicity", "a heterogeneous echo pattern"),
    },
    "posterior features": {
        "enhancement": ("posterior enhancement", "enhanced through-transmission", "bright tissue behind it"),
        "none": ("no posterior features", "unchanged tissue behind it", "neither shadow nor enhancement"),
        "shadowing": ("posterior shadowing", "acoustic shadow", "attenuation behind it"),
    },
}
"""Kind of descriptor -> descriptor -> its wordings; the sentence of an image draws one of them."""
_OPENINGS = ("Mass:", "There is a mass,", "A solitary lesion,", "Finding:", "The image shows a lesion,", "Lesion,")
_NO_LESION = (
    "No mass is seen.",
    "Normal breast tissue without a lesion.",
    "No focal finding.",
    "Unremarkable fibroglandular tissue.",
    "No solid or cystic lesion.",
)


def descriptors(signs: Signs | None) -> dict[str, str]:
    """Return the descriptor of each kind of ``WORDING`` that fits the true signs; empty without a lesion."""
    if signs is None:
        return {}
    irregular = signs.irregularity >= _IRREGULAR or signs.spiculation >= _SPICULATED
    rounded = _ROUND[0] <= signs.orientation <= _ROUND[1]
    edge = "indistinct" if signs.margin >= _INDISTINCT_MM else "circumscribed"
    echo = "anechoic" if signs.echo <= _ANECHOIC_DB else "isoechoic" if signs.echo >= _ISOECHOIC_DB else "hypoechoic"
    behind = "enhancement" if signs.posterior <= _ENHANCING else "none"
    return {
        "shape": "irregular" if irregular else "round" if rounded else "oval",
        "orientation": "not parallel" if signs.orientation >= 1 else "parallel",
        "margin": "spiculated" if signs.spiculation >= _SPICULATED else edge,
        "echo pattern": "heterogeneous" if signs.heterogeneity >= _HETEROGENEOUS_DB else echo,
        "posterior features": "shadowing" if signs.posterior >= _SHADOWING else behind,
    }


def sentence(found: Mapping[str, str], rng: np.random.Generator) -> str:
    """Write the sentence of one image.

    Args:
        found: Result of ``descriptors``.
        rng: Draws the wording of each descriptor, their order and the opening.
    """
    if not found:
        return str(rng.choice(_NO_LESION))
    parts = [str(rng.choice(WORDING[kind][value])) for kind, value in found.items()]
    order = rng.permutation(len(parts))
    return f"{rng.choice(_OPENINGS)} {', '.join(parts[at] for at in order)}."
