"""``usvit score``: find, read, score, write products, tables and page; resumable at every point."""

import os
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

import usvit
from usvit.errors import UsvitError
from usvit.files import is_partial_of, read_json, write_csv
from usvit.progress import Progress
from usvit.pseudonyms import LinkTable, Pseudonyms, default_key_path, for_the_owner_alone, refuse_inside
from usvit.report.scores import write_scores_page
from usvit.resources import usable_cores
from usvit.score.audit_log import audited
from usvit.score.dicom_out.production import make_products
from usvit.score.dicom_out.products import PRODUCT_FAILURES
from usvit.score.engines import ModelChoice, Reading, score_here, score_on_ray
from usvit.score.ensemble import Ensemble
from usvit.score.find.items import discover
from usvit.score.folder import JobFolder, open_folder
from usvit.score.journal import PENDING, SCORED, Batch, Journal, batched, open_journal
from usvit.score.linking import Linked, ScoredHashes
from usvit.score.reading.read import parse_frames
from usvit.score.records import FAILURES, Failure, Item, ReadSettings
from usvit.score.seen import marked
from usvit.score.stream import Describer
from usvit.score.tables.write import write_tables

THUMBNAIL_SIDE = 160
PORTION = 2000
"""Rows of the tables in memory at once."""
_TOLD = (
    "folds",
    "frames",
    "rule",
    "flip",
    "abstain",
    "keep_ids",
    "thumbnails",
    "pictures",
    "timeout",
    "batch_size",
    "engine",
)
"""Settings that stand in ``summary.json``: none that is a path."""
_LIBRARIES = ("torch", "timm", "pydicom", "highdicom", "python-gdcm", "pylibjpeg-openjpeg", "pillow", "numpy")


@dataclass(frozen=True)
class Request:
    """What the user asked for; the fields are the options of ``usvit score``."""

    model: Path
    inputs: tuple[str, ...]
    out: Path
    folds: str = "all"
    frames: str = "all"
    rule: str = "sensitivity>=0.9"
    calibration: Path | None = None
    flip: bool = False
    abstain: bool = False
    keep_ids: bool = False
    key: Path | None = None
    """None: ``pseudonyms.default_key_path()``."""
    link: Path | None = None
    audit_log: Path | None = None
    thumbnails: bool = False
    pictures: bool = False
    """Make pictures also of images whose tissue region is not known."""
    products: frozenset[str] = frozenset()
    """Of ``sr``, ``sc``, ``overlay``."""
    timeout: float = 60.0
    memory_gb: float = 4.0
    workers: int | None = None
    """None: one a core. They give way to the networks where these compute on the same cores."""
    batch_size: int = 32
    device: str = "auto"
    precision: str = "auto"
    engine: str = "local"
    address: str | None = None
    cpus: int | None = None
    """Of each worker of Ray."""


@dataclass(frozen=True)
class Outcome:
    """What a job came to."""

    out: Path
    summary: dict[str, Any]
    """The content of ``summary.json``."""
    not_linked: int = 0
    """Files that the link table leaves out: they are not those that were scored, or cannot be read any more."""

    @property
    def partly(self) -> bool:
        """Whether something could not be scored, or a product not be written."""
        counts = self.summary["counts"]
        return bool(counts["failures"] or counts["products_failed"] or self.not_linked)


