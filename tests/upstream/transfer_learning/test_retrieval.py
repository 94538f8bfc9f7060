"""Coarse to fine: the literal equations, and searches with runs of Grafit and with any other weights."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch

from tests.upstream.transfer_learning.conftest import CLASSES, N
from tests.upstream.transfer_learning.test_experiment import run as transferred
from usvit.config import build
from usvit.data.transforms.views import test_view as seen_view
from usvit.errors import LeakageError, UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.metrics.retrieval import average_precisions
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.sources.folder import rgb
from usvit.upstream.transfer_learning.retrieval import (
    LabelledFeatures,
    coarse_probabilities,
    load_embedding,
    rank_by_coarse,
)
from usvit.upstream.transfer_learning.run_source import own_images

pytestmark = pytest.mark.slow

SIGMA = 0.1


@pytest.fixture
def embedded():
    """Queries and keys of 6 fine classes in 3 coarse ones, scattered about their class's direction."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 5))

    def made(count):
        fine = np.arange(count) % 6
        return LabelledFeatures(centres[fine] + 0.9 * rng.normal(size=(count, 5)), fine, fine // 2)

    return made(12), made(36)


def coarse_figures(queries, keys, sigma):
    ranking = rank_by_coarse(queries, keys, sigma)
    means = {name: values.mean() for name, values in ranking.precisions.items()}
    return means | {"coarse_accuracy": ranking.right.mean()}


def cosine(a, b):
    return float(a @ b / math.sqrt((a @ a) * (b @ b)))


def average_precision(ranked_right):
    hits, total = 0, 0.0
    for rank, right in enumerate(ranked_right, 1):
        if right:
            hits += 1
            total += hits / rank
    return total / hits


def mean_ap(queries, keys, score):
    found = []
    for i in range(len(queries.fine)):
        order = sorted(range(len(keys.fine)), key=lambda j, i=i: -score(i, j))
        found.append(average_precision([keys.fine[j] == queries.fine[i] for j in order]))
    return sum(found) / len(found)


def test_the_coarse_probability_is_the_share_of_all_keys_weights(embedded):
    queries, keys = embedded
    got = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, 3, SIGMA)
    for i, query in enumerate(queries.vectors):
        p = [math.exp(cosine(query, key) / SIGMA) for key in keys.vectors]
        for coarse in range(3):
            right = sum(weight for weight, label in zip(p, keys.coarse, strict=True) if label == coarse)
            assert got[i, coarse] == pytest.approx(right / sum(p), rel=1e-9)


def test_keys_are_ranked_by_equation_2_5(embedded):
    queries, keys = embedded
    got = coarse_figures(queries, keys, SIGMA)
    p_c = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, 3, SIGMA)

    def psi(i, j):
        p = p_c[i, keys.coarse[j]]
        return cosine(queries.vectors[i], keys.vectors[j]) + math.log(p / (1 - p))

    assert got["map_conditioned"] == pytest.approx(mean_ap(queries, keys, psi))


def test_the_oracle_puts_the_true_coarse_class_first_and_bounds_the_prediction(embedded):
    queries, keys = embedded
    got = coarse_figures(queries, keys, SIGMA)

    def first_the_coarse(i, j):
        return 100 * (queries.coarse[i] == keys.coarse[j]) + cosine(queries.vectors[i], keys.vectors[j])

    oracle = mean_ap(queries, keys, first_the_coarse)
    assert got["map_oracle"] == pytest.approx(oracle)
    plain = average_precisions(queries.vectors, keys.vectors, queries.fine, keys.fine).mean()
    assert plain < got["map_conditioned"] < got["map_oracle"]


COARSE = {"bars": "long", "dots": "round", "grass": "long"}


