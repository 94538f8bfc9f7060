"""From items to rows: gather frames into batches, run the networks, and describe the results.

``usvit score`` (local and Ray) and ``Predictor`` share this code, so that their numbers are identical.
"""

import base64
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from usvit.pseudonyms import Pseudonyms
from usvit.records import AbstentionZone
from usvit.scoring.abstention import decide_or_abstain
from usvit.scoring.calibration import group_of
from usvit.scoring.dicom_out.network_maps import LESION
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.inference import Inference
from usvit.scoring.items import (
    DESCRIPTION,
    FAILURES,
    IMAGE_COLUMNS,
    LESION_COLUMNS,
    VIEW_WEIGHT,
    VIEWS,
    Done,
    Failure,
    Frame,
    ItemFacts,
    Row,
    ScoringItem,
    concept_column,
)
from usvit.scoring.journal import Batch
from usvit.scoring.outputs import Outputs, Scores
from usvit.scoring.reading.workers import End, Message

CHUNK = 64
"""Number of consecutive items whose images may share a batch. A chunk always gives the same batches, and so the same
last bits, whichever engine reads it and however often the job was interrupted."""
IN_FLIGHT = 2
"""Number of batches that the networks compute or that wait for them, while the next one is gathered."""


@dataclass(frozen=True)
class Describer:
    """Creates the rows of the tables; its attributes are the same for all rows of a job."""

    ensemble: Ensemble
    pseudonyms: Pseudonyms
    keep_ids: bool
    abstain: bool
    """Abstain on unusual images."""
    zone: AbstentionZone | None = None
    """Probabilities on which to abstain."""
    lesions: bool = False
    """Measure the marked lesion."""

    def row(self, item: ScoringItem, facts: ItemFacts, frame: Frame, scores: Scores, k: int) -> Row:
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
        decision, abstained = decide_or_abstain(
            calibrated, model.threshold, positive, self.zone, refused=unusual and self.abstain
        )
        item_id, study_id = ids.item(item.name), ids.study(item.study or facts.study)
        patient_id = ids.patient(item.patient or facts.patient)
        sides = {item.side} if item.side else {*facts.sides}
        views: Row = {}
        if scores.views is not None:
            views[VIEWS] = {"prob": scores.views[k].tolist()}
        if scores.described is not None:
            views[VIEW_WEIGHT] = None
            views[VIEWS]["described"] = scores.described[k].tolist()
        private = {
            "path": item.name,
            "sop_instance_uid": facts.instance,
            "study_instance_uid": item.study or facts.study,
            "original_patient_id": item.patient or facts.patient,
            "device": facts.device,
            "study_date": facts.study_date,
        }
        return {
            "item_id": item_id,
            "frame": frame.number,
            "instance_id": ids.instance(facts.instance),
            "study_id": study_id,
            "patient_id": patient_id,
            "side": item.side or facts.side(frame.number),
            "breast_id": f"{patient_id}/{sides.pop()}" if patient_id and len(sides) == 1 and None not in sides else "",
            "kind": facts.kind,
            "n_frames": facts.n_frames,
            **{f"prob_{name}": float(scores.prob[k, i]) for i, name in enumerate(model.classes)},
            f"calibrated_{positive}": calibrated,
            f"spread_{positive}": float(scores.spread[k]),
            "decision": decision,
            "abstained": abstained,
            "threshold": model.threshold,
            "threshold_origin": model.threshold_origin,
            "novelty": _finite(float(scores.ood[k])),
            "unusual": unusual,
            "seen": model.seen(frame.pixel_sha256, group_of(patient_id, study_id, item_id)),
            "flags": ";".join(dict.fromkeys([*facts.flags, *frame.flags])),
            "quality": frame.quality,
            "pixel_spacing_mm": facts.pixel_spacing_mm,
            **(self._lesion(scores.lesions[k], facts, frame) if scores.lesions is not None else {}),
            **self._concepts(scores, k),
            **dict(zip(IMAGE_COLUMNS, (*map(_finite, frame.grey), *(frame.size or (None, None))), strict=True)),
            "pixel_sha256": frame.pixel_sha256,
            "file_sha256": facts.file_sha256,
            "model_sha256": model.sha256,
            **(private if self.keep_ids else dict.fromkeys(private, "")),
            DESCRIPTION: base64.b64encode(frame.description).decode(),
            **views,
        }

    def _concepts(self, scores: Scores, k: int) -> Row:
        """Return the scores of the concepts of an image."""
        if scores.concepts is None:
            return {}
        return dict(zip(map(concept_column, self.ensemble.concept_names), scores.concepts[k].tolist(), strict=True))

    def _lesion(self, probability: NDArray[np.float32], facts: ItemFacts, frame: Frame) -> Row:
        """Measure the part of the frame that is marked as the lesion."""
        assert frame.size is not None
        square = self.ensemble.read_settings("all").mask_square
        area = int((square.restored(probability, frame.size[::-1]) >= LESION).sum())
        spacing = facts.pixel_spacing_mm
        return dict(zip(LESION_COLUMNS, (area, "px") if spacing is None else (area * spacing**2, "mm2"), strict=True))

    def failure(self, item: ScoringItem, failure: Failure) -> Row:
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

    The networks compute in a thread of their own. A batch is yielded when it is complete and the consumer asks for the
    next one, ``IN_FLIGHT`` batches later at the latest.

    Args:
        messages: (seq, item, message) in the order of the items, as ``Readers.read`` yields them.
        describer: makes the rows.
        batch_size: number of images that the networks process at once.
        known: returns what an earlier process has already scored of an item, by its seq.

    Yields:
        Batches to commit, in order. Every item ends exactly once, with a row or a failure, or both.
    """
    gathered = _gathered(messages, describer, batch_size, known)
    with closing(gathered), Inference(describer.ensemble) as inference:
        running: deque[_Running] = deque()
        for full in gathered:
            if full is not None:
                if len(running) == IN_FLIGHT:
                    yield running.popleft().finish(describer)
                images = [frame.pixels for *_, frame in full.frames]
                masks = [frame.for_mask for *_, frame in full.frames] if describer.lesions else None
                concepts = [one.for_concepts for *_, one in full.frames] if describer.ensemble.concepts else None
                running.append(_Running(full, inference.start(images, masks, concepts) if images else None))
            while running and running[0].done:
                yield running.popleft().finish(describer)
        while running:
            yield running.popleft().finish(describer)


def _gathered(
    messages: Iterable[tuple[int, ScoringItem, Message]],
    describer: Describer,
    batch_size: int,
    known: Callable[[int], Done],
) -> Generator["_Gathered | None"]:
    """Yield a batch as soon as it is full, at the end of a chunk at the latest; None after every message."""
    gathering = _Gathering(describer, batch_size)
    for seq, item, event in messages:
        if seq // CHUNK != gathering.chunk:
            if not gathering.empty:
                yield gathering.flush()
            gathering.chunk = seq // CHUNK
        if item is not gathering.item:
            gathering.begin(item, known(seq))
        if isinstance(event, ItemFacts):
            gathering.learn(seq, event)
        elif isinstance(event, Frame):
            gathering.add(seq, event)
            if gathering.full:
                yield gathering.flush()
        elif isinstance(event, Failure):
            gathering.fail(seq, event)
        elif isinstance(event, End):
            gathering.end(seq)
        yield None
    if not gathering.empty:
        yield gathering.flush()


@dataclass
class _Gathered:
    """A batch whose frames have not been scored."""

    frames: list[tuple[int, ScoringItem, ItemFacts, Frame]] = field(default_factory=list)
    batch: Batch = field(default_factory=Batch)
    """The failures and the ends of items."""


@dataclass(frozen=True)
class _Running:
    """A batch that the networks compute."""

    gathered: _Gathered
    outputs: Future[Outputs] | None
    """None if the batch has no frames."""

    @property
    def done(self) -> bool:
        """True if ``finish`` does not wait."""
        if self.outputs is None:
            return True
        return self.outputs.done() and (self.outputs.exception() is not None or self.outputs.result().ready)

    def finish(self, describer: Describer) -> Batch:
        """Wait for the networks and make the rows.

        Raises:
            UsvitError: the output of a network is not finite.
        """
        batch = self.gathered.batch
        if self.outputs is not None:
            scores = describer.ensemble.combine(self.outputs.result())
            batch.rows = [
                (seq, frame.number, describer.row(item, facts, frame, scores, k), frame.thumbnail)
                for k, (seq, item, facts, frame) in enumerate(self.gathered.frames)
            ]
        return batch


@dataclass
class _Gathering:
    """The batch that is being filled."""

    describer: Describer
    size: int
    chunk: int = -1
    item: ScoringItem | None = None
    facts: ItemFacts | None = None
    done: Done = field(default_factory=Done)
    gathered: _Gathered = field(default_factory=_Gathered)
    changed: bool = False
    """True if the file differs from the one whose frames an interrupted job has scored."""
    told: bool = False
    """True if the item already has a row or a failure."""

    @property
    def empty(self) -> bool:
        return not (self.gathered.frames or self.gathered.batch.failures or self.gathered.batch.ended)

    @property
    def full(self) -> bool:
        return len(self.gathered.frames) >= self.size

    def begin(self, item: ScoringItem, done: Done) -> None:
        self.item, self.facts, self.done, self.told = item, None, done, bool(done.frames)
        self.changed = False

    def learn(self, seq: int, facts: ItemFacts) -> None:
        """Store the facts of the item, and fail it if an interrupted job scored frames of a different file."""
        self.facts = facts
        if self.done.file_sha256 not in (None, facts.file_sha256):
            self.changed = True
            self.fail(seq, Failure("changed_since_scoring"))

    def add(self, seq: int, frame: Frame) -> None:
        assert self.item is not None and self.facts is not None
        self.told = True
        if frame.number not in self.done.frames and not self.changed:
            self.gathered.frames.append((seq, self.item, self.facts, frame))

    def fail(self, seq: int, failure: Failure) -> None:
        assert self.item is not None
        self.told = True
        if failure.frame not in self.done.frames and (not self.changed or failure.frame is None):
            self.gathered.batch.failures.append((seq, failure, self.describer.failure(self.item, failure)))

    def end(self, seq: int) -> None:
        if not self.told:  # the header states zero frames
            self.fail(seq, Failure("no_pixels"))
        self.gathered.batch.ended.append(seq)

    def flush(self) -> _Gathered:
        gathered, self.gathered = self.gathered, _Gathered()
        return gathered


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
