"""From items to rows: read, gather into batches, ask the networks, describe; the one path of every engine."""

import base64
import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from usvit.pseudonyms import Pseudonyms
from usvit.score.calibration import group_of
from usvit.score.ensemble import Ensemble, Scores
from usvit.score.journal import Batch
from usvit.score.reading.workers import End, Readers
from usvit.score.records import DESCRIPTION, FAILURES, Done, Facts, Failure, Frame, Item
from usvit.score.tables.cells import decide

CHUNK = 64
"""Items whose images share batches: the n-th chunk gives the same batches, and so the same last bits, whichever engine
reads it and however often the job was killed before."""


@dataclass(frozen=True)
class Describer:
    """Makes rows; what is the same in all of them."""

    ensemble: Ensemble
    pseudonyms: Pseudonyms
    keep_ids: bool
    abstain: bool

    def row(self, item: Item, facts: Facts, frame: Frame, scores: Scores, k: int) -> dict[str, Any]:
        """One row of ``scores.csv``, and the description of its image beside it.

        ``seen`` speaks of identical pixels; copies are looked for when the tables are written (``score.seen``).

        Args:
            item, facts, frame: the image.
            scores: of its batch, as ``Ensemble.score`` gives them.
            k: its place in the batch.
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
            "novelty": _finite(float(scores.novelty[k])),
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

    def failure(self, item: Item, failure: Failure) -> dict[str, Any]:
        """The columns of ``failures.csv`` that the journal does not know itself."""
        reason = FAILURES[failure.code]
        if not self.keep_ids:
            return {"path": "", "reason": reason}
        detail = f" ({' '.join(failure.detail.split())})" if failure.detail else ""
        return {"path": item.name, "reason": reason + detail}


def scored(
    items: Iterable[tuple[int, Item]],
    readers: Readers,
    describer: Describer,
    *,
    batch_size: int,
    known: Callable[[int], Done],
) -> Generator[Batch]:
    """Read and score items in their order; batches come as they are full, at a chunk's end at the latest.

    Args:
        items: (seq, item).
        readers: the worker processes.
        describer: makes the rows.
        batch_size: images that the networks see at once.
        known: what of an item an earlier process has scored already.

    Yields:
        Batches to commit, in order. Every item ends exactly once, with a row or a failure, or both.
    """
    gathering = _Gathering(describer, batch_size)
    for seq, item, event in readers.read(items):
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
    item: Item | None = None
    facts: Facts | None = None
    done: Done = field(default_factory=Done)
    frames: list[tuple[int, Item, Facts, Frame]] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)
    changed: bool = False
    """Whether its file is another than the one whose frames a killed job has scored."""
    told: bool = False
    """Whether the item has a row or a failure."""

    @property
    def empty(self) -> bool:
        return not (self.frames or self.batch.failures or self.batch.ended)

    @property
    def full(self) -> bool:
        return len(self.frames) >= self.size

    def begin(self, item: Item, done: Done) -> None:
        self.item, self.facts, self.done, self.told = item, None, done, bool(done.frames)
        self.changed = False

    def learn(self, seq: int, facts: Facts) -> None:
        """Take the item's facts. Frames of one item are never of two files: a killed job's must be of this one."""
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
        if not self.told:  # a header that promises no frame at all
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
