"""ClusterFit's pseudo-labels: k-means of the training images' features, written as labels for another training.

Source: Yan et al. (2020), ClusterFit, CVPR; Touvron (2022), PhD thesis, section 2.4.2 (ClusterFit+). Not stated in the
thesis and chosen here: features of length one, and mini-batch k-means (Sculley 2010), because the usual algorithm takes
days for 15,000 clusters of ImageNet.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.cluster import MiniBatchKMeans
from sklearn.preprocessing import normalize

from usvit.errors import UsvitError
from usvit.upstream.transfer_learning.splits import TransferSplit

CLUSTERS = "clusters.csv"
_BATCH = 4096
_RUNS = 3
"""Initialisations by k-means++, of which the best is continued."""


def fit_clusters(features: NDArray[np.float32], n_clusters: int, seed: int) -> MiniBatchKMeans:
    """Cluster features of shape (n, D), scaled to length one.

    Raises:
        UsvitError: There are fewer images than clusters.
    """
    if n_clusters > len(features):
        raise UsvitError(f"clusters is {n_clusters}, but there are only {len(features)} training images. Set it lower.")
    return MiniBatchKMeans(n_clusters, random_state=seed, batch_size=_BATCH, n_init=_RUNS).fit(normalize(features))


def cluster_table(split: TransferSplit, clusters: NDArray[np.int32]) -> pd.DataFrame:
    """Return the table of ``source.labels``: columns ``image_id`` and ``label``.

    Raises:
        UsvitError: Two images have the same name, so that a table cannot tell them apart.
    """
    names = [split.source.image_name(int(row)) for row in split.rows]
    if len(set(names)) < len(names):
        raise UsvitError(f"The images of {split.source.name} have no unique names. Set source.split to one split.")
    return pd.DataFrame({"image_id": names, "label": [f"cluster-{one:05d}" for one in clusters]})


def class_shares(
    clusters: NDArray[np.int32], targets: NDArray[np.int64], n_clusters: int, n_classes: int
) -> NDArray[np.float64]:
    """Return the shares of the classes in each cluster, of shape (n_clusters, n_classes).

    An empty cluster has the shares of all images.

    Args:
        clusters: Cluster of each training image, of shape (n,).
        targets: Class of each training image, of shape (n,).
        n_clusters: Number of clusters.
        n_classes: Number of classes.
    """
    counts = np.zeros((n_clusters, n_classes))
    np.add.at(counts, (clusters, targets), 1)
    counts[counts.sum(axis=1) == 0] = counts.sum(axis=0)
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))
