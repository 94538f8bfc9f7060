"""BreastMNIST: all images in one ``.npz``, frame after frame.

Layout: data_cards/breastmnist.md. Its division into training, validation and test was drawn by image, from a data
set full of near-duplicates: it stays readable in the image's id (``train-0007``) and is not offered as folds.
Source: Yang et al. 2023, Scientific Data 10:41.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, required_class
from usvit.data.io import BadImage, npz_labels
from usvit.errors import UsvitError

_FILES = "breastmnist*.npz"


def looks_like(root: Path, card: DataCard) -> bool:
    return any(root.glob(_FILES))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images in the order of the arrays.

    Raises:
        UsvitError: there are files of several sizes; the file is damaged; or a label is unknown.
    """
    files = sorted(root.glob(_FILES))
    if len(files) > 1:
        raise UsvitError(
            f"the images exist in several sizes: {', '.join(path.name for path in files)}; keep only one of them"
        )
    try:
        parts = npz_labels(files[0])
    except BadImage as bad:
        raise UsvitError(f"the file {files[0].name} cannot be used: {bad.reason}") from bad
    names = [(part, number, label) for part, labels in parts.items() for number, label in enumerate(labels)]
    return [
        ImageRecord(
            image_id=f"{part}-{number:04}",
            path=files[0].relative_to(root),
            label=required_class(label, f"{part}_labels[{number}] of {files[0].name}", card),
            frame=frame,
        )
        for frame, (part, number, label) in enumerate(names)
    ]
