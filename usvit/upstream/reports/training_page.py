"""The page of a run of ``usvit pretrain`` or ``usvit transfer``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

import usvit.documents as doc
from usvit.data.splits import seen_by, together, unrecorded
from usvit.files import write_text
from usvit.records import ModelMetadata, RunRecord, fitting, load_record
from usvit.records.weights_origin import TrainingRecord
from usvit.reports import (
    best_steps,
    decimals,
    energy_estimate,
    loss_curves,
    read_csv,
    repeat_section,
    state_notes,
    training_section,
)
from usvit.upstream.records.training import PretrainRecord, Recommended, TransferRecord
from usvit.upstream.reports.segment_sections import segment_blocks, segment_pictures
from usvit.upstream.reports.text_section import text_blocks
from usvit.upstream.reports.transfer_figures import tried_plot
from usvit.wording import capitalized, listed, plural

_NOT_FIGURES = {"fold", "step", "epoch", "lr", "images_per_second"}
_SHOWN_CELLS = 40
"""Cells of a sweep on the page, and the chosen one."""
_SHOWN_CLASSES = 20
_FEW = 50
"""With fewer validation images than this, the choice between several settings depends mostly on chance."""


@dataclass(frozen=True)
class _UpstreamContent:
    """Content of the page in addition to ``run.json`` and the figures of the run."""

    losses: Mapping[int, doc.Plot] = field(default_factory=dict)
    lineage: tuple[str, ...] = ()
    """Earlier training of the initial weights, oldest stage first."""
    n_seen: int = 0
    """Number of pixel hashes on record, over all folds."""
    unrecorded: str | None = None
    left_out: int = 0
    """Pre-training only: images excluded as near-duplicates of a data set's images, over all folds."""
    tried: doc.Plot | None = None
    """Transfer only: validation accuracy of the settings that were tried."""
    cells: tuple[tuple[str, float | None, bool], ...] = ()
    """Fine-tuning over a sweep only: name, validation accuracy and choice of each cell."""
    pictures: tuple[doc.Block, ...] = ()
    """Segmentation only: its curve and cases."""


def report_upstream(run_dir: Path) -> None:
    """Call ``write_upstream_report`` unless the page exists."""
    if not (run_dir / "report.html").is_file():
        write_upstream_report(run_dir)


def write_upstream_report(run_dir: Path) -> Path:
    """Write ``report.html`` into the directory of a finished pre-training or transfer.

    One file without script or network access. The same files give the same bytes.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, or the page cannot be written.
    """
    record = load_record(run_dir / "run.json", RunRecord)
    with fitting(run_dir):
        if record.kind == "pretrain":
            pretrained = load_record(run_dir / "pretrain.json", PretrainRecord)
            document = _pretraining(record, pretrained, _content(run_dir, record, pretraining=True))
        else:
            transferred = load_record(run_dir / "transfer.json", TransferRecord)
            content = _content(run_dir, record, pretraining=False)
            if transferred.segment is not None:
                content = replace(content, pictures=tuple(segment_pictures(run_dir, transferred.segment)))
            document = transfer_document(record, transferred, content)
        page = doc.html_page(document)
    path = run_dir / "report.html"
    write_text(path, page)
    return path


def _content(run_dir: Path, record: RunRecord, *, pretraining: bool) -> _UpstreamContent:
    folds = sorted(run_dir.glob("fold-*/"), key=lambda folder: int(folder.name.removeprefix("fold-")))
    histories = {
        int(folder.name.removeprefix("fold-")): read_csv(folder / "history.csv", text=False, needed=["step"])
        for folder in folds
        if (folder / "history.csv").is_file()
    }
    metadata = [
        (load_record(folder / "model.json", ModelMetadata), folder)
        for folder in folds
        if (folder / "model.json").is_file()
    ]
    seen = together(seen_by(metadata, folder) for metadata, folder in metadata)
    weights = metadata[0][0].upstream if metadata else None
    return _UpstreamContent(
        losses=loss_curves(histories, best_steps(record)),
        lineage=tuple(_stages((weights and weights.lineage) or [])),
        n_seen=len(seen),
        unrecorded=unrecorded(seen, "The network"),
        **({"left_out": _left_out(folds)} if pretraining else _of_transfer(run_dir)),
    )


def _left_out(folds: list[Path]) -> int:
    copies = [path for folder in folds for path in sorted(folder.glob("excluded*.csv"))]
    return sum(read_csv(path, text=False, needed=["upstream_index"])["upstream_index"].nunique() for path in copies)