@pytest.fixture(scope="module")
def grafit(pictures, tmp_path_factory):
    """A tiny Grafit on three classes of pictures in two coarse ones, two steps long."""
    folder = tmp_path_factory.mktemp("grafit")
    table = folder / "coarse.csv"
    table.write_text("class,coarse\n" + "".join(f"{name},{coarse}\n" for name, coarse in COARSE.items()))
    config = PretrainConfig.model_validate(
        {
            "objective": "grafit",
            "source": {"name": "folder", "path": str(pictures), "coarse": str(table), "val": "val"},
            "model": {
                "name": "vit_ti16", "weights": "scratch", "image_size": 32,
                "vit": {"width": 24, "depth": 1, "mlp": 48, "heads": 2, "patch": 8},
            },
            "views": {"count": 2, "test_crop": 1.0},
            "grafit": {"width": 8, "hidden": 16},
            "train": {"steps": 2, "epochs": None, "batch_size": 6},
            "device": "cpu",
        }
    )  # fmt: skip
    return Pretraining(config, out=folder / "run").run().path


def searched(run, out, *layers):
    own = {"how": "retrieval", "model": {"weights": str(run)}, "device": "cpu", "precision": "fp32"}
    return transferred(own_images(str(run)), out, own, *layers, named=False)


def test_a_run_of_grafit_searches_its_training_images_with_its_validation_images(grafit, pictures, tmp_path):
    outcome = searched(grafit, tmp_path / "run", {"k": [3]})
    line = outcome.result.summary[0]
    assert outcome.result.images.classes == list(CLASSES)  # the fine ones
    assert [getattr(outcome.result.images, f"n_{part}") for part in N] == [30, 0, 12]
    assert outcome.result.image_size == 32

    embedding, views = load_embedding(grafit), {}
    for part in ("train", "val"):  # the embedding, by hand
        files = [file for name in CLASSES for file in sorted((pictures / part / name).iterdir())]
        pixels = torch.from_numpy(np.stack([seen_view(rgb(file), 32, 1.0) for file in files])).permute(0, 3, 1, 2)
        fine = np.repeat(np.arange(3), len(files) // 3)
        with torch.no_grad():
            vectors = embedding((pixels.float() / 255 - 0.5) / 0.5).numpy()
        assert vectors.shape == (len(files), 8)
        views[part] = LabelledFeatures(vectors, fine, np.array([0, 1, 0])[fine])
    queries, keys = views["val"], views["train"]
    assert line.mean_average_precision == pytest.approx(
        mean_ap(queries, keys, lambda i, j: cosine(queries.vectors[i], keys.vectors[j])), abs=1e-4
    )
    for name, value in coarse_figures(queries, keys, 0.05).items():
        assert getattr(line, name) == pytest.approx(value, abs=1e-4)
    table = pd.read_csv(outcome.path / "results.csv")
    for name, one in line.intervals:
        assert one.value == getattr(line, name) and one.n_groups == 12
    low, high = line.intervals.mean_average_precision.ci95
    assert low < line.mean_average_precision < high
    of_test = table[table.part == "test"].iloc[0]
    assert (of_test.map_ci95_low, of_test.map_ci95_high) == (pytest.approx(low), pytest.approx(high))
    assert table[table.part == "test"].map_oracle.tolist() == [pytest.approx(line.map_oracle)]
    assert set(read_predictions(outcome.path / "predictions.csv").label) == set(CLASSES)
    jsonschema = pytest.importorskip("jsonschema")
    from tests.conftest import REPOSITORY

    schema = json.loads((REPOSITORY / "docs/reference/transfer.schema.json").read_text())
    jsonschema.validate(json.loads((outcome.path / "transfer.json").read_text()), schema)


def test_any_network_can_search_and_does_so_by_its_features(settings, tmp_path, grafit):
    plain = transferred(settings, tmp_path / "plain", {"how": "retrieval"}).result.summary[0]
    knn = transferred(settings, tmp_path / "knn", {"how": "knn"}).result.summary[0]
    assert plain == knn
    coarse = str(grafit.parent / "coarse.csv")
    line = transferred(settings, tmp_path / "coarse", {"how": "retrieval", "source": {"coarse": coarse}})
    knn, line = (row.model_dump(exclude_unset=True) for row in (knn, line.result.summary[0]))
    more = ("map_conditioned", "map_oracle", "coarse_accuracy")
    intervals = line.pop("intervals")
    assert set(intervals) == {*knn.pop("intervals"), *more}
    assert {**knn, **{key: line[key] for key in more}} == line
    assert line["mean_average_precision"] <= line["map_oracle"]


def test_the_trunk_of_a_run_of_grafit_can_search_without_its_projector(grafit, tmp_path):
    """Table 2.7: losses without a kNN head have no P."""
    line = searched(grafit, tmp_path / "trunk", {"embedding": "trunk", "k": [3]}).result.summary[0]
    own = {"how": "knn", "model": {"weights": str(grafit)}, "device": "cpu", "precision": "fp32", "k": [3]}
    source = own_images(str(grafit)) | {"test": "test", "source": own_images(str(grafit))["source"] | {"val": None}}
    source["source"]["coarse"] = None
    by_features = transferred(source, tmp_path / "knn", own, {"source": {"val_share": 0.0}}, named=False)
    by_trunk = transferred(source, tmp_path / "test", own, {"how": "retrieval", "embedding": "trunk"}, named=False)
    assert by_features.result.summary == by_trunk.result.summary
    by_projector = transferred(source, tmp_path / "p", own, {"how": "retrieval"}, named=False)
    assert by_projector.result.summary != by_trunk.result.summary
    assert line.map_conditioned is not None


def test_a_run_without_a_projector_searches_by_its_features(pictures, tmp_path):
    """Section 2.2: cross-entropy and triplets on the features themselves."""
    settings = {
        "objective": "grafit",
        "source": {"name": "folder", "path": str(pictures)},
        "model": {
            "name": "vit_ti16", "weights": "scratch", "image_size": 32,
            "vit": {"width": 24, "depth": 1, "mlp": 48, "heads": 2, "patch": 8},
        },
        "views": {"count": 2},
        "grafit": {"projector": "none", "knn": 0, "instance": 0, "triplet": 1, "cross_entropy": 1},
        "train": {"steps": 2, "epochs": None, "batch_size": 6}, "device": "cpu",
    }  # fmt: skip
    run = Pretraining(PretrainConfig.model_validate(settings), out=tmp_path / "run").run().path
    assert not (run / "fold-0" / "projector.safetensors").exists()
    assert load_embedding(run)(torch.zeros(2, 3, 32, 32)).shape == (2, 24)
    images = {"source": {"name": "folder", "path": str(pictures), "val_share": 0.0}, "test": "test", "k": [3]}
    own = {"model": {"weights": str(run)}, "device": "cpu", "precision": "fp32"}
    found = [
        transferred(images, tmp_path / how, own, {"how": how}, named=False).result.summary
        for how in ("knn", "retrieval")
    ]
    assert found[0][0].mean_average_precision == pytest.approx(found[1][0].mean_average_precision)


def test_a_search_is_tested_at_any_level_whatever_the_level_of_the_training(grafit, tmp_path):
    """Tables 2.5 and 2.6: the level of the training by the level of the test; here fine, coarse and one class."""
    coarse = str(grafit.parent / "coarse.csv")
    fine = searched(grafit, tmp_path / "fine", {"k": [3]})
    level = searched(grafit, tmp_path / "coarse", {"k": [3], "fine": coarse})
    assert fine.result.images.classes == list(CLASSES) and level.result.images.classes == ["long", "round"]
    assert level.result.summary[0].map_oracle == pytest.approx(1.0)  # the classes of the training and the test agree
    assert level.result.summary[0].accuracy.value >= fine.result.summary[0].accuracy.value
    without = {"k": [3], "fine": coarse, "source": {"coarse": None}}
    plain = searched(grafit, tmp_path / "plain", without).result.summary[0]
    assert plain.mean_average_precision == level.result.summary[0].mean_average_precision
    assert plain.map_conditioned is None
    one = searched(grafit, tmp_path / "one", {"k": [3], "source": {"coarse": "all"}}).result.summary[0]
    assert one.map_conditioned == pytest.approx(one.mean_average_precision) and one.coarse_accuracy == 1.0


def test_the_validation_images_of_a_supervised_run_are_queries_too_unless_they_chose_its_step(pictures, tmp_path):
    """Grafit's baseline (section 2.4.2) is searched like Grafit itself."""
    settings = {
        "source": {"name": "folder", "path": str(pictures), "val": "val"},
        "model": {
            "name": "vit_ti16", "weights": "scratch", "image_size": 32,
            "vit": {"width": 24, "depth": 1, "mlp": 48, "heads": 2, "patch": 8},
        },
        "train": {"steps": 2, "epochs": None, "batch_size": 6}, "device": "cpu",
    }  # fmt: skip
    run = Pretraining(PretrainConfig.model_validate(settings), out=tmp_path / "last").run().path
    assert searched(run, tmp_path / "of-last", {"k": [3]}).result.images.n_test == 12
    settings["train"]["early_stopping"] = {"keep": "best", "patience": None}
    run = Pretraining(PretrainConfig.model_validate(settings), out=tmp_path / "best").run().path
    with pytest.raises(LeakageError, match="12 images"):
        searched(run, tmp_path / "of-best")


def test_a_level_to_search_for_belongs_to_retrieval():
    with pytest.raises(UsvitError, match=r"fine belongs to retrieval"):
        build(TransferConfig, {"how": "knn", "fine": "order"})


def test_a_search_that_was_killed_goes_on_and_gives_the_same(grafit, tmp_path, monkeypatch):
    from usvit.upstream.transfer_learning import features

    forward, calls = features.FeatureExtractor._forward, []

    def killed(self, model, part, what):
        calls.append(part.name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return forward(self, model, part, what)

    monkeypatch.setattr(features.FeatureExtractor, "_forward", killed)
    with pytest.raises(KeyboardInterrupt):
        searched(grafit, tmp_path / "run")
    outcome, whole = searched(grafit, tmp_path / "run"), searched(grafit, tmp_path / "whole")
    assert calls == ["train", "test", "test", "train", "test"]
    assert outcome.result == whole.result


def test_images_that_a_run_learnt_from_are_no_queries(grafit, tmp_path):
    with pytest.raises(LeakageError, match="30 images"):
        searched(grafit, tmp_path / "run", {"source": {"split": "val", "val": None}, "test": "train"})
    assert not (tmp_path / "run").exists()


def test_what_is_no_run_of_its_own_images_is_refused(grafit, tmp_path):
    with pytest.raises(UsvitError, match="is not a run, so it does not name the images"):
        own_images("hub")
    other = tmp_path / "other"
    other.mkdir()
    record = json.loads((grafit / "run.json").read_text())
    for change, message in (
        ({"kind": "cv"}, "is not a run of usvit pretrain"),
        ({"config": {}}, "damaged"),
        ({"config": {**record["config"], "source": {**record["config"]["source"], "val": None}}}, "no validation"),
    ):
        (other / "run.json").write_text(json.dumps({**record, **change}))
        with pytest.raises(UsvitError, match=message):
            own_images(str(other))
    with pytest.raises(UsvitError, match="only allowed for retrieval"):
        build(TransferConfig, {"how": "knn", "test": None})


def test_a_run_without_its_projector_is_refused(grafit, tmp_path):
    shutil.copytree(grafit, tmp_path / "copy")
    (tmp_path / "copy" / "fold-0" / "projector.safetensors").unlink()
    with pytest.raises(UsvitError, match=r"with its projector.safetensors"):
        load_embedding(tmp_path / "copy")
    with pytest.raises(UsvitError, match=r"with its projector.safetensors"):
        searched(tmp_path / "copy", tmp_path / "run")
    assert not (tmp_path / "run").exists()
