"""Curves, calibration and the use of the probabilities."""

from collections.abc import Mapping

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.records import ClassCalibration, MetricsRecord
from usvit.records.metrics_calibration import RecalibratedRecord, Recalibration
from usvit.reports.formatting import decimals, of_units, usefulness


def curves_section(metrics: MetricsRecord, plots: Mapping[str, doc.Plot], tested: str) -> doc.DocumentSection:
    """Build the section of the curves and of calibration in numbers."""
    blocks: list[doc.Block] = [doc.Gallery(_figures(metrics, plots, tested))] if plots else []
    own = metrics.calibration.pooled.classes[metrics.positive_class]
    facts = [*calibration_facts(own), ("Decision curve", usefulness(metrics.decision_curve))]
    top = metrics.calibration.pooled.top_label.ece
    facts.append(("Over all classes", ("Brier score ", _value(metrics.calibration.pooled.brier))))
    facts.append(("Probability of the decided class", ("calibration error ", _value(top))))
    numbers_ = doc.DocumentSection("Calibration in numbers", [doc.Facts(facts), *_recalibration(metrics)])
    return doc.DocumentSection(of_units("Curves and calibration", metrics), [*blocks, numbers_], "curves", "Curves")


def _figures(metrics: MetricsRecord, plots: Mapping[str, doc.Plot], tested: str) -> list[doc.Figure]:
    positive, several = metrics.positive_class, len(metrics.folds) > 1
    folds = " The thin lines show how much the folds differ." if several else ""
    captions = {
        "roc": (f"ROC: {positive} against the rest, {tested}.", f" Dotted diagonal: chance.{folds}"),
        "roc_classes": (
            f"ROC: each class against the rest, {tested}.",
            " Dotted diagonal: chance. The 95 % interval is in parentheses.",
        ),
        "precision_recall": (
            f"Precision and recall: {positive}, {tested}.",
            " Precision depends on the share of the class; here it is the share in the data sets.",
        ),
        "calibration": (
            f"Calibration: {positive}, {tested}.",
            " Points below the diagonal mean that probabilities are too high.",
        ),
        "decision": (
            f"Decision curve: {positive}, {tested}.",
            f" Net benefit in true positives per {metrics.row}, at a prevalence of "
            f"{decimals(metrics.decision_curve.prevalence)}; {usefulness(metrics.decision_curve)}. The curve is "
            "meaningful only for calibrated probabilities and at this prevalence.",
        ),
    }
    return [
        doc.Figure(plots[name], (doc.strong(title), said)) for name, (title, said) in captions.items() if name in plots
    ]


def calibration_facts(own: ClassCalibration) -> list[tuple[str, doc.Words]]:
    """Return slope, intercept, calibration error and Brier score of one class, each with what is perfect."""
    error, floor = own.reliability, own.reliability.ece_noise_floor
    chance = "" if floor is None else f"perfect calibration gives {floor:.3f} on average; "
    alone = "" if error.ece_debiased.value else "; chance alone makes it positive"
    return [
        ("Slope", (own.slope, doc.muted(" (1 is perfect; below 1 is over-confident)"))),
        ("Intercept", (own.intercept, " with that slope; ", own.in_the_large, " with slope 1", doc.muted(_PERFECT))),
        (
            "Expected calibration error",
            (
                *(error.ece_debiased, doc.muted(" after removing the part that chance adds; "), _value(error.ece)),
                doc.muted(f" plain ({chance}{error.ece.method}{alone})"),
            ),
        ),
        ("Brier score", (_value(own.brier.score), ", skill ", _value(own.brier.skill))),
    ]


_PERFECT = " (0 is perfect; above 0, the class is more frequent than predicted)"


def _value(estimate: Estimate) -> doc.Words:
    return f"undefined: {estimate.reason}" if estimate.value is None else decimals(estimate)


def _recalibration(metrics: MetricsRecord) -> list[doc.Block]:
    entries, several = metrics.calibration.recalibration, len(metrics.folds) > 1
    if not entries:
        return []
    if not any(one.after for one in entries):
        reason = f"No temperature and no Platt scaling was fitted: {entries[0].reason}."
        return [doc.Paragraph(reason, small=True)]
    rows: list[tuple[doc.Cell, ...]] = [("before scaling", *_effect(entries[0].before))]
    rows += [_scaled(one) for one in entries]
    fitted_on = f"inner validation {metrics.row}s{' of each fold' if several else ''}"
    table = doc.Table(
        "Recalibration",
        ["Probabilities", *doc.numbers("Log loss", "Brier", "ECE", "Slope", "In the large")],
        rows,
        (
            f"The effect of scaling that is fitted on the {fitted_on} and applied to {'its' if several else 'the'} "
            f"test {metrics.row}s. All other figures of this report are ",
            *(doc.strong("before"), " scaling."),
        ),
    )
    temperatures = [
        doc.Paragraph(
            f"Temperature{'s by fold' if several else ''}, from inner validation {metrics.row}s: "
            + ", ".join("none" if fold.temperature is None else f"{fold.temperature:.2f}" for fold in one.folds)
            + "; a temperature above 1 lowers the confidence.",
            small=True,
        )
        for one in entries
        if one.method == "temperature" and one.after
    ]
    return [table, *temperatures]


def _scaled(one: Recalibration) -> tuple[doc.Cell, ...]:
    name = f"after {one.method.replace('platt', 'Platt')} scaling"
    return (name, *_effect(one.after)) if one.after else (name, f"none: {one.reason}")


def _effect(one: RecalibratedRecord) -> tuple[doc.Cell, ...]:
    return one.log_loss, one.brier, one.ece, one.slope, one.in_the_large
