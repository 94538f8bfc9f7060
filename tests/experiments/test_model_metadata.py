import numpy as np
import pandas as pd
import pytest

from usvit.config.evaluation import UnitSettings
from usvit.evaluation import RULES, choose_threshold, predictions_table
from usvit.experiments.model_metadata import unit_thresholds

CLASSES = ["benign", "malignant"]


@pytest.fixture
def inner() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(40), rng.integers(1, 6, 40))
    code = (patient % 3 == 0).astype(int)
    rows = pd.DataFrame({"image_id": np.arange(len(patient)).astype(str), "dataset": "x"})
    rows = rows.assign(patient_id=patient.astype(str), group_id=patient.astype(str))
    rows["label"] = np.array(CLASSES)[code]
    logits = rng.normal(size=(len(patient), 2)) + 1.5 * np.eye(2)[code]
    return predictions_table(rows, logits, classes=CLASSES, fold=3, part="val")


def test_thresholds_of_units_are_chosen_on_the_pooled_calibrated_probability(inner):
    found = unit_thresholds(inner, UnitSettings(unit="patient", pooling="max"), "malignant", 2.0)
    odds = (inner["logit_malignant"] - inner["logit_benign"]) / 2.0
    score = (1 / (1 + np.exp(-odds))).groupby(inner["patient_id"]).max()
    positive = (inner["label"] == "malignant").groupby(inner["patient_id"]).any()
    assert [one.rule for one in found.thresholds] == [rule.name for rule in RULES]
    for rule, one in zip(RULES, found.thresholds, strict=True):
        expected = choose_threshold(positive.to_numpy(), score.to_numpy(), rule)
        assert one.threshold == pytest.approx(expected.threshold), rule
        assert (one.n_images, one.n_groups, one.score) == (40, 40, "calibrated probability")
        assert one.chosen_on == "inner validation patients of fold 3"
    assert found.units.n_images == len(inner)


def test_inner_images_without_the_unit_give_no_thresholds(inner):
    for unit in ("exam", "breast"):
        assert unit_thresholds(inner, UnitSettings(unit=unit), "malignant", None) is None
    alone = inner.assign(patient_id=None)
    assert unit_thresholds(alone, UnitSettings(unit="patient"), "malignant", None) is None
