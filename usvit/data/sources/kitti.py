"""KITTI's distance to the closest vehicle, as the Visual Task Adaptation Benchmark asks it.

Sources: Geiger et al. 2012 (KITTI); Zhai et al. 2019 (VTAB; ``closest_vehicle_distance`` of task_adaptation's
``data/kitti.py``), whose splits are those of TensorFlow Datasets (version 3): 10% of the training drives are the test,
10% the validation, drawn with NumPy's legacy generator from the seed 123, so that no drive stands in two.
"""

from pathlib import Path

import numpy as np

from usvit.data.sources.base import ListedSource
from usvit.data.sources.folder import FileSource
from usvit.data.sources.named_set import Malformed, NamedSet, lines

VEHICLES = ("Car", "Van", "Truck")
THRESHOLDS = (8.0, 20.0, 999.0)
"""Metres ahead of the camera; a scene without a vehicle counts as 1000 m."""
CLASSES = ("up to 8 m", "8 to 20 m", "beyond 20 m", "no vehicle")
SEED = 123


def distance_class(annotation: list[str]) -> int:
    """Class of one scene: how far ahead the closest car, van or truck is.

    Args:
        annotation: lines of its label file; column 0 is the type, column 13 the distance z in metres.

    Returns:
        0 to 3, of ``CLASSES``: the number of thresholds that the distance exceeds.
    """
    rows = [line.split() for line in annotation]
    distance = min((float(row[13]) for row in rows if row[0] in VEHICLES), default=1000.0)
    return sum(distance > threshold for threshold in THRESHOLDS)


def drives_of(root: Path) -> list[str]:
    """Drive of each training image, 0 first, by the mapping of the object devkit."""
    folder = next((path for path in (root / "mapping", root / "devkit_object" / "mapping") if path.is_dir()), None)
    if folder is None:
        raise Malformed(
            "there is no mapping of the object devkit, which tells the drives: the split 'all' needs none, but drives "
            "must not be divided"
        )
    order = " ".join(lines(folder / "train_rand.txt")).replace(",", " ").split()
    mapping = lines(folder / "train_mapping.txt")
    try:
        return [mapping[int(number) - 1].split()[1] for number in order]
    except (ValueError, IndexError) as error:
        raise Malformed("train_rand.txt and train_mapping.txt do not belong together") from error


def split_drives(drives: list[str]) -> dict[str, set[str]]:
    """Split -> its drives, as TensorFlow Datasets draws them."""
    known, generator = sorted(set(drives)), np.random.RandomState(SEED)
    count = max(1, 10 * len(known) // 100)
    test = {str(drive) for drive in generator.choice(known, count, replace=False)}
    rest = sorted(set(known) - test)
    if len(rest) <= count:
        raise Malformed("the mapping names too few drives to divide them")
    val = {str(drive) for drive in generator.choice(rest, count, replace=False)}
    return {"train": set(known) - test - val, "val": val, "test": test}


def _read(root: Path, split: str) -> ListedSource:
    folder = _folder(root)
    numbers = sorted(path.stem for path in (folder / "image_2").iterdir() if path.suffix == ".png")
    if split != "all":
        drives = drives_of(root)
        wanted = split_drives(drives)[split]
        if numbers and int(numbers[-1]) >= len(drives):
            raise Malformed(f"the devkit's mapping ends before image {numbers[-1]}")
        numbers = [number for number in numbers if drives[int(number)] in wanted]
    targets = []
    for number in numbers:
        try:
            targets.append(distance_class(lines(folder / "label_2" / f"{number}.txt")))
        except (ValueError, IndexError) as error:
            raise Malformed(f"label_2/{number}.txt is no KITTI annotation") from error
    return FileSource("kitti_distance", folder, [f"image_2/{number}.png" for number in numbers], CLASSES, targets)


def _folder(root: Path) -> Path:
    inner = (root / "training", root / "raw" / "training", root / "Kitti" / "raw" / "training")
    return next((folder for folder in inner if folder.is_dir()), root)


SETS = (
    NamedSet(
        name="kitti_distance",
        layout="training/image_2/000000.png, training/label_2/000000.txt,\n"
        "mapping/train_rand.txt, mapping/train_mapping.txt (of the object development kit)",
        get="KITTI object detection: left colour images, training labels, development kit.",
        splits=("train", "val", "test", "all"),
        looks_like=lambda root: (_folder(root) / "image_2").is_dir(),
        read=_read,
    ),
)
