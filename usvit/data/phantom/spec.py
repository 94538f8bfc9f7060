"""Specification of a phantom data set, validated on construction."""

from typing import Any, get_args

from pydantic import model_validator

from usvit.config.data_commands import Ablation, PhantomSettings
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


class PhantomSpec(PhantomSettings):
    """Complete specification of a phantom data set: the same specification gives the same bytes.

    Its fields are those of ``usvit.config.data_commands.PhantomSettings``. ``n`` is at least 3; patients have 1-3
    images each, 2 on average. ``seed`` is at least 0; another seed gives other patients. ``size`` is 64-1024 pixels.
    ``near_duplicates``, ``text`` and ``calipers`` are fractions in [0, 1]; only second and third views of a patient
    (about half of all images) can be near-duplicates, which limits larger fractions. With ``ablate="signs"``, all
    lesions draw their signs from one mixture of both classes, so that benign against malignant is at chance; with
    ``"lesion"``, images show no lesion but keep their labels, so that every class is at chance. ``views`` is up to 20,
    ``lesions`` and ``exams`` up to 4: numbers of views are spread evenly from 1 to ``views`` and do not depend on the
    class, and a patient with a malignant lesion may also have benign ones, whose images have their label.

    Raises:
        UsvitError: A value is outside its range; the text names both.

    Example:
        >>> PhantomSpec(n=12, text=0.25).key
        'n12-seed0-size256-v1-text0.25'
    """

    @model_validator(mode="before")
    @classmethod
    def _in_range(cls, given: dict[str, Any]) -> dict[str, Any]:
        values = {name: field.default for name, field in cls.model_fields.items()} | given
        _check_integer("n", values["n"], _MIN_IMAGES, None, "images (one patient of each class)")
        _check_integer("seed", values["seed"], 0, None, "")
        _check_integer("size", values["size"], MIN_SIZE, MAX_SIZE, "px")
        for name in ("near_duplicates", "text", "calipers"):
            _check_fraction(name, values[name])
        _check_integer("views", values["views"], 0, MAX_VIEWS, "views of a patient")
        for name in ("lesions", "exams"):
            _check_integer(name, values[name], 1, MAX_UNITS, "of a patient")
        _check_integer("sign_views", values["sign_views"], 0, MAX_VIEWS, "views of a lesion")
        if not values["views"] and (values["lesions"], values["exams"], values["sign_views"]) != (1, 1, 0):
            raise UsvitError("The phantom's lesions, exams and sign_views need views, such as views=4.")
        if values["ablate"] not in get_args(Ablation):
            known = ", ".join(get_args(Ablation))
            raise UsvitError(f"The phantom's ablate is {values['ablate']!r}; it must be one of {known}.")
        # Equal settings give the same spec, however they are written.
        normal = ",".join(f"{name}={value:g}" for name, value in parse_scanner(values["scanner"]).items())
        return values | {"scanner": normal}

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
