"""ClusterFit: k-means of features, its labels as a table, and the training on them."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import normalize

from tests.upstream.transfer_learning.conftest import CLASSES
from tests.upstream.transfer_learning.test_experiment import run
from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.sources.folder import open_folder
from usvit.upstream.transfer_learning.clusters import class_shares, fit_clusters


def test_clusters_are_of_directions_and_nearest_to_their_own_centre():
    rng = np.random.default_rng(0)
    centres = np.eye(4)[rng.integers(0, 4, 200)]
    features = (centres + 0.1 * rng.normal(size=(200, 4))) * rng.uniform(0.1, 10, (200, 1))  # lengths do not count
    kmeans = fit_clusters(features.astype(np.float32), 4, seed=3)
    for cluster in range(4):
        assert len(np.unique(centres[kmeans.labels_ == cluster].argmax(1))) == 1
    unit = normalize(features)
    distances = ((unit[:, None] - kmeans.cluster_centers_[None]) ** 2).sum(2)
    assert (distances.argmin(1) == kmeans.labels_).mean() > 0.99
    assert np.array_equal(fit_clusters(features.astype(np.float32), 4, seed=3).labels_, kmeans.labels_)


def test_shares_of_classes_are_counts_and_those_of_all_where_a_cluster_is_empty():
    shares = class_shares(np.array([0, 0, 0, 2]), np.array([1, 1, 0, 0]), 3, 2)
    assert shares.tolist() == [[1 / 3, 2 / 3], [0.5, 0.5], [1.0, 0.0]]


@pytest.mark.slow
def test_a_network_is_trained_on_the_clusters_of_another(settings, pictures, tmp_path):
    """The two stages of ClusterFit+ (thesis, section 2.4.2)."""
    first = run(settings, tmp_path / "clusters", {"how": "clusters", "clusters": 5})
    table = pd.read_csv(first.path / "clusters.csv")
    assert len(table) == 30 and table.image_id.is_unique and table.label.nunique() == 5
    assert first.result.how == "clusters" and first.result.chosen.clusters == 5
    # A test image gets the commonest class of its cluster.
    images = open_folder(pictures, "train")
    classes = dict(zip((images.image_name(i) for i in range(30)), images.targets.tolist(), strict=True))
    counts = pd.crosstab(table.label, table.image_id.map(classes))
    prob = pd.read_csv(first.path / "predictions.csv")[[f"prob_{name}" for name in CLASSES]].to_numpy()
    shares = (counts.to_numpy() / counts.to_numpy().sum(1, keepdims=True)).round(6)
    assert {tuple(row) for row in prob.round(6).tolist()} <= {tuple(row) for row in shares.tolist()}
    source = {"name": "folder", "path": str(pictures), "labels": str(first.path / "clusters.csv")}
    config = {"source": source, "model": settings["model"], "train": {"steps": 2, "epochs": None, "batch_size": 6}}
    config = PretrainConfig.model_validate(config | {"device": "cpu"})
    second = Pretraining(config, out=tmp_path / "run").run()
    assert json.loads((second.path / "run.json").read_text())["data"]["classes"] == sorted(set(table.label))
    # Its features are tested on the data set's own classes.
    model = {"weights": str(second.path)}
    knn = run(settings, tmp_path / "knn", {"how": "knn", "k": [3], "model": model}, named=False)
    assert knn.result.images.classes == list(CLASSES)


@pytest.mark.slow
def test_more_clusters_than_images_are_refused(settings, tmp_path):
    with pytest.raises(UsvitError, match="clusters is 31, but there are only 30 training images"):
        run(settings, tmp_path / "run", {"how": "clusters", "clusters": 31})
