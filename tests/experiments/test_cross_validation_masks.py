"""Lesion masks beside the classes, and the recipe of the small offline model, by the real command."""

import shutil

import numpy as np
import pandas as pd
import pytest
from safetensors import safe_open

from tests.conftest import REPOSITORY, TINY
from usvit.config import build_config, load_recipe, recipe_names
from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.records import MetricsRecord, load_record
from usvit.reports import write_report

SMALL = ("--recipe", "usvit_small", "--device", "cpu", "--precision", "fp32", "--set", "model.image_size=96")
STEPS = ("--set", "train.batch_size=8", "--set", "train.steps=3", "--set", "split.folds=2")


def names(path):
    with safe_open(path / "fold-0" / "model.safetensors", "pt") as file:
        return sorted(file.keys())


@pytest.mark.slow
def test_the_recipe_trains_from_the_shipped_weights_and_scoring_gives_the_predictions_of_the_run(
    usvit, small_phantom, tmp_path
):
    out = tmp_path / "run"
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, *SMALL, *STEPS)
    assert answer.code == 0, answer.err
    metadata = load_metadata(out / "fold-0" / "model.safetensors")
    assert metadata.upstream.name == "phantom"
    assert metadata.upstream.lineage[0].recipe == "phantom_signs"

    import usvit as package

    rows = read_predictions(out / "fold-0" / "predictions.csv")
    row = rows[rows.part == "test"].iloc[0]
    image = next(small_phantom.glob(f"*/{row.image_id}.png"))
    scores = package.load_model(out / "fold-0", device="cpu", precision="fp32").predict(image)
    columns = [f"prob_{name}" for name in metadata.classes]
    assert np.allclose(scores[columns].iloc[0].to_numpy(float), row[columns].to_numpy(float), atol=1e-4)


@pytest.mark.slow
def test_all_layers_train_with_masks_from_the_shipped_weights(usvit, small_phantom, tmp_path):
    """The settings that the recipe's header names for those who want to train all of it."""
    more = ("--set", "model.tune=full", "--set", "optim.lr=0.0005", "--set", "loss.mask_weight=1")
    answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *SMALL, *STEPS, *more)
    assert answer.code == 0, answer.err


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_masks_change_the_training_and_not_what_is_saved(usvit, small_phantom, tmp_path):
    runs = {}
    for name, weight in (("plain", 0), ("masks", 1)):
        runs[name] = tmp_path / name
        answer = usvit(
            "cv", "--data-root", small_phantom, "--out", runs[name], *TINY, "--set", f"loss.mask_weight={weight}"
        )
        assert answer.code == 0, answer.err
    assert names(runs["plain"]) == names(runs["masks"])
    logits = [
        read_predictions(path / "predictions.csv")[["logit_benign", "logit_malignant"]].to_numpy()
        for path in runs.values()
    ]
    assert not np.allclose(*logits)
    assert not (runs["plain"] / "masks.csv").exists()
    table = pd.read_csv(runs["masks"] / "masks.csv")
    tested = read_predictions(runs["masks"] / "predictions.csv")
    assert sorted(table.image_id) == sorted(tested.image_id), "every image is tested once, out of its fold"
    lesion = table.lesion_pixels > 0
    assert not lesion.all(), "the phantom has normal images"
    assert table.dice[lesion].between(0, 1).all()
    assert table.dice[~lesion].isna().all()
    masks = load_record(runs["masks"] / "metrics.json", MetricsRecord).masks
    assert masks.n_images == len(table)
    assert masks.dice.value == pytest.approx(table.dice.mean())
    assert masks.dice.n_groups == table.group_id[lesion].nunique()
    assert masks.false_alarm.value == pytest.approx((table.predicted_pixels > 0)[~lesion].mean())
    assert "Lesion masks" in write_report(runs["masks"]).read_text()
    assert load_record(runs["plain"] / "metrics.json", MetricsRecord).masks is None


def test_images_without_any_mask_are_refused_before_anything_is_written(usvit, small_phantom, tmp_path):
    data = tmp_path / "data"
    for label in ("benign", "malignant"):
        (data / label).mkdir(parents=True)
        for file in sorted((small_phantom / label).glob("*.png")):
            if not file.stem.endswith("_mask"):
                shutil.copy(file, data / label)
    answer = usvit(
        *("cv", "--dataset", "folder", "--data-root", data, "--out", tmp_path / "run", *TINY),
        *("--set", "loss.mask_weight=1"),
    )
    assert answer.code == 2
    assert "no image of folder has a lesion mask" in " ".join(answer.err.split())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"model": {"tune": "head"}}, "set model.tune to full"),
        ({"optim": {"layer_decay": 0.7}}, "set optim.layer_decay to null"),
        ({"input": {"augment_on": "device"}}, "set input.augment_on to auto"),
        ({"loss": {"mask_weight": -1}}, "greater than or equal to 0"),
    ],
)
def test_settings_that_do_not_go_with_masks_are_refused(setting, said):
    with pytest.raises(UsvitError, match=said):
        build_config({"loss": {"mask_weight": 1}}, setting)


def test_the_phantom_weights_with_another_model_are_refused(usvit, tmp_path):
    answer = usvit("cv", "--model", "resnet50", "--weights", "phantom", "--out", tmp_path / "run", "--device", "cpu")
    assert answer.code == 2
    said = " ".join(answer.err.split())
    assert "--weights phantom are weights of the model usvit_small, but the model is resnet50" in said
    assert not (tmp_path / "run").exists()


def test_the_recipe_of_the_small_model_begins_with_the_shipped_weights_of_its_model():
    assert "usvit_small" in recipe_names()
    config = build_config(load_recipe("usvit_small"))
    assert (config.model.name, config.model.weights) == ("usvit_small_multi", "phantom")
    assert (config.model.tune, config.input.augment) == ("head", "none"), "the features are computed once"
    header = (REPOSITORY / "configs" / "finetune" / "usvit_small.yaml").read_text().partition("\n\n")[0]
    assert "usvit cv --dataset busi --recipe usvit_small" in header
