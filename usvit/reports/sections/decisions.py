"""Decisions: the most probable class, thresholds, and predictive values at a stated prevalence."""

from collections.abc import Iterator, Sequence

import usvit.documents as doc
from usvit.records import AtPrevalence, MeanSd, MetricsRecord, OperatingPointRecord, OutcomeRecord, ProcedureRecord
from usvit.reports.formatting import NOT_RECORDED, decimals, of_units, rule_words, sources_words, spread
from usvit.reports.remarks import class_remarks, point_remarks
from usvit.wording import capitalized, listed


def classes_section(metrics: MetricsRecord, tested_set: str) -> doc.DocumentSection:
    """Build the section of the decisions by the most probable class."""
    order = ", ".join(metrics.classes)
    said = (
        f"Each {metrics.row} is assigned to its most probable class (for equal probabilities, the first in the order "
        f"{order}). No threshold was tuned here; thresholds are shown under ",
        *(doc.link("operating points", "#points"), "."),
    )
    blocks: list[doc.Block] = [doc.Paragraph(said), _confusion(metrics)]
    rest: list[doc.Block] = [_each_class(metrics, tested_set)]
    if remarks := class_remarks(metrics):
        rest.append(doc.Listing(remarks, small=True))
    return doc.DocumentSection(
        of_units("Classes and errors", metrics),
        [*blocks, doc.DocumentSection("Each class against the rest", rest)],
        "classes",
        detail=True,
    )


def _confusion(metrics: MetricsRecord) -> doc.Table:
    labels = metrics.confusion.labels
    rows: list[tuple[doc.Cell, ...]] = []
    for name, counts in zip(labels, metrics.confusion.counts, strict=True):
        all_ = sum(counts)
        cells = []
        for decision, n in zip(labels, counts, strict=True):
            shown: doc.Words = doc.strong(f"{n:,}") if decision == name else n
            share = doc.muted(f"{100 * n / all_:.1f} %" if all_ else "–")
            cells.append(doc.Shaded((shown, " ", share), n / all_ if all_ else 0.0))
        rows.append((name, *cells, all_))
    pooled = ", all folds pooled" if len(metrics.folds) > 1 else ""
    return doc.Table(
        "Confusion matrix",
        ["Reference", *doc.numbers(*(f"Decision: {name}" for name in labels), "All")],
        rows,
        f"Confusion matrix{pooled}: number of {metrics.row}s, and share of the row. Correct decisions are bold.",
        look="confusion",
    )


def _each_class(metrics: MetricsRecord, tested_set: str) -> doc.Table:
    several = len(metrics.folds) > 1
    keys = {"sensitivity": "Sensitivity", "specificity": "Specificity", "auc": "AUC vs rest"}
    heads: list[doc.Column] = []
    for title in keys.values():
        heads += doc.numbers(title, f"{title}, mean ± SD") if several else doc.numbers(title)
    rows: list[tuple[doc.Cell, ...]] = []
    for name in metrics.classes:
        cells: list[doc.Cell] = [name, metrics.class_counts[name]]
        for key in keys:
            cells.append(metrics.pooled.figure(key, name))
            cells += [_mean_sd(metrics.mean_sd.figure(key, name))] if several else []
        rows.append(tuple(cells))
    shown = "Pooled, and mean ± SD of the folds" if several else capitalized(tested_set)
    return doc.Table(
        "Sensitivity, specificity and AUC of each class",
        ["Class", *doc.numbers(f"{capitalized(metrics.row)}s"), *heads],
        rows,
        f"{shown}. Positive class of this run: {metrics.positive_class}.",
    )


def _mean_sd(one: MeanSd) -> doc.Words:
    skipped = f" ({one.n_folds} of {one.n_folds + one.n_skipped} folds)" if one.n_skipped else ""
    return (spread(one), doc.muted(skipped)) if skipped else spread(one)