def _of_transfer(run_dir: Path) -> dict[str, Any]:
    table = read_csv(
        run_dir / "results.csv",
        text=False,
        needed=["how", "cell", "k", "l2", "neighbours", "part", "accuracy", "chosen"],
    )
    cells = table[(table["part"] != "test") & table["cell"].notna()]
    named = zip(cells["cell"].astype(str), cells["accuracy"], cells["chosen"].astype(bool), strict=True)
    return {
        "tried": tried_plot(table),
        "cells": tuple((name, None if pd.isna(value) else float(value), chosen) for name, value, chosen in named),
    }


def _stages(lineage: list[TrainingRecord]) -> Iterator[str]:
    for one in lineage:
        images = f" ({one.source.images:,} images)" if one.source else ""
        yield (
            f"{one.stage or 'training'}: {one.objective or 'supervised'}, recipe {one.recipe}, {one.steps or 0:,} "
            f"steps on {one.source.name if one.source else 'images that are not recorded'}{images}"
        )


def _document(
    record: RunRecord,
    content: _UpstreamContent,
    kind: str,
    lead: doc.Words,
    sections: list[doc.DocumentSection],
    files: str,
) -> doc.Document:
    """Build the document of either kind from its own sections."""
    recipe = "" if record.config.recipe == "none" else f", recipe {record.config.recipe}"
    notes = state_notes(record, record.data.contamination)
    notes += [doc.Note(content.unrecorded)] if content.unrecorded else []
    several = (record.folds.n or 1) > 1
    if content.losses:
        sections = [*sections, training_section(record, content.losses, energy_estimate(record), several=several)]
    return doc.Document(
        title=record.name,
        kind=f"{kind}{recipe}",
        lead=[doc.Paragraph(lead), *notes],
        sections=[*sections, repeat_section(record)],
        made_from=f"run.json and {files} of this run",
    )


def _lineage(content: _UpstreamContent) -> list[doc.Block]:
    if not content.lineage:
        return []
    return [
        doc.DocumentSection("Earlier training of the initial weights", [doc.Listing(content.lineage, ordered=True)])
    ]


def _pretraining(record: RunRecord, result: PretrainRecord, content: _UpstreamContent) -> doc.Document:
    results: list[doc.Block] = [_kept(record, result)]
    if record.model.weights.source != "scratch":
        results += _lineage(content)
    images: list[doc.Block] = [_sources(record, content)]
    if content.left_out:
        said = f"{plural(content.left_out, 'image')} excluded as near-duplicates of images that are tested later "
        images.append(doc.Paragraph(f"{said}(excluded.csv of each fold)."))
    sections = [doc.DocumentSection("Results", results, "results"), doc.DocumentSection("Images", images, "images")]
    kind = f"Pre-training: {record.config.objective}"
    return _document(record, content, kind, _pretraining_lead(record), sections, "pretrain.json")


def _pretraining_lead(record: RunRecord) -> doc.Words:
    model, weights, config = record.model, record.model.weights, record.config
    began = "random weights" if weights.source == "scratch" else f"the weights {weights.name}"
    size = config.model and config.model.image_size
    said: tuple[doc.Words, ...] = (
        f"The network {model.name} ({model.timm}, ",
        *(model.params, f" parameters) was trained from {began}, at {size} px, with seed {config.seed}, on "),
        f"{', '.join(one.name for one in (record.data.sources or [])[:1])}. ",
    )
    if (record.folds.n or 1) > 1:
        said += (
            f"Each of the {record.folds.n} folds has its own network, trained on the training images of that fold "
            "only: ",
            *(doc.code("usvit cv"), " starts its fold k from fold k. "),
        )
    if config.objective == "tokenizer":
        return (
            *said,
            "It is the tokenizer of BEiT's targets: ",
            *(doc.code("usvit pretrain --recipe beit --set beit.tokenizer=RUN"), "."),
        )
    return (
        *(*said, "Start from it with ", doc.code(f"usvit cv --model {model.name} --weights RUN")),
        *(", or evaluate it on other images with ", doc.code("usvit transfer"), "."),
    )


