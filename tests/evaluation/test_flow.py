"""The flow of images and the prevalence by unit, against counts of the rows themselves."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from usvit.evaluation.flow import flow_steps, prevalence_by_unit
from usvit.metrics.proportions import clustered_share
from usvit.records import FlowRecord, FlowStep


def images(n, seed):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "dataset": rng.choice(["a", "b"], n),
            "patient_id": rng.choice(["1", "2", "3", "4", None], n),
            "lesion_id": rng.choice(["x", "y", "", "z"], n),
        }
    )


@pytest.mark.parametrize("seed", range(20))
def test_every_unit_adds_up_and_ends_with_what_is_left(seed):
    table = images(30, seed)
    why = np.random.default_rng(seed).choice(["", "blank", "copy", "late"], 30)
    steps = flow_steps(table, why, found="Found", kept="Kept", order=["late", "blank"])
    FlowRecord(of="images", steps=steps)
    assert [step.what for step in steps if step.left_out] == ["late", "blank", "copy"]
    for step, left in ((steps[0], table), (steps[-1], table[why == ""])):
        patients = left.dropna(subset="patient_id")[["dataset", "patient_id"]].drop_duplicates()
        lesions = left[left["lesion_id"] != ""][["dataset", "lesion_id"]].drop_duplicates()
        assert (step.n, step.n_patients, step.n_lesions) == (len(left), len(patients), len(lesions))


def test_without_ids_only_images_are_counted():
    table = pd.DataFrame({"dataset": ["a"] * 3, "patient_id": [None] * 3})
    found, _, kept = flow_steps(table, ["", "x", ""], found="Found", kept="Kept", order=[])
    assert (found.n, kept.n, found.n_patients, found.n_lesions) == (3, 2, None, None)


def test_a_flow_that_does_not_add_up_is_refused():
    steps = [FlowStep(what="Found", left_out=False, n=5), FlowStep(what="blank", left_out=True, n=2)]
    FlowRecord(of="images", steps=[*steps, FlowStep(what="Kept", left_out=False, n=3)])
    with pytest.raises(ValidationError, match="n that adds up: 3 are left before the step 'Kept' of 4"):
        FlowRecord(of="images", steps=[*steps, FlowStep(what="Kept", left_out=False, n=4)])


def test_prevalence_counts_each_patient_and_lesion_once():
    table = pd.DataFrame(
        {
            "dataset": "a",
            "part": ["test"] * 6 + ["val"],
            "patient_id": ["1", "1", "1", "2", "3", None, "9"],
            "lesion_id": ["l", "l", "r", "l2", "", "", "v"],
            "group_id": ["p1", "p1", "p1", "p2", "p3", "image", "p9"],
            "label": ["malignant", "benign", "benign", "benign", "malignant", "malignant", "malignant"],
        }
    )
    image, lesion, patient = prevalence_by_unit(table, "malignant")
    assert [(one.unit, one.n, one.n_positive, one.n_images_without_id) for one in (image, lesion, patient)] == [
        ("image", 6, 3, 0),
        ("lesion", 3, 1, 2),
        ("patient", 3, 2, 1),
    ]
    assert image.share == clustered_share([True, False, False, False, True, True], [1, 1, 1, 2, 3, 4])
    assert lesion.share.n_groups == 2 and "clustered" in str(lesion.share.method)
    assert patient.share.method == "wilson"
    plain = prevalence_by_unit(table.drop(columns="lesion_id").assign(patient_id=None), "malignant")
    assert [one.unit for one in plain] == ["image"]


@pytest.mark.slow
def test_real_images_of_busi_add_up(real_data):
    from usvit.config import DataConfig
    from usvit.data.datasets import open_manifest
    from usvit.data.splits import EXCLUSION_KINDS, kind_of_exclusion
    from usvit.progress import NoProgress

    manifest = open_manifest(DataConfig(dataset="busi"), {"": real_data}, NoProgress())
    why = [kind_of_exclusion(one) for one in manifest.table.exclude_reason]
    steps = flow_steps(manifest.table, why, found="Found", kept="Included", order=[*EXCLUSION_KINDS.values()])
    FlowRecord(of="images", steps=steps)
    assert [(step.what, step.n) for step in steps] == [
        ("Found", 780),
        ("identical pixels with different labels", 2),
        ("Included", 778),
    ]
    assert steps[0].n_patients is None
