"""The document of a measurement of shift, from shift.json: for its page and for the terminal."""

import os
from pathlib import Path
from urllib.parse import quote

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.estimate_text import WORDS, HasInterval
from usvit.files import write_text
from usvit.upstream.records.shift import ShiftCell, ShiftRecord, ShiftRow, ShiftSpread
from usvit.upstream.studies.shift.plots import recalibration_plot, sides_plot
from usvit.wording import counted, listed, plural

Rows = list[doc.TableRow | tuple[doc.Cell, ...]]


def write_shift_page(folder: Path, record: ShiftRecord, runs: Path) -> Path:
    """Write ``shift.html``; the same record gives the same bytes.

    Args:
        folder: where it is written.
        record: the content of ``shift.json``.
        runs: folder of the trainings, whose reports the page names.
    """
    relative = Path(os.path.relpath(runs, folder)).as_posix()
    write_text(folder / "shift.html", doc.html_page(shift_document(record, relative)))
    return folder / "shift.html"


def shift_document(record: ShiftRecord, runs: str = "runs") -> doc.Document:
    """Build the document of a measurement.

    Args:
        record: the content of ``shift.json``.
        runs: folder of the trainings, relative to the page.
    """
    sets = listed(one.name for one in record.sets)
    training = f"{record.model}, recipe {record.recipe}" if record.recipe else record.model
    design = "a cross-validation" if record.kind == "cv" else "a hold-out"
    return doc.Document(
        title=f"Shift: leave one {_what(record)} out",
        kind=f"{sets}; {training}; {design} of the other sets for each left-out one; positive class "
        f"{record.positive_class}",
        lead=[
            doc.Note(line)
            if "phantom" in line or (number == 0 and record.contamination)
            else doc.Paragraph(line, small=True)
            for number, line in enumerate(record.says)
        ],
        sections=[
            _matrix(record),
            _sides(record),
            _deployed(record),
            _recalibration(record),
            _published(record),
            _sets(record),
            _meaning(record),
            _repeat(record, runs),
        ],
        made_from=f"shift.json (schema {record.schema_version})",
    )


def _what(record: ShiftRecord) -> str:
    return "set" if record.by is None else record.by


def _matrix(record: ShiftRecord) -> doc.DocumentSection:
    what, several = _what(record), len(record.rows)
    blocks: list[doc.Block] = [doc.Listing([_verdict(row) for row in record.rows])]
    if several > 1:
        chance = f"{100 * (1 - 0.95**several):.0f}"
        said = (
            f"Each sentence rests on its own 95 % interval. They are {several} sentences, and nothing is corrected for "
            f"that: if no AUC changed, one of them would still say so by chance in up to about {chance} % of such "
            "studies."
        )
        blocks.append(doc.Paragraph(said, small=True))
    caption = (
        f"AUC of {record.positive_class} against the rest, with 95 % intervals that count groups: patients where they "
        "are known, otherwise near-duplicates or single images. Each line is a training without one "
        f"{what}. Outside, on the diagonal: the networks have seen no image of this {what}. Inside: held-out images of "
        "sets that were in the training. A darker cell has a higher AUC."
    )
    cells = {(cell.left_out, cell.tested): cell for cell in record.matrix}
    rows: Rows = [(row.left_out, *(_area(cells[row.left_out, one.name]) for one in record.sets)) for row in record.rows]
    heads = doc.numbers(*(f"tested on {one.name}" for one in record.sets))
    blocks.append(doc.Table("AUC on each set", ["Left out of the training", *heads], rows, caption, look="confusion"))
    return doc.DocumentSection("AUC on each set", blocks, "matrix", "AUC")


def _verdict(row: ShiftRow) -> str:
    """Say in a sentence whether the AUC outside differs from that inside, beyond chance in the patients."""
    change, who = row.change.auc, f"{row.left_out} left out:"
    if change.value is None:
        return f"{who} no AUC can be compared ({change.reason})."
    if change.ci95 is None:
        return f"{who} the AUC changes by {change.value:+.3f}, without an interval."
    low, high = change.ci95
    said = "falls" if high < 0 else "rises" if low > 0 else "does not change beyond chance"
    paired = row.paired.auc
    same = "" if paired.value is None else f" On the same images: {_signed(paired).text(WORDS)}."
    return f"{who} the AUC {said}, {_signed(change).text(WORDS)} on other patients.{same}"


