"""``usvit score``: find files, read and score images, and write products, tables and a page.

An interrupted job can be resumed at any point.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from usvit.config.keywords import takes_settings
from usvit.config.scoring import ScoringSettings
from usvit.errors import UsvitError
from usvit.files import for_the_owner_alone, is_partial_of
from usvit.progress import Progress, shown_progress
from usvit.pseudonyms import LinkTable, Pseudonyms, default_key_path, refuse_inside
from usvit.records import SummaryRecord, load_record
from usvit.scoring.abstention import zone_of
from usvit.scoring.audit_log import audited
from usvit.scoring.companions import OPTIONS
from usvit.scoring.dicom_out.network_maps import check_masks
from usvit.scoring.dicom_out.production import make_products
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.engines import ModelChoice, Reading, score_here, score_on_ray
from usvit.scoring.items import DECIDES, FAILURES, Failure, ScoringItem
from usvit.scoring.job_directory import open_folder
from usvit.scoring.journal import PENDING, SCORED, Batch, Journal, open_journal
from usvit.scoring.link_table import Linked, ScoredHashes
from usvit.scoring.pipeline import Describer
from usvit.scoring.reading.item_reader import parse_frames
from usvit.scoring.request import Request, identity_of
from usvit.scoring.results import write_results

logger = logging.getLogger(__name__)

_THUMBNAIL_SIDE = 160


@dataclass(frozen=True)
class ScoringResult:
    """The result of a scoring job."""

    out: Path
    summary: SummaryRecord
    """The content of ``summary.json``."""
    not_linked: int = 0
    """Number of files that the link table leaves out, because they have changed or can no longer be read."""

    @property
    def partly(self) -> bool:
        """True if something could not be scored, or a product could not be written."""
        counts = self.summary.counts
        return bool(counts.failures or counts.products_failed or self.not_linked)


@takes_settings
def score(
    model: str | Path | Sequence[str | Path],
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    settings: ScoringSettings,
    *,
    progress: Progress | None = None,
) -> ScoringResult:
    """Score every image of the inputs and write tables, a summary and a page into a folder.

    A job that was interrupted continues where it stopped when it is called again with the same arguments.

    Args:
        model: folder of a run, of one of its folds, of an export as safetensors, or of an ensemble; or several of them,
            whose networks are averaged with equal weights.
        inputs: folders, files, globs, zip archives, tables with a column ``path``, or DICOMDIRs.
        out: folder for the results.
        settings: see ``ScoringSettings``.
        progress: shows how many files are done.

    Returns:
        The folder and the content of ``summary.json``, with keys as attributes; ``partly`` says whether something could
        not be scored.

    Raises:
        UsvitError: an argument is wrong, and nothing has been written; or the work cannot continue (the disk is full),
            and the job can be resumed.

    Example:
        >>> import usvit
        >>> result = usvit.score("runs/small", "images", "scores", device="cpu")
        >>> result.partly, result.summary.counts.failures
        (False, 0)
    """
    request = Request(
        models=tuple(Path(one) for one in ([model] if isinstance(model, (str, Path)) else model)),
        inputs=tuple(str(path) for path in ([inputs] if isinstance(inputs, (str, Path)) else inputs)),
        out=Path(out),
        settings=settings,
    )
    return _run(request, shown_progress(progress))


def _run(request: Request, progress: Progress) -> ScoringResult:
    settings = request.settings
    parse_frames(settings.frames)
    if settings.engine == "local" and (settings.address is not None or settings.cpus is not None):
        raise UsvitError("--address and --cpus require --engine ray.")
    choice = ModelChoice(
        tuple(model.resolve() for model in request.models),
        settings.model_copy(
            update={
                name: None if (path := getattr(settings, name)) is None else path.resolve()
                for name in ("calibration", *OPTIONS)
            }
        ),
    )
    ensemble = choice.load()
    lesions = ensemble.draws_lesions(settings.products) or ensemble.segmenter is not None
    if "seg" in settings.products and ensemble.segmenter is None:
        check_masks([member.trained for member in ensemble.members])
    if (own := ensemble.unit_point) is not None and own.unit not in DECIDES:
        other = f"for {own.unit}s, run usvit evaluate SCORES --labels FILE --unit {own.unit} --pooling {own.pooling}"
        if own.pooling == "attention":
            other = "for a result by attention, train with --unit breast, exam or patient"
        logger.warning(
            f"The model's threshold is for {own.unit}s by {own.pooling}, of which usvit score has no table. Studies "
            f"and patients are decided by the mean of their images, at the threshold of a single image; {other}."
        )
    zone = None
    if settings.abstain_at is not None:
        zone = zone_of(settings.abstain_at, ensemble.threshold, ensemble.calibration, ensemble.positive)
    key = settings.key or default_key_path()
    for path, what in ((key, "The key"), (settings.link, "The link table")):
        if path is not None:  # results that are shared must not contain the key or the link table
            refuse_inside(path, request.out, what)
    pseudonyms = Pseudonyms.of_key(key)
    logger.info(f"The pseudonyms are made with the key {key}. Keep it: ids cannot be traced or matched without it.")
    if pseudonyms.warning:
        logger.warning(pseudonyms.warning)
    # Raises for wrong inputs before anything is written.
    items = _without_own(discover(request.inputs, exclude=request.out), key, settings.link)
    identity = identity_of(request, ensemble, pseudonyms, zone)
    named = {"job": identity["input"], "model": ensemble.sha256, "key": pseudonyms.fingerprint}
    with (
        for_the_owner_alone(settings.keep_ids),
        audited(settings.audit_log, out=request.out, **named) as attempt,
        open_folder(request.out, identity) as folder,
    ):
        read = ensemble.read_settings(
            settings.frames,
            thumbnail_side=_THUMBNAIL_SIDE if settings.thumbnails else None,
            pictures=settings.pictures,
            keep_words=settings.keep_ids,
        )
        reading = Reading(read, settings)
        if folder.finished:
            not_linked = _link_finished(items, request, pseudonyms, reading)
        else:
            journal = open_journal(folder.journal)
            try:
                not_linked = _find(items, request, journal, pseudonyms, reading)
                describer = Describer(ensemble, pseudonyms, settings.keep_ids, settings.abstain, zone, lesions)
                _score_all(request, reading, choice, describer, journal, progress)
                pooling = ensemble.view_pooling(abstain=settings.abstain)
                pooled = None if pooling is None else journal.pool(pooling.unit_id, pooling.pool)
                if settings.products:
                    make_products(
                        journal,
                        ensemble,
                        reading,
                        out=folder.path,
                        wanted=settings.products,
                        keep_ids=settings.keep_ids,
                        pictures=settings.pictures,
                        pseudonyms=pseudonyms,
                        started=folder.started,
                        progress=progress,
                    )
                write_results(settings, folder, journal, ensemble, zone, pooled, lesions=lesions)
            finally:
                journal.close()
            folder.finish()
        if not_linked:
            logger.info(
                f"{not_linked} files are left out of the link table, because they have changed since they were scored "
                "or can no longer be read."
            )
        outcome = ScoringResult(request.out, load_record(request.out / "summary.json", SummaryRecord), not_linked)
        attempt.counts, attempt.partly = outcome.summary.counts.content(), outcome.partly
        return outcome


def _find(
    items: Iterable[ScoringItem],
    request: Request,
    journal: Journal,
    pseudonyms: Pseudonyms,
    reading: Reading,
) -> int:
    """Register all files in the journal. A file that an earlier process found and that is gone becomes a failure.

    Returns:
        Number of files that the link table leaves out.
    """
    logger.info("Looking for files.")
    not_linked = 0
    found = ((pseudonyms.item(item.name), item) for item in items)
    if request.settings.link is None:
        journal.register(found)
    else:
        with LinkTable(request.settings.link, pseudonyms, out=request.out) as table, reading.open() as readers:
            linked = Linked(table, readers, journal.file_sha256)
            journal.register(linked.passing(found))
            not_linked = linked.left_out
    gone = Batch()
    for seq in journal.vanished(PENDING):
        if None not in journal.frames_done(seq):
            gone.failures.append((seq, Failure("not_found"), {"path": "", "reason": FAILURES["not_found"]}))
        gone.ended.append(seq)
    journal.commit(gone)
    journal.note_gone(journal.vanished(SCORED))  # so that their missing products are reported
    return not_linked


def _without_own(items: Iterable[ScoringItem], key: Path, link: Path | None) -> Iterator[ScoringItem]:
    """Leave out the user's key and link table if they lie among the images."""
    own = {os.path.realpath(one) for one in (key, *(() if link is None else (link,)))}
    names = tuple(Path(one).name for one in own)
    for item in items:
        if link is not None and is_partial_of(Path(item.location).name, link):  # the table while it is being written
            continue
        if not item.location.endswith(names) or os.path.realpath(item.location) not in own:
            yield item


