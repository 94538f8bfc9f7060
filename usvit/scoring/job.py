"""``usvit score``: find files, read and score images, and write products, tables and a page.

An interrupted job can be resumed at any point.
"""

import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError, unknown
from usvit.files import for_the_owner_alone, is_partial_of
from usvit.progress import Progress, shown_progress
from usvit.pseudonyms import LinkTable, Pseudonyms, default_key_path, refuse_inside
from usvit.records import SummaryRecord, load_record
from usvit.resources import usable_cores
from usvit.scoring.abstention import zone_of
from usvit.scoring.audit_log import audited
from usvit.scoring.dicom_out.production import make_products
from usvit.scoring.dicom_out.products import KINDS
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.engines import ModelChoice, Reading, score_here, score_on_ray
from usvit.scoring.ensemble_members import folds_text
from usvit.scoring.items import FAILURES, Failure, ScoringItem
from usvit.scoring.job_directory import open_folder
from usvit.scoring.journal import PENDING, SCORED, Batch, Journal, open_journal
from usvit.scoring.link_table import Linked, ScoredHashes
from usvit.scoring.pipeline import BATCH_SIZE, Describer
from usvit.scoring.reading.item_reader import parse_frames
from usvit.scoring.request import Request, identity_of
from usvit.scoring.results import write_results

logger = logging.getLogger(__name__)

THUMBNAIL_SIDE = 160


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