def _area(cell: ShiftCell) -> doc.Shaded:
    side = doc.strong("outside") if cell.external else "inside"
    area: doc.Words = cell.auc if cell.auc.value is not None else ("undefined ", doc.muted(cell.auc.reason))
    return doc.Shaded(
        (area, " ", side, f", {plural(cell.n_groups, 'group')}"), max(0.0, 2 * (cell.auc.value or 0.5) - 1)
    )


def _signed(change: HasInterval) -> doc.Quantity:
    return doc.Quantity(change, signed=True)


def _ratio(one: HasInterval) -> doc.Quantity:
    return doc.Quantity(one, 2)


def _sides(record: ShiftRecord) -> doc.DocumentSection:
    said = (
        "Single networks on both sides, so that a mean of networks is not compared with one of them. Thresholds "
        f"({record.rule}) and calibration were fixed on inner validation images of the training, and are the same on "
        "both sides."
    )
    caption = (
        "The change is outside minus inside, on different patients, so it contains the difference in difficulty of the "
        f"images. The paired change is on the same images of the left-out {_what(record)}: networks that never saw it, "
        "minus networks that were trained with it; its interval contains chance in training."
    )
    rows: Rows = []
    for row in record.rows:
        inside, outside, change = row.internal, row.external, row.change
        groups = f"{plural(outside.n_groups, 'group')} outside, {inside.n_groups:,} inside"
        paired = (_signed(row.paired.auc), " ", doc.muted(plural(row.paired.n_images, "image")))
        rows += [
            doc.TableRow((f"{row.left_out} left out: {groups}",), "group"),
            ("AUC", inside.auc, outside.auc, _signed(change.auc), paired),
            ("Sensitivity", inside.sensitivity, outside.sensitivity, _signed(change.sensitivity), ""),
            ("Specificity", inside.specificity, outside.specificity, _signed(change.specificity), ""),
            ("Calibration slope (1)", _ratio(inside.slope), _ratio(outside.slope), "", ""),
            ("Observed : expected (1)", *map(_ratio, (inside.observed_expected, outside.observed_expected)), "", ""),
        ]
    table = doc.Table(
        "Inside and outside", ["Figure", *doc.numbers("Inside", "Outside", "Change", "Paired change")], rows, caption
    )
    figure = doc.Figure(sides_plot(record), "95 % intervals.", wide=True)
    title = "Inside and outside, at frozen thresholds"
    return doc.DocumentSection(title, [doc.Paragraph(said), figure, table], "sides", "Inside and outside")


def _deployed(record: ShiftRecord) -> doc.DocumentSection:
    origin = "as given" if record.prevalence_given else "that of all sets together"
    caption = (
        f"What 'usvit score' would give: the mean of {plural(record.rows[0].n_networks, 'calibrated network')} with "
        f"the threshold of the run. PPV and NPV are for a prevalence of {100 * record.prevalence:.3g} % ({origin}), so "
        f"that the share of {record.positive_class} in a set does not matter."
    )
    heads = doc.numbers("Threshold", "AUC", "Sensitivity", "Specificity", "Slope", "O:E", "PPV", "NPV")
    rows: Rows = []
    for row in record.rows:
        one = row.deployed
        threshold = "none" if one.threshold is None else f"{one.threshold:.3f}"
        calibration = _ratio(one.slope), _ratio(one.observed_expected)
        rows.append(
            (row.left_out, threshold, one.auc, one.sensitivity, one.specificity, *calibration, one.ppv, one.npv)
        )
    table = doc.Table("As deployed", ["Left out", *heads], rows, caption)
    origins = [
        doc.Paragraph(f"Threshold without {row.left_out}: {row.deployed.origin}.", small=True) for row in record.rows
    ]
    title = f"As deployed: the mean of the networks on the left-out {_what(record)}"
    return doc.DocumentSection(title, [table, *origins], "deployed", "As deployed", detail=True)


def _recalibration(record: ShiftRecord) -> doc.DocumentSection:
    said = (
        f"Patients are drawn at random, {record.n_draws:,} times for each number. The scaling and the threshold "
        f"({record.rule}) are fitted on them and judged on all other patients. Shown are the median and the range of "
        "the central 95 % of the draws, which also contains the change of the patients on whom it is judged; the "
        "frozen model has only the latter. The AUC does not change."
    )
    left_out = (
        f"Draws without a {record.positive_class} image or without another one are left out. In unfitted draws the "
        "scaling does not exist: probabilities stay those of the model, and the threshold is refitted nevertheless."
    )
    blocks: list[doc.Block] = [doc.Paragraph(said)]
    blocks += [_recalibrated(row, number) for number, row in enumerate(record.rows)]
    blocks.append(doc.Paragraph(left_out, small=True))
    title = f"Recalibration on patients of the left-out {_what(record)}"
    return doc.DocumentSection(title, blocks, "recalibration", "Recalibration")


