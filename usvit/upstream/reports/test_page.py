"""The page of a run of ``usvit test``."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

import usvit.documents as doc
from usvit.files import write_text
from usvit.records import RunRecord, fitting, load_record
from usvit.reports import decimals, read_csv, repeat_section, state_notes
from usvit.upstream.records.test import DisagreementMatrix, TestedClassifier, TestPreprocessing, TestRecord, TestSource
from usvit.wording import capitalized, listed, plural

_HARDEST = 5
"""Classes that the page names for each classifier and source."""
RULES = {
    "all": "The most probable of all outputs decides.",
    "subset": "The outputs are restricted to the classes of the images before the decision, as in the public code of "
    "ImageNet-A and -R.",
    "mapped": "The most probable of all outputs decides. It is right if it maps to the class of the image, as in "
    "ObjectNet's public code.",
}
HEADS = {
    "joint": "joint: the softmax outputs of both heads are added (thesis, section 3.3)",
    "class": "class: the head of the class token",
    "distilled": "distilled: the head of the distillation token",
    "logits": "logits: the mean of both heads' logits, as in timm",
}

_Hardest = Mapping[tuple[str, str], str]
"""(classifier, source) -> the classes with the lowest accuracy, in words."""


def report_test(run_dir: Path) -> None:
    """Call ``write_test_report`` unless the page exists."""
    if not (run_dir / "report.html").is_file():
        write_test_report(run_dir)


def write_test_report(run_dir: Path) -> Path:
    """Write ``report.html`` into the directory of a finished test.

    One file without script or network access. The same files give the same bytes.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, or the page cannot be written.
    """
    record = load_record(run_dir / "run.json", RunRecord)
    result = load_record(run_dir / "test.json", TestRecord)
    with fitting(run_dir):
        table = read_csv(run_dir / "per_class.csv", text=False, needed=["classifier", "source", "class", "accuracy"])
        page = doc.html_page(test_document(record, result, _hardest(table)))
    path = run_dir / "report.html"
    write_text(path, page)
    return path


def test_document(record: RunRecord, result: TestRecord, hardest: _Hardest | None = None) -> doc.Document:
    """Build the document of a test of fixed classifiers.

    Args:
        record: run.json.
        result: test.json.
        hardest: the classes with the lowest accuracy; the terminal shows none.
    """
    tested = listed(one.name for one in result.classifiers)
    said = f"Nothing was trained or chosen. Tested: {tested}, on {listed(one.source for one in result.sources)}."
    lead: list[doc.Block] = [doc.Paragraph(said), *state_notes(record, record.data.contamination)]
    lead += [
        doc.Note(
            f"{one.source}: a classifier was trained on {one.seen:,} of these images, or on others of their groups, so "
            "the figures of this source are not those of new images."
        )
        for one in result.sources
        if one.seen and not one.seen_dropped
    ]
    sections = [_images(result), _results(result, hardest or {})]
    if result.disagreement:
        said = (
            "Share of the same images that two classifiers decide differently. The row of the labels is the share of "
        )
        matrices = [_disagreement(matrix) for matrix in result.disagreement]
        blocks: list[doc.Block] = [doc.Paragraph(f"{said}wrong decisions."), *matrices]
        sections.append(doc.DocumentSection("Disagreement", blocks, "disagreement"))
    classifiers = [_classifier(one, result.sources[0]) for one in result.classifiers]
    sections.append(doc.DocumentSection("Classifiers", classifiers, "classifiers"))
    return doc.Document(
        title=record.name,
        kind=f"Test of {plural(len(result.classifiers), 'fixed classifier')}",
        lead=lead,
        sections=[*sections, repeat_section(record)],
        made_from="run.json, test.json and per_class.csv of this run",
    )


test_document.__test__ = False  # type: ignore[attr-defined]  # for pytest: this is no test


def _images(result: TestRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(one.source, one.n_images, one.n_groups, f"{one.n_classes_with_images:,} of {one.n_classes:,}"),
            *(one.left_out, _seen(one)),
        )
        for one in result.sources
    ]
    heads = doc.numbers("Images", "Patients or clusters", "Classes with images", "Without a usable label")
    heads += doc.numbers("Seen in training")
    table = doc.Table("Images", ["Source", *heads], rows, "All classifiers were tested on the same images.")
    return doc.DocumentSection("Images", [table], "images")


def _seen(one: TestSource) -> str:
    if one.seen is None:
        return "not compared"
    return f"{one.seen:,}{'' if not one.seen else ', dropped' if one.seen_dropped else ', tested'}"


def _results(result: TestRecord, hardest: _Hardest) -> doc.DocumentSection:
    machine = result.machine
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(row.classifier, row.source, row.top1, "–" if row.top5 is None else row.top5),
            *(decimals(row.mean_class_accuracy), decimals(row.nll), decimals(row.ece), decimals(row.ece_debiased)),
            decimals(row.images_per_second, 1),
        )
        for row in result.results
    ]
    heads = doc.numbers("Top-1", "Top-5", "Mean over classes", "NLL", "ECE")
    heads += doc.numbers("Debiased ECE", "Images/s", detail=True)
    methods = listed(dict.fromkeys(row.top1.method for row in result.results))
    table = doc.Table("Test figures", ["Classifier", "Source", *heads], rows, f"95 % intervals: {methods}.")
    blocks: list[doc.Block] = [table]
    blocks += [
        doc.Paragraph(f"{row.classifier}, {row.source}: {row.top1.warning}.", small=True)
        for row in result.results
        if row.top1.warning
    ]
    said = (
        "Top-5 is not defined for up to five outputs. NLL: negative log-likelihood in nats. ECE: calibration error of "
        "the decision's probability, without temperature scaling; chance alone makes it positive, and the debiased "
        f"value is without this part. Images/s include reading and resizing, on {machine.name} ({machine.type}, "
        f"{machine.precision}, batches of {machine.batch_size}); all heads of a network share one pass."
    )
    blocks += [
        doc.Paragraph(said, small=True),
        doc.DocumentSection("Rules of the decision", [doc.Facts([*_rules(result)])]),
    ]
    if hardest:
        caption = "Accuracy and number of images; per_class.csv holds all classes."
        name = "Classes with the lowest accuracy"
        table = doc.Table(
            name, ["Classifier", "Source", "Classes"], [(*key, words) for key, words in hardest.items()], caption
        )
        blocks.append(doc.DocumentSection(name, [table]))
    return doc.DocumentSection("Results", blocks, "results")


def _rules(result: TestRecord) -> Iterator[tuple[str, str]]:
    for rule in dict.fromkeys(row.rule for row in result.results):
        outputs = (f"{row.source}, {row.n_outputs:,} outputs" for row in result.results if row.rule == rule)
        yield rule, f"{RULES[rule]} ({'; '.join(outputs)})"
    for one in result.sources:
        if one.several_labels:
            yield one.source, "A decision is right if it is any of the labels of the image."


def _disagreement(matrix: DisagreementMatrix) -> doc.Table:
    rows: list[tuple[doc.Cell, ...]] = [
        (name, *(f"{share:.3f}" for share in shares)) for name, shares in zip(matrix.names, matrix.share, strict=True)
    ]
    return doc.Table(f"Disagreement on {matrix.source}", ["", *doc.numbers(*matrix.names)], rows, matrix.source)


def _classifier(one: TestedClassifier, source: TestSource) -> doc.DocumentSection:
    weights: doc.Words = ", ".join(filter(None, [one.weights.source, one.weights.name]))
    if sha256 := one.weights.sha256:
        weights = (weights, ", SHA-256 ", doc.code(sha256))
    network = f"{one.model}, {one.parameters:,} parameters, {one.n_classes:,} classes ({one.classes_origin})"
    facts: list[tuple[str, doc.Words]] = [("Network", network), ("Weights", weights)]
    if one.heads[0]:
        facts.append(("Heads", "; ".join(HEADS[head] for head in one.heads if head)))
    facts.append(("Input", _input(one.preprocessing)))
    facts.append(("Images it was trained on", capitalized(source.leaks[one.name])))
    return doc.DocumentSection(one.name, [doc.Facts(facts)])


def _input(one: TestPreprocessing) -> str:
    fitted = "padded to a square"
    if one.resize != "pad":
        side = "short side" if one.resize == "short_side" else "both sides"
        size = int(one.image_size / one.test_crop)
        fitted = f"{side} resized to {size} px, central crop (ratio {one.test_crop})"
    return (
        f"{one.image_size} px; {fitted}, {one.interpolation}; mean {listed(one.mean)}, SD {listed(one.std)}. From "
        f"{one.origin}"
    )


def _hardest(table: pd.DataFrame) -> dict[tuple[str, str], str]:
    found = {}
    for (classifier, source), rows in table.groupby(["classifier", "source"], sort=False):
        lowest = rows.sort_values(["accuracy", "n_images", "class"], ascending=[True, False, True]).head(_HARDEST)
        named = zip(lowest["class"].astype(str), lowest["accuracy"], lowest["n_images"], strict=True)
        words = ", ".join(f"{name} {share:.3f} ({int(n):,})" for name, share, n in named)
        found[str(classifier), str(source)] = words
    return found
