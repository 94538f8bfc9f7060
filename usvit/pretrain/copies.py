"""What shall be tested downstream is left out upstream: its images, and copies of them."""

from pathlib import Path

import numpy as np
import pandas as pd

from usvit.config import DataConfig
from usvit.data.manifest_file import open_manifest
from usvit.data.sources.source import Source
from usvit.files import write_csv
from usvit.pretrain.job import PretrainJob
from usvit.progress import Progress
from usvit.train.distributed import Team

EXCLUDED = "excluded.csv"


def without_copies(job: PretrainJob, source: Source, folder: Path, team: Team, progress: Progress) -> Source:
    """A source without the images that also stand in the data sets of ``source.exclude``, or are copies of theirs.

    They are found once and listed in ``excluded.csv`` of the fold; a run that is resumed reads them there.
    """
    if not job.config.source.exclude:
        return source
    from usvit.data.sources.exclude import Without, copies_of, excluded_table

    path = folder / EXCLUDED
    if team.first and not path.is_file():
        downstream = open_manifest(DataConfig(dataset="+".join(job.config.source.exclude)), job.roots, progress)
        write_csv(path, excluded_table(source, copies_of(source, downstream, progress)))
    team.fabric.barrier()
    indices = pd.read_csv(path).upstream_index.unique()
    progress.say(
        f"{len(indices)} of {len(source)} images are left out: {', '.join(job.config.source.exclude)} has them."
    )
    return Without(source, np.asarray(indices, dtype=np.int64))