def points_section(metrics: MetricsRecord, at_prevalence: AtPrevalence | None, tested_set: str) -> doc.DocumentSection:
    """Build the section of the operating points: each fold, and all of them with the choice of the thresholds."""
    positive, several = metrics.positive_class, len(metrics.folds) > 1
    missing = _without_threshold(metrics)
    said = (
        f"Decisions for {positive} against the rest at a threshold of its probability. No threshold was chosen on the "
        f"{metrics.row}s that it is applied to"
    )
    if metrics.external:
        frozen = next(one for one in metrics.operating_points if one.rule.startswith("frozen"))
        said += (
            ". An external test does not choose thresholds; 'usvit recalibrate' chooses them on other patients. The "
            f"frozen thresholds apply to the calibrated probability; they are from {frozen.source}."
        )
    elif missing:
        said += ", so that with a single set of images only a threshold that was fixed beforehand is left."
    else:
        source = metrics.operating_points[0].source if metrics.operating_points else ""
        said += f": the thresholds come from {sources_words(source, metrics)}."
    if several:
        said += " Each fold is shown because a mean hides how the folds differ."
    blocks: list[doc.Block] = [doc.Paragraph(said), _points_table(metrics, tested_set)]
    if remarks := point_remarks(metrics):
        blocks.append(doc.Listing(remarks, small=True))
    blocks += [
        doc.Paragraph(f"No threshold for {rule_words(listed(rules))}: {reason}.", small=True)
        for reason, rules in missing.items()
    ]
    if at_prevalence is not None:
        blocks.append(_prevalence(metrics, at_prevalence))
    return doc.DocumentSection(of_units("Operating points", metrics), blocks, "points")


def _without_threshold(metrics: MetricsRecord) -> dict[str, list[str]]:
    """Return reason -> rules for which there is no threshold, if a single set of images was tested."""
    found: dict[str, list[str]] = {}
    if len(metrics.folds) > 1 or metrics.external:  # an external test chooses none
        return found
    for point in metrics.operating_points:
        if point.pooled is None:
            found.setdefault(point.reason or NOT_RECORDED, []).append(point.rule)
    return found


def _points_table(metrics: MetricsRecord, tested_set: str) -> doc.Table:
    several = len(metrics.folds) > 1
    shown = [
        point
        for point in metrics.operating_points
        if several or point.pooled is not None or point.rule.startswith("frozen")
    ]
    included = (
        f"The intervals of the procedure include the choice of the thresholds: other {metrics.row}s would give other "
        "thresholds. The intervals “given these thresholds” do not include it."
        if any(point.procedure for point in shown)
        else "The intervals take the thresholds as given."
    )
    return doc.Table(
        "Operating points",
        [
            doc.Column("Fold" if several else f"{capitalized(metrics.row)}s"),
            *doc.numbers("Threshold", "Sensitivity", "Specificity"),
            *doc.numbers("PPV", "NPV", detail=several),
            doc.Column("Target"),
        ],
        [row for point in shown for row in _point_rows(point, "pooled" if several else tested_set, several)],
        f"Sensitivity and specificity on test {metrics.row}s. {included}",
    )


def _point_rows(point: OperatingPointRecord, tested: str, several: bool) -> Iterator[doc.TableRow]:
    missed = f" (target missed in {point.n_below_target} of {len(point.folds)})" if point.n_below_target else ""
    yield doc.TableRow(((capitalized(rule_words(point.rule)), doc.muted(missed)),), "group")
    threshold = "" if several else decimals(point.folds[0].threshold)
    reached = "" if several else _target(point.folds[0].target_reached)
    for one in point.folds if several else ():
        if one.on_test is None:
            yield doc.TableRow((str(one.fold), one.reason))
        else:
            cells = (str(one.fold), decimals(one.threshold), *_four(one.on_test), _target(one.target_reached))
            yield doc.TableRow(cells)
    if point.procedure:
        yield doc.TableRow((f"{tested}, procedure", threshold, *_four(point.procedure), ""), "total")
    name = f"{tested}, given these thresholds" if point.procedure else tested
    if point.pooled:
        yield doc.TableRow((name, threshold, *_four(point.pooled), reached), "total")
    else:
        yield doc.TableRow((name, point.reason), "total")


def _target(reached: bool | None) -> str:
    return "" if reached is None else "reached" if reached else "missed"


def _four(outcome: OutcomeRecord | ProcedureRecord) -> Sequence[doc.Cell]:
    return outcome.sensitivity, outcome.specificity, outcome.ppv, outcome.npv


def _prevalence(metrics: MetricsRecord, found: AtPrevalence) -> doc.DocumentSection:
    said = (
        f"The PPV and NPV above hold for the test {metrics.row}s' own share of {metrics.positive_class}, "
        f"{decimals(found.of_test_images)}. The values below hold at the stated prevalence, provided that sensitivity "
        "and specificity are the same there."
    )
    table = doc.Table(
        "Predictive values at a stated prevalence",
        ["Decision", *doc.numbers("PPV", "NPV")],
        [  # four decimals, because a predictive value may be very near 0 or 1
            (capitalized(rule_words(one.rule)), doc.Quantity(one.ppv, 4), doc.Quantity(one.npv, 4))
            for one in found.rules
        ],
        "PPV and NPV by Bayes' rule from sensitivity and specificity. Intervals take the thresholds as given.",
    )
    title = f"Predictive values at a prevalence of {found.prevalence:g}"
    return doc.DocumentSection(title, [doc.Paragraph(said), table])
