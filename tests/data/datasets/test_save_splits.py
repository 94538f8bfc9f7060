import json

import pandas as pd
import pytest

from usvit.config import build_config
from usvit.data.datasets.preparation import save_splits
from usvit.data.splits.folds import folds_sha256, read_folds
from usvit.errors import UsvitError


@pytest.fixture
def freeze(tmp_path, small_phantom):
    def run(kind="cv", out="folds.csv", **split):
        config = build_config({"data": {"dataset": "phantom"}, "split": {"folds": 3, **split}, "seed": 4})
        return save_splits(config, tmp_path / out, hold_out=kind == "train", roots={"": small_phantom})

    return run


@pytest.mark.slow
def test_the_summary_tells_what_the_file_holds(tmp_path, freeze):
    summary = freeze()
    folds = read_folds(tmp_path / "folds.csv")
    assert summary.model_dump() == json.loads((tmp_path / "folds.json").read_text())
    assert summary.sha256 == folds_sha256(folds)
    assert summary.n_images == 48
    assert summary.leaking_groups == 0
    sizes = {(row.fold, row.part): row.images for row in summary.parts}
    assert sizes == folds.groupby(["fold", "part"]).size().to_dict()
    for row in summary.parts:
        assert sum(row.classes.values()) == row.images


@pytest.mark.slow
def test_the_same_folds_may_be_frozen_again_and_others_are_not_written_over_them(tmp_path, freeze):
    before = freeze().sha256
    assert freeze().sha256 == before
    with pytest.raises(UsvitError, match=r"holds other folds\. Nothing was changed"):
        freeze(unit="image")
    assert folds_sha256(read_folds(tmp_path / "folds.csv")) == before


@pytest.mark.slow
def test_frozen_folds_give_the_same_folds(tmp_path, freeze):
    freeze()
    again = freeze(out="again.csv", file=str(tmp_path / "folds.csv"))
    pd.testing.assert_frame_equal(read_folds(tmp_path / "again.csv"), read_folds(tmp_path / "folds.csv"))
    assert again.n_groups < again.n_images


@pytest.mark.slow
def test_a_hold_out_has_one_fold(freeze):
    assert {row.fold for row in freeze("train").parts} == {0}


@pytest.mark.slow
def test_by_image_counts_its_leaks(freeze):
    assert freeze(unit="image").leaking_groups > 5


def test_other_suffixes_are_refused(freeze):
    with pytest.raises(UsvitError, match=r"ends in \.csv"):
        freeze(out="folds.txt")
