"""Numbers and lists as text for reports."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from usvit.data.splits import contamination_warning
from usvit.documents import NOT_RECORDED
from usvit.estimate import Estimate
from usvit.estimate_text import WORDS, clear_of, estimate_text, fixed
from usvit.records import CompareRecord, ContaminationRecord, DecisionCurve, MeanSd, MetricsRecord
from usvit.records.units import RowsOfUnit
from usvit.wording import plural


def contaminated_sentence(found: Iterable[ContaminationRecord] | None) -> str | None:
    """Return the warning about tested data sets that were used in pre-training; None if there are none."""
    return contamination_warning(found or ())


def decimals(value: Any, digits: int = 3) -> str:
    """``0.8667`` -> ``0.867``; accepts a number or a value with its interval."""
    number = value.value if isinstance(value, Estimate) else value
    return absent(number) or f"{number:.{digits}f}"


def estimate(value: Estimate, digits: int = 3) -> str:
    """``0.867 (95 % interval 0.812 to 0.901)``, ``undefined: no image of class 'x'``."""
    undefined = f"undefined: {value.reason or 'no reason recorded'}"
    return estimate_text(value, replace(WORDS, number=fixed(digits), before=" (95 % interval ", undefined=undefined))


def rows_words(metrics: MetricsRecord | CompareRecord) -> str:
    """``778 images``, ``96 patients (210 images)``."""
    rows = plural(metrics.n_images, metrics.row)
    return rows if metrics.unit is None else f"{rows} ({plural(metrics.unit.n_images, 'image')})"


def of_units(title: str, metrics: RowsOfUnit) -> str:
    """``AUC``, ``AUC of patients``."""
    return title if metrics.unit is None else f"{title} of {metrics.row}s"


def sources_words(source: str, metrics: MetricsRecord) -> str:
    """Return where thresholds or cuts come from, for one set of images without its fold, and with the unit."""
    words = source if len(metrics.folds) > 1 else source.replace(" of the same fold", "")
    return words.replace("images", f"{metrics.row}s")


_LABELS = {
    "any": "is the first of {order} that one of its images has",
    "lesion": "is that on which the images of each lesion agree, of several the first of {order}",
    "refuse": "is that on which all its images agree",
}


def _pooling_words(pooling: str) -> str:
    how = {"mean": "the mean", "max": "the maximum", "noisy-or": "the noisy-or", "attention": "the mean by attention"}
    return how.get(pooling) or f"the mean of the {pooling.removeprefix('top-')} highest"


def unit_sentence(metrics: RowsOfUnit, poolings: Mapping[str, str] | None = None) -> str:
    """Say what a row is, how its images became one probability and one label, and what was left out.

    Args:
        metrics: a record whose rows may be units.
        poolings: run -> pooling, if several runs pool differently.
    """
    unit = metrics.unit
    if unit is None:
        return ""
    size = unit.images_per_unit
    pooled = _pooling_words(unit.pooling)
    if poolings:
        pooled = "; ".join(f"{name}: {_pooling_words(pooling)}" for name, pooling in poolings.items())
        pooled = f"each run's own pooling ({pooled})"
    label = _LABELS[unit.labels].format(order=", ".join(unit.label_order))
    said = (
        f" One row is one {unit.unit}, with {size.least} to {size.most} images (median {size.median:g}). Its "
        f"probability is {pooled} of those of its images, its label {label} (several labels: "
        f"{plural(unit.n_mixed, unit.unit)}). Thresholds and calibration are those of {unit.unit}s, chosen on "
        f"{unit.unit}s."
    )
    return said + (f" Left out: {unit.reason}." if unit.reason else "")


def short(value: Estimate | None) -> str:
    """``0.867 (0.812 to 0.901)``, ``undefined``."""
    return "undefined" if value is None else estimate_text(value, WORDS)


def spread(one: MeanSd) -> str:
    """``0.867 ± 0.021``, a mean and SD over folds."""
    if one.mean is None:
        return "undefined"
    return decimals(one.mean) + ("" if one.sd is None else f" ± {decimals(one.sd)}")


LEVELS = (0.025, 0.05)
"""Levels that a p-value is compared with: one-sided and two-sided."""


def p_words(p: float | None) -> str:
    """``0.032``, ``< 0.001``; a dash for None. Digits are added until p lies on its side of the usual levels."""
    return "–" if p is None else "< 0.001" if p < 0.001 else clear_of(p, *LEVELS)


def rule_words(rule: str) -> str:
    """``sensitivity >= 0.95`` -> ``sensitivity ≥ 0.95``."""
    return rule.replace(">=", "≥")


def count(value: Any) -> str:
    """``88224232`` -> ``88,224,232``."""
    return absent(value) or f"{value:,}"


def duration(seconds: Any) -> str:
    """Format seconds in two units: ``1 h 05 min``, ``3 min 20 s``, ``8.4 s``."""
    if missing := absent(seconds):
        return missing
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def absent(value: Any) -> str:
    """Return ``NOT_RECORDED`` for an absent value, otherwise an empty string."""
    return NOT_RECORDED if value is None else ""


def usefulness(curve: DecisionCurve) -> str:
    """Describe the thresholds at which the model is better than both defaults, according to the simultaneous band."""
    if curve.band is None:
        return f"no band and therefore no statement: {curve.band_reason}"
    estimated, sure = _ranges(curve.estimated_useful), _ranges(curve.useful)
    if not estimated:
        return "nowhere above both defaults"
    if not sure:
        return f"not shown to be better than both defaults; the estimate alone lies above them at {estimated}"
    return f"better than both defaults at {sure} (the estimate alone lies above them at {estimated})"


def _ranges(runs: Iterable[Sequence[float]]) -> str:
    return ", ".join(f"{a:.2f}" if a == b else f"{a:.2f} to {b:.2f}" for a, b in runs)
