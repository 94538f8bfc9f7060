"""Whole transfers on a small folder of pictures: what comes out, what is refused, what is not done twice."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.messages import record_messages
from tests.upstream.transfer_learning.conftest import CLASSES, N
from usvit.config import build
from usvit.data.io.image_hashes import pixel_sha256
from usvit.errors import LeakageError, UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.files import sha256_of_file
from usvit.models.weights import read_state_dict, resolve_weights
from usvit.models.zoo import find_model
from usvit.progress import NoProgress
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.transfer_learning import features
from usvit.upstream.transfer_learning.experiment import Transfer, UpstreamSelection


class Told(NoProgress):
    def __init__(self):
        self.lines = record_messages()


def run(settings, out, *more, progress=None, named=True):
    config = build(TransferConfig, settings, *more)
    experiment = UpstreamSelection if config.upstream else Transfer
    return experiment(config, out=out, command="usvit transfer", progress=progress, model_named=named).run()


def accuracy_of(path):
    table = read_predictions(path / "predictions.csv")
    prob = table[[f"prob_{name}" for name in CLASSES]].to_numpy()
    return float((np.array(CLASSES)[prob.argmax(1)] == table.label).mean())


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fewshot", "linear", "knn"])
def test_probes_of_a_random_network_tell_easy_pictures_apart(settings, tmp_path, how):
    outcome = run(settings, tmp_path / "run", {"how": how})
    expected = {part: 3 * count for part, count in N.items()} | ({"val": 0} if how == "knn" else {})
    assert {part: getattr(outcome.result.images, f"n_{part}") for part in N} == expected
    best = outcome.result.summary[-1].accuracy
    assert best.value > 0.7
    results = pd.read_csv(outcome.path / "results.csv")
    test = results[(results.part == "test") & results.chosen]
    assert test.accuracy.tolist() == [pytest.approx(accuracy_of(outcome.path))]
    assert not (outcome.path / "features").exists()


@pytest.mark.slow
def test_fewshot_rows_are_every_draw_and_the_summary_is_their_mean(settings, tmp_path):
    outcome = run(settings, tmp_path / "run", {"how": "fewshot", "l2": [0.1, 10.0]})
    results = pd.read_csv(outcome.path / "results.csv")
    test = results[results.part == "test"]
    assert sorted(zip(test.k, test.draw, strict=True)) == [(k, draw) for k in (1, 5) for draw in range(3)]
    for line, k in zip(outcome.result.summary, (1, 5), strict=True):
        found = test[test.k == k].accuracy
        half = 4.302653 * found.std(ddof=1) / np.sqrt(3)  # t of two degrees of freedom
        assert line.name == f"{k}-shot"
        assert line.accuracy.value == pytest.approx(found.mean())
        low, high = max(0, found.mean() - half), min(1, found.mean() + half)
        expected = None if found.std() == 0 else pytest.approx((low, high), abs=1e-6)
        assert line.accuracy.ci95 == expected
    assert outcome.result.summary[0].accuracy.ci95 is not None  # one image of each class: draws differ
    tried = results[results.part == "val"]
    assert len(tried) == 4 and tried[tried.chosen].groupby("k").size().tolist() == [1, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("probe", "given", "column"), [("logistic", {"l2": [0.1]}, "l2"), ("neighbours", {"k": [1, 9]}, "neighbours")]
)
def test_a_few_images_also_train_a_regression_and_neighbours(settings, tmp_path, probe, given, column):
    outcome = run(settings, tmp_path / "run", {"how": "fewshot", "probe": probe, **given})
    results = pd.read_csv(outcome.path / "results.csv")
    assert outcome.result.summary[-1].accuracy.value > 0.7
    of_table = results[(results.part == "test") & results.chosen]
    assert of_table.accuracy.tolist() == [pytest.approx(accuracy_of(outcome.path))]
    tried = results[results.part == "val"]
    expected = {"logistic": {(1, 0.1), (5, 0.1)}, "neighbours": {(1, 1), (1, 3), (5, 1), (5, 9)}}[probe]
    assert set(zip(tried.k, tried[column], strict=True)) == expected  # 1 image of 3 classes: at most 3 neighbours
    chosen = [getattr(line, column) for line in outcome.result.summary]
    assert tried[tried.chosen][column].tolist() == chosen and getattr(outcome.result.chosen, column) == chosen[-1]


@pytest.mark.slow
def test_the_strength_is_chosen_on_validation_images_whatever_the_test_says(settings, tmp_path, pictures):
    shutil.copytree(pictures, tmp_path / "other")
    for number, name in enumerate(CLASSES):  # the labels of the test are all wrong now
        (tmp_path / "other" / "test" / name).rename(tmp_path / "other" / "test" / f"x{number}")
    for number in range(3):
        (tmp_path / "other" / "test" / f"x{number}").rename(tmp_path / "other" / "test" / CLASSES[number - 1])
    right = run(settings, tmp_path / "a", {"how": "linear"}).result
    wrong = run(settings, tmp_path / "b", {"how": "linear", "source": {"path": str(tmp_path / "other")}}).result
    assert wrong.chosen == right.chosen
    assert wrong.summary[0].accuracy.value < 0.4


@pytest.mark.slow
def test_a_linear_run_is_first_weights_whose_network_gives_its_predictions(settings, tmp_path, pictures):
    outcome = run(settings, tmp_path / "run", {"how": "linear"})
    vit = settings["model"]["vit"]
    spec = find_model("vit_ti16", vit)
    weights = resolve_weights(str(outcome.path), spec)
    metadata = weights.metadata.content()
    assert metadata["weights_sha256"] == sha256_of_file(outcome.path / "fold-0" / "model.safetensors")
    assert (metadata["tune"], metadata["objective"], metadata["classes"]) == ("head", "linear", list(CLASSES))
    for part in ("train", "val"):
        files = sorted((pictures / part).rglob("*.png"))
        expected = {pixel_sha256(np.asarray(Image.open(file))) for file in files}
        assert set(metadata["seen_sha256"][part]) == expected

    from usvit.models.build import build_model
    from usvit.models.weights import Weights

    model = build_model(spec, Weights("scratch"), n_classes=3, image_size=32).eval()
    model.load_state_dict(read_state_dict(outcome.path / "fold-0" / "model.safetensors"))
    table = read_predictions(outcome.path / "predictions.csv")
    import torch

    from usvit.data.transforms.views import test_view

    row = table.iloc[4]
    image = Image.open(pictures / "test" / row.image_id.removeprefix("test/")).convert("RGB")
    pixels = torch.from_numpy(test_view(image, 32, 1.0)).permute(2, 0, 1)[None].float() / 255
    with torch.no_grad():
        logits = model((pixels - 0.5) / 0.5)[0].tolist()
    np.testing.assert_allclose(logits, [row[f"logit_{name}"] for name in CLASSES], rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_another_transfer_of_the_run_refuses_to_test_on_what_it_has_seen(settings, tmp_path, pictures):
    first = run(settings, tmp_path / "first", {"how": "linear"})
    again = {"how": "knn", "model": {"weights": str(first.path)}, "test": "train", "source": {"split": "test"}}
    with pytest.raises(LeakageError, match=r"30 images.*, or test on the others only: --set leaks=drop\.$"):
        run(settings, tmp_path / "second", again)
    assert not (tmp_path / "second").exists()
    with pytest.raises(LeakageError, match="none is left"):
        run(settings, tmp_path / "second", again, {"leaks": "drop"})


@pytest.mark.slow
def test_a_training_image_among_the_test_images_is_refused_or_dropped(settings, tmp_path, pictures):
    copy = tmp_path / "pictures"
    shutil.copytree(pictures, copy)
    shutil.copyfile(copy / "train" / "dots" / "3.png", copy / "test" / "grass" / "99.png")
    more = {"how": "knn", "source": {"path": str(copy)}}
    with pytest.raises(LeakageError, match=r"1 test images .* grass/99\.png"):
        run(settings, tmp_path / "a", more)
    outcome = run(settings, tmp_path / "a", more, {"leaks": "drop"})
    assert outcome.result.dropped.model_dump() == {"seen_by_weights": 0, "in_training": 1}
    assert outcome.result.images.n_test == 18
    assert not read_predictions(outcome.path / "predictions.csv").image_id.str.contains("99").any()


@pytest.mark.parametrize("harm", ["zeros", "half", "archive", "other images", "nan", "link"])
def test_damaged_features_are_computed_again(tmp_path, monkeypatch, harm):
    whole = np.arange(6, dtype=np.float32).reshape(3, 2)
    monkeypatch.setattr(features.FeatureExtractor, "_forward", lambda *_: (whole, whole))
    extractor = features.FeatureExtractor(None, 1.0, None, None)
    kept, split = tmp_path / "a.npy", [0, 1, 2]
    assert extractor.features(None, split, kept) is whole
    assert extractor.features(None, split, kept).tolist() == whole.tolist()
    content = kept.read_bytes()
    wrong = {"other images": whole[:2], "nan": whole * np.nan}
    if harm in wrong:
        np.save(kept, wrong[harm])
    elif harm == "link":
        kept.rename(tmp_path / "b.npy")
        kept.symlink_to(tmp_path / "b.npy")
    else:
        kept.write_bytes({"zeros": bytes(200), "half": content[:-8], "archive": b"PK\x03\x04"}[harm])
    assert extractor.features(None, split, kept) is whole
    assert kept.read_bytes() == content and not kept.is_symlink()


@pytest.mark.slow
def test_features_that_were_computed_before_a_kill_are_not_computed_again(settings, tmp_path, monkeypatch):
    calls = []
    forward = features.FeatureExtractor._forward

    def counted(self, model, part, what):
        calls.append(part.name)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return forward(self, model, part, what)

    monkeypatch.setattr(features.FeatureExtractor, "_forward", counted)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "run", {"how": "linear"})
    outcome = run(settings, tmp_path / "run", {"how": "linear"})
    assert calls == ["train", "val", "test", "test"]
    whole = run(settings, tmp_path / "whole", {"how": "linear"})
    for file in ("predictions.csv", "results.csv", "transfer.json"):
        assert (outcome.path / file).read_bytes() == (whole.path / file).read_bytes()
    run(settings, tmp_path / "run", {"how": "linear"})  # finished: nothing is done
    assert len(calls) == 7


@pytest.mark.slow
def test_few_shots_need_no_more_features_than_are_drawn(settings, tmp_path, monkeypatch):
    looked_at = {}
    forward = features.FeatureExtractor._forward

    def counted(self, model, part, what):
        looked_at[part.name] = len(part)
        return forward(self, model, part, what)

    monkeypatch.setattr(features.FeatureExtractor, "_forward", counted)
    outcome = run(settings, tmp_path / "run", {"how": "fewshot", "shots": [1], "draws": 2, "l2": [1.0]})
    assert 3 <= looked_at["train"] <= 6 and outcome.result.images.n_train == 30
    all_of_them = {"how": "fewshot", "shots": [1, 10], "draws": 2, "l2": [1.0]}
    more = run(settings, tmp_path / "more", all_of_them)
    assert looked_at["train"] == 30
    assert outcome.result.summary[0] == more.result.summary[0]  # the same draws of one image


@pytest.mark.slow
def test_other_settings_do_not_go_on_in_the_same_folder(settings, tmp_path):
    run(settings, tmp_path / "run", {"how": "knn"})
    with pytest.raises(UsvitError, match="another configuration"):
        run(settings, tmp_path / "run", {"how": "knn", "sigma": 0.1})


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"test": "val"}, "share the part val"),
        ({"test": "test", "source": {"split": "train+test"}}, "share the part test"),
        ({"shots": [1, 20]}, "has 10 training images"),
        ({"how": "linear", "source": {"val": None, "val_share": 0.0}}, "no validation images"),
        ({"model": {"weights": "nowhere.safetensors"}}, "no such file"),
        ({"source": {"path": "/nowhere"}}, "/nowhere"),
        ({"test": "tset"}, "test"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_written(settings, tmp_path, more, message):
    with pytest.raises(UsvitError, match=message):
        run(settings, tmp_path / "run", more)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"objective": "mae"}, "usvit pretrain"),
        ({"how": "finetune", "source": {"name": "data", "path": None}}, "usvit cv"),
        ({"how": "knn", "cells": {"a": {}}}, "only finetune has cells"),
        ({"how": "fewshots"}, "fewshots"),
        ({"shots": [0]}, "shots"),
        ({"source": {"exclude": ["busi"]}}, "source.exclude"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, more, message):
    with pytest.raises(UsvitError, match=message):
        build(TransferConfig, settings, more)


def test_validation_by_name_and_by_share_do_not_meet():
    assert TransferConfig().source.val_share == 0.1
    assert build(TransferConfig, {"source": {"name": "cifar10", "val": "val"}}).source.val_share == 0


@pytest.mark.slow
def test_json_is_what_the_schema_says(settings, tmp_path):
    jsonschema = pytest.importorskip("jsonschema")
    from tests.conftest import REPOSITORY

    schema = json.loads((REPOSITORY / "docs/reference/transfer.schema.json").read_text())
    for how in ("fewshot", "knn"):
        run(settings, tmp_path / how, {"how": how})
        jsonschema.validate(json.loads((tmp_path / how / "transfer.json").read_text()), schema)


@pytest.mark.slow
def test_a_data_cards_images_are_divided_by_groups_and_its_predictions_name_them(settings, tmp_path, small_phantom):
    config = build(TransferConfig, settings, {"how": "knn", "source": {"name": "data", "path": None, "val": None}})
    config = config.model_copy(update={"data": config.data.model_copy(update={"dataset": "phantom"})})
    outcome = Transfer(config, roots={"": small_phantom}, out=tmp_path / "run").run()
    images = outcome.result.images
    assert set(images.classes) == {"benign", "malignant", "normal"}
    assert (images.chosen_on, images.n_val) == ("none", 0)  # k is chosen on the training images
    table = read_predictions(outcome.path / "predictions.csv")
    assert len(table) == images.n_test and set(table.dataset) == {"phantom"}
    assert outcome.result.summary[0].accuracy.n_groups == table.group_id.nunique() < len(table)
