"""The audit on disk: audit.json, keep.csv and a page where a person can judge what was found."""

import base64
import hashlib
import io
import secrets
import shutil
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from usvit.data.audit.flags import MEANINGS
from usvit.data.audit.run import Audit, audit
from usvit.data.cards import load_cards
from usvit.data.copies import Copy
from usvit.data.identities import is_private
from usvit.data.images import BadImage
from usvit.data.manifest import build_manifest
from usvit.errors import UsvitError
from usvit.files import csv_text, disk_errors, write_csv, write_json, write_text
from usvit.progress import Progress
from usvit.pseudonyms import for_the_owner_alone
from usvit.records import AuditRecord, read_record
from usvit.report.environment import script_of
from usvit.report.svg import SERIES, drawing_style, to_svg

FILES = ("audit.json", "keep.csv", "audit.html")
MAX_PAIRS, MAX_CONFLICTS, MAX_EXAMPLES = 300, 100, 12
"""On the page; the rest stands in audit.json. Examples are for each flag."""
THUMBNAIL, LARGE_THUMBNAIL, JPEG_QUALITY = 200, 320, 80
"""Longer side in px; large where labels contradict each other."""


def audit_dataset(
    datasets: str,
    roots: dict[str, Path],
    out: Path | None,
    progress: Progress,
    *,
    command: str,
    skip_bad: bool = False,
    keep_ids: bool = False,
) -> tuple[Audit, Path]:
    """Audit one data set, or the union of several, and write what was found.

    Args:
        datasets: names of cards joined by '+'.
        roots: data set -> folder, "" for all.
        out: the folder to write; None takes ``audits/<datasets>``.
        progress: shown while images are decoded and compared.
        command: as the user gave it, for the page.
        skip_bad: leave out files that cannot be read, and list them.
        keep_ids: no pseudonyms for private data sets.

    Returns:
        What was found, and the folder. The folder appears with all its files or not at all; one that holds an
        audit of the very same images is brought up to date.

    Raises:
        UsvitError: the data set cannot be read, or ``out`` holds something else (nothing is changed).
    """
    cards = load_cards(datasets)
    out = out or Path("audits") / "+".join(card.name for card in cards)
    _refuse_occupied(out, None)
    manifest = build_manifest(datasets, roots, progress, skip_bad=skip_bad, keep_ids=keep_ids)
    _refuse_occupied(out, manifest.sha256())
    result = audit(manifest, cards, progress)
    # The page shows images, which may name patients themselves.
    with for_the_owner_alone() if any(map(is_private, cards)) else nullcontext():
        write_audit(result, out, {card.name: card.classes for card in cards}, command)
    return result, out


def write_audit(result: Audit, out: Path, card_counts: dict[str, dict[str, int | None]], command: str) -> None:
    """Write ``FILES`` into a folder, all or none.

    Args:
        result: what was found.
        out: the folder.
        card_counts: data set -> class -> images that its card states, None where it states none.
        command: shown on the page.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    page = _page(result, card_counts, command)
    partial = out.parent / f".{out.name}.partial-{secrets.token_hex(8)}"
    with disk_errors(out):
        try:
            write_json(partial / "audit.json", result.record)
            write_csv(partial / "keep.csv", result.keep)
            write_text(partial / "audit.html", page)
            if out.is_dir() and any(out.iterdir()):  # an older audit of the same images; a user's own notes stay
                for name in FILES:
                    (partial / name).replace(out / name)
            else:
                partial.replace(out)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _refuse_occupied(out: Path, manifest_sha256: str | None) -> None:
    """Refuse a folder that holds no audit; with a hash, one of other images, too."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    try:
        there = read_record(out / "audit.json", AuditRecord)["manifest_sha256"]
    except UsvitError:
        raise UsvitError(
            f"{out} exists and is no audit of usvit. Nothing was changed: choose another folder with --out."
        ) from None
    if manifest_sha256 not in (None, there):
        raise UsvitError(
            f"{out} holds an audit of other images, or of other labels or groups. Nothing was changed: choose "
            "another folder with --out, or remove this one."
        )


def _page(result: Audit, card_counts: dict[str, dict[str, int | None]], command: str) -> str:
    manifest, table = result.manifest, result.manifest.table
    conflicts: list[Copy] = []
    shared: list[Copy] = []
    others: list[Copy] = []
    for pair in sorted(result.pairs, key=lambda pair: (pair.similarity, pair.first, pair.second)):
        first, second = table.iloc[pair.first], table.iloc[pair.second]
        kind = conflicts if first.label != second.label else shared if first.dataset != second.dataset else others
        kind.append(pair)
    shown = [*conflicts[:MAX_CONFLICTS], *shared[:MAX_PAIRS], *others[:MAX_PAIRS]]
    examples = {
        name: [row for row, one in enumerate(result.flags) if name in one] for name in result.record["flag_counts"]
    }
    # Spread over the data set, for neighbours are often alike.
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
            ("conflicts", "Copies with different labels", conflicts, conflicts[:MAX_CONFLICTS]),
            ("shared", "Images shared between data sets", shared, shared[:MAX_PAIRS]),
            ("copies", "Other copies", others, others[:MAX_PAIRS]),
        ],
        "captions": {row: f"{result.sizes[row][1]} x {result.sizes[row][0]}" for row in rows},
        "thumbnails": _thumbnails(result, rows, large),
        "examples": examples,
        "meanings": MEANINGS,
        "group_sizes": sorted(Counter(map(len, result.record["duplicate_groups"])).items()),
        "drawings": _drawings(result.sizes),
        **script_of("audit.js"),
        "keep_sha256": hashlib.sha256(csv_text(result.keep).encode()).hexdigest(),
    }
    environment = Environment(
        loader=PackageLoader("usvit.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["count"] = lambda n: f"{n:,}"
    return environment.get_template("audit.html.j2").render(values)


def _thumbnails(result: Audit, rows: Iterable[int], large: set[int]) -> dict[int, str]:
    """Row -> data URI of a small JPEG."""

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
    """Histograms of the images' heights, widths and aspect ratios."""
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
