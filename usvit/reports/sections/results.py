"""The figures to quote, by fold and by patient."""

from collections.abc import Mapping, Sequence

import usvit.documents as doc
from usvit.figure_table import BY_KEY, main_table
from usvit.records import MetricsRecord
from usvit.reports.formatting import of_units, rows_words, unit_sentence
from usvit.reports.patients import patient_figures, patients_headline_sentence, patients_sentence
from usvit.reports.remarks import headline_remarks, patient_remarks
from usvit.wording import capitalized, plural


def results_section(
    metrics: MetricsRecord,
    plots: Mapping[str, doc.Plot],
    tested_set: str = "value",
    parts: Mapping[int, Mapping[str, int]] | None = None,
) -> doc.DocumentSection:
    """Build the section of the main figures.

    Args:
        metrics: the content of metrics.json.
        plots: plots of the report; ``folds`` is shown here.
        tested_set: name of the images of a single set, such as ``hold-out``.
        parts: fold -> split -> number of images; None if that is not known here.
    """
    headline, n_folds = metrics.headline, len(metrics.folds)
    several, repeats = n_folds > 1, metrics.headline.n_repeats
    blocks: list[doc.Block] = [doc.Paragraph(_tested(metrics))]
    blocks += [doc.Note(warning) for warning in metrics.warnings if not warning.startswith("CONTAMINATED")]
    blocks.append(_main_table(metrics, tested_set))
    blocks += _remarks(headline_remarks(metrics))
    blocks.append(doc.Paragraph(headline.explains))
    said = (
        f"Intervals count groups, not {metrics.row}s: AUC by {headline.auc.method or 'no method'}, accuracy by "
        f"{headline.accuracy.method or 'no method'} ('usvit docs intervals'). "
    )
    if several:
        said += (
            f"A pooled AUC ranks the outputs of {n_folds // repeats} models against each other, so it may lie above or "
            "below the mean of the folds; its interval takes the models as given. The SD shows how much the folds "
            "differ from each other. It is not a confidence interval, because the folds share most of their training "
            "images. "
        )
    said += (
        "Balanced accuracy is the mean of the sensitivities of all classes. Sensitivity and specificity refer to the "
    )
    blocks.append(doc.Paragraph(f"{said}most probable class.", small=True))
    if "folds" in plots:
        shown = (
            doc.strong("How the folds differ."),
            " The pooled value and the mean of the folds are different quantities. AUC, sensitivity and specificity: "
            f"{metrics.positive_class} against the rest.",
        )
        blocks.append(doc.Figure(plots["folds"], shown, wide=True))
    if several:
        blocks.append(doc.DocumentSection("By fold", [_fold_table(metrics, parts or {})], detail=True))
    elif parts:
        own = parts.get(metrics.folds[0].fold, {})
        blocks.append(
            doc.Paragraph(
                (
                    *("Training split: ", own.get("train"), " images; inner validation split: ", own.get("val")),
                    *(" images; hold-out (test) split: ", own.get("test") if metrics.unit else metrics.n_images, "."),
                )
            )
        )
    blocks.append(_by_patient(metrics))
    return doc.DocumentSection(of_units("Results", metrics), blocks, "results")


def _tested(metrics: MetricsRecord) -> str:
    known = metrics.patients.n_patients
    patients = f" ({plural(known, 'patient')})" if known and metrics.row != "patient" else ""
    of_class = ", ".join(
        f"{name} {plural(metrics.class_counts[name], metrics.row)} in {plural(metrics.class_groups[name], 'group')}"
        for name in metrics.classes
    )
    return (
        f"Tested: {rows_words(metrics)} in {plural(metrics.n_groups, 'group')}{patients}; {of_class}. A "
        "group is a patient if an identifier is known, otherwise a set of near-duplicates, otherwise a single image."
        f"{unit_sentence(metrics)}"
    )


def _main_table(metrics: MetricsRecord, tested_set: str) -> doc.Table:
    positive, n_folds = metrics.positive_class, len(metrics.folds)
    rows: list[tuple[doc.Cell, ...]] = []
    for row in (*main_table(len(metrics.classes)), BY_KEY["brier"]):
        quoted = getattr(metrics.headline, row.key)
        title = row.titled(of_units(row.page or row.title, metrics), positive)
        cells = (title, quoted, quoted.n_groups)
        if n_folds == 1:
            rows.append(cells)
        else:
            sd = metrics.mean_sd.figure(row.key, positive).sd
            pooled = metrics.pooled.figure(row.key, positive)
            rows.append((*cells, pooled, "none" if sd is None else f"{sd:.3f}"))
    several = f"Quote the mean over folds (first columns). The other columns show all test {metrics.row}s as one set"
    several += f"{' (first repeat)' if metrics.headline.n_repeats > 1 else ''} and how much the folds differ."
    single = f"On the {plural(metrics.n_images, metrics.row)} of the {tested_set}."
    if n_folds == 1:
        heads = doc.numbers(capitalized(tested_set), "Groups")
    else:
        heads = doc.numbers(f"Mean of {n_folds} folds", "Groups", "Pooled", f"SD of {n_folds} folds")
    caption = f"{several if n_folds > 1 else single} Each figure has its 95 % interval."
    return doc.Table("Main results", ["Measure", *heads], rows, caption, look="headline")


def _fold_table(metrics: MetricsRecord, parts: Mapping[int, Mapping[str, int]]) -> doc.Table:
    area, several = f"{metrics.positive_class}_vs_rest", len(metrics.classes) > 2
    rows: list[tuple[doc.Cell, ...]] = []
    for one in metrics.folds:
        own = parts.get(one.fold, {})
        mean = (one.auc_macro_ovr,) if several else ()
        rows.append(
            (
                *(str(one.fold), own.get("train"), own.get("val"), one.n_images, one.n_groups),
                *(one.accuracy, one.balanced_accuracy, one.auc[area], *mean, one.log_loss),
            )
        )
    heads = doc.numbers("Train", "Val", "Test", "Test groups", "Accuracy", "Balanced accuracy")
    heads += doc.numbers(f"AUC {metrics.positive_class}", *(["AUC mean"] if several else []), "Log loss")
    caption = "The values of each fold. Images: training, inner validation and test split."
    return doc.Table("Results by fold", ["Fold", *heads], rows, caption)


def _by_patient(metrics: MetricsRecord) -> doc.DocumentSection:
    several = len(metrics.folds) > 1
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(one.probability, "AUC" if one.name == "auc" else capitalized(one.name), one.headline),
            *([one.pooled] if several else []),
        )
        for one in patient_figures(metrics)
    ]
    blocks: list[doc.Block] = [doc.Paragraph(patients_sentence(metrics))]
    if rows:
        heads = doc.numbers(f"Mean of {len(metrics.folds)} folds", "Pooled") if several else doc.numbers("Value")
        said = patients_headline_sentence(metrics) or "Figures of one row per patient."
        caption = f"{said} AUC, sensitivity and specificity: {metrics.positive_class} against the rest."
        blocks.append(doc.Table("Results by patient", ["A patient's probability", "Figure", *heads], rows, caption))
        blocks += _remarks(patient_remarks(metrics))
    return doc.DocumentSection("By patient", blocks)


def _remarks(sentences: Sequence[str]) -> list[doc.Block]:
    return [doc.Listing(sentences, small=True)] if sentences else []