def _recalibrated(row: ShiftRow, number: int) -> doc.DocumentSection:
    rows: Rows = [
        (
            *(str(one.n_patients), one.fitted, _spread(one.sensitivity), _spread(one.specificity)),
            *(_spread(one.slope), _spread(one.observed_expected)),
            f"{one.n_draws:,}, {one.n_unfitted:,} unfitted" if one.n_unfitted else one.n_draws,
        )
        for one in row.recalibration
    ]
    blocks: list[doc.Block] = []
    if plot := recalibration_plot(row, number):
        caption = "Median and central 95 % of the draws. The horizontal line is 1."
        heads = doc.numbers("Sensitivity", "Specificity", "Slope", "O:E", "Draws")
        table = doc.Table(f"Recalibration of {row.left_out}", [*doc.numbers("Patients"), "Fitted", *heads], rows)
        blocks += [doc.Figure(plot, caption, wide=True), table]
    blocks += [doc.Paragraph(f"Not with {one.n_patients} patients: {one.reason}.", small=True) for one in row.skipped]
    return doc.DocumentSection(f"{row.left_out} left out", blocks)


def _spread(spread: ShiftSpread) -> doc.Words:
    """Return ``0.89 (0.71 to 1.00)``, or a dash if no draw has the figure."""
    if spread.median is None or spread.interval is None:
        return "–"
    return _ratio(Estimate(value=spread.median, ci95=spread.interval))


def _published(record: ShiftRecord) -> doc.DocumentSection:
    rows: Rows = [
        (
            *(one.network, one.trained_on, one.tested_on, one.auc, one.sensitivity or "–"),
            f"{one.source} {one.note}" if one.note else one.source,
        )
        for one in record.published
    ]
    caption = (
        "Values of others, none of which usvit measured. Networks, preprocessing and choice of images differ from "
        "those above."
    )
    heads = ["Network", "Trained on", "Tested on", "AUC", "Sensitivity", "Source"]
    table = doc.Table("Published figures", heads, rows, caption)
    return doc.DocumentSection("Published figures", [table], "published", detail=True)


def _sets(record: ShiftRecord) -> doc.DocumentSection:
    rows: Rows = [
        (
            *(one.name, listed(one.datasets), one.n_images, one.n_groups, counted(one.class_counts)),
            f"{one.positive_share:.3f}",
        )
        for one in record.sets
    ]
    caption = (
        "No two sets share an image, a near-duplicate or a patient, as far as pixels and ids show. Without patient "
        "ids, images of one patient in two sets cannot be recognised unless they are near-duplicates."
    )
    heads: list[str | doc.Column] = ["Set", doc.Column("Data cards", detail=True)]
    heads += [*doc.numbers("Images", "Patients or groups"), "Images by class"]
    heads += doc.numbers(f"Share of {record.positive_class}")
    return doc.DocumentSection("Sets", [doc.Table("Sets", heads, rows, caption)], "sets")


def _meaning(record: ShiftRecord) -> doc.DocumentSection:
    what = _what(record)
    said = [
        f"It shows how networks of this recipe do on a {what} that they have not seen, without any change on the spot.",
        "It does not show why. A change between sets mixes scanners, settings, patients, the choice of images and the "
        "reference standard; only sets that differ in one of them separate it.",
        "Trainings without a set have fewer images than those with it, so part of the paired change is due to the "
        "smaller number.",
        f"Recalibration uses labels of the left-out {what}. Report its figures together with the number of patients "
        "and their spread.",
    ]
    title = "What this shows, and what it does not"
    return doc.DocumentSection(title, [doc.Listing(said)], "meaning", "What this shows", detail=True)


def _repeat(record: ShiftRecord, runs: str) -> doc.DocumentSection:
    facts: list[tuple[str, doc.Words]] = [("Seed", str(record.seed))]
    facts += [
        (f"Without {row.left_out}", doc.link(row.run, f"{quote(runs)}/{quote(row.run)}/report.html"))
        for row in record.rows
    ]
    facts += [("Trainings", doc.link("study/study.html", "study/study.html")), ("usvit", record.usvit_version)]
    blocks: list[doc.Block] = [doc.CodeBlock("Command", record.command), doc.Facts(facts)]
    return doc.DocumentSection("How to repeat it", blocks, "repeat", detail=True)
