import json
import math

import numpy as np
import pytest
import torch

from usvit.config import PretrainConfig
from usvit.data.sources.combine import Subset, coarsened
from usvit.data.sources.fractals import FractalSource
from usvit.errors import UsvitError
from usvit.pretrain.run import run_pretraining
from usvit.progress import NoProgress
from usvit.transfer.grafit_eval import (
    Labelled,
    coarse_probabilities,
    evaluate_run,
    fine_labels,
    load_embedding,
    retrieval,
    same_classes,
)

SIGMA = 0.1


@pytest.fixture
def embedded():
    """Queries and keys of 6 fine classes in 3 coarse ones, scattered about their class's direction."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 5))

    def made(count):
        fine = np.arange(count) % 6
        return Labelled(centres[fine] + 0.9 * rng.normal(size=(count, 5)), fine, fine // 2)

    return made(12), made(36)


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
    got = retrieval(queries, keys, sigma=SIGMA, ks=(3,))
    p_c = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, 3, SIGMA)

    def psi(i, j):
        p = p_c[i, keys.coarse[j]]
        return cosine(queries.vectors[i], keys.vectors[j]) + math.log(p / (1 - p))

    assert got.map == pytest.approx(mean_ap(queries, keys, lambda i, j: cosine(queries.vectors[i], keys.vectors[j])))
    assert got.map_conditioned == pytest.approx(mean_ap(queries, keys, psi))


def test_the_oracle_puts_the_true_coarse_class_first_and_bounds_the_prediction(embedded):
    queries, keys = embedded
    got = retrieval(queries, keys, sigma=SIGMA, ks=(3,))

    def first_the_coarse(i, j):
        return 100 * (queries.coarse[i] == keys.coarse[j]) + cosine(queries.vectors[i], keys.vectors[j])

    oracle = mean_ap(queries, keys, first_the_coarse)
    assert got.map_oracle == pytest.approx(oracle)
    assert got.map < got.map_conditioned < got.map_oracle


def test_on_the_fly_classification_is_equation_2_6(embedded):
    queries, keys = embedded
    got = retrieval(queries, keys, sigma=SIGMA, ks=(5,))
    hits = 0
    for query, fine in zip(queries.vectors, queries.fine, strict=True):
        scores = [cosine(query, key) for key in keys.vectors]
        near = sorted(range(36), key=lambda j, scores=scores: -scores[j])[:5]
        votes = [sum(math.exp(scores[j] / SIGMA) for j in near if keys.fine[j] == label) for label in range(6)]
        hits += votes.index(max(votes)) == fine
    assert got.k == 5
    assert got.knn == pytest.approx(hits / 12)


def test_fine_classes_are_found_below_coarse_ones_and_parts_and_go_by_their_names(tmp_path):
    table = tmp_path / "coarse.csv"
    table.write_text("class,coarse\n" + "".join(f"fractal-{n},{'odd' if n % 2 else 'even'}\n" for n in range(4)))
    source = coarsened(FractalSource(classes=4, size=12, image_size=32), str(table))
    part = Subset(source, np.array([1, 2, 7]))
    assert fine_labels(part)[1].tolist() == [1, 2, 3]
    some = Subset(coarsened(FractalSource(classes=4, size=12, image_size=32), str(table)), np.array([3]))
    one, other = same_classes((np.zeros((3, 2)), part), (np.zeros((1, 2)), some))
    assert one.fine.tolist() == [1, 2, 3] and other.fine.tolist() == [3]
    assert one.coarse.tolist() == [1, 0, 1] and other.coarse.tolist() == [1]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny Grafit on six fractals in two coarse classes, two steps long."""
    folder = tmp_path_factory.mktemp("grafit")
    table = folder / "coarse.csv"
    table.write_text("class,coarse\n" + "".join(f"fractal-{n},{'abc'[n % 2]}\n" for n in range(6)))
    config = PretrainConfig.model_validate(
        {
            "objective": "grafit",
            "source": {
                "name": "fractals", "size": 36, "classes": 6, "image_size": 32, "coarse": str(table), "val_share": 0.34,
            },
            "model": {
                "name": "vit_ti16", "weights": "scratch", "image_size": 32,
                "vit": {"width": 24, "depth": 1, "mlp": 48, "heads": 2},
            },
            "views": {"count": 2},
            "grafit": {"width": 8, "hidden": 16},
            "train": {"steps": 2, "epochs": None, "batch_size": 6},
            "device": "cpu",
        }
    )  # fmt: skip
    return run_pretraining(config, roots={}, out=folder / "run", command="", progress=NoProgress()).path


def test_a_run_is_evaluated_on_its_own_validation_images(run):
    figures = evaluate_run(run, {}, NoProgress())
    assert figures == evaluate_run(run, {}, NoProgress())
    assert 0 <= figures.knn <= 1 and figures.k in (10, 15, 20)
    assert 0 < figures.map <= figures.map_oracle <= 1


def test_the_embedding_of_a_run_is_whole_again(run):
    embedding, preprocessing = load_embedding(run)
    vectors = embedding(torch.randn(2, 3, 32, 32))
    assert vectors.shape == (2, 8) and preprocessing.image_size == 32
    history = (run / "fold-0" / "history.csv").read_text().splitlines()
    assert "val_accuracy" in history[0]


def test_another_runs_network_is_refused(run, tmp_path):
    with pytest.raises(UsvitError, match=r"no run.json"):
        evaluate_run(tmp_path, {}, NoProgress())
    other = tmp_path / "other"
    other.mkdir()
    record = json.loads((run / "run.json").read_text())
    record["config"]["objective"] = "supervised"
    (other / "run.json").write_text(json.dumps(record))
    with pytest.raises(UsvitError, match="objective supervised, not grafit"):
        evaluate_run(other, {}, NoProgress())
    (other / "run.json").write_text("{}")
    with pytest.raises(UsvitError, match="of no pre-training, or damaged"):
        evaluate_run(other, {}, NoProgress())


def test_a_run_without_its_projector_is_refused(run, tmp_path):
    fold = tmp_path / "fold-0"
    fold.mkdir()
    for name in ("model.safetensors", "model.json"):
        (fold / name).write_bytes((run / "fold-0" / name).read_bytes())
    with pytest.raises(UsvitError, match=r"with its projector.safetensors"):
        load_embedding(fold)