def _kept(record: RunRecord, result: PretrainRecord) -> doc.Table:
    several, validation = (record.folds.n or 1) > 1, record.data.validation
    known = [name for row in result.kept for name, value in row if value is not None]
    columns = [name for name in dict.fromkeys(known) if name not in _NOT_FIGURES]
    caption = "At the step whose weights were kept. "
    if validation:
        caption += (
            f"Validation: {validation.name}, {validation.images:,} images. They chose no settings; with early "
            "stopping, they chose the step."
        )
    else:
        caption += "No images were held out for validation."
    rows: list[tuple[doc.Cell, ...]] = [
        (str(one.fold) if several else "the run", one.step, *(decimals(getattr(one, name), 4) for name in columns))
        for one in result.kept
    ]
    heads = doc.numbers("Step", *(capitalized(name.replace("_", " ")) for name in columns))
    return doc.Table("Figures at the best step", ["Fold" if several else "", *heads], rows, caption)


def _sources(record: RunRecord, content: _UpstreamContent) -> doc.Table:
    several = (record.folds.n or 1) > 1
    generated = "" if content.unrecorded else ": images generated on the fly occur nowhere else."
    hashes = f"The model metadata contain no pixel hashes{generated}"
    if content.n_seen:
        hashes = (
            f"The model metadata contain {content.n_seen:,} pixel hashes: a later test refuses images that were used "
            "here or for the initial weights."
        )
    rows: list[tuple[doc.Cell, ...]] = [
        (part.name, *([str(fold)] if several else []), part.images, part.classes or "none")
        for fold, one in enumerate(record.data.sources or [])
        for part in one.parts or [one]
    ]
    heads = doc.numbers(*(["Fold"] if several else []), "Images", "Classes")
    return doc.Table("Images", ["Source", *heads], rows, f"The images that the network was trained on. {hashes}")


def transfer_document(
    record: RunRecord, result: TransferRecord, content: _UpstreamContent | None = None
) -> doc.Document:
    """Build the document of a transfer.

    Args:
        record: run.json.
        result: transfer.json.
        content: what the page shows of the other files; the terminal shows none of it.
    """
    shown = content or _UpstreamContent()
    draws = any(line.first_draw for line in result.summary)
    segmented = [] if result.segment is None else [*segment_blocks(result.segment), *shown.pictures]
    results: list[doc.Block] = segmented or [_summary(result, draws=draws)]
    if result.weights.source == "scratch":
        results.insert(
            0, doc.Note("The initial weights are random (scratch). Pass pre-trained weights with --weights.")
        )
    if draws:
        covers = result.summary[0].accuracy.covers or "the draw of the training images alone"
        said = f"The intervals cover {covers}. The interval of the first draw is over test images."
        results.append(doc.Paragraph(said, small=True))
    results += [
        doc.Paragraph(f"{line.name}: {line.accuracy.warning}.", small=True)
        for line in result.summary
        if line.accuracy.warning
    ]
    results += [*_coarse(result), *([] if result.text is None else text_blocks(result.text))]
    if result.recommended:
        results.append(_recommended(result.recommended))
    if result.segment is None:
        results.append(_tried(record, result, content, draws=draws))
    results += _lineage(shown)
    sections = [doc.DocumentSection("Results", results, "results"), _transfer_images(result)]
    weights = result.weights
    began = "random initial weights (no upstream training)"
    if weights.source != "scratch":
        began = f"the weights {weights.name or weights.source}"
    lead = (
        f"The network {result.model} with {began} was evaluated on {result.images.source}: "
        f"{len(result.images.classes)} classes, at {result.image_size} px. "
        f"{_trained(result)} The test images were used once, after all choices had been made."
    )
    return _document(record, shown, f"Transfer: {result.how}", lead, sections, "transfer.json and results.csv")


def _trained(result: TransferRecord) -> str:
    if result.how == "segment" and result.tune == "full":
        return "It was trained together with the head."
    return f"Tuned: {result.tune}." if result.how == "finetune" else "Its features were frozen."


def _coarse(result: TransferRecord) -> Iterator[doc.Paragraph]:
    """Say how a retrieval does within coarse classes."""
    for line in result.summary:
        if line.coarse_accuracy is not None:
            conditioned, oracle = (
                "–" if value is None else decimals(value) for value in (line.map_conditioned, line.map_oracle)
            )
            yield doc.Paragraph(
                f"{line.name}: mean average precision conditioned on the predicted coarse class {conditioned}, on the "
                f"true one {oracle}; accuracy of the coarse class {decimals(line.coarse_accuracy)}."
            )