@checked_arguments
def score(
    model: str | Path | Sequence[str | Path],
    inputs: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    folds: str | int | Sequence[int] = "all",
    frames: str = "all",
    operating_point: str = "sensitivity>=0.9",
    calibration: Path | None = None,
    flip: bool = False,
    abstain: bool = False,
    abstain_at: str | None = None,
    keep_ids: bool = False,
    key: Path | None = None,
    link: Path | None = None,
    audit_log: Path | None = None,
    thumbnails: bool = False,
    pictures: bool = False,
    products: Collection[str] = (),
    timeout: float = 60.0,
    memory_gb: float = 4.0,
    workers: int | None = None,
    batch_size: int = BATCH_SIZE,
    device: str = "auto",
    precision: str = "auto",
    engine: str = "local",
    address: str | None = None,
    cpus: int | None = None,
    progress: Progress | None = None,
) -> ScoringResult:
    """Score every image of the inputs and write tables, a summary and a page into a folder.

    A job that was interrupted continues where it stopped when it is called again with the same arguments.

    Args:
        model: folder of a run, of one of its folds, of an export as safetensors, or of an ensemble; or several of them,
            whose networks are averaged with equal weights.
        inputs: folders, files, globs, zip archives, tables with a column ``path``, or DICOMDIRs.
        out: folder for the results.
        folds: folds of each run whose networks are averaged: ``all``, or numbers such as ``0``, ``[0, 2]`` or
            ``"0,2"``.
        frames: frames of a multi-frame file to score: ``all``, ``middle``, ``every:K``, or ``top:K`` by quality.
        operating_point: ``sensitivity>=X``, ``specificity>=X``, ``youden``, or a threshold as a number.
        calibration: file with a temperature and thresholds, written by ``recalibrate``.
        flip: average the probabilities of each image with those of its mirror image.
        abstain: make no decision on images that are out of distribution.
        abstain_at: make no decision where the calibrated probability is uncertain: ``LOW,HIGH``, or ``conformal`` for
            the sets of ``calibration``.
        keep_ids: keep paths and patient ids in the outputs, which are then as private as the inputs.
        key: file with the secret key of the pseudonyms, created if missing; None: ``pseudonyms.default_key_path()``.
        link: file, outside ``out``, in which to write which pseudonym belongs to which file.
        audit_log: file to which one line is appended when the job starts and one when it ends.
        thumbnails: show small images on the page.
        pictures: also draw images whose tissue region is not known; these may show a name.
        products: files to write for each input file: ``sr`` (DICOM SR), ``sc`` (DICOM Secondary Capture),
            ``gsps`` (DICOM presentation state), ``overlay``.
        timeout: maximum time to decode one image, in seconds.
        memory_gb: maximum memory of one reader process, in GB.
        workers: number of reader processes; None: one for each CPU core.
        batch_size: number of images that the networks process at once.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``auto``, ``fp32`` or ``bf16``.
        engine: ``local``, or ``ray`` to use the machines of a Ray cluster.
        address: address of the Ray cluster; None: start one on this machine.
        cpus: CPUs of each Ray worker; None: 2.
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
    paths = [inputs] if isinstance(inputs, (str, Path)) else inputs
    request = Request(
        models=tuple(Path(one) for one in ([model] if isinstance(model, (str, Path)) else model)),
        inputs=tuple(str(path) for path in paths),
        out=Path(out),
        folds=folds_text(folds),
        frames=frames,
        rule=operating_point,
        calibration=calibration,
        flip=flip,
        abstain=abstain,
        abstain_at=abstain_at,
        keep_ids=keep_ids,
        key=key,
        link=link,
        audit_log=audit_log,
        thumbnails=thumbnails,
        pictures=pictures,
        products=frozenset(products),
        timeout=timeout,
        memory_gb=memory_gb,
        workers=workers,
        batch_size=batch_size,
        device=device,
        precision=precision,
        engine=engine,
        address=address,
        cpus=cpus,
    )
    return _run(request, shown_progress(progress))


def _run(request: Request, progress: Progress) -> ScoringResult:
    parse_frames(request.frames)
    if unknown_products := sorted(request.products - set(KINDS)):
        raise unknown("product", unknown_products[0], KINDS)
    if request.engine not in ("local", "ray"):
        raise UsvitError(f"Unknown engine '{request.engine}'. Known: local, ray.")
    if request.engine == "local" and (request.address is not None or request.cpus is not None):
        raise UsvitError("--address and --cpus require --engine ray.")
    choice = ModelChoice(
        tuple(model.resolve() for model in request.models),
        request.folds,
        request.device,
        request.precision,
        request.flip,
        None if request.calibration is None else request.calibration.resolve(),
        request.rule,
    )
    ensemble = choice.load()
    zone = None
    if request.abstain_at is not None:
        zone = zone_of(request.abstain_at, ensemble.threshold, ensemble.calibration, ensemble.positive)
    key = request.key or default_key_path()
    for path, what in ((key, "The key"), (request.link, "The link table")):
        if path is not None:  # results that are shared must not contain the key or the link table
            refuse_inside(path, request.out, what)
    pseudonyms = Pseudonyms.of_key(key)
    logger.info(f"The pseudonyms are made with the key {key}. Keep it: ids cannot be traced or matched without it.")
    if pseudonyms.warning:
        logger.warning(pseudonyms.warning)
    # Raises for wrong inputs before anything is written.
    items = _without_own(discover(request.inputs, exclude=request.out), key, request.link)
    identity = identity_of(request, ensemble, pseudonyms, zone)
    named = {"job": identity["input"], "model": ensemble.sha256, "key": pseudonyms.fingerprint}
    with (
        for_the_owner_alone(request.keep_ids),
        audited(request.audit_log, out=request.out, **named) as attempt,
        open_folder(request.out, identity) as folder,
    ):
        settings = ensemble.read_settings(
            request.frames,
            thumbnail_side=THUMBNAIL_SIDE if request.thumbnails else None,
            pictures=request.pictures,
            keep_words=request.keep_ids,
        )
        workers = usable_cores() if request.workers is None else request.workers
        reading = Reading(settings, workers, request.timeout, request.memory_gb)
        if folder.finished:
            not_linked = _link_finished(items, request, pseudonyms, reading)
        else:
            journal = open_journal(folder.journal)
            try:
                not_linked = _find(items, request, journal, pseudonyms, reading)
                describer = Describer(ensemble, pseudonyms, request.keep_ids, request.abstain, zone)
                _score_all(request, reading, choice, describer, journal, progress)
                if request.products:
                    make_products(
                        journal,
                        ensemble,
                        reading,
                        out=folder.path,
                        wanted=request.products,
                        keep_ids=request.keep_ids,
                        pictures=request.pictures,
                        pseudonyms=pseudonyms,
                        started=folder.started,
                        progress=progress,
                    )
                write_results(request, folder, journal, ensemble, zone)
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
    if request.link is None:
        journal.register(found)
    else:
        with LinkTable(request.link, pseudonyms, out=request.out) as table, reading.open() as readers:
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
    if request.link is None or request.link.exists():
        logger.info("This job is already finished: nothing was scored again.")
        return 0
    logger.info("This job is already finished: only the link table is written.")
    hashes = ScoredHashes(request.out / "scores.parquet")
    with LinkTable(request.link, pseudonyms, out=request.out) as table, reading.open() as readers:
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
    if request.engine == "ray":
        batches = score_on_ray(
            items,
            reading,
            choice,
            describer,
            batch_size=request.batch_size,
            known=journal.done,
            address=request.address,
            cpus=request.cpus or 2,
            progress=progress,
        )
    else:
        batches = score_here(items, reading, describer, request.batch_size, journal.done)
    done, frames, failures = counts["done"], 0, 0
    progress.start("scoring", counts["items"], "files", done=done)
    try:
        for batch in batches:
            journal.commit(batch)
            done, frames, failures = done + len(batch.ended), frames + len(batch.rows), failures + len(batch.failures)
            progress.update(done, f"{frames} images, {failures} failures")
    finally:
        progress.finish()
