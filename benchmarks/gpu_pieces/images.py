"""Generated images of about the number, the sizes and the classes of BUSI and data set B together."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.resources import usable_cores

WIDTHS = (190, 600, 1048)
"""Smallest, most frequent and largest width in pixels; BUSI has 190 to 1048, data set B 760."""
HEIGHTS = (0.7, 0.9)
"""Range of height over width."""


def like_busi_and_b(scratch: Path, n: int, drawn_at: int, widths: tuple[int, int, int] = WIDTHS) -> Path:
    """Write phantoms with masks, each enlarged to a size of its own, in the layout of the data set ``phantom``.

    The phantom is drawn at one size and resized, because drawing takes long. A folder that exists is used again.

    Args:
        scratch: Folder in which the data set is made.
        n: Number of images.
        drawn_at: Side in pixels at which the phantom is drawn.
        widths: Smallest, most frequent and largest width in pixels.
    """
    folder = scratch / f"images-{n}-{drawn_at}"
    if folder.is_dir():
        return folder
    partial = scratch / f"{folder.name}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    write_phantom(PhantomSpec(n=n, seed=0, size=drawn_at), partial)
    table = pd.read_csv(partial / "phantom.csv", keep_default_na=False)
    rng = np.random.default_rng(0)
    across = rng.triangular(*widths, size=len(table)).round().astype(int)
    down = (across * rng.uniform(*HEIGHTS, size=len(table))).round().astype(int)

    def resize(row: int) -> None:
        for column, how in (("path", Image.Resampling.BICUBIC), ("mask_path", Image.Resampling.NEAREST)):
            file = partial / table[column][row]
            Image.open(file).resize((int(across[row]), int(down[row])), how).save(file, compress_level=4)

    with ThreadPoolExecutor(usable_cores()) as pool:
        list(pool.map(resize, range(len(table))))
    partial.rename(folder)
    return folder