def _summary(result: TransferRecord, *, draws: bool) -> doc.Table:
    precise = any(line.mean_average_precision is not None for line in result.summary)
    rows: list[tuple[doc.Cell, ...]] = []
    for line in result.summary:
        cells: list[doc.Cell] = [line.name, line.accuracy, *([line.first_draw] if draws else [])]
        cells.append(decimals(line.mean_class_accuracy))
        if precise:
            of_interval = line.intervals and line.intervals.mean_average_precision
            cells.append(of_interval or decimals(line.mean_average_precision))
        rows.append(tuple(cells))
    first = result.summary[0].accuracy
    caption = f"On {plural(result.images.n_test, 'test image')}, with 95 % intervals: {first.method}"
    heads = doc.numbers("Test accuracy", *(["First draw"] if draws else []), "Mean over classes")
    heads += doc.numbers("Mean average precision") if precise else ()
    return doc.Table("Test figures", ["What", *heads], rows, f"{caption}.")


def _recommended(found: Recommended) -> doc.DocumentSection:
    upstream, adapting = found.by_upstream_validation, found.by_adapting_all
    caption = (
        f"Kept: {found.kept}. Chosen by upstream validation: {upstream.name or f'not known, {upstream.reason}'}. "
        f"Chosen by adapting all networks: {adapting.name or f'not known, {adapting.reason}'}."
    )
    rows: list[tuple[doc.Cell, ...]] = [
        (
            (one.name, " ", doc.strong("(kept)")) if one.name == found.kept else one.name,
            *(decimals(one.upstream_val_accuracy), decimals(one.downstream_val_accuracy), one.test),
        )
        for one in found.candidates
    ]
    heads = doc.numbers("Upstream validation", "Validation here", "Test accuracy")
    blocks: list[doc.Block] = [doc.Table("Upstream networks", ["Network", *heads], rows, caption)]
    if found.difference:
        blocks.append(doc.Paragraph((f"{capitalized(found.difference_of)}: ", found.difference.accuracy, ".")))
    return doc.DocumentSection("Recommended upstream network", blocks)


def _tried(
    record: RunRecord, result: TransferRecord, content: _UpstreamContent | None, *, draws: bool
) -> doc.DocumentSection:
    on = result.images.chosen_on
    said: list[doc.Block] = []
    if result.how in ("knn", "retrieval"):
        on = "the training images (leave-one-out)"
    elif on == "none":
        on = "no images, because there was only one setting"
    elif (n := result.images.n_val) < _FEW:
        of_card = (record.config.source or {}).get("name") == "data"
        advice = "" if of_card else " Set source.val to a split, or source.val_share to a larger share."
        said.append(doc.Note(f"{plural(n, 'image')} are too few for a reliable choice.{advice}"))
    title, said = "Settings that were tried", [doc.Paragraph(f"Chosen on: {on}."), *said]
    if content is None:
        return doc.DocumentSection(title, said)
    shown: doc.Block = doc.Paragraph("Only one setting.")
    if content.tried:
        mean = ", mean over draws" if draws else ""
        shown = doc.Figure(content.tried, f"Accuracy on those images{mean}. results.csv holds all values.", wide=True)
    elif len(content.cells) > 1:
        caption = "Each cell of the sweep."
        if len(content.cells) > _SHOWN_CELLS:
            caption = f"The first {_SHOWN_CELLS} of {len(content.cells):,}, and the chosen one; results.csv holds all."
        rows: list[tuple[doc.Cell, ...]] = [
            (name, "diverged" if accuracy is None else decimals(accuracy), "yes" if chosen else "")
            for number, (name, accuracy, chosen) in enumerate(content.cells)
            if chosen or number < _SHOWN_CELLS
        ]
        shown = doc.Table("What was tried", ["Cell", *doc.numbers("Validation accuracy"), "Chosen"], rows, caption)
    return doc.DocumentSection(title, [*said, shown])


def _transfer_images(result: TransferRecord) -> doc.DocumentSection:
    images, dropped = result.images, result.dropped
    more = len(images.classes) - _SHOWN_CLASSES
    excluded: doc.Words = "not checked: images generated on the fly"
    if dropped.seen_by_weights is not None:
        excluded = (
            *(dropped.seen_by_weights, " that the initial weights were trained on, or of the same groups; "),
            *(dropped.in_training, " that are among the training or validation images"),
        )
    facts: list[tuple[str, doc.Words]] = [
        ("Training, validation, test", f"{images.n_train:,}, {images.n_val:,}, {images.n_test:,}"),
        ("Classes", f"{listed(images.classes[:_SHOWN_CLASSES])}{f' and {more} more' if more > 0 else ''}"),
        ("Excluded from the test", excluded),
        ("Predictions", result.predictions or f"none: {result.predictions_missing}"),
    ]
    return doc.DocumentSection("Images", [doc.Facts(facts)], "images")
