"""What is to be tested downstream is left out upstream: its images, and copies of them."""

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.sources.source import Source
from usvit.errors import UsvitError
from usvit.files import write_csv
from usvit.pretrain.job import PretrainJob
from usvit.progress import Progress
from usvit.train.distributed import Team

EXCLUDED = "excluded.csv"
EXCLUDED_VAL = "excluded_val.csv"


def without_copies(job: PretrainJob, source: Source, path: Path, team: Team, progress: Progress) -> Source:
    """A source without the images that also stand in the data sets of ``source.exclude``, or are copies of theirs.

    The first process finds them once and lists them in ``path``; a run that is resumed reads them there.

    Raises:
        UsvitError: nothing else is left, or the list is damaged.
    """
    downstream = job.downstream
    if downstream is None:
        return source
    from usvit.data.sources.exclude import Without, copies_of, excluded_table

    def excluded() -> NDArray[np.int64]:
        if not path.is_file():
            write_csv(path, excluded_table(source, copies_of(source, downstream, progress)))
        return _read(path, len(source))

    indices = team.first_does(excluded)
    progress.say(f"{len(indices)} of {len(source)} images are left out: {', '.join(downstream.roots)} has them.")
    return Without(source, indices)


def _read(path: Path, n_images: int) -> NDArray[np.int64]:
    try:
        indices = pd.read_csv(path)["upstream_index"].to_numpy(np.int64)
        if len(indices) and not 0 <= indices.min() <= indices.max() < n_images:
            raise ValueError(f"there are {n_images} images")
    except (ValueError, KeyError, OSError) as error:
        raise UsvitError(f"{path} is damaged ({error}). Delete it: the copies are then looked for again.") from error
    return np.unique(indices)
