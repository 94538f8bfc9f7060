"""The flow of an external test: from the scored files to the tested images, and from the labels to those that match."""

import numpy as np
import pandas as pd

from usvit.evaluation import flow_steps
from usvit.records import FlowRecord, FlowStep
from usvit.scoring.external.labels import COPY, LEFT_OUT, NOT_SCORED, UNLABELLED, WITHOUT_ID, LabelledSet
from usvit.scoring.external.scored_set import ScoredSet

_FAILED, _SEEN = "could not be scored", "in a group that the model or its calibration has seen"
_WORDS = {COPY: "second copies of a file", UNLABELLED: "without a label", LEFT_OUT: "with a label that is left out"}
"""Reason in unmatched.csv -> words for several images, in the order in which they apply."""


def flow_of_test(scored: ScoredSet, labelled: LabelledSet, dropped: pd.DataFrame) -> list[FlowRecord]:
    """Count what was found, left out and tested, in images (frames) and patients; and the labels.

    Args:
        scored: the scored set.
        labelled: its images with a label.
        dropped: those of them that were left out because their group was seen (``leakage.without_seen``).
    """
    seen = set(zip(dropped["item_id"], dropped["frame"], strict=True))
    frames = zip(scored.rows["item_id"], scored.rows["frame"], strict=True)
    why = [_SEEN if one in seen else _WORDS.get(reason, "") for one, reason in zip(frames, labelled.why, strict=True)]
    failed = len(scored.failures)  # their patients are not known
    table = pd.concat([scored.rows[["patient_id"]], pd.DataFrame({"patient_id": [None] * failed})], ignore_index=True)
    reasons = np.array([*why, *[_FAILED] * failed], dtype=object)
    order = [_FAILED, *_WORDS.values(), _SEEN]
    images = flow_steps(table, reasons, found="Found", kept="Tested", order=order)
    return [FlowRecord(of="images", steps=images), FlowRecord(of="labels", steps=_labels(labelled))]


def _labels(labelled: LabelledSet) -> list[FlowStep]:
    without, left_out = labelled.count(WITHOUT_ID), labelled.count(LEFT_OUT)
    lost = {
        "without an id": without,
        "further rows of one id": labelled.n_label_rows - without - left_out - labelled.n_labels,
        "left out by --map": left_out,
        "match no scored file": labelled.count(NOT_SCORED),
    }
    n = labelled.n_label_rows
    steps = [FlowStep(what="Rows of the table of labels", left_out=False, n=n)]
    steps += [FlowStep(what=what, left_out=True, n=number) for what, number in lost.items() if number]
    kept = n - sum(lost.values())
    return [*steps, FlowStep(what="Labels of a scored or failed file", left_out=False, n=kept)]
