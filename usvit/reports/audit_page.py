"""The audit on disk: audit.json, keep.csv and a page for reviewing the findings."""

import base64
import hashlib
import io
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import ChoiceLoader, Environment, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from usvit.config.data_commands import AuditSettings, ReadingSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.data.audit import MEANINGS, Audit, find_faults
from usvit.data.datasets import DataRoot, OwnTable, build_manifest, is_private, load_cards, roots_from
from usvit.data.io import BadImage
from usvit.data.near_duplicates import NearDuplicate
from usvit.documents import SERIES, drawing_style, to_svg
from usvit.errors import UsvitError
from usvit.files import OutputFolder, csv_text, for_the_owner_alone, write_csv, write_text
from usvit.progress import NO_PROGRESS, Progress
from usvit.records import AuditRecord, load_record, save_record
from usvit.reports.templating import LOADERS, script_of

FILES = ("audit.json", "keep.csv", "audit.html")
MAX_PAIRS, MAX_CONFLICTS, MAX_EXAMPLES = 300, 100, 12
"""Limits of the page; audit.json holds everything. The number of examples is per flag."""
THUMBNAIL, LARGE_THUMBNAIL, JPEG_QUALITY = 200, 320, 80
"""Longer side in px (large if labels contradict each other), and JPEG quality."""


class AuditResult(NamedTuple):
    """The findings of an audit, and the folder that holds its page."""

    findings: Audit
    path: Path


@takes_settings
def audit(
    datasets: str,
    *,
    settings: AuditSettings,
    data_root: DataRoot = None,
    table: str | None = None,
    columns: Mapping[str, str] | None = None,
    positive: str | None = None,
    command: str = "",
    progress: Progress = NO_PROGRESS,
) -> AuditResult:
    """Audit one data set, or the union of several, and write ``audit.json``, ``keep.csv`` and ``audit.html``.

    The audit finds near-duplicates, contradicting labels, images shared between data sets, and marks such as burned-in
    text and calipers, which a model could learn instead of the lesion.

    Args:
        datasets: Names of data cards joined by '+'.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        settings: See ``AuditSettings``.
        table: Table that lists your own images (data sets ``table`` and ``dicom``).
        columns: usvit's name of a column -> name in that table, such as ``{"path": "File"}``.
        positive: The positive class.
        command: Command that the page shows.
        progress: Shown while images are decoded and compared.

    Returns:
        The findings, and the folder. The folder is written completely or not at all. If it holds an audit of the same
        images, that audit is replaced.

    Raises:
        UsvitError: The data set cannot be read, or ``out`` holds something else; nothing is changed then.

    Example:
        >>> import usvit
        >>> findings, folder = usvit.audit("phantom", out="audits/phantom")
        >>> len(findings.record.label_conflicts), (folder / "audit.html").is_file()
        (0, True)
    """
    own = OwnTable(table, columns or {}, positive)
    cards, roots = load_cards(datasets, own), roots_from(data_root)
    out = settings.out or Path("audits") / "+".join(card.name for card in cards)
    _refuse_occupied(out, None)
    manifest = build_manifest(datasets, roots, progress, **dict(part(settings, ReadingSettings)), cache=False, own=own)
    _refuse_occupied(out, manifest.sha256())
    result = find_faults(manifest, cards, progress)
    # The images on the page may contain patient names.
    with for_the_owner_alone(any(map(is_private, cards))):
        write_audit(result, out, {card.name: card.classes for card in cards}, command)
    return AuditResult(result, out)