def score(request: Request, progress: Progress) -> Outcome:
    """Score everything in the inputs, or go on with a job that was stopped.

    Args:
        request: what is asked for.
        progress: shown meanwhile.

    Raises:
        UsvitError: anything about the request; nothing has been written then, or the job can be resumed.
    """
    parse_frames(request.frames)
    if request.engine not in ("local", "ray"):
        raise UsvitError(f"Unknown engine '{request.engine}'. Known: local, ray.")
    if request.engine == "local" and (request.address is not None or request.cpus is not None):
        raise UsvitError("--address and --cpus belong to --engine ray.")
    choice = ModelChoice(
        request.model.resolve(),
        request.folds,
        request.device,
        request.precision,
        request.flip,
        None if request.calibration is None else request.calibration.resolve(),
        request.rule,
    )
    ensemble = choice.load()
    key = request.key or default_key_path()
    for path, what in ((key, "The key"), (request.link, "The link table")):
        if path is not None:  # what is passed on must not hold what undoes it
            refuse_inside(path, request.out, what)
    pseudonyms = Pseudonyms.of_key(key)
    progress.say(f"Pseudonyms are made with the key {key}. Keep it: without it no id can be traced back or matched.")
    if pseudonyms.warning:
        progress.say(pseudonyms.warning)
    # Says what is wrong with them before anything is written.
    items = _without_own(discover(request.inputs, exclude=request.out), key, request.link)
    identity = _identity(request, ensemble, pseudonyms)
    named = {"job": identity["input"], "model": ensemble.sha256, "key": pseudonyms.fingerprint}
    with (
        for_the_owner_alone() if request.keep_ids else nullcontext(),
        audited(request.audit_log, out=request.out, **named) as attempt,
        open_folder(request.out, identity) as folder,
    ):
        reading = Reading(_settings(request, ensemble), _workers(request), request.timeout, request.memory_gb)
        if folder.finished:
            not_linked = _link_finished(items, request, pseudonyms, reading, progress)
        else:
            journal = open_journal(folder.journal)
            try:
                not_linked = _find(items, request, journal, pseudonyms, reading, progress)
                _score_all(request, reading, choice, ensemble, pseudonyms, journal, progress)
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
                _write(request, folder, journal, ensemble, progress)
            finally:
                journal.close()
            folder.finish()
        if not_linked:
            progress.say(
                f"{not_linked} files are left out of the link table: they are not those that were scored, or cannot be "
                "read any more."
            )
        outcome = Outcome(request.out, read_json(request.out / "summary.json"), not_linked)
        attempt.counts, attempt.partly = outcome.summary["counts"], outcome.partly
        return outcome


def _identity(request: Request, ensemble: Ensemble, pseudonyms: Pseudonyms) -> dict[str, Any]:
    """What makes two jobs the same; how many processes do the work does not."""
    return {
        # Of the paths no more is kept than tells who has the key whether they are the same.
        "input": pseudonyms.item("\0".join(str(Path(one).absolute()) for one in request.inputs)),
        "key": pseudonyms.fingerprint,
        "model": ensemble.sha256,
        "threshold": [ensemble.threshold, ensemble.threshold_origin],
        "calibration": None if request.calibration is None else ensemble.describe().get("calibration"),
        "frames": request.frames,
        "flip": request.flip,
        "abstain": request.abstain,
        "keep_ids": request.keep_ids,
        "thumbnails": request.thumbnails,
        "products": sorted(request.products),
        **({"pictures": True} if request.pictures else {}),  # what earlier versions began can be resumed
        "batch_size": request.batch_size,
        "device": ensemble.device_name,
    }


def _find(
    items: Iterable[Item],
    request: Request,
    journal: Journal,
    pseudonyms: Pseudonyms,
    reading: Reading,
    progress: Progress,
) -> int:
    """Number everything that is there; what an earlier process found and is gone is a failure.

    Returns:
        Files that the link table leaves out.
    """
    progress.say("Looking for files.")
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
    journal.note_gone(journal.vanished(SCORED))  # their products must be missed, not forgotten
    return not_linked


def _without_own(items: Iterable[Item], key: Path, link: Path | None) -> Iterator[Item]:
    """Leave out the user's key and link table where they lie among the images."""
    own = {os.path.realpath(one) for one in (key, *(() if link is None else (link,)))}
    names = tuple(Path(one).name for one in own)
    for item in items:
        if link is not None and is_partial_of(Path(item.location).name, link):  # the table while it grows
            continue
        if not item.location.endswith(names) or os.path.realpath(item.location) not in own:
            yield item


