"""The acceptance test: local cases with labels, against minima that were declared beforehand."""

from pathlib import Path

from usvit.config.evaluation import ExternalTestSettings, LabelSettings
from usvit.config.fields import part
from usvit.config.watching import WatchSettings
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.records import AcceptanceFigure, AcceptanceRecord, MetricsRecord
from usvit.scoring import LabelTable, evaluate_scores


def accept(folder: Path | None, settings: WatchSettings) -> AcceptanceRecord | None:
    """Compare the lower 95 % limits of an external test (``usvit evaluate SCORES --labels``) with the minima.

    Returns:
        None without labels.

    Raises:
        UsvitError: labels without a minimum, a minimum without labels, no folder; or see ``evaluate_scores``.
    """
    names = ("sensitivity", "specificity", "AUC")
    minima = {name: minimum for name in names if (minimum := getattr(settings, f"min_{name.lower()}")) is not None}
    if settings.labels is None:
        if minima or settings.labelled is not None:
            raise UsvitError("An acceptance test needs the labels of local cases: pass --labels FILE.")
        return None
    if not minima:
        raise UsvitError(
            "--labels needs a minimum that is declared beforehand: pass --min-sensitivity, --min-specificity or "
            "--min-auc."
        )
    if folder is None:
        raise UsvitError("--labels needs the scores of these cases: pass --labelled SCORES, because there are several.")
    table = LabelTable(settings.labels, **dict(part(settings, LabelSettings)))
    metrics, _ = evaluate_scores(folder, table, settings=ExternalTestSettings())
    found = {"AUC": metrics.headline.auc, **_at_threshold(metrics)}
    figures = [
        AcceptanceFigure(name=name, minimum=minimum, value=found[name], met=_reaches(found[name], minimum))
        for name, minimum in minima.items()
    ]
    external = metrics.external
    assert external is not None
    return AcceptanceRecord(
        accepted=all(one.met for one in figures),
        model_sha256=external.model_sha256,
        n_images=metrics.n_images,
        n_groups=metrics.n_groups,
        figures=figures,
    )


def _at_threshold(metrics: MetricsRecord) -> dict[str, Estimate]:
    """Return sensitivity and specificity at the threshold in use, which is the first operating point."""
    point = metrics.operating_points[0]
    if point.pooled is None:
        none = Estimate(value=None, ci95=None, reason=point.reason or "there is no threshold")
        return {"sensitivity": none, "specificity": none}
    return {"sensitivity": point.pooled.sensitivity, "specificity": point.pooled.specificity}


def _reaches(value: Estimate, minimum: float) -> bool:
    return value.ci95 is not None and value.ci95[0] >= minimum
