"""What the model attains if it does not decide every image."""

from collections.abc import Iterable, Mapping

import usvit.documents as doc
from usvit.records import ConformalRecord, MetricsRecord, RuleOutPoint
from usvit.reports.formatting import of_units, sources_words


def abstention_section(metrics: MetricsRecord, plots: Mapping[str, doc.Plot], tested: str) -> doc.DocumentSection:
    """Build the section of deferral, rule-out and prediction sets."""
    selective, positive = metrics.selective, metrics.positive_class
    said = f"What the model attains if it does not decide every {metrics.row}."
    if not selective.reason:
        source = sources_words(selective.source, metrics)
        said += f" No cut and no set was chosen on the {metrics.row}s that it is applied to: they come from {source}."
    area = ("Area under the risk-coverage curve (AURC): ", selective.risk_coverage.area, ". 0 is perfect.")
    blocks: list[doc.Block] = [doc.Paragraph(said), doc.Paragraph(area)]
    captions = {
        "risk_coverage": (
            f"Risk and coverage, {tested}.",
            " The images are accepted in the order of the probability of the decided class. A curve that does not fall "
            "to the left means that confidence does not tell right decisions from wrong ones.",
        ),
        "rule_out": (
            f"Rule-out of {positive}, {tested}.",
            " Patients whose images are all below a cut are not read. The bars are 95 % intervals, given the cuts.",
        ),
    }
    figures = [
        doc.Figure(plots[name], (doc.strong(title), more)) for name, (title, more) in captions.items() if name in plots
    ]
    blocks += [doc.Gallery(figures)] if figures else []
    if selective.reason:
        blocks.append(doc.Paragraph(f"No deferral and no rule-out: {selective.reason}."))
    else:
        blocks += [_deferral(metrics), _rule_out(metrics)]
    if metrics.conformal:
        blocks.append(_prediction_sets(metrics))
    return doc.DocumentSection(of_units("Abstention and guarantees", metrics), blocks, "abstention", "Abstention")


def _deferral(metrics: MetricsRecord) -> doc.Table:
    return doc.Table(
        "Deferral",
        [
            "Asked for",
            *doc.numbers("Deferred", "Error of the rest", "Sensitivity", "Specificity"),
            *doc.numbers(f"Of {metrics.positive_class}, deferred"),
        ],
        [
            (f"{one.target:.2f}", one.deferred, one.error, one.sensitivity, one.specificity, one.positives_deferred)
            for one in metrics.selective.deferral
        ],
        "Deferral: the images with the lowest confidence go to a reader. What remains are decisions by the most "
        "probable class on all other images. Intervals take the cuts as given.",
        detail=True,
    )


def _rule_out(metrics: MetricsRecord) -> doc.Table:
    positive = metrics.positive_class
    return doc.Table(
        "Rule-out",
        [
            "Asked for",
            *doc.numbers("Not read", "Sensitivity lost", "False-omission rate", "Missed", "Spared per missed"),
        ],
        [
            (
                *(f"{one.target:.2f}", one.not_read, one.sensitivity_lost, one.false_omission),
                *(one.n_missed, _price(one)),
            )
            for one in metrics.selective.rule_out
        ],
        "Rule-out: patients whose images are all below the cut are not read. A group without a patient id counts as a "
        f"patient. The last column is the price: readings saved, of patients without {positive}, for each patient with "
        f"{positive} that nobody reads.",
        detail=True,
    )


def _price(one: RuleOutPoint) -> str:
    if one.spared_per_missed is None:
        return f"none missed, {one.n_spared:,} spared"
    return f"{one.spared_per_missed:.1f}"


def _prediction_sets(metrics: MetricsRecord) -> doc.DocumentSection:
    if not any(one.sets for one in metrics.conformal):
        return doc.DocumentSection("Prediction sets", [doc.Paragraph(f"None: {metrics.conformal[0].reason}.")])
    positive, row = metrics.positive_class, metrics.row
    said = (
        f"For each {row}, the set contains “{positive}”, “not {positive}”, both or neither. The bounds are such that "
        f"of new patients like these, at most the share α of those with {positive}, and at most α of those without, "
        "get a set that leaves the right answer out: with the guarantee ",
        *(doc.strong("every image"), ", on any image of the patient; with ", doc.strong("one image")),
        ", on one image that is drawn at random. Both in the set means that the model is undecided. The guarantee "
        "needs patients who are exchangeable with those of the calibration; inner validation images have also stopped "
        "the training, so that here the share that was covered is what counts.",
    )
    caption = (
        f"Conformal prediction sets of the test {row}s. Covered: share of patients for whom the guarantee held; it "
        f"should be at least 1 − α. The other columns count {row}s."
    )
    return doc.DocumentSection("Prediction sets", [doc.Paragraph(said), sets_table(metrics.conformal, caption)])


def sets_table(entries: Iterable[ConformalRecord], caption: str) -> doc.Table:
    """Build the table of some prediction sets."""
    rows = []
    for entry in entries:
        at_least = doc.muted(f" (at least {1 - entry.alpha:g} covered)")
        rows.append(doc.TableRow(((f"α = {entry.alpha:g}, {entry.guarantee}", at_least),), "group"))
        if entry.reason:
            rows.append(doc.TableRow((entry.reason,)))
        for one in entry.sets:
            size = "" if one.mean_size is None else f"{one.mean_size:.2f}"
            shares: tuple[doc.Cell, ...] = (one.one_class, one.both_classes, one.no_class, one.one_class_right)
            kind = "total" if one.reference == "all" else "row"
            rows.append(doc.TableRow((one.reference, one.coverage, size, *shares), kind))  # type: ignore[arg-type]
    heads = (
        *doc.numbers("Covered", "Mean size", "One class"),
        *doc.numbers("Both", "None", "Right, if one", detail=True),
    )
    return doc.Table("Prediction sets", ["Images of", *heads], rows, caption)
