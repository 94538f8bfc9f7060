"""``usvit compare`` of segmentations: paired differences of their masks against statsmodels, and what is refused."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm

import usvit
from usvit.errors import UsvitError
from usvit.records import RunRecord, load_record

FIGURES = ["dice", "iou", "hd95", "pixel_accuracy", "missed", "false_alarm"]


def write(folder, seed, n=60, **changes):
    """Write a finished run of a segmentation with a table of made-up masks; every fifth image has no lesion."""
    rng, folder = np.random.default_rng(seed), folder
    lesion = np.where(np.arange(n) % 5, 100, 0)
    predicted = np.where(rng.random(n) < 0.8, 90, 0)
    dice = np.where(lesion > 0, np.where(predicted > 0, rng.uniform(0.2, 0.9, n), 0.0), np.nan)
    table = pd.DataFrame(
        {
            **{
                "dataset": "x",
                "image_id": [f"{k:03d}" for k in range(n)],
                "group_id": [f"g{k // 2}" for k in range(n)],
            },
            **{"label": "image", "fold": np.arange(n) // 2 % 3, "file": "a.png", "lesion_pixels": lesion},
            **{"predicted_pixels": predicted, "dice": dice, "iou": dice / (2 - dice), "pixel_accuracy": rng.random(n)},
            "hd95": np.where((lesion > 0) & (predicted > 0), rng.uniform(1, 30, n), np.nan),
        }
    )
    folder.mkdir()
    table.assign(**changes).sample(frac=1, random_state=seed).to_csv(folder / "masks.csv", index=False)
    return table


@pytest.fixture
def two(tmp_path, tiny_run):
    tables = [write(tmp_path / name, number) for number, name in enumerate(("first", "second"))]
    for name in ("first", "second"):
        shutil.copy(tiny_run / "run.json", tmp_path / name / "run.json")
    return tmp_path / "first", tmp_path / "second", *tables


def test_differences_are_those_of_a_clustered_regression(two, tmp_path):
    first, second, mine, other = two
    record, folder = usvit.compare_masks(first, second, out=tmp_path / "out")
    assert (record.n_images, record.n_groups, record.n_folds) == (60, 30, 3)
    assert [(one.a, one.b, one.figure) for one in record.differences] == [("first", "second", one) for one in FIGURES]
    for one in record.differences[:4]:
        away = (mine[one.figure] - other[one.figure]).dropna()
        codes = pd.factorize(mine.group_id[away.index])[0]
        fit = sm.OLS(away.to_numpy(), np.ones(len(away))).fit(
            cov_type="cluster", cov_kwds={"groups": codes, "use_correction": False}
        )
        groups = len(set(codes))
        low, high = one.difference.ci95
        assert one.difference.value == pytest.approx(fit.params[0]) and one.n_images == len(away)
        error = float(fit.bse[0]) * np.sqrt(groups / (groups - 1))
        assert 1.9 < (high - low) / 2 / error < 2.2  # Student's t, by Satterthwaite's degrees of freedom
    missed = next(one for one in record.differences if one.figure == "missed")
    lesion = mine.lesion_pixels > 0
    shares = [(table.predicted_pixels[lesion] == 0).mean() for table in (mine, other)]
    assert missed.difference.value == pytest.approx(shares[0] - shares[1])
    p, adjusted = zip(*((one.difference.p, one.p_holm) for one in record.differences), strict=True)
    assert min(adjusted) == pytest.approx(min(1, min(p) * len(p)))
    assert record.runs[0].dice.value == pytest.approx(mine.dice.mean())
    assert {path.name for path in folder.iterdir()} >= {
        "compare-masks.json",
        "compare.html",
        "compare.md",
        "compare.tex",
    }
    swapped, _ = usvit.compare_masks(second, first, out=tmp_path / "swapped")
    assert swapped.differences[0].difference.value == pytest.approx(-record.differences[0].difference.value)


def test_the_command_compares_segmentations_by_their_masks(usvit, two, tmp_path):
    first, second, *_ = two
    answer = usvit("compare", first, second, "--name", "ours", "--name", "peer", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "ours less peer" in answer.out and "Hausdorff" in answer.out
    assert json.loads((tmp_path / "out" / "compare-masks.json").read_text())["runs"][1]["name"] == "peer"
    answer = usvit("compare", first, second, "--margin", "0.05")
    assert answer.code == 2 and "without other options than --name" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"n": 58}, "were tested on other images: 2 are in the first alone, 0 in the second alone"),
        ({"fold": 0}, "differ in the folds of 40 of 60 images"),
        ({"group_id": "g"}, "differ in the groups of 60 of 60 images"),
        ({"lesion_pixels": 7}, "differ in the true masks of 60 of 60 images"),
        ({"image_id": "000"}, "is damaged"),
        ({"fold": ""}, "is damaged"),
    ],
)
def test_runs_on_other_images_folds_groups_or_masks_are_refused(two, tmp_path, changes, said):
    first, second, *_ = two
    shutil.move(second / "run.json", tmp_path / "run.json")
    shutil.rmtree(second)
    write(second, 1, **changes)
    shutil.move(tmp_path / "run.json", second / "run.json")
    with pytest.raises(UsvitError, match=said):
        usvit.compare_masks(first, second, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_unfinished_runs_other_classes_and_one_run_twice_are_refused(two, tmp_path):
    first, second, mine, _ = two
    with pytest.raises(UsvitError, match="at least two different segmentations"):
        usvit.compare_masks(first, first)
    with pytest.raises(UsvitError, match="2 segmentations need 2 different names"):
        usvit.compare_masks(first, second, names=["a"])
    record = load_record(second / "run.json", RunRecord)
    content = record.content() | {"state": "running"}
    (second / "run.json").write_text(json.dumps(content))
    with pytest.raises(UsvitError, match="is not finished"):
        usvit.compare_masks(first, second)
    (second / "run.json").write_text(json.dumps(record.content()))
    mine.drop(columns="dice").to_csv(second / "masks.csv", index=False)
    with pytest.raises(UsvitError, match="has no column dice: segmentations of lesions"):
        usvit.compare_masks(first, second)
