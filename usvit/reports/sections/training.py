"""How a run was trained, and how to reproduce it."""

from usvit.documents import (
    Block,
    Cell,
    CodeBlock,
    DocumentSection,
    Facts,
    Figure,
    Gallery,
    Paragraph,
    Table,
    Words,
    code,
    numbers,
    strong,
)
from usvit.records.run import DeviceRecord, Evaluation, FoldResultRecord, WeightsRecord
from usvit.reports.content import ReportContent
from usvit.reports.formatting import decimals, duration
from usvit.wording import listed, plural


def training_section(content: ReportContent) -> DocumentSection:
    """Build the section of the losses, the time and the energy."""
    record = content.run.record
    results = {one.fold: one for one in record.results}
    blocks: list[Block] = []
    if content.losses:
        figures = [
            Figure(plot, _loss_caption(content, fold, results.get(fold))) for fold, plot in content.losses.items()
        ]
        blocks.append(Gallery(figures, narrow=True))
    elif record.kind == "ensemble":
        members = listed(content.run.members)
        said = (
            "Nothing was trained here: curves, steps and settings of each network are in the report of its own run "
            f"({members})."
        )
        blocks.append(Paragraph(said))
    else:
        blocks.append(Paragraph("Training curves: not recorded."))
    if results and record.kind != "ensemble":
        blocks.append(_effort(content, results))
    facts: list[tuple[str, Words]] = [("Hardware", device_words(record.device))]
    if record.kind != "transfer":
        folds = ", all folds" if content.cross_validated else ""
        facts.append(("Training time", f"{duration(content.training_seconds)}{folds}"))
        facts.append(("Energy, estimated", content.energy.text))
    return DocumentSection("Training, time and energy", [*blocks, Facts(facts)], "training", "Training and energy")


def _loss_caption(content: ReportContent, fold: int, result: FoldResultRecord | None) -> Words:
    title = strong(f"Fold {fold}" if content.cross_validated else "Losses")
    if result is None or result.best_step is None:
        return title
    return title, ", best step ", result.best_step, " of ", result.steps


def _effort(content: ReportContent, results: dict[int, FoldResultRecord]) -> Table:
    several, device = content.cross_validated, content.run.record.device
    rows: list[tuple[Cell, ...]] = [
        (
            *(str(fold) if several else "the run", one.steps, one.best_step),
            *(duration(one.seconds), decimals(one.images_per_second, 1)),
        )
        for fold, one in results.items()
    ]
    words = device_words(device, threads=False)
    heads = numbers("Steps", "Best step", "Time", "Images/s")
    return Table("Training effort", ["Fold" if several else "", *heads], rows, f"Steps, and time on {words}.")


def device_words(device: DeviceRecord, *, threads: bool = True) -> str:
    """Describe a device, such as ``CPU (cpu), precision bf16, 2 threads``."""
    name, kind, precision = (one or "not recorded" for one in (device.name, device.type, device.precision))
    words = f"{name} ({kind}), precision {precision}"
    if not threads:
        return words
    return f"{words}, {'threads not recorded' if device.threads is None else plural(device.threads, 'thread')}"


def repeat_section(content: ReportContent) -> DocumentSection:
    """Build the section of the command, the versions and the hashes."""
    record, evaluated = content.run.record, content.run.evaluated
    command = CodeBlock("Command", record.command or "not recorded")
    facts: list[tuple[str, Words]] = [("usvit", record.usvit_version)]
    libraries = ", ".join(f"{name}\N{NO-BREAK SPACE}{number}" for name, number in record.versions.items())
    if evaluated is not None:
        same = "The same command with the same files and the same usvit version gives the same figures."
        facts += [("Created", record.created), *([("Scored", evaluated.scored)] if evaluated.scored else [])]
        facts += [("Libraries", libraries), *_networks(evaluated)]
        blocks: list[Block] = [command, Paragraph(same, small=True), Facts(facts)]
        return DocumentSection("How to reproduce this evaluation", blocks, "repeat", "How to reproduce it")
    same = (
        "The same command with the same usvit version, library versions and device gives the same splits and, within "
        "the numerical precision of the device, the same results."
    )
    folds = "Folds" if content.cross_validated else "Split"
    facts += [
        ("Started, finished", (record.created, ", ", record.finished)),
        ("Wall time", duration(record.seconds)),
        ("Device", device_words(record.device)),
        ("Libraries", libraries or None),
        ("Initial weights", _weights(record.model.weights)),
        ("Manifest, SHA-256", _hash(record.data.manifest_sha256)),
        (f"{folds}, SHA-256", _hash(record.folds.sha256)),
        ("Configuration, SHA-256", _hash(record.config_sha256)),
    ]
    config: Block = CodeBlock("Configuration", content.config) if content.config else Paragraph("Not recorded.")
    return DocumentSection(
        "How to reproduce this run",
        [command, Paragraph(same, small=True), Facts(facts), DocumentSection("Configuration", [config])],
        "repeat",
        "How to reproduce it",
    )


def _networks(evaluated: Evaluation) -> list[tuple[str, Words]]:
    found: list[tuple[str, Words]] = []
    for number, one in enumerate(evaluated.networks or [], 1):
        run = f", run {one.run}" if one.run else ""
        words: Words = f"{one.architecture}{run}, fold {one.fold}"
        if one.weights_sha256:
            words = (words, ", weights SHA-256 ", code(one.weights_sha256))
        found.append((f"Network {number}", words))
    return found


def _weights(weights: WeightsRecord) -> Words:
    name = weights.file or weights.name
    words = (weights.source, f", {name}" if name else "")
    return (*words, ", SHA-256 ", code(weights.sha256)) if weights.sha256 else words


def _hash(sha256: str | None) -> Words:
    return code(sha256) if sha256 else None
