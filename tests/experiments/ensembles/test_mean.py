"""The mean of one fold, on made-up predictions."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from usvit.errors import UsvitError
from usvit.evaluation.predictions import check_predictions, predictions_table
from usvit.evaluation.recalibration import fit_temperature
from usvit.experiments.ensembles.mean import mean_of_fold

CLASSES = ("benign", "malignant", "normal")


def tables(n_models=3, n=60, seed=0):
    """Predictions of models of different skill, in two folds; each table has its own order of the rows."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, 3, n)
    rows = pd.DataFrame(
        {
            "image_id": [f"i{k}" for k in range(n)],
            "group_id": [f"g{k // 2}" for k in range(n)],
            "patient_id": "",
            "dataset": "d",
            "label": [CLASSES[k] for k in code],
        }
    )
    found = []
    for model in range(n_models):
        own = []
        for fold in range(2):
            part = np.where(np.arange(n) % 2 == fold, "test", np.where(np.arange(n) % 6 < 3, "val", "train"))
            logits = rng.normal(size=(n, 3)) + (0.8 + 0.3 * model) * np.eye(3)[code]
            keep = part != "train"
            own.append(
                predictions_table(rows[keep], logits[keep], classes=CLASSES, fold=fold, part=part[keep].tolist())
            )
        found.append(pd.concat(own).sample(frac=1, random_state=model).reset_index(drop=True))
    return found


def prob_of(table, fold, image, part):
    row = table[(table.fold == fold) & (table.image_id == image) & (table.part == part)]
    return row[[f"prob_{name}" for name in CLASSES]].to_numpy()[0]


def of(found, weighting, fold=0):
    return mean_of_fold(found, fold, classes=CLASSES, positive="malignant", weighting=weighting)


@pytest.mark.parametrize("weighting", ["equal", "validation"])
def test_each_image_has_the_weighted_mean_of_its_own_predictions(weighting):
    found = tables()
    one = of(found, weighting)
    check_predictions(one.table, "the mean")
    weights = one.record.weights
    assert sum(weights) == pytest.approx(1) and set(one.table.fold) == {0}
    if weighting == "equal":
        assert weights == [1 / 3] * 3
    for row in one.table.itertuples():
        expected = sum(
            weight * prob_of(table, 0, row.image_id, row.part) for weight, table in zip(weights, found, strict=True)
        )
        np.testing.assert_allclose([getattr(row, f"prob_{name}") for name in CLASSES], expected, atol=1e-12)
    logits = one.table[[f"logit_{name}" for name in CLASSES]].to_numpy()
    np.testing.assert_allclose(softmax(logits, axis=1), one.table[[f"prob_{name}" for name in CLASSES]], atol=1e-12)


def test_no_test_image_has_a_say_in_weights_temperature_or_thresholds():
    found, changed = tables(), tables()
    columns = [f"{kind}_{name}" for kind in ("logit", "prob") for name in CLASSES]
    for table in changed:
        test = table.part == "test"
        table.loc[test, columns] = table.loc[test, columns].to_numpy()[::-1]
        table.loc[test, "label"] = "normal"
    assert of(found, "validation").record == of(changed, "validation").record


def test_the_chosen_weights_have_the_smallest_log_loss_on_the_inner_validation_images():
    found = tables()
    equal, chosen = of(found, "equal").record, of(found, "validation").record
    assert chosen.log_loss <= min(equal.log_loss, *chosen.member_log_loss) + 1e-9
    assert chosen.weights != of(found, "validation", fold=1).record.weights  # each fold on its own
    val = of(found, "equal").table
    val = val[val.part == "val"]
    reached = [getattr(row, f"prob_{row.label}") for row in val.itertuples()]
    assert equal.log_loss == pytest.approx(-np.log(reached).mean())


def test_the_temperature_is_that_of_the_mean():
    one = of(tables(), "equal")
    val = one.table[one.table.part == "val"]
    mean = np.log(val[[f"prob_{name}" for name in CLASSES]].to_numpy())
    assert one.record.temperature == pytest.approx(
        fit_temperature([CLASSES.index(label) for label in val.label], mean).value
    )
    assert one.record.n_images == len(val) and one.record.n_groups == val.group_id.nunique()


def test_without_inner_validation_images_weights_cannot_be_chosen():
    found = [table[table.part == "test"] for table in tables()]
    with pytest.raises(UsvitError, match=r"fold 0 has none\. Use --weights equal"):
        of(found, "validation")
    one = of(found, "equal").record
    assert one.log_loss is None and one.temperature is None
    assert one.temperature_reason == "no inner validation images"