def _link_finished(
    items: Iterable[Item], request: Request, pseudonyms: Pseudonyms, reading: Reading, progress: Progress
) -> int:
    """The link table of a job that was scored without it; one that is there may know files that are gone by now.

    Returns:
        Files that it leaves out.
    """
    if request.link is None or request.link.exists():
        progress.say("This job is finished already: nothing was scored again.")
        return 0
    progress.say("This job is finished already: only the link table is written.")
    hashes = ScoredHashes(request.out / "scores.parquet")
    with LinkTable(request.link, pseudonyms, out=request.out) as table, reading.open() as readers:
        linked = Linked(table, readers, hashes.get)
        for _ in linked.passing((pseudonyms.item(item.name), item) for item in items):
            pass
        return linked.left_out


def _settings(request: Request, ensemble: Ensemble) -> ReadSettings:
    return ReadSettings(
        image_size=ensemble.preprocessing.image_size,
        resize=ensemble.preprocessing.resize,
        crop=ensemble.preprocessing.crop,
        frames=request.frames,
        thumbnail_side=THUMBNAIL_SIDE if request.thumbnails else None,
        pictures=request.pictures,
        keep_words=request.keep_ids,
    )


def _score_all(
    request: Request,
    reading: Reading,
    choice: ModelChoice,
    ensemble: Ensemble,
    pseudonyms: Pseudonyms,
    journal: Journal,
    progress: Progress,
) -> None:
    counts = journal.counts()
    if counts["done"]:
        progress.say(f"Resuming: {counts['done']} of {counts['items']} files are done.")
    items = journal.waiting(PENDING)
    describer = Describer(ensemble, pseudonyms, request.keep_ids, request.abstain)
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


def _workers(request: Request) -> int:
    return usable_cores() if request.workers is None else request.workers


def _write(request: Request, folder: JobFolder, journal: Journal, ensemble: Ensemble, progress: Progress) -> None:
    """Tables, summary and page, from the journal."""
    progress.say("Writing tables.")
    products: dict[str, dict[str, Any]] = {
        kind: {"written": 0, "failed": 0, "reasons": {}} for kind in sorted(request.products)
    }
    rows = [one | {"reason": PRODUCT_FAILURES.get(one["error"], "")} for one in journal.products()]
    for one in rows:
        own = products[one["kind"]]
        own["failed" if one["error"] else "written"] += 1
        if one["error"]:
            own["reasons"].setdefault(one["error"], {"rows": 0, "reason": one["reason"]})["rows"] += 1
    if products:
        columns = ["item_id", "kind", "file", "error", "reason"]
        write_csv(folder.path / "products.csv", pd.DataFrame(rows, columns=columns))
    now = datetime.now(UTC)
    summary = {
        "model": ensemble.describe(),
        "settings": {name: getattr(request, name) for name in _TOLD} | {"products": sorted(request.products)},
        "versions": {name: version(name) for name in _LIBRARIES} | {"usvit": usvit.__version__},
        "started": folder.record["started"],
        "finished": now.isoformat(timespec="seconds"),
        "seconds": folder.seconds_until(now),
        "products": products,
    }
    write_tables(
        folder.path,
        marked(batched(journal.rows(), PORTION), ensemble.copies_of_seen),
        batched(journal.failures(), PORTION),
        summary,
        classes=ensemble.classes,
        positive=ensemble.positive,
        threshold=ensemble.threshold,
        threshold_origin=ensemble.threshold_origin,
        abstain=request.abstain,
    )
    if request.thumbnails and (n_without := journal.without_thumbnail()):
        progress.say(
            f"{n_without} images have no picture on the page: no tissue region is known that they could be cut to, so "
            "that they may show a name"
            + (", and words were found in them." if request.pictures else ". --pictures shows those without words.")
        )
    write_scores_page(folder.path, journal.thumbnails())
