"""What a network has seen already: no image may be its test again.

Each checkpoint's passport (``model.json``) carries the pixel hashes of all images that it was
trained or tuned on, and those of the checkpoint that it began from.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.errors import LeakageError, UsvitError


def seen_by(passport: dict[str, Any]) -> set[str]:
    """Pixel hashes of every image that a passport's network has seen, pre-training included."""
    return {sha256 for hashes in passport.get("seen_sha256", {}).values() for sha256 in hashes}


def passport_beside(weights: Path) -> dict[str, Any] | None:
    """The passport of a weights file: ``model.json`` in its folder; None where there is none.

    Raises:
        UsvitError: it is there and cannot be read.
    """
    path = weights.with_name("model.json")
    if not path.is_file():
        return None
    try:
        passport = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsvitError(f"The passport {path} of the weights is damaged ({error}). Copy it again.") from error
    if not isinstance(passport, dict):
        raise UsvitError(f"The passport {path} of the weights is damaged: it holds no JSON object.")
    return passport


def refuse_seen(tested: pd.DataFrame, seen: set[str], who: str) -> None:
    """Refuse to test a network on images that it has seen, or on others of their groups.

    Args:
        tested: columns image_id, group_id, sha256.
        seen: pixel hashes (``seen_by``).
        who: the network, for the error.

    Raises:
        LeakageError: naming the groups.
    """
    groups = sorted(set(tested.group_id[tested.sha256.isin(list(seen))]))
    if groups:
        count = int(tested.group_id.isin(groups).sum())
        raise LeakageError(
            f"{who} has seen images of {len(groups)} groups ({count} images) that would be its test: "
            f"{', '.join(groups[:5])}{', ...' if len(groups) > 5 else ''}. Begin from other weights, or leave these "
            "images out (--keep-list)."
        )
