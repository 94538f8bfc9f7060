import pandas as pd
import pytest

from tests.upstream.studies.shift.conftest import TINY, write_set
from usvit.config import DataConfig
from usvit.errors import UsvitError
from usvit.experiments import run_config
from usvit.progress import NO_PROGRESS
from usvit.upstream.studies.shift.sets import open_sets, parse_sources
from usvit.upstream.studies.shift.training import leave_each_out, study_of, write_inputs

SETTINGS = {key: value for key, value in TINY.items() if "__" in key or key in ("device", "precision")}


@pytest.fixture(scope="module")
def sets(scanners):
    sources = parse_sources([f"near={scanners / 'near'}", f"far={scanners / 'far'}"], DataConfig(), {})
    return open_sets(sources, None, NO_PROGRESS)


def config(**settings):
    return run_config("phantom", "timm:test_resnet", recipe="demo", sections={**SETTINGS, **settings})


def test_each_training_lacks_its_set_and_holds_images_out_in_the_same_folds(sets, tmp_path):
    left_out = leave_each_out(sets, config(), "cv", tmp_path)
    table = sets.table()
    for one in left_out:
        assert set(one.sources.table.dataset) == set(one.trained_on) == {"near", "far"} - {one.name}
        assert set(one.target.table.dataset) == {one.name}
        assert set(one.folds.dataset) == set(one.trained_on)
        tested = one.folds[one.folds.part == "test"]
        assert len(tested) == len(one.sources.usable) and not tested.duplicated(["dataset", "image_id"]).any()
        groups = one.folds.merge(table[["dataset", "image_id", "group_id"]])
        assert (groups.groupby(["fold", "group_id"]).part.nunique() == 1).all()
        parts = one.folds.merge(table[["dataset", "image_id", "label"]]).groupby(["fold", "part"]).label.nunique()
        assert (parts == 3).all()


def test_folds_of_a_third_set_are_the_same_in_both_trainings(scanners, tmp_path):
    third = write_set(tmp_path / "third", 3, "third scanner")
    sources = [f"near={scanners / 'near'}", f"far={scanners / 'far'}", str(third)]
    three = open_sets(parse_sources(sources, DataConfig(), {}), None, NO_PROGRESS)
    found = {one.name: one.folds for one in leave_each_out(three, config(), "cv", tmp_path)}
    keys = ["dataset", "image_id", "fold", "part"]
    of_third = [folds[folds.dataset == "third"][keys] for name, folds in found.items() if name != "third"]
    assert len(of_third) == 2 and len(of_third[0])
    first, second = (one.sort_values(keys).reset_index(drop=True) for one in of_third)
    pd.testing.assert_frame_equal(first, second)


def test_the_name_of_a_training_depends_on_its_images_folds_and_settings_and_on_no_folder(sets, tmp_path):
    def ids(runs, **settings):
        return [one.run.id for one in leave_each_out(sets, config(**settings), "cv", runs)]

    assert ids(tmp_path / "a") == ids(tmp_path / "b")
    assert set(ids(tmp_path)).isdisjoint(ids(tmp_path, train__steps=4))
    assert set(ids(tmp_path)).isdisjoint(ids(tmp_path, data__split_seed=1))


def test_the_files_of_a_training_are_those_that_its_configuration_names(sets, tmp_path):
    left_out = leave_each_out(sets, config(), "train", tmp_path)
    write_inputs(left_out)
    plan = study_of(left_out, config(), "train", None)
    assert [run.id for run in plan.runs] == [one.run.id for one in left_out]
    for one in left_out:
        assert pd.read_csv(one.run.config["split"]["file"]).part.value_counts().gt(0).all()


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"split__unit": "image"}, "a split by image leaks"),
        ({"split__repeats": 2}, "each training is made once"),
        ({"split__scheme": "by_dataset"}, "left out by the study itself"),
        ({"split__file": "folds.csv"}, "made for all sets together"),
    ],
)
def test_splits_of_ones_own_are_refused(sets, tmp_path, settings, says):
    with pytest.raises(UsvitError, match=says):
        leave_each_out(sets, config(**settings), "cv", tmp_path)


def test_more_folds_than_patients_are_refused(sets, tmp_path):
    with pytest.raises(UsvitError, match=r"split\.folds|folds need"):
        leave_each_out(sets, config(split__folds=40), "cv", tmp_path)