def write_audit(result: Audit, out: Path, card_counts: dict[str, dict[str, int | None]], command: str) -> None:
    """Write ``FILES`` into a folder, all of them or none.

    Args:
        result: the findings.
        out: the folder.
        card_counts: data set -> class -> number of images that its card states, or None.
        command: command shown on the page.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    page = _page(result, card_counts, command)
    with _output_folder(out).staged(replaces=FILES) as partial:
        save_record(partial / "audit.json", result.record)
        write_csv(partial / "keep.csv", result.keep)
        write_text(partial / "audit.html", page)


def _output_folder(out: Path) -> OutputFolder:
    return OutputFolder(out, "an audit", "audit.json")


def _refuse_occupied(out: Path, manifest_sha256: str | None) -> None:
    """Refuse a folder without an audit; with a hash, also an audit of other images."""
    if not _output_folder(out).has_record():
        return
    there = load_record(out / "audit.json", AuditRecord).manifest_sha256
    if manifest_sha256 not in (None, there):
        raise UsvitError(
            f"{out} holds an audit of other images, or of other labels or groups. Nothing was changed: choose "
            "another folder with --out, or remove this one."
        )


def _page(result: Audit, card_counts: dict[str, dict[str, int | None]], command: str) -> str:
    manifest, table = result.manifest, result.manifest.table
    conflicts: list[NearDuplicate] = []
    shared: list[NearDuplicate] = []
    others: list[NearDuplicate] = []
    for pair in sorted(result.pairs, key=lambda pair: (pair.similarity, pair.first, pair.second)):
        first, second = table.iloc[pair.first], table.iloc[pair.second]
        kind = conflicts if first.label != second.label else shared if first.dataset != second.dataset else others
        kind.append(pair)
    shown = [*conflicts[:MAX_CONFLICTS], *shared[:MAX_PAIRS], *others[:MAX_PAIRS]]
    examples = {
        name: [row for row, one in enumerate(result.flags) if name in one] for name in result.record.flag_counts
    }
    # Spread the examples over the data set, because neighbouring images are often alike.
    examples = {name: rows[:: max(1, len(rows) // MAX_EXAMPLES)][:MAX_EXAMPLES] for name, rows in examples.items()}
    large = {row for pair in conflicts[:MAX_CONFLICTS] for row in (pair.first, pair.second)}
    rows = {row for pair in shown for row in (pair.first, pair.second)}.union(*examples.values())
    values: dict[str, Any] = {
        "audit": result.record,
        "table": table,
        "card_counts": card_counts,
        "licenses": manifest.licenses,
        "several": len(card_counts) > 1,
        "command": command,
        "sections": [
            ("conflicts", "Near-duplicates with different labels", conflicts, conflicts[:MAX_CONFLICTS]),
            ("shared", "Images shared between data sets", shared, shared[:MAX_PAIRS]),
            ("copies", "Other near-duplicates", others, others[:MAX_PAIRS]),
        ],
        "captions": {row: f"{result.sizes[row][1]} x {result.sizes[row][0]}" for row in rows},
        "thumbnails": _thumbnails(result, rows, large),
        "examples": examples,
        "meanings": MEANINGS,
        "group_sizes": sorted(Counter(map(len, result.record.duplicate_groups)).items()),
        "drawings": _drawings(result.sizes),
        **script_of("audit.js"),
        "keep_sha256": hashlib.sha256(csv_text(result.keep).encode()).hexdigest(),
    }
    environment = Environment(
        loader=ChoiceLoader(LOADERS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = lambda n: f"{n:,}"
    return environment.get_template("audit.html.j2").render(values)


def _thumbnails(result: Audit, rows: Iterable[int], large: set[int]) -> dict[int, str]:
    """Map each row to the data URI of a small JPEG."""

    def shrink(row: int) -> tuple[int, str]:
        one = result.manifest.table.iloc[row]
        try:
            image = Image.fromarray(result.manifest.read(one))
        except BadImage as bad:
            raise result.manifest.told(bad) from bad
        side = LARGE_THUMBNAIL if row in large else THUMBNAIL
        image.thumbnail((side, side), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=JPEG_QUALITY)
        return row, "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(shrink, sorted(rows)))


def _drawings(sizes: NDArray[np.int64]) -> list[tuple[str, Markup]]:
    """Draw histograms of heights, widths and aspect ratios."""
    height, width = sizes[:, 0], sizes[:, 1]
    drawn = []
    for name, values, label in (
        ("height", height, "Height (px)"),
        ("width", width, "Width (px)"),
        ("aspect", width / height, "Width / height"),
    ):
        with drawing_style():
            figure = Figure(figsize=(3.1, 1.9), layout="constrained")
            axes = figure.add_subplot()
            spread = float(np.ptp(values))
            axes.hist(values, bins=30 if spread else 1, color=SERIES[0])
            axes.set(xlabel=label, ylabel="Images")
            axes.locator_params(nbins=5)
            low, middle, high = (f"{value:.4g}" for value in np.percentile(values, [0, 50, 100]))
            title = f"{label} from {low} to {high}, median {middle}"
            drawn.append((title, to_svg(figure, name=f"sizes-{name}", title=f"Histogram: {title}")))
    return drawn
