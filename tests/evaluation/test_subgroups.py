import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.json_content import content_of
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.evaluation.pooled_figures import figure_points
from usvit.evaluation.subgroups import FIGURES, NOT_RECORDED, subgroups

pytestmark = pytest.mark.slow

TWO = ["benign", "malignant"]


def by_image(table, **columns):
    """A table beside the predictions, in another order, with one image more."""
    beside = table[["dataset", "image_id"]].assign(**columns)
    stranger = beside.iloc[[0]].assign(image_id="stranger")
    return pd.concat([stranger, beside]).sample(frac=1, random_state=1)


def test_figures_are_those_of_the_subgroup_alone(study):
    device = np.where(np.arange(len(study)) % 4 < 2, "LOGIQ E9", "Acuson")
    acuson, logiq = subgroups(study, "device", positive="malignant", columns=by_image(study, device=device))
    assert (acuson.level, logiq.level) == ("Acuson", "LOGIQ E9")
    part = study[device == "Acuson"]
    assert acuson.n_images == len(part) == 100
    assert acuson.n_groups == part["group_id"].nunique()
    assert acuson.class_images == part["label"].value_counts().sort_index().to_dict()
    assert acuson.class_groups == part.groupby("label")["group_id"].nunique().to_dict()
    area = acuson.figures.auc["malignant_vs_rest"].value
    assert area == pytest.approx(roc_auc_score(part["label"] == "malignant", part["prob_malignant"]))
    json.dumps(content_of([acuson, logiq]), allow_nan=False)


def test_one_subgroup_of_all_is_the_whole(study):
    (everything,) = subgroups(study, "dataset", positive="malignant")
    label = study["label"].map({"benign": 0, "malignant": 1, "normal": 2}).to_numpy()
    prob = study[["prob_benign", "prob_malignant", "prob_normal"]].to_numpy()
    whole = figure_points(
        label, prob, study["group_id"].to_numpy(), classes=["benign", "malignant", "normal"], positive="malignant"
    )
    assert everything.level == "busi"
    assert dict(everything.figures) == {name: whole.values[name] for name in FIGURES}


def test_images_of_every_subgroup_add_up_and_a_group_may_stand_in_two(study):
    birads = [["2", "3", "4a", "4b", "5"][i % 5] for i in range(200)]
    found = subgroups(study, "birads", positive="malignant", columns=by_image(study, birads=birads))
    assert [one.level for one in found] == ["2", "3", "4a", "4b", "5"]
    assert sum(one.n_images for one in found) == 200
    assert sum(one.n_groups for one in found) > study["group_id"].nunique()


def test_levels_stand_in_natural_order_and_whole_numbers_lose_their_point(study):
    values = [[2.0, 10.0, np.nan, 9.0][i % 4] for i in range(200)]
    found = subgroups(study, "grade", positive="malignant", columns=by_image(study, grade=values))
    assert [one.level for one in found] == ["2", "9", "10", NOT_RECORDED]


def test_a_measured_column_is_cut_and_a_limit_belongs_to_the_upper_class(study):
    size = np.tile([5.0, 10.0, 19.9, 20.0, np.nan], 40)
    found = subgroups(study, "size_mm", positive="malignant", columns=by_image(study, size_mm=size), limits=[10, 20])
    assert [(one.level, one.n_images) for one in found] == [
        ("< 10", 40),
        ("10 to < 20", 80),
        (">= 20", 40),
        (NOT_RECORDED, 40),
    ]


def test_numbers_written_as_text_are_cut_too(study):
    size = [["5", "15", "", None][i % 4] for i in range(200)]
    found = subgroups(study, "size_mm", positive="malignant", columns=by_image(study, size_mm=size), limits=[10])
    assert [(one.level, one.n_images) for one in found] == [("< 10", 50), (">= 10", 50), (NOT_RECORDED, 100)]


def test_images_that_the_other_table_lacks_are_not_recorded(study):
    beside = by_image(study, device="A")
    beside = beside[beside["image_id"].isin(study["image_id"][:150])]
    found = subgroups(study, "device", positive="malignant", columns=beside)
    assert [(one.level, one.n_images) for one in found] == [("A", 150), (NOT_RECORDED, 50)]


