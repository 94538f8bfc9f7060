"""How a run was trained, and how to reproduce it."""

from collections.abc import Iterable, Mapping, Sequence

import yaml

import usvit.documents as doc
from usvit.records import ContaminationRecord, RunRecord, run_kinds
from usvit.records.run import DeviceRecord, Evaluation, FoldResultRecord, WeightsRecord
from usvit.reports.energy import Energy
from usvit.reports.formatting import NOT_RECORDED, contaminated_sentence, decimals, duration
from usvit.wording import listed, plural


def training_section(
    record: RunRecord, losses: Mapping[int, doc.Plot], energy: Energy, *, several: bool, members: Sequence[str] = ()
) -> doc.DocumentSection:
    """Build the section of the losses, the time and the energy.

    Args:
        record: run.json.
        losses: fold -> plot of its losses.
        energy: the estimate of the energy.
        several: whether the run has folds.
        members: runs whose networks an ensemble averages.
    """
    results = {one.fold: one for one in record.results if one.steps is not None}
    blocks: list[doc.Block] = []
    if losses:
        figures = [doc.Figure(plot, _loss_caption(fold, results.get(fold), several)) for fold, plot in losses.items()]
        blocks.append(doc.Gallery(figures, narrow=True))
    elif record.kind == "ensemble":
        said = "Nothing was trained here: curves, steps and settings of each network are in the report of its own run "
        blocks.append(doc.Paragraph(f"{said}({listed(members)})."))
    else:
        blocks.append(doc.Paragraph("Training curves: not recorded."))
    if results and record.kind != "ensemble":
        blocks.append(_effort(record.device, results, several))
    facts: list[tuple[str, doc.Words]] = [("Hardware", _device_words(record.device))]
    if record.kind != "transfer":
        facts.append(("Training time", f"{duration(record.training_seconds)}{', all folds' if several else ''}"))
        facts.append(("Energy, estimated", energy.text))
    return doc.DocumentSection(
        "Training, time and energy", [*blocks, doc.Facts(facts)], "training", "Training and energy"
    )


def _loss_caption(fold: int, result: FoldResultRecord | None, several: bool) -> doc.Words:
    title = doc.strong(f"Fold {fold}" if several else "Losses")
    if result is None or result.best_step is None:
        return title
    return title, ", best step ", result.best_step, " of ", result.steps


def _effort(device: DeviceRecord, results: Mapping[int, FoldResultRecord], several: bool) -> doc.Table:
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(str(fold) if several else "the run", one.steps, one.best_step),
            *(duration(one.seconds), decimals(one.images_per_second, 1)),
        )
        for fold, one in results.items()
    ]
    heads = doc.numbers("Steps", "Best step", "Time", "Images/s")
    caption = f"Steps, and time on {_device_words(device, threads=False)}."
    return doc.Table("Training effort", ["Fold" if several else "", *heads], rows, caption)


def _device_words(device: DeviceRecord, *, threads: bool = True) -> str:
    """Describe a device, such as ``CPU (cpu), precision bf16, 2 threads``."""
    name, kind, precision = (one or NOT_RECORDED for one in (device.name, device.type, device.precision))
    words = f"{name} ({kind}), precision {precision}"
    if not threads:
        return words
    return f"{words}, {'threads not recorded' if device.threads is None else plural(device.threads, 'thread')}"


def repeat_section(record: RunRecord, *, several: bool = False) -> doc.DocumentSection:
    """Build the section of the command, the versions and the hashes; ``several`` tells whether the run has folds."""
    command = doc.CodeBlock("Command", record.command or NOT_RECORDED)
    facts: list[tuple[str, doc.Words]] = [("usvit", record.usvit_version)]
    libraries = ", ".join(f"{name}\N{NO-BREAK SPACE}{number}" for name, number in record.versions.items())
    if evaluated := record.evaluation:
        same = "The same command with the same files and the same usvit version gives the same figures."
        facts += [("Created", record.created), *([("Scored", evaluated.scored)] if evaluated.scored else [])]
        facts += [("Libraries", libraries), *_networks(evaluated)]
        blocks: list[doc.Block] = [command, doc.Paragraph(same, small=True), doc.Facts(facts)]
        return doc.DocumentSection(
            "How to reproduce this evaluation", blocks, "repeat", "How to reproduce it", detail=True
        )
    same = (
        "The same command with the same usvit version, library versions and device gives the same splits and, within "
        "the numerical precision of the device, the same results."
    )
    facts += [
        ("Started, finished", (record.created, ", ", record.finished)),
        ("Wall time", duration(record.seconds)),
        ("Device", _device_words(record.device)),
        ("Libraries", libraries or None),
    ]
    if record.model.weights.source:
        facts.append(("Initial weights", _weights(record.model.weights)))
    if not run_kinds()[record.kind].of_folds:
        facts.append(("List of images, SHA-256", _hash(record.data.sha256)))
    else:
        facts.append(("Manifest, SHA-256", _hash(record.data.manifest_sha256)))
        facts.append((f"{'Folds' if several else 'Split'}, SHA-256", _hash(record.folds.sha256)))
    facts.append(("Configuration, SHA-256", _hash(record.config_sha256)))
    written = _config_text(record)
    config: doc.Block = doc.CodeBlock("Configuration", written) if written else doc.Paragraph("Not recorded.")
    return doc.DocumentSection(
        "How to reproduce this run",
        [command, doc.Paragraph(same, small=True), doc.Facts(facts), doc.DocumentSection("Configuration", [config])],
        "repeat",
        "How to reproduce it",
        detail=True,
    )


def _config_text(record: RunRecord) -> str | None:
    """Return the configuration in ``run.json`` as YAML; None if there is none."""
    config = record.config.as_written()
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True) if config else None


def contamination_notes(found: Iterable[ContaminationRecord] | None) -> list[doc.Block]:
    """Warn of tested data sets that a foundation model was pre-trained on, if there are any."""
    warning = contaminated_sentence(found)
    return [doc.Note(warning)] if warning else []


def state_notes(record: RunRecord, found: Iterable[ContaminationRecord] | None) -> list[doc.Block]:
    """Warn of contaminated data sets, and of a run that is not finished."""
    blocks = contamination_notes(found)
    if record.state != "finished":
        said = f"This run is not marked as finished (state: {record.state}). This page may be incomplete."
        blocks.append(doc.Note(said))
    return blocks


def _networks(evaluated: Evaluation) -> list[tuple[str, doc.Words]]:
    found: list[tuple[str, doc.Words]] = []
    for number, one in enumerate(evaluated.networks or [], 1):
        run = f", run {one.run}" if one.run else ""
        words: doc.Words = f"{one.architecture}{run}, fold {one.fold}"
        if one.weights_sha256:
            words = (words, ", weights SHA-256 ", doc.code(one.weights_sha256))
        found.append((f"Network {number}", words))
    return found


def _weights(weights: WeightsRecord) -> doc.Words:
    name = weights.name
    words = (weights.source, f", {name}" if name else "")
    return (*words, ", SHA-256 ", doc.code(weights.sha256)) if weights.sha256 else words


def _hash(sha256: str | None) -> doc.Words:
    return doc.code(sha256) if sha256 else None
