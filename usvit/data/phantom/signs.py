"""Signs of benign and malignant lesions, drawn from overlapping distributions.

The list of signs and their direction are those of Stavros et al. (1995), Radiology 196:123
(spiculation, angular margins, taller than wide, shadowing, marked hypoechogenicity, echogenic
halo speak for malignancy) and of the ultrasound section of the BI-RADS Atlas (ACR, 5th ed.,
2013: shape, orientation, margin, echo pattern, posterior features). The numbers are our choice:
no sign alone decides, and all signs together reach an AUC near 0.97.
"""

import dataclasses
import math

import numpy as np


@dataclasses.dataclass(frozen=True)
class _SignLaw:
    """Distribution of one sign: normal in each class with the same spread, then clipped.

    Args:
        benign: Mean in benign lesions; mean of the logarithm if ``log`` is set.
        spread: standard deviation in either class.
        shift: malignant mean minus benign mean, in units of ``spread`` (the d' of the sign).
        low: Smallest value, in the unit of the sign.
        high: Largest value, in the unit of the sign.
        log: Whether the logarithm is normally distributed instead of the value.
    """

    benign: float
    spread: float
    shift: float
    low: float
    high: float
    log: bool = False

    def draw(self, rng: np.random.Generator, malignant: bool) -> float:
        value = self.benign + self.spread * (rng.standard_normal() + (self.shift if malignant else 0.0))
        return float(np.clip(math.exp(value) if self.log else value, self.low, self.high))


SIGN_LAWS = {
    # height over width; below 1 is parallel to the skin
    "orientation": _SignLaw(benign=math.log(0.68), spread=0.26, shift=1.4, low=0.45, high=1.6, log=True),
    # root mean square of the slow bumps of the outline, relative to the radius
    "irregularity": _SignLaw(benign=math.log(0.045), spread=0.7, shift=1.1, low=0.01, high=0.22, log=True),
    # length of spicules and angles, relative to the radius; below 0.1 hardly visible
    "spiculation": _SignLaw(benign=math.log(0.05), spread=0.95, shift=1.2, low=0.0, high=0.42, log=True),
    # width of the transition to the surrounding tissue in mm; above 1 is indistinct
    "margin": _SignLaw(benign=math.log(0.3), spread=0.8, shift=0.9, low=0.08, high=2.5, log=True),
    # attenuation over that of fibroglandular tissue in dB/cm/MHz; negative enhances, positive shadows
    "posterior": _SignLaw(benign=-0.27, spread=0.45, shift=1.7, low=-0.65, high=1.3),
    # mean echo level against fibroglandular tissue in dB
    "echo": _SignLaw(benign=-17.0, spread=3.5, shift=-0.4, low=-28.0, high=-9.0),
    # standard deviation of the echo level inside in dB
    "heterogeneity": _SignLaw(benign=math.log(1.5), spread=0.5, shift=0.4, low=0.3, high=6.0, log=True),
    # echo level of the rim outside the margin over its surroundings in dB
    "halo": _SignLaw(benign=1.0, spread=2.5, shift=0.5, low=0.0, high=9.0),
}


@dataclasses.dataclass(frozen=True)
class Signs:
    """The drawn signs of one lesion; SIGN_LAWS documents the units."""

    orientation: float
    irregularity: float
    spiculation: float
    margin: float
    posterior: float
    echo: float
    heterogeneity: float
    halo: float


def sample_signs(rng: np.random.Generator, malignant: bool) -> Signs:
    """Draw the signs of one lesion, independently of each other given the class.

    Args:
        rng: Random generator; the number of draws is the same for both classes.
        malignant: Class whose distributions are used.
    """
    return Signs(**{name: law.draw(rng, malignant) for name, law in SIGN_LAWS.items()})
