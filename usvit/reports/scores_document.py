"""The document of a scored set, from summary.json and the tables beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import usvit.documents as doc
from usvit.data.audit import MEANINGS
from usvit.records import SummaryRecord, UnitPointRecord
from usvit.reports.data_table import DataTable
from usvit.reports.figures_flow import flow_plot
from usvit.reports.flow import Flow
from usvit.reports.formatting import decimals, duration
from usvit.reports.sections.flow import flow_blocks
from usvit.wording import listed, plural

_FLAG_MEANINGS = {
    "text": "burned-in text: side, position, manufacturer, possibly a name",
    "doppler": "colour Doppler: box or flow in the image, or a region in the header",
    "dual_view": "two views side by side, according to the image or the header",
    "m_mode": "an M-mode trace, according to the header",
    "spectral": "a spectral Doppler trace, according to the header",
    "burned_in": "burned-in text, according to the header",
    "assumed_range": "more than 8 bits per value: the file does not state how many are in use, so the brightness is "
    "that of the largest value",
}
"""Flags that a header can raise; and ``text``, which can name a patient in files from a clinic."""
ADVICE = {
    "not_found": "check whether it was moved, or correct the list",
    "unreadable": "check its permissions; copy it again",
    "empty": "export it again",
    "not_an_image": "nothing, if it is not an image; else convert it to PNG",
    "no_pixels": "nothing",
    "truncated": "export or copy it again",
    "damaged": "open it in a viewer; export it again without compression",
    "too_large": "inspect it separately, with care",
    "unsupported_syntax": "export it uncompressed or in another transfer syntax",
    "unsupported_codec": "convert it to H.264 in MP4, or export it as multi-frame DICOM",
    "unsupported_pixels": "export it with 8 bits, as RGB or MONOCHROME2; convert a picture to PNG",
    "unknown_range": "save it with 8 bits",
    "several_frames": "save each picture as a file",
    "no_such_frame": "number the frames of the list from 0",
    "timeout": "use a longer --timeout",
    "crashed": "use a larger --memory-gb; otherwise export it uncompressed",
    "changed_since_scoring": "find out what replaced it; score it again into another folder",
    "loop": "nothing: the target of the link was found elsewhere",
    "archive": "unpack it (with its password)",
}
"""Code of a failure -> advice for the user."""
PRODUCTS = {
    "sr": ("structured report", "dicom/<image>-sr.dcm"),
    "sc": ("Secondary Capture", "dicom/<image>-sc.dcm"),
    "gsps": ("presentation state", "dicom/<image>-gsps.dcm"),
    "seg": ("lesion mask", "dicom/<image>-seg-<frame>.dcm"),
    "overlay": ("overlay", "overlays/<image>-<frame>.png"),
    "fhir": ("FHIR report", "fhir/<image>.json"),
}
"""Kind of product -> (name, path)."""
SETTINGS = {
    "rule": "Operating point",
    "keep_ids": "Ids kept",
    "timeout": "Time limit, s",
    "abstain": "Abstain if unusual",
    "abstain_at": "Abstain at",
}
"""Setting of a job -> its name on the page; others appear by their own names."""
_LINK_TABLE: doc.Words = (
    "table that ",
    doc.code("usvit score --link FILE"),
    " writes for you only says which file it is",
)
UNITS = {"patients": "patient", "breasts": "breast", "studies": "study"}


@dataclass(frozen=True)
class ScoreTables:
    """The tables of a scored set; a script of the page shows their rows."""

    images: DataTable
    groups: Mapping[str, DataTable]
    """``patients``, ``studies`` and, if there is a table of them, ``breasts``."""
    failures: DataTable


def scores_document(
    summary: SummaryRecord, tables: ScoreTables, plots: Sequence[doc.Figure], flow: Flow
) -> doc.Document:
    """Build the document of a scored set; ``plots`` show the distributions of its figures."""
    n, names = summary.counts.frames_scored, _architectures(summary)
    sections = [_images(summary, tables.images)]
    sections += [_groups(summary, unit, table) for unit, table in tables.groups.items() if table.n_rows]
    sections.append(doc.DocumentSection("Flow", flow_blocks(flow, flow_plot(flow)), "flow"))
    sections += [_distributions(summary, plots), _flags(summary), _failures(summary, tables.failures)]
    sections += [_products(summary)] if summary.products else []
    return doc.Document(
        title=f"Scores of {plural(n, 'image')}",
        kind=f"Probability of {summary.positive_class} by {names}, started {_minute(summary.started)}",
        lead=[*_origins(summary), _tiles(summary), *_notes(summary)],
        sections=[*sections, _model(summary)],
        made_from=f"summary.json (schema {summary.schema_version}) and the tables next to it; the page contains "
        "nothing that they do not",
    )


def _minute(time: str) -> str:
    """``2026-11-24T12:00:00+00:00`` -> ``2026-11-24 12:00``."""
    return time[:16].replace("T", " ")


def _per_cent(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.1f} %"


def _architectures(summary: SummaryRecord) -> str:
    return listed(dict.fromkeys(one.architecture for one in summary.model.members))


def _excludes_unusual(summary: SummaryRecord) -> bool:
    """Return whether no decision is made on unusual images."""
    counts = summary.counts
    return counts.frames_abstained > counts.frames_uncertain or bool(summary.settings.get("abstain"))


def _origins(summary: SummaryRecord) -> list[doc.Block]:
    found: list[doc.Block] = []
    for one in summary.model.seen.collections or []:
        known = f"data sets that are not listed ({one.note})"
        if one.sets:
            known = f"{listed(each.name for each in one.sets)}: labelled images of these data sets are no test of them"
        said = f"The networks started from {one.network}, which was pre-trained on {known}. Source: {one.source}."
        found.append(doc.Paragraph(said, small=True))
    return found


def _tiles(summary: SummaryRecord) -> doc.Listing:
    """Return the counts that stand first."""
    counts, n = summary.counts, summary.counts.frames_scored
    items = [_tile(counts.files_scored, "file", " scored", f"{plural(n, 'image')} (frames)")]
    if summary.threshold.value is not None:
        open_ = f"; {counts.frames_undecided:,} without a decision" if counts.frames_undecided else ""
        share = f"{_per_cent(counts.frames_positive, n)} of images{open_}"
        items.append(_tile(counts.frames_positive, "", f"called {summary.positive_class}", share))
    rate = summary.novelty.stated_rate
    expected = "" if rate is None else f"; {_per_cent(rate, 1)} expected"
    items.append(
        _tile(counts.frames_unusual, "", "unusual", f"{_per_cent(counts.frames_unusual, n)} of images{expected}")
    )
    failed: doc.Words = doc.muted(f"of {counts.files:,}")
    if counts.files_failed:
        partly = f"; {counts.files_partly:,} of them scored in part" if counts.files_partly else ""
        failed = (doc.link("why", "#failures"), partly)
    return doc.Listing([*items, (_tile(counts.files_failed, "file", " with failures"), failed)])


def _tile(n: int, unit: str, said: str, more: str = "") -> doc.Words:
    words = f" {unit if n == 1 or not unit else unit + 's'}{said} "
    return doc.strong(f"{n:,}"), words, *([doc.muted(more)] if more else [])


def _notes(summary: SummaryRecord) -> list[doc.Block]:
    counts, notes = summary.counts, list[doc.Block]()
    if seen := counts.frames_seen:
        calibrated = ", or belong to patients of the calibration" if summary.model.calibration else ""
        said = f"{seen:,} of these images {'was' if seen == 1 else 'were'} in the network's training data{calibrated}"
        after = "). Their scores do not show how well the network performs on new images."
        notes.append(doc.Note((f"{said} (flag ", doc.code("seen"), after)))
    if unusual := counts.frames_unusual:
        said = f"{plural(unusual, 'image')} {'is' if unusual == 1 else 'are'} unlike the training images (flag "
        examples = "), for example another examination, another organ, Doppler or an empty frame. "
        then = "They are scored and classified like all others; do not rely on these results."
        if _excludes_unusual(summary):
            then = "No decision is made on them, and the figures of studies and patients exclude them."
        notes.append(doc.Note((said, doc.code("unusual"), examples, then)))
    if zone := summary.abstention:
        uncertain = counts.frames_uncertain or 0
        notes.append(
            doc.Note(
                f"The model abstains from {plural(uncertain, 'uncertain image')} "
                f"({_per_cent(uncertain, counts.frames_scored)}), whose calibrated probability is between "
                f"{zone.low:.3f} and {zone.high:.3f}: they need a reader. This also applies to the means of studies "
                f"and patients. Zone: {zone.origin}."
            )
        )
    if summary.threshold.value is None:
        notes.append(doc.Note("The network has no threshold: the page shows probabilities and no decisions."))
    return notes


def _images(summary: SummaryRecord, images: DataTable) -> doc.DocumentSection:
    threshold, kept = summary.threshold.value, bool(summary.settings.get("keep_ids"))
    linked: doc.Words = ("; the ", _LINK_TABLE, " (repeat the command with this option if you left it out)")
    mark = "" if threshold is None else f"; the mark on each bar is the threshold, {threshold:.3f}"
    said = (
        f". Frame: its number in the file, counted from 0. Calibrated: probability of {summary.positive_class} after "
        f"temperature scaling; raw: before it{mark}. Spread: standard deviation over the networks of the ensemble. OOD "
        "score: how unlike the training images the image is."
    )
    if table := attended_table(summary):
        said += f" Weight: share of the image in the result of its {UNITS[table.removesuffix('.csv')]}, by attention."
    if images.n_pictured and images.n_pictured < images.n_shown:
        said += f" Thumbnails: only of the {images.n_pictured:,} images with the highest probability."
    if images.n_pictured and not kept:
        said += " An image has no thumbnail if words may be burned in and no tissue region is known to crop it to."
    said += " Values are rounded; scores.csv and scores.parquet hold more digits and more columns."
    words = ("Image: the file's pseudonym", "" if kept else linked, said)
    return doc.DocumentSection(
        "Images", [doc.ScriptTable("images", "scores.csv"), doc.Paragraph(words, small=True)], "images"
    )


def _groups(summary: SummaryRecord, name: str, table: DataTable) -> doc.DocumentSection:
    unit = UNITS[name]
    without = getattr(summary.counts, f"files_without_{unit}")
    own = summary.model.unit
    own = own if own and own.decides == f"{name}.csv" else None
    at = f"its own threshold, chosen on {own.unit}s" if own else "the threshold for single images"
    after = f", at {at}. A low mean can hide one suspicious frame; the highest probability is therefore shown as well."
    after += " Unusual images are excluded." if _excludes_unusual(summary) else ""
    if without:
        after += f" {plural(without, 'file')} without a {unit} id {'is' if without == 1 else 'are'} not included."
    decided = "this mean"
    if own and own.pooling != "mean":
        over = "over all images, each frame of a loop counting as one"
        decided = "the highest probability" if own.pooling == "max" else f"the {_result(own)} {over}"
    before = "Each file counts once: the mean over files of each file's mean over its frames. "
    said = doc.Paragraph((before, doc.strong(f"The decision is made on {decided}"), after))
    return doc.DocumentSection(name.capitalize(), [said, doc.ScriptTable(name, f"{name}.csv")], name)


def _distributions(summary: SummaryRecord, plots: Sequence[doc.Figure]) -> doc.DocumentSection:
    blocks: list[doc.Block] = [doc.Gallery(plots)] if plots else [doc.Paragraph("No image was scored.")]
    rate = summary.novelty.stated_rate
    if plots and rate is not None:
        found = _per_cent(summary.novelty.found_rate or 0, 1)
        said = f"The network calls {_per_cent(rate, 1)} of images like its training images unusual, and of the images "
        blocks.append(doc.Paragraph(f"{said}scored here {found}."))
    return doc.DocumentSection("Distributions", blocks, "distributions")


def _flags(summary: SummaryRecord) -> doc.DocumentSection:
    meanings, most = MEANINGS | _FLAG_MEANINGS, max(summary.flags.values(), default=1)
    rows: list[tuple[doc.Cell, ...]] = [
        (flag, meanings.get(flag, ""), _bar(number, summary.counts.frames_scored, most))
        for flag, number in sorted(summary.flags.items(), key=lambda one: one[1], reverse=True)
    ]
    caption = "Images that carry a flag. A flag describes the image; it does not mean that the score is wrong."
    table = doc.Table("Images by flag", ["Flag", "Meaning", *doc.numbers("Images")], rows, caption)
    return doc.DocumentSection("Flags", [table if rows else doc.Paragraph("None.")], "flags")


def _bar(number: int, of: int, most: int) -> doc.Shaded:
    """Return a number with its share; the shade shows it beside the largest one."""
    share: doc.Words = (number, " ", doc.muted(f"({_per_cent(number, of)})")) if of else number
    return doc.Shaded(share, number / most)


def _failures(summary: SummaryRecord, table: DataTable) -> doc.DocumentSection:
    if not summary.failures:
        return doc.DocumentSection("Failures", [doc.Paragraph("None: every file was scored.")], "failures")
    most = max(one.rows for one in summary.failures.values())
    rows: list[tuple[doc.Cell, ...]] = [
        (doc.code(code), one.reason, ADVICE.get(code, ""), _bar(one.rows, summary.counts.failures, most))
        for code, one in sorted(summary.failures.items(), key=lambda each: each[1].rows, reverse=True)
    ]
    heads: list[str | doc.Column] = ["Code", "Reason", "What to do", *doc.numbers("Failures")]
    reasons = doc.Table("Failures by reason", heads, rows, "Why files, or single frames of them, were not scored.")
    said: doc.Words = (
        "" if summary.settings.get("keep_ids") else ("The ", _LINK_TABLE, ". "),
        "To score files that were repaired or exported again, start a new job: ",
        doc.code("--input"),
        " with these files, another ",
        doc.code("--out"),
        ", and the same key.",
    )
    which: list[doc.Block] = [doc.ScriptTable("failures", "failures.csv"), doc.Paragraph(said, small=True)]
    return doc.DocumentSection("Failures", [reasons, doc.DocumentSection("Which files", which)], "failures")


def _products(summary: SummaryRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = []
    for kind, one in summary.products.items():
        name, path = PRODUCTS[kind]
        reasons = [(doc.code(code), f" {why.rows:,}: {why.reason}") for code, why in (one.reasons or {}).items()]
        rows.append((name, doc.code(path), one.written, one.failed, doc.spaced(reasons, "; ")))
    caption = (
        "These files are next to this page; products.csv lists them. A picture may contain text that the detector "
        "missed: look at the pictures before you share them."
    )
    heads: list[str | doc.Column] = ["What", "Files", *doc.numbers("Written", "Not written"), "Why not"]
    table = doc.Table("What was written for the images", heads, rows, caption)
    return doc.DocumentSection("DICOM and pictures", [table], "products")


def _model(summary: SummaryRecord) -> doc.DocumentSection:
    model, positive = summary.model, summary.positive_class
    threshold = summary.threshold.value
    stated = "" if threshold is None else f"{threshold:.4f} of the calibrated probability: "
    facts: list[tuple[str, doc.Words]] = [
        ("Network", _network(summary)),
        ("Classes", (f"{', '.join(summary.classes)}; positive: ", doc.strong(positive))),
        ("Threshold", f"{stated}{summary.threshold.origin or doc.NOT_RECORDED}"),
        ("Threshold of studies and patients", units_sentence(summary)),
        *_calibration(summary),
    ]
    rate = model.novelty.in_distribution if model.novelty else None
    if rate and rate.n_images and rate.rate is not None and rate.ci95 is not None:
        low, high = (f"{100 * end:.1f}" for end in rate.ci95)
        flagged = f"{rate.n_flagged:,} of {rate.n_images:,} {rate.on}: {_per_cent(rate.rate, 1)}"
        facts.append(("Unusual, expected", f"{flagged} (95 % interval {low} to {high})"))
    if one := model.preprocessing:
        facts.append(("Input", f"{one.image_size} px, {one.resize}, crop: {one.crop}"))
    facts += [
        (SETTINGS.get(key, key.replace("_", " ").capitalize()), _setting(value))
        for key, value in summary.settings.items()
        if not isinstance(value, Mapping)
    ]
    device = model.device
    times = f"{_minute(summary.started)} to {_minute(summary.finished)} (UTC), {duration(summary.seconds)}"
    facts += [
        ("Device", f"{device['name']} ({device['type']}, {device['precision']})" if device else None),
        ("Time", times),
        ("Versions", ", ".join(f"{name} {version}" for name, version in summary.versions.items())),
        ("Model, SHA-256", doc.code(model.sha256)),
        ("scores.csv, SHA-256", doc.code(summary.files["scores.csv"].sha256)),
    ]
    return doc.DocumentSection("Model and settings", [doc.Facts(facts)], "model")


def attended_table(summary: SummaryRecord) -> str | None:
    """Return the table whose rows are pooled from their images by attention, such as ``patients.csv``; None without."""
    unit = summary.model.unit
    return unit.decides if unit is not None and unit.pooling == "attention" else None


def units_sentence(summary: SummaryRecord) -> str:
    """Say at which threshold studies and patients are decided."""
    unit = summary.model.unit
    single = "at the threshold of a single image, which was not chosen for them"
    if unit is None:
        return f"studies and patients are decided {single}: train with --unit patient, or --unit exam, for their own"
    if unit.decides not in summary.files:
        return (
            f"studies and patients are decided {single}; the model's own is for {unit.unit}s by {unit.pooling}, which "
            "these tables do not have"
        )
    other = {"patient": "studies", "exam": "patients"}.get(unit.unit, "studies and patients")
    stated = "no decision" if unit.threshold is None else f"threshold {unit.threshold:.4f}"
    return f"{unit.decides}: {stated} of the {_result(unit)} ({unit.origin}); {other} {single}"


def _result(unit: UnitPointRecord) -> str:
    how = {"mean": "mean", "max": "max", "attention": "result of attention", "noisy-or": "noisy-or"}
    return how.get(unit.pooling) or f"mean of the {unit.pooling.removeprefix('top-')} highest"


def _network(summary: SummaryRecord) -> str:
    members = summary.model.members
    if not members:
        return _architectures(summary)
    runs = listed(dict.fromkeys(one.run for one in members if one.run))
    which = f"fold {listed(one.fold for one in members)}" if runs == "none" else f"runs {runs}"
    number = "one network" if len(members) == 1 else f"mean of {len(members)} networks"
    flip = ", each image and its mirror image" if summary.model.flip else ""
    return f"{_architectures(summary)}, {number} ({which}){flip}"


def _calibration(summary: SummaryRecord) -> list[tuple[str, doc.Words]]:
    if one := summary.model.calibration:
        images = f"{plural(one.n_images, 'local image')} in {plural(one.n_groups, 'group')}"
        temperature = doc.NOT_RECORDED if one.temperature is None else str(one.temperature)
        return [("Calibration", f"fitted again on {images}; temperature {temperature}")]
    temperatures = [one.temperature for one in summary.model.members]
    words = ("1 (none fitted)" if one is None else decimals(one) for one in temperatures)
    return [("Temperature", ", ".join(words))] if temperatures else []


def _setting(value: Any) -> doc.Words:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, str | int | float):
        return None if value is None else str(value)
    return ", ".join(map(str, value)) or "none"
