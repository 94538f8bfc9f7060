"""Tables for the figures of the thesis's chapter 2, against loops and closed forms."""

import math

import numpy as np
import pandas as pd
import pytest

from tests.upstream.transfer_learning.conftest import CLASSES
from tests.upstream.transfer_learning.test_experiment import run
from usvit.upstream.sources.folder import open_folder
from usvit.upstream.transfer_learning.feature_tables import energy_table, nearest_table, tsne_table
from usvit.upstream.transfer_learning.splits import TransferSplit


def split_of(pictures, name):
    source = open_folder(pictures, name)
    return TransferSplit(name, source, np.arange(len(source)))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def test_the_nearest_images_are_ranked_by_cosine(pictures):
    queries, keys = split_of(pictures, "test"), split_of(pictures, "train")
    rng = np.random.default_rng(0)
    vectors, others = rng.normal(size=(len(queries), 5)), rng.normal(size=(len(keys), 5))
    table = nearest_table(vectors, others, queries, keys)
    names, labels = keys.table().image_id.tolist(), keys.table().label.tolist()
    assert len(table) == 10 * len(queries)
    for number, (image, rows) in enumerate(table.groupby("image_id", sort=False)):
        assert image == queries.table().image_id[number] and rows["rank"].tolist() == list(range(1, 11))
        similar = [cosine(vectors[number], other) for other in others]
        order = sorted(range(len(keys)), key=lambda key, similar=similar: -similar[key])[:10]
        assert rows.neighbour.tolist() == [names[key] for key in order]
        assert rows.neighbour_label.tolist() == [labels[key] for key in order]
        assert rows.cosine.tolist() == pytest.approx([similar[key] for key in order], abs=1e-6)


def test_the_energy_of_vectors_in_a_plane_is_that_of_two_components():
    angles = np.linspace(0, 2 * np.pi, 100, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles), 0 * angles, 0 * angles], axis=1) * np.arange(1, 101)[:, None]
    assert energy_table(circle).energy.tolist() == pytest.approx([0.5, 1, 1, 1])
    assert energy_table(np.diag([1.0, 2, 3, 4])).energy.tolist() == pytest.approx([1 / 3, 2 / 3, 1, 1])


def test_t_sne_keeps_distant_groups_apart(pictures):
    split = split_of(pictures, "train")
    groups = np.repeat(np.arange(3), 10)
    features = np.eye(3)[groups] + 0.01 * np.random.default_rng(0).normal(size=(30, 3))
    table = tsne_table(features, split, seed=1)
    places = table[["x", "y"]].to_numpy()
    distances = np.linalg.norm(places[:, None] - places[None], axis=2) + np.diag([np.inf] * 30)
    assert (groups[distances.argmin(1)] == groups).all()
    pd.testing.assert_frame_equal(table, tsne_table(features, split, seed=1))


@pytest.mark.slow
def test_a_search_writes_its_tables_on_request_only(settings, tmp_path):
    given = run(settings, tmp_path / "with", {"how": "knn", "k": [3], "feature_tables": True})
    without = run(settings, tmp_path / "without", {"how": "knn", "k": [3]})
    names = {"neighbours.csv", "pca.csv", "tsne.csv"}
    assert names <= {path.name for path in given.path.iterdir()}
    assert not names & {path.name for path in without.path.iterdir()}
    assert given.result.summary == without.result.summary
    assert set(pd.read_csv(given.path / "neighbours.csv").label) == set(CLASSES)
