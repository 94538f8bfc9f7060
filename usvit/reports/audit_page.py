"""The audit on disk: audit.json, keep.csv and a page for reviewing the findings."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from usvit.config.data_commands import AuditSettings, ReadingSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.data.audit import Audit, AuditReview, choose_for_review, find_faults
from usvit.data.datasets import DataRoot, OwnTable, build_manifest, is_private, load_cards, roots_from
from usvit.data.io import BadImage
from usvit.documents import html_page
from usvit.errors import UsvitError
from usvit.files import OutputFolder, for_the_owner_alone, sha256_of_file, write_csv, write_text
from usvit.progress import NO_PROGRESS, Progress
from usvit.records import AuditRecord, load_record, save_record
from usvit.reports.audit_document import audit_document
from usvit.reports.static import static_text
from usvit.reports.thumbnails import SIDE, jpeg_uri

FILES = ("audit.json", "keep.csv", "audit.html")
LARGE = 320
"""Longer side, in px, of the thumbnails of two images whose labels contradict each other."""


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
        write_audit(result, out, command)
    return AuditResult(result, out)


def write_audit(result: Audit, out: Path, command: str) -> None:
    """Write ``FILES`` into a folder, all of them or none.

    Args:
        result: the findings.
        out: the folder.
        command: command shown on the page.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    chosen = choose_for_review(result)
    pictures = _thumbnails(result, chosen)
    with _output_folder(out).staged(replaces=FILES) as partial:
        save_record(partial / "audit.json", result.record)
        write_csv(partial / "keep.csv", result.keep)
        keep = sha256_of_file(partial / "keep.csv")
        document = audit_document(result, chosen, pictures, command=command, keep_sha256=keep)
        write_text(partial / "audit.html", html_page(document, static_text("audit.css"), static_text("audit.js")))


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


def _thumbnails(result: Audit, chosen: AuditReview) -> dict[int, str]:
    """Map each row that is shown to the data URI of a small JPEG."""
    shown = [*chosen.conflicts.shown, *chosen.shared.shown, *chosen.copies.shown]
    rows = {row for pair in shown for row in (pair.first, pair.second)}.union(*chosen.examples.values())
    large = {row for pair in chosen.conflicts.shown for row in (pair.first, pair.second)}

    def shrink(row: int) -> tuple[int, str]:
        try:
            image = Image.fromarray(result.manifest.read(result.manifest.table.iloc[row]))
        except BadImage as bad:
            raise result.manifest.told(bad) from bad
        side = LARGE if row in large else SIDE
        return row, jpeg_uri(image, (side, side))

    with ThreadPoolExecutor() as pool:
        return dict(pool.map(shrink, sorted(rows)))
