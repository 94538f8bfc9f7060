"""Tables of an embedding for figures: nearest images, energy of principal components, t-SNE.

Source: Touvron (2022), PhD thesis, Figures 2.6 to 2.9 (the ten nearest training images), 2.1 (cumulative energy of the
PCA) and 2.5 (t-SNE). The tables have no pixels. Not stated there and chosen here: vectors have length one; t-SNE has
scikit-learn's defaults, with a perplexity of at most a third of the images.
"""

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.manifold import TSNE
from sklearn.preprocessing import normalize

from usvit.upstream.transfer_learning.splits import TransferSplit

_N_NEAREST = 10
_PORTION = 256
_PERPLEXITY = 30

Floats = NDArray[np.floating]


def nearest_table(queries: Floats, keys: Floats, of_query: TransferSplit, of_key: TransferSplit) -> pd.DataFrame:
    """Return the nearest training images of each test image by cosine, best first.

    Args:
        queries: Features of the test images, of shape (n, D).
        keys: Features of the training images, of shape (m, D).
        of_query: The test images.
        of_key: The training images.

    Returns:
        Columns ``image_id``, ``label``, ``rank`` (from 1), ``neighbour``, ``neighbour_label``, ``cosine``.
    """
    count, unit = min(_N_NEAREST, len(keys)), normalize(keys)
    near, cosine = np.empty((len(queries), count), dtype=np.int64), np.empty((len(queries), count))
    for start in range(0, len(queries), _PORTION):
        rows = slice(start, start + _PORTION)
        similar = normalize(queries[rows]) @ unit.T
        near[rows] = np.argsort(-similar, axis=1, kind="stable")[:, :count]
        cosine[rows] = np.take_along_axis(similar, near[rows], axis=1)
    query, key = of_query.table().loc[:, ["image_id", "label"]], of_key.table()
    found = query.loc[query.index.repeat(count)].reset_index(drop=True)
    flat = near.ravel()
    return found.assign(
        rank=np.tile(np.arange(1, count + 1), len(queries)),
        neighbour=key.image_id.to_numpy()[flat],
        neighbour_label=key.label.to_numpy()[flat],
        cosine=cosine.ravel().round(6),
    )


def energy_table(features: Floats) -> pd.DataFrame:
    """Return the cumulative share of the variance of features (n, D): columns ``component`` (from 1) and ``energy``."""
    unit = normalize(np.asarray(features, dtype=np.float64))
    values = np.linalg.eigvalsh(np.cov(unit, rowvar=False))[::-1].clip(min=0)
    energy = values.cumsum() / max(values.sum(), np.finfo(float).tiny)
    return pd.DataFrame({"component": np.arange(1, len(energy) + 1), "energy": energy})


def tsne_table(features: Floats, split: TransferSplit, seed: int) -> pd.DataFrame:
    """Return t-SNE coordinates of the images of a split: columns ``image_id``, ``label``, ``x`` and ``y``."""
    perplexity = min(_PERPLEXITY, max(1, (len(features) - 1) / 3))
    places = TSNE(perplexity=perplexity, random_state=seed % 2**32).fit_transform(normalize(features))
    return split.table().loc[:, ["image_id", "label"]].assign(x=places[:, 0], y=places[:, 1])
