"""Why an interval is missing, or must be read with care: sentences below a table, for page, Markdown and terminal."""

from collections.abc import Iterable, Iterator

from usvit.estimate import Estimate
from usvit.figure_table import BY_PATIENT, COMPARED
from usvit.records import MetricsRecord
from usvit.reports.patients import patient_figures
from usvit.wording import listed

Named = Iterable[tuple[str, Estimate | None]]

HEADLINE = {row.key: row.in_sentence for row in COMPARED}


def remarks(values: Named, *, warnings: bool = True) -> list[str]:
    """Return one sentence for each reason or warning, with the names of the figures that have it.

    Args:
        values: each figure with its name; None is skipped.
        warnings: whether to return warnings (such as few groups), or only missing and unusual intervals.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for name, value in values:
        if value is None:
            continue
        if value.value is None:
            found.setdefault(("Undefined: ", value.reason or "no reason is recorded"), []).append(name)
        elif value.ci95 is None and value.reason:
            found.setdefault(("No interval for ", value.reason), []).append(name)
        elif value.reason:
            found.setdefault(("Interval of ", value.reason), []).append(name)
        if warnings and value.value is not None and value.warning:
            found.setdefault(("Interval of ", value.warning), []).append(name)
    return [f"{start}{listed(dict.fromkeys(names))}: {why}." for (start, why), names in found.items()]


def headline_remarks(metrics: MetricsRecord, *, pooled: bool = True) -> list[str]:
    """Return the remarks on the main table; ``pooled`` adds those on its pooled figures."""
    own, positive = metrics.headline, metrics.positive_class
    values: list[tuple[str, Estimate | None]] = [(title, getattr(own, key)) for key, title in HEADLINE.items()]
    if pooled and len(metrics.folds) > 1:
        values += [(f"{title}, pooled", metrics.pooled.figure(key, positive)) for key, title in HEADLINE.items()]
    if len(metrics.classes) == 2:
        values = [one for one in values if not one[0].startswith(HEADLINE["auc_macro_ovr"])]
    return remarks(values)


def class_remarks(metrics: MetricsRecord) -> list[str]:
    """Return the remarks on the figures of each class; their numbers of groups are in the warnings of the run."""
    return remarks(
        (
            (f"{row.in_sentence}, {name}", metrics.pooled.figure(row.key, name))
            for name in metrics.classes
            for row in COMPARED
            if row.of_class
        ),
        warnings=False,
    )


def point_remarks(metrics: MetricsRecord) -> list[str]:
    """Return the remarks on the operating points: of the procedure, and given these thresholds."""

    def values() -> Iterator[tuple[str, Estimate | None]]:
        for point in metrics.operating_points:
            for outcome, kind in ((point.procedure, " (procedure)"), (point.pooled, "")):
                if outcome is None:
                    continue
                own = {"sensitivity": outcome.sensitivity, "specificity": outcome.specificity}
                own |= {"PPV": outcome.ppv, "NPV": outcome.npv}
                alike = {one and (one.value is None, one.ci95 is None, one.reason) for one in own.values()}
                if len(alike) == 1:
                    yield f"all figures at {point.rule}{kind}", outcome.sensitivity
                else:
                    yield from ((f"{name} at {point.rule}{kind}", one) for name, one in own.items())

    return remarks(values(), warnings=False)


def patient_remarks(metrics: MetricsRecord) -> list[str]:
    """Return the remarks on the figures by patient."""

    def values() -> Iterator[tuple[str, Estimate | None]]:
        for one in patient_figures(metrics):
            yield f"{HEADLINE[one.name]} by patient", one.headline
            yield f"{HEADLINE[one.name]} by patient", one.pooled

    return remarks(values())


def subgroup_remarks(metrics: MetricsRecord) -> list[str]:
    """Return the remarks on figures of subgroups."""
    positive = metrics.positive_class
    return remarks(
        (
            (f"{row.in_sentence}, {level.level}", level.figures.figure(row.key, positive))
            for division in metrics.subgroups
            for level in division.levels
            for row in BY_PATIENT
        ),
        warnings=False,
    )
