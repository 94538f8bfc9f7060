"""From items to rows: gather frames into batches, run the networks, and describe the results.

``usvit score`` (local and Ray) and ``Predictor`` share this code, so that their numbers are identical.
"""

import base64
import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usvit.pseudonyms import Pseudonyms
from usvit.scoring.calibration import group_of
from usvit.scoring.ensemble import Ensemble, Scores
from usvit.scoring.items import DESCRIPTION, FAILURES, Done, Facts, Failure, Frame, ScoringItem
from usvit.scoring.journal import Batch
from usvit.scoring.reading.workers import End, Message
from usvit.scoring.tables.cells import decide

BATCH_SIZE = 32
"""Default number of images that the networks process at once."""
CHUNK = 64
"""Number of consecutive items whose images may share a batch. A chunk always gives the same batches, and so the same
last bits, whichever engine reads it and however often the job was interrupted."""


@dataclass(frozen=True)
class Describer:
    """Creates the rows of the tables; its attributes are the same for all rows of a job."""

    ensemble: Ensemble
    pseudonyms: Pseudonyms
    keep_ids: bool
    abstain: bool

    def row(self, item: ScoringItem, facts: Facts, frame: Frame, scores: Scores, k: int) -> dict[str, Any]:
        """Return one row of ``scores.csv``, with the near-duplicate description of its image.

        ``seen`` refers to identical pixels here. Near-duplicates are searched when the tables are written
        (``usvit.scoring.leakage``).

        Args:
            item, facts, frame: the image.
            scores: the scores of its batch, returned by ``Ensemble.score``.
            k: index of the image in the batch.
        """
        model, ids = self.ensemble, self.pseudonyms
        positive, calibrated = model.positive, float(scores.calibrated[k])
        unusual = bool(scores.unusual[k])
        item_id, study_id = ids.item(item.name), ids.study(item.study or facts.study)
        patient_id = ids.patient(item.patient or facts.patient)
        private = {
            "path": item.name,
            "sop_instance_uid": facts.instance,
            "study_instance_uid": item.study or facts.study,
            "original_patient_id": item.patient or facts.patient,
            "device": facts.device,
        }
        return {
            "item_id": item_id,
            "frame": frame.number,
            "instance_id": ids.instance(facts.instance),
            "study_id": study_id,
            "patient_id": patient_id,
            "kind": facts.kind,
            "n_frames": facts.n_frames,
            **{f"prob_{name}": float(scores.prob[k, i]) for i, name in enumerate(model.classes)},
            f"calibrated_{positive}": calibrated,
            f"spread_{positive}": float(scores.spread[k]),
            "decision": "" if unusual and self.abstain else decide(calibrated, model.threshold, positive),
            "threshold": model.threshold,
            "threshold_origin": model.threshold_origin,
            "novelty": _finite(float(scores.ood[k])),
            "unusual": unusual,
            "seen": model.seen(frame.pixel_sha256, group_of(patient_id, study_id, item_id)),
            "flags": ";".join(dict.fromkeys([*facts.flags, *frame.flags])),
            "quality": frame.quality,
            "pixel_spacing_mm": facts.pixel_spacing_mm,
            "pixel_sha256": frame.pixel_sha256,
            "file_sha256": facts.file_sha256,
            "model_sha256": model.sha256,
            **(private if self.keep_ids else dict.fromkeys(private, "")),
            DESCRIPTION: base64.b64encode(frame.description).decode(),
        }

    def failure(self, item: ScoringItem, failure: Failure) -> dict[str, Any]:
        """Return the columns of ``failures.csv`` that the journal does not store itself."""
        reason = FAILURES[failure.code]
        if not self.keep_ids:
            return {"path": "", "reason": reason}
        detail = f" ({' '.join(failure.detail.split())})" if failure.detail else ""
        return {"path": item.name, "reason": reason + detail}


def scored(
    messages: Iterable[tuple[int, ScoringItem, Message]],
    describer: Describer,
    *,
    batch_size: int,
    known: Callable[[int], Done],
) -> Generator[Batch]:
    """Score the frames of items in their order.

    A batch is yielded as soon as it is full, and at the end of a chunk at the latest.

    Args:
        messages: (seq, item, message) in the order of the items, as ``Readers.read`` yields them.
        describer: makes the rows.
        batch_size: number of images that the networks process at once.
        known: returns what an earlier process has already scored of an item, by its seq.

    Yields:
        Batches to commit, in order. Every item ends exactly once, with a row or a failure, or both.
    """
    gathering = _Gathering(describer, batch_size)
    for seq, item, event in messages:
        if seq // CHUNK != gathering.chunk:
            if not gathering.empty:
                yield gathering.flush()
            gathering.chunk = seq // CHUNK
        if item is not gathering.item:
            gathering.begin(item, known(seq))
        if isinstance(event, Facts):
            gathering.learn(seq, event)
        elif isinstance(event, Frame):
            gathering.add(seq, event)
            if gathering.full:
                yield gathering.flush()
        elif isinstance(event, Failure):
            gathering.fail(seq, event)
        elif isinstance(event, End):
            gathering.end(seq)
    if not gathering.empty:
        yield gathering.flush()


@dataclass
class _Gathering:
    """The batch that is being filled."""

    describer: Describer
    size: int
    chunk: int = -1
    item: ScoringItem | None = None
    facts: Facts | None = None
    done: Done = field(default_factory=Done)
    frames: list[tuple[int, ScoringItem, Facts, Frame]] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)
    changed: bool = False
    """True if the file differs from the one whose frames an interrupted job has scored."""
    told: bool = False
    """True if the item already has a row or a failure."""

    @property
    def empty(self) -> bool:
        return not (self.frames or self.batch.failures or self.batch.ended)

    @property
    def full(self) -> bool:
        return len(self.frames) >= self.size

    def begin(self, item: ScoringItem, done: Done) -> None:
        self.item, self.facts, self.done, self.told = item, None, done, bool(done.frames)
        self.changed = False

    def learn(self, seq: int, facts: Facts) -> None:
        """Store the facts of the item, and fail it if an interrupted job scored frames of a different file."""
        self.facts = facts
        if self.done.file_sha256 not in (None, facts.file_sha256):
            self.changed = True
            self.fail(seq, Failure("changed_since_scoring"))

    def add(self, seq: int, frame: Frame) -> None:
        assert self.item is not None and self.facts is not None
        self.told = True
        if frame.number not in self.done.frames and not self.changed:
            self.frames.append((seq, self.item, self.facts, frame))

    def fail(self, seq: int, failure: Failure) -> None:
        assert self.item is not None
        self.told = True
        if failure.frame not in self.done.frames and (not self.changed or failure.frame is None):
            self.batch.failures.append((seq, failure, self.describer.failure(self.item, failure)))

    def end(self, seq: int) -> None:
        if not self.told:  # the header states zero frames
            self.fail(seq, Failure("no_pixels"))
        self.batch.ended.append(seq)

    def flush(self) -> Batch:
        batch, frames = self.batch, self.frames
        self.batch, self.frames = Batch(), []
        if frames:
            scores = self.describer.ensemble.score(np.stack([frame.pixels for *_, frame in frames]))
            batch.rows = [
                (seq, frame.number, self.describer.row(item, facts, frame, scores, k), frame.thumbnail)
                for k, (seq, item, facts, frame) in enumerate(frames)
            ]
        return batch


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
