"""Groups of tested images of which a network has seen an image: finding them, and refusing them."""

from collections.abc import Container, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.near_duplicates import SeenNearDuplicate
from usvit.data.splits.leakage import SeenImages
from usvit.data.splits.seen_files import Described
from usvit.errors import LeakageError


def refuse_seen(
    tested: pd.DataFrame,
    seen: Container[str],
    who: str,
    without: str = "leave these images out (--keep-list)",
    copies: Mapping[str, SeenNearDuplicate] | None = None,
) -> None:
    """Refuse to test a network on images that it has seen, on near-duplicates of them, or on others of their groups.

    Args:
        tested: table with columns image_id, group_id, sha256.
        seen: pixel hashes (``seen_by``).
        who: name of the network for the error message.
        without: how to test on the other images, for the error message.
        copies: pixel hashes of tested images that are near-duplicates of seen ones (``SeenImages.copies_among``).

    Raises:
        LeakageError: There are such images; the error names their groups.
    """
    copied = {sha256 for sha256 in copies or {} if sha256 not in seen}
    at = [sha256 in seen or sha256 in copied for sha256 in tested.sha256]
    groups = sorted(set(tested.group_id[at]))
    if groups:
        count = int(tested.group_id.isin(groups).sum())
        stored_again = int(tested.sha256.isin(list(copied)).sum())
        how = f"; {stored_again} of them are near-duplicates with other pixels" if stored_again else ""
        raise LeakageError(
            f"{who} has seen images of {len(groups)} groups ({count} images{how}) that would be its test images: "
            f"{', '.join(groups[:5])}{', ...' if len(groups) > 5 else ''}. Start from other weights, or "
            f"{without}."
        )


def in_seen_groups(
    tested: pd.DataFrame, seen: Mapping[str, SeenImages], described: Described, *, refuse: str | None = None
) -> NDArray[np.bool_]:
    """Return which images are in groups of which any of several networks has seen an image or a near-duplicate.

    Args:
        tested: Table with columns image_id, group_id, sha256; length N.
        seen: Name of each network in error messages -> the images that it has seen.
        described: Near-duplicate descriptions of the tested images.
        refuse: How to test on the other images, for the error that refuses seen ones; None to return them.

    Returns:
        Shape (N,).

    Raises:
        LeakageError: There are such images, and ``refuse`` is given.
    """
    at = np.zeros(len(tested), dtype=bool)
    for who, known in seen.items():
        copies = known.copies_among(described)
        if refuse is not None:
            refuse_seen(tested, known, who, refuse, copies)
        at |= tested.sha256.map(known.__contains__).to_numpy(bool) | tested.sha256.isin(list(copies)).to_numpy()
    return tested.group_id.isin(tested.group_id[at]).to_numpy()
