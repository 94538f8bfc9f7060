"""Specification of a phantom data set, validated on construction."""

import dataclasses
from typing import Literal, get_args

from usvit.data.phantom.device import parse_scanner
from usvit.errors import UsvitError

# Part of every cache key. Increase it with any change that alters a pixel or a row of the table.
GENERATOR_VERSION = "1"

# Share of patients of each class: close to BUSI's 56/27/17 % of images (Al-Dhabyani et al. 2020), but with enough
# patients of each class for five folds at n = 240.
CLASS_SHARE = {"benign": 0.45, "malignant": 0.35, "normal": 0.20}

_MIN_IMAGES = 3  # one patient of each class
MIN_SIZE, MAX_SIZE = 64, 1024  # px; smaller images lose speckle and margins, larger ones take too much memory
MAX_VIEWS, MAX_UNITS = 20, 4  # of one patient

_Ablation = Literal["none", "signs", "lesion"]


@dataclasses.dataclass(frozen=True)
class PhantomSpec:
    """Complete specification of a phantom data set: the same specification gives the same bytes.

    Args:
        n: Number of images, at least 3; patients have 1-3 images each, 2 on average.
        seed: Any integer >= 0; another seed gives other patients.
        size: Height and width of the images in pixels, 64-1024.
        near_duplicates: Fraction in [0, 1] of images that are near-duplicates of another image of the same patient.
            Only second and third views of a patient (about half of all images) can be near-duplicates, which limits
            larger fractions.
        text: Fraction in [0, 1] of images with burned-in text.
        calipers: Fraction in [0, 1] of images with burned-in calipers.
        ablate: Information on the class to remove. "none": nothing. "signs": all lesions draw their signs from one
            mixture of both classes, so that benign against malignant is at chance. "lesion": images show no lesion but
            keep their labels, so that every class is at chance.
        views: Largest number of views of a patient, 1-20, whose numbers are then spread evenly from 1 to it and do not
            depend on the class. The views show lesions, both breasts and several exams, whose ids are in the table. 0:
            patients have 1-3 views of one lesion, without such ids.
        lesions: Largest number of lesions of a patient, 1-4; needs ``views``. A patient with a malignant lesion may
            also have benign ones, and each image has the label of its lesion.
        exams: Largest number of exams of a patient, 1-4; needs ``views``.
        sign_views: Number of views of each malignant lesion that show its signs, drawn at random; in the others, the
            lesion looks benign. 0: all views; otherwise needs ``views``.
        scanner: Settings of the scanner that all patients share, such as ``frequency_mhz=7,gain_db=6``; the others, and
            by default all of them, are drawn for each patient.

    Raises:
        UsvitError: A value is outside its range; the text names both.
    """

    n: int = 240
    seed: int = 0
    size: int = 256
    near_duplicates: float = 0.0
    text: float = 0.0
    calipers: float = 0.0
    ablate: _Ablation = "none"
    scanner: str = ""
    views: int = 0
    lesions: int = 1
    exams: int = 1
    sign_views: int = 0

    def __post_init__(self) -> None:
        _check_integer("n", self.n, _MIN_IMAGES, None, "images (one patient of each class)")
        _check_integer("seed", self.seed, 0, None, "")
        _check_integer("size", self.size, MIN_SIZE, MAX_SIZE, "px")
        for name in ("near_duplicates", "text", "calipers"):
            _check_fraction(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))  # 1 and 1.0 give the same spec
        _check_integer("views", self.views, 0, MAX_VIEWS, "views of a patient")
        for name in ("lesions", "exams"):
            _check_integer(name, getattr(self, name), 1, MAX_UNITS, "of a patient")
        _check_integer("sign_views", self.sign_views, 0, MAX_VIEWS, "views of a lesion")
        if not self.views and (self.lesions, self.exams, self.sign_views) != (1, 1, 0):
            raise UsvitError("The phantom's lesions, exams and sign_views need views, such as views=4.")
        if self.ablate not in get_args(_Ablation):
            known = ", ".join(get_args(_Ablation))
            raise UsvitError(f"The phantom's ablate is {self.ablate!r}; it must be one of {known}.")
        # Equal settings give the same spec, however they are written.
        normal = ",".join(f"{name}={value:g}" for name, value in parse_scanner(self.scanner).items())
        object.__setattr__(self, "scanner", normal)

    @property
    def key(self) -> str:
        """Short name for the folder of the data set, such as ``n240-seed0-size256-v1-text0.25``.

        Two specs have the same key only if they give the same bytes.
        """
        parts = [f"n{self.n}", f"seed{self.seed}", f"size{self.size}", f"v{GENERATOR_VERSION}"]
        for short, fraction in (("dup", self.near_duplicates), ("text", self.text), ("cal", self.calipers)):
            if fraction > 0:
                parts.append(f"{short}{fraction!r}")
        if self.ablate != "none":
            parts.append(f"no-{self.ablate}")
        if self.views:
            parts.append(f"views{self.views}-{self.lesions}-{self.exams}-{self.sign_views}")
        if self.scanner:
            parts.append(self.scanner.replace("=", "").replace(",", "-"))
        return "-".join(parts)


def _check_integer(name: str, value: object, low: int, high: int | None, unit: str) -> None:
    inside = isinstance(value, int) and not isinstance(value, bool) and low <= value and (high is None or value <= high)
    if not inside:
        span = f"at least {low}" if high is None else f"between {low} and {high}"
        raise UsvitError(f"The phantom's {name} is {value!r}; it must be a whole number, {span} {unit}".rstrip() + ".")


def _check_fraction(name: str, value: object) -> None:
    inside = isinstance(value, int | float) and not isinstance(value, bool) and 0.0 <= value <= 1.0
    if not inside:  # a NaN also fails the comparison
        raise UsvitError(f"The phantom's {name} is {value!r}; it must be a fraction of the images, between 0 and 1.")