def test_the_same_name_in_two_data_sets_is_two_images(make_table):
    table = make_table(["benign", "malignant"], [[0.8, 0.2], [0.3, 0.7]], TWO)
    table["image_id"], table["dataset"] = "1", ["busi", "bus_uclm"]
    beside = pd.DataFrame({"dataset": ["bus_uclm", "busi"], "image_id": ["1", "1"], "device": ["S", "L"]})
    found = subgroups(table, "device", positive="malignant", columns=beside)
    assert [(one.level, one.class_images["malignant"]) for one in found] == [("L", 0), ("S", 1)]


def test_a_class_that_a_subgroup_lacks_has_its_reason(make_table):
    table = make_table(["benign", "benign", "malignant"], [[0.8, 0.2], [0.7, 0.3], [0.4, 0.6]], TWO, folds=[0, 0, 1])
    first, second = subgroups(table, "fold", positive="malignant")
    assert first.figures.auc["malignant_vs_rest"].reason == "no image of class 'malignant'"
    assert first.figures.specificity["malignant"].value == 1
    assert second.n_images == 1
    assert second.figures.specificity["malignant"].value is None
    json.dumps(content_of([first, second]), allow_nan=False)


def test_small_subgroups_and_rare_classes_are_flagged(make_table):
    labels = ["malignant"] * 9 + ["benign"] * 91
    table = make_table(labels, [[0.5, 0.5]] * 100, TWO, folds=[0] * 51 + [1] * 49)
    first, second = subgroups(table, "fold", positive="malignant")
    assert first.warning is not None and first.warning.startswith("from 9 groups with images of class 'malignant' only")
    assert second.warning.startswith("from 49 groups only")
    even = table.assign(label=["benign", "malignant"] * 50)
    assert subgroups(even, "dataset", positive="malignant")[0].warning is None


def test_any_measure_can_be_asked_for(study):
    """Here, the number of images in place of each accuracy."""

    def measure(label, prob, group):
        points = figure_points(label, prob, group, classes=["benign", "malignant", "normal"], positive="malignant")
        points.values["accuracy"] = Estimate(value=len(label) / 100, ci95=None)
        return points

    found = subgroups(study, "fold", positive="malignant", measure=measure)
    assert [one.figures.accuracy.value for one in found] == [0.4] * 5


@pytest.mark.parametrize(
    ("by", "columns", "limits", "message"),
    [
        ("devise", {"device": "A"}, None, "Unknown column 'devise'.*Nearest: device"),
        ("size_mm", {"size_mm": np.linspace(1, 40, 200)}, None, "200 different numbers, from 1 to 40: give limits"),
        ("size_mm", {"size_mm": np.linspace(1, 40, 200)}, [20, 10], "must be ascending numbers"),
        ("size_mm", {"size_mm": np.linspace(1, 40, 200)}, [], "must be ascending numbers"),
        ("image_id", {"device": "A"}, [10], "holds 'x0', which is not a number"),
        ("image_id", {"device": "A"}, None, "200 different values such as 'x0': too many"),
        ("device", {"device": "LOGIQ"}, [10], "holds 'LOGIQ', which is not a number"),
    ],
)
def test_a_column_that_cannot_be_used_is_explained(study, by, columns, limits, message):
    study = study.assign(image_id=[f"x{i}" for i in range(200)])
    with pytest.raises(UsvitError, match=message):
        subgroups(study, by, positive="malignant", columns=by_image(study, **columns), limits=limits)


def test_a_table_that_cannot_be_joined_is_explained(study):
    beside = by_image(study, device="A")
    with pytest.raises(UsvitError, match=r"holds image '\w+' of busi twice"):
        subgroups(study, "device", positive="malignant", columns=pd.concat([beside, beside.iloc[[3]]]))
    with pytest.raises(UsvitError, match="no column dataset to join"):
        subgroups(study, "device", positive="malignant", columns=beside.drop(columns="dataset"))
    with pytest.raises(UsvitError, match=r"none of the predicted images.*Predicted: busi/000000"):
        subgroups(study, "device", positive="malignant", columns=beside.assign(dataset="BUSI"))
    with pytest.raises(UsvitError, match="none of the predicted images"):  # ids read as numbers lose their zeros
        subgroups(study, "device", positive="malignant", columns=beside[1:].assign(image_id=range(200)).iloc[150:])
    with pytest.raises(UsvitError, match="Unknown class"):
        subgroups(study, "dataset", positive="cancer")


def test_a_level_called_na_is_a_level(study):
    device = [["NA", None, "None"][i % 3] for i in range(200)]
    found = subgroups(study, "device", positive="malignant", columns=by_image(study, device=device))
    assert [one.level for one in found] == ["NA", "None", NOT_RECORDED]
