"""Exclusion of downstream test images, and of near-duplicates of them, from a pre-training."""

import logging
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usvit.data.datasets import UpstreamDataset
from usvit.errors import UsvitError
from usvit.files import read_csv, write_csv
from usvit.progress import Progress
from usvit.training import World
from usvit.upstream.pretraining_run.setup import PretrainingSetup

logger = logging.getLogger(__name__)

EXCLUDED = "excluded.csv"
EXCLUDED_VAL = "excluded_val.csv"


def without_near_duplicates(
    setup: PretrainingSetup, source: UpstreamDataset, path: Path, world: World, progress: Progress
) -> UpstreamDataset:
    """Return a source without images of the data sets of ``source.exclude`` and without near-duplicates of them.

    The main process finds them once and lists them in ``path``; a resumed run reads that list.

    Raises:
        UsvitError: No image is left, or the list is damaged.
    """
    downstream = setup.downstream
    if downstream is None:
        return source
    from usvit.upstream.sources.near_duplicates import Without, copies_of, excluded_table

    def excluded() -> NDArray[np.int64]:
        if not path.is_file():
            write_csv(path, excluded_table(source, copies_of(source, downstream, progress)))
        return _read(path, len(source))

    indices = world.on_main(excluded)
    logger.info(f"{len(indices)} of {len(source)} images are left out: they are in {', '.join(downstream.names)}.")
    return Without(source, indices)


def _read(path: Path, n_images: int) -> NDArray[np.int64]:
    try:
        indices = read_csv(path, text=False)["upstream_index"].to_numpy(np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_images:
            raise ValueError(f"there are {n_images} images")
    except (ValueError, KeyError, UsvitError) as error:
        raise UsvitError(f"{path} is damaged ({error}). Delete it, so that usvit searches again.") from error
    return np.unique(indices)
