"""Conformal sets of ``usvit recalibrate``: fitted on patients, stored, refused with too few, tested on others."""

import numpy as np
import pandas as pd
import pytest

from tests.scoring.external.test_recalibration import images_of, table
from tests.scoring.make_scores import evaluated, make_scores
from usvit.errors import UsvitError
from usvit.scoring.calibration import read_calibration, scaled
from usvit.scoring.external.local_sets import fit_sets
from usvit.scoring.external.recalibration import fit, recalibrate
from usvit.scoring.external.scored_set import read_scored_set


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    truth = make_scores(folder / "scores", key=folder / "key", n_patients=60, failed=0)
    at = np.arange(len(truth)) // 2 % 4 < 2  # two patients of each class here, two there
    truth[at].to_csv(folder / "here.csv", index=False)
    truth[~at].to_csv(folder / "there.csv", index=False)
    return folder


@pytest.fixture(scope="module")
def record(home):
    made = recalibrate(home / "scores", table(home, "here"), out=home / "calibration.json", n_resamples=3)
    return made.content()


def test_the_bounds_are_those_of_the_worst_images_of_the_patients(home, record):
    rows = read_scored_set(home / "scores").rows
    here = pd.read_csv(home / "here.csv").set_index("item_id")["label"]
    rows = rows[rows["item_id"].isin(here.index)]
    prob = scaled(rows[["prob_benign", "prob_malignant"]].to_numpy(), record["temperature"]["value"])[:, 1]
    ill = (rows["item_id"].map(here) == "malignant").to_numpy()
    worst = pd.Series(prob[ill]).groupby(rows["group_id"].to_numpy()[ill]).min().sort_values()
    best = pd.Series(prob[~ill]).groupby(rows["group_id"].to_numpy()[~ill]).max().sort_values()
    sets = record["conformal"]
    assert (sets["alpha"], sets["guarantee"], sets["reason"]) == (0.1, "every image", None)
    assert len(worst) == len(best) == sets["positive"]["n_groups"] == 15  # floor(0.1 * 16) = 1: the worst of all
    assert sets["positive"]["bound"] == pytest.approx(worst.iloc[0])
    assert sets["rest"]["bound"] == pytest.approx(best.iloc[-1])
    assert read_calibration(home / "calibration.json").conformal.rest.n_needed == 9


def test_too_few_patients_are_refused_if_alpha_was_asked_for_and_explained_if_not():
    images = images_of(8)
    reference = images.label == 1
    with pytest.raises(UsvitError, match=r"8 patients with an image of class 'x'.*needs 9 of each.*--alpha 0.112"):
        fit_sets(reference, images.prob[:, 1], images.group, positive="x", alpha=0.1, who="patients")
    found = fit(images, "x", n_resamples=3).conformal
    assert found.positive.bound is found.rest.bound is None
    assert "alpha = 0.1 needs 9 of each" in found.reason
    more = fit(images, "x", alpha=0.112, n_resamples=3).conformal
    assert more.reason is None and more.positive.n_needed == 8


@pytest.mark.parametrize("alpha", [0.0, 0.6, -1.0, float("nan")])
def test_an_alpha_that_is_none_is_refused_before_anything_is_read(alpha, tmp_path):
    with pytest.raises(UsvitError, match="--alpha"):
        recalibrate(tmp_path / "none", tmp_path / "none.csv", out=tmp_path / "c.json", alpha=alpha)


def test_the_sets_are_tested_on_other_patients(home, record):
    metrics, _ = evaluated(home / "scores", table(home, "there"), calibration=home / "calibration.json")
    found = metrics["external"]["conformal"]
    assert found["alpha"] == 0.1 and found["sets"][0]["reference"] == "malignant"
    assert found["sets"][0]["coverage"]["value"] > 0.7
    plain, _ = evaluated(home / "scores", table(home, "there"))
    assert plain["external"]["conformal"] is None


def test_new_patients_are_covered_as_promised_whose_patients_have_several_images():
    """Mean coverage over calibrations of 12 patients of each class with 3 images: 0.92 in theory (12 of 13)."""
    covered = []
    for seed in range(60):
        images = images_of(12, 3, seed=seed)
        ill = images.label == 1
        sets = fit_sets(ill, images.prob[:, 1], images.group, positive="x", alpha=0.1, who="patients")
        new = images_of(200, 3, seed=1000 + seed)
        worst = new.prob[new.label == 1, 1].reshape(-1, 3).min(axis=1)
        covered.append(np.mean(worst >= sets.positive.bound))
    assert abs(np.mean(covered) - 12 / 13) < 0.025
