"""Heads on frozen features by the real command: training, what is recorded, scoring, and that features are shared."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

import usvit as package
from tests.models.weights.test_packages import needs_package
from usvit.evaluation.predictions import read_predictions
from usvit.experiments import lesion_training
from usvit.files import read_csv
from usvit.models import load_trained

SMALL = ("--device", "cpu", "--precision", "fp32", "--set", "model.image_size=64", "--set", "split.folds=2")
RESNET = ("--model", "timm:test_resnet+usvit_small", "--weights", "scratch+phantom")
REFINED = ["spread", "mirror", "root", "equal_maps"]
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_report")]


@pytest.mark.parametrize("model", [RESNET, pytest.param((), marks=needs_package)])
def test_the_recipe_trains_and_scoring_gives_the_predictions_of_the_run(usvit, small_phantom, tmp_path, model):
    out = tmp_path / "run"
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, "--recipe", "usvit_imagenet", *SMALL, *model)
    assert answer.code == 0, answer.err
    metadata = json.loads((out / "fold-0" / "model.json").read_text())
    assert metadata["features"] == {"features": "stages", "views": [1.0, 0.5], "lesion": True, "refinements": REFINED}
    assert metadata["upstream"]["name"].endswith("phantom")
    history = read_csv(out / "fold-0" / "history.csv", text=False)
    assert metadata["best_step"] == history.val_loss.argmin() + 1
    assert len(history) == len(set(history.l2)) == 8

    again = ("--data-root", small_phantom, "--recipe", "usvit_imagenet", *SMALL, *model)
    for name, cache in (("kept", "true"), ("new", "false")):  # features of the first run, and computed again
        answer = usvit("cv", "--out", tmp_path / name, *again, "--set", f"data.cache={cache}")
        assert answer.code == 0 and ("an earlier run has kept" in answer.err + answer.out) == (name == "kept")
        assert (tmp_path / name / "predictions.csv").read_bytes() == (out / "predictions.csv").read_bytes()

    rows = read_predictions(out / "fold-0" / "predictions.csv")
    row = rows[rows.part == "test"].iloc[0]
    image = next(small_phantom.glob(f"*/{row.image_id}.png"))
    scores = package.load_model(out / "fold-0", device="cpu", precision="fp32").predict(image)
    columns = [f"prob_{name}" for name in metadata["classes"]]
    assert np.allclose(scores[columns].iloc[0].to_numpy(float), row[columns].to_numpy(float), atol=1e-3)


def test_a_head_that_is_fitted_again_judges_validation_images_by_the_first_fit(usvit, small_phantom, tmp_path):
    tables, models = {}, {}
    for refit in ("false", "true"):
        options = ("--recipe", "usvit_imagenet", *SMALL, *RESNET, "--set", f"optim.refit={refit}")
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / refit, *options)
        assert answer.code == 0, answer.err
        tables[refit] = read_predictions(tmp_path / refit / "fold-0" / "predictions.csv").set_index(
            ["part", "image_id"]
        )
        models[refit] = json.loads((tmp_path / refit / "fold-0" / "model.json").read_text())
    assert tables["true"].loc["val"].equals(tables["false"].loc["val"])
    assert models["true"]["temperature"] == models["false"]["temperature"]
    assert not tables["true"].loc["test"].equals(tables["false"].loc["test"])
    # The kept head is the refitted one: it is surer of validation images, which it has seen.
    row = tables["true"].loc["val"].reset_index().iloc[0]
    scores = package.load_model(tmp_path / "true" / "fold-0", device="cpu", precision="fp32").predict(
        next(small_phantom.glob(f"*/{row.image_id}.png"))
    )
    assert scores[f"prob_{row.label}"].iloc[0] > row[f"prob_{row.label}"] + 1e-3


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("--set", "model.tune=full", "--set", "model.features=null"), "model.views, model.lesion"),
        (("--set", "model.lesion=false", "--set", "model.lesion_steps=2"), "nothing uses it"),
        (("--set", "input.augment=us"), "input.augment is us: set input.augment to none"),
        (("--set", "train.batch_norm=recomputed"), "train.batch_norm is recomputed: set train.batch_norm to as_is"),
        (("--set", "train.early_stopping.keep=last"), "set train.early_stopping.keep to best"),
        (("--set", "optim.name=adamw", "--set", "optim.refit=true"), "optim.name is adamw: set optim.refit to false"),
        (("--weights", "package+package+package"), "names 3 weights"),
    ],
)
def test_settings_that_do_not_fit_stop_before_anything_is_written(usvit, small_phantom, tmp_path, settings, says):
    out = tmp_path / "run"
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, "--recipe", "usvit_imagenet", *SMALL, *settings)
    assert answer.code == 2
    assert says in " ".join(answer.err.split())
    assert "Traceback" not in answer.err
    assert not out.exists()


def test_lesions_are_learnt_from_the_training_part_of_each_fold_and_scoring_crops_alike(
    usvit, small_phantom, tmp_path, monkeypatch
):
    trained, real = [], lesion_training.train_batches
    monkeypatch.setattr(
        lesion_training,
        "train_batches",
        lambda store, rows, *more, **a: trained.append(rows) or real(store, rows, *more, **a),
    )
    out, settings = tmp_path / "run", ("model.lesion=false", "model.lesion_crop=0.25", "model.lesion_steps=2")
    options = ("--recipe", "usvit_imagenet", "--model", "timm:test_resnet", "--weights", "scratch", *SMALL)
    sets = [part for one in (*settings, "folds_at_once=1") for part in ("--set", one)]
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, *options, *sets)
    assert answer.code == 0, answer.err
    folds = read_csv(out / "folds.csv", text=("image_id",))
    image_ids = pd.read_parquet(out / "manifest.parquet").image_id.to_numpy()
    weights = []
    for fold, rows in enumerate(trained):
        own = folds[folds.fold == fold]
        assert {*image_ids[rows]} == {*own[own.part == "train"].image_id}
        assert len(read_csv(out / f"fold-{fold}" / "lesion-history.csv", text=False)) == 2
        model = load_trained(out / f"fold-{fold}")
        assert model.metadata.features["lesion_crop"] == 0.25
        weights.append(model.model.lesion_network.mask_decoder.state_dict())
    assert len(trained) == 2
    assert any((weights[0][key] != weights[1][key]).any() for key in weights[0])

    rows = read_predictions(out / "fold-0" / "predictions.csv")
    row = rows[rows.part == "test"].iloc[0]
    image = next(small_phantom.glob(f"*/{row.image_id}.png"))
    columns = [f"prob_{name}" for name in model.classes]
    scores = package.load_model(out / "fold-0", device="cpu", precision="fp32").predict(image)
    assert np.allclose(scores[columns].iloc[0].to_numpy(float), row[columns].to_numpy(float), atol=1e-3)
    onnx = usvit("models", "export", out / "fold-0", "--out", tmp_path / "onnx", "--format", "onnx")
    assert onnx.code == 0, onnx.err  # the file is checked against PyTorch


def test_lesions_cannot_be_learnt_from_images_without_masks(usvit, small_phantom, tmp_path):
    images = shutil.copytree(small_phantom, tmp_path / "images")
    for mask in images.rglob("*_mask.png"):
        mask.unlink()
    (images / "phantom.json").unlink(missing_ok=True)
    settings = ("--recipe", "usvit_imagenet", *SMALL, *RESNET, "--set", "model.lesion_steps=2")
    answer = usvit("cv", "--dataset", "folder", "--data-root", images, "--out", tmp_path / "run", *settings)
    assert answer.code == 2, answer.out
    assert "model.lesion_steps is 2, but no image of folder has a lesion mask" in " ".join(answer.err.split())
    assert not (tmp_path / "run").exists()