def _link_finished(items: Iterable[ScoringItem], request: Request, pseudonyms: Pseudonyms, reading: Reading) -> int:
    """Write the link table of a finished job. An existing table is kept: it may list files that are gone by now.

    Returns:
        Number of files that the table leaves out.
    """
    if request.settings.link is None or request.settings.link.exists():
        logger.info("This job is already finished: nothing was scored again.")
        return 0
    logger.info("This job is already finished: only the link table is written.")
    hashes = ScoredHashes(request.out / "scores.parquet")
    with LinkTable(request.settings.link, pseudonyms, out=request.out) as table, reading.open() as readers:
        linked = Linked(table, readers, hashes.get)
        for _ in linked.passing((pseudonyms.item(item.name), item) for item in items):
            pass
        return linked.left_out


def _score_all(
    request: Request,
    reading: Reading,
    choice: ModelChoice,
    describer: Describer,
    journal: Journal,
    progress: Progress,
) -> None:
    counts = journal.counts()
    if counts["done"]:
        logger.info(f"Resuming: {counts['done']} of {counts['items']} files are done.")
    items = journal.waiting(PENDING)
    if request.settings.engine == "ray":
        batches = score_on_ray(
            items,
            reading,
            choice,
            describer,
            batch_size=request.settings.batch_size,
            known=journal.done,
            address=request.settings.address,
            cpus=request.settings.cpus or 2,
            progress=progress,
        )
    else:
        batches = score_here(items, reading, describer, request.settings.batch_size, journal.done)
    done, frames, failures = counts["done"], 0, 0
    progress.start("scoring", counts["items"], "files", done=done)
    try:
        for batch in batches:
            journal.commit(batch)
            done, frames, failures = done + len(batch.ended), frames + len(batch.rows), failures + len(batch.failures)
            progress.update(done, f"{frames} images, {failures} failures")
    finally:
        progress.finish()
