"""VTAB: the lists of its 19 tasks, with 1,000 (VTAB-1k) or all training images; its KITTI task from the release.

The lists of VTAB-1k that are in wide use (``train800.txt``, ``val200.txt``, ``train800val200.txt``, ``test.txt``; a
line is a path and a class number) come with the images as files, in one folder per task; the benchmark itself reads
TensorFlow Datasets. ``train.txt`` and ``val.txt`` are the same for all training images ("full VTAB"). Most of these
splits are shares of the order in which TensorFlow Datasets stores the images, so they are exported from there. The
splits of KITTI are those of TensorFlow Datasets (version 3): 10% of the training drives are the test, 10% the
validation, drawn with NumPy's legacy generator from the seed 123, so that no drive is in two splits.

Sources: Zhai et al. 2019, "A large-scale study of representation learning with the Visual Task Adaptation Benchmark"
(for KITTI ``closest_vehicle_distance`` of task_adaptation's ``data/kitti.py``; numbers of images as its tests state
them); Geiger et al. 2012 (KITTI).
"""

from functools import partial
from pathlib import Path

import numpy as np

from usvit.data.datasets import UpstreamDataset
from usvit.upstream.sources.catalog import VTAB_TASKS
from usvit.upstream.sources.folder import FileSource
from usvit.upstream.sources.named_set import Malformed, NamedSet, inside, lines

_VEHICLES = ("Car", "Van", "Truck")
_DISTANCES = (8.0, 20.0, 999.0)
"""Limits of the distance ahead of the camera in metres; a scene without a vehicle counts as 1000 m."""
DISTANCE_CLASSES = ("up to 8 m", "8 to 20 m", "beyond 20 m", "no vehicle")
_DRIVES_SEED = 123


def distance_class(annotation: list[str]) -> int:
    """Return the distance class of a scene: how far ahead the closest car, van or truck is.

    Args:
        annotation: lines of its label file; column 0 is the type, column 13 the distance z in metres.

    Returns:
        Index into ``DISTANCE_CLASSES``: the number of thresholds that the distance exceeds.
    """
    rows = [line.split() for line in annotation]
    distance = min((float(row[13]) for row in rows if row[0] in _VEHICLES), default=1000.0)
    return sum(distance > threshold for threshold in _DISTANCES)


def _drives_of(root: Path) -> list[str]:
    """Return the drive of each training image, from the mapping of the object devkit."""
    folder = next((path for path in (root / "mapping", root / "devkit_object" / "mapping") if path.is_dir()), None)
    if folder is None:
        raise Malformed(
            "the mapping of the object devkit, which lists the drives, is missing: it is needed to keep each drive in "
            "one split; use the split 'all', which does not need it"
        )
    order = " ".join(lines(folder / "train_rand.txt")).replace(",", " ").split()
    mapping = lines(folder / "train_mapping.txt")
    try:
        return [mapping[int(number) - 1].split()[1] for number in order]
    except (ValueError, IndexError) as error:
        raise Malformed("train_rand.txt and train_mapping.txt do not match") from error


def split_drives(drives: list[str]) -> dict[str, set[str]]:
    """Draw the drives of each split as TensorFlow Datasets does."""
    known, generator = sorted(set(drives)), np.random.RandomState(_DRIVES_SEED)
    count = max(1, 10 * len(known) // 100)
    test = {str(drive) for drive in generator.choice(known, count, replace=False)}
    rest = sorted(set(known) - test)
    if len(rest) <= count:
        raise Malformed("the mapping names too few drives to divide them")
    val = {str(drive) for drive in generator.choice(rest, count, replace=False)}
    return {"train": set(known) - test - val, "val": val, "test": test}


def _read_kitti(root: Path, split: str) -> UpstreamDataset:
    folder = _kitti_folder(root)
    numbers = sorted(path.stem for path in (folder / "image_2").iterdir() if path.suffix == ".png")
    if split != "all":
        drives = _drives_of(root)
        wanted = split_drives(drives)[split]
        if numbers and int(numbers[-1]) >= len(drives):
            raise Malformed(f"the devkit's mapping ends before image {numbers[-1]}")
        numbers = [number for number in numbers if drives[int(number)] in wanted]
    targets = []
    for number in numbers:
        try:
            targets.append(distance_class(lines(folder / "label_2" / f"{number}.txt")))
        except (ValueError, IndexError) as error:
            raise Malformed(f"label_2/{number}.txt is not a KITTI annotation") from error
    return FileSource(
        "kitti_distance", folder, [f"image_2/{number}.png" for number in numbers], DISTANCE_CLASSES, targets
    )


def _kitti_folder(root: Path) -> Path:
    inner = (root / "training", root / "raw" / "training", root / "Kitti" / "raw" / "training")
    return next((folder for folder in inner if folder.is_dir()), root)


_KITTI = NamedSet(
    name="kitti_distance",
    layout="training/image_2/000000.png, training/label_2/000000.txt,\n"
    "mapping/train_rand.txt, mapping/train_mapping.txt (of the object development kit)",
    get="KITTI object detection: left colour images, training labels, development kit.",
    splits=("train", "val", "test", "all"),
    looks_like=lambda root: (_kitti_folder(root) / "image_2").is_dir(),
    read=_read_kitti,
)


SPLITS = ("train800", "val200", "train800val200", "test", "train", "val")
FULL_IMAGES = {
    "caltech101": (2754, 306),
    "cifar": (45000, 5000),
    "clevr_count": (63000, 7000),
    "clevr_dist": (63000, 7000),
    "diabetic_retinopathy": (35126, 10906),
    "dmlab": (65550, 22628),
    "dsprites_loc": (589824, 73728),
    "dsprites_ori": (589824, 73728),
    "dtd": (1880, 1880),
    "eurosat": (16200, 5400),
    "kitti": (6347, 423),
    "oxford_flowers102": (1020, 1020),
    "oxford_iiit_pet": (2944, 736),
    "patch_camelyon": (262144, 32768),
    "resisc45": (18900, 6300),
    "smallnorb_azi": (24300, 12150),
    "smallnorb_ele": (24300, 12150),
    "sun397": (76128, 10875),
    "svhn": (65931, 7326),
}
"""Task -> number of images of the splits ``train`` and ``val`` of full VTAB."""


def _read_vtab(task: str, root: Path, split: str) -> UpstreamDataset:
    """Read the list of one split; classes are numbers.

    Raises:
        Malformed: A line is not a path and a class number of the task, or ``train`` or ``val`` is not of full length.
    """
    folder, files, targets = root / task if (root / task).is_dir() else root, [], []
    for line in lines(folder / f"{split}.txt"):
        name, _, number = line.rpartition(" ")
        if not number.isdecimal() or not name or int(number) >= VTAB_TASKS[task]:
            raise Malformed(
                f"a line of {split}.txt is not a path and a class from 0 to {VTAB_TASKS[task] - 1}: {line[:100]}"
            )
        files.append(inside(name.strip()))
        targets.append(int(number))
    expected = dict(zip(("train", "val"), FULL_IMAGES[task], strict=True)).get(split, len(files))
    if len(files) != expected:
        raise Malformed(
            f"{split}.txt lists {len(files):,} images, and the split of full VTAB has {expected:,}; lists of your own "
            "are read by the source 'folder', as class folders"
        )
    return FileSource(f"vtab_{task}", folder, files, map(str, range(VTAB_TASKS[task])), targets)


def _set(task: str) -> NamedSet:
    return NamedSet(
        name=f"vtab_{task}",
        layout=f"{task}/train800.txt, val200.txt, train800val200.txt, test.txt (lines: path class)\n"
        f"{task}/train.txt, val.txt (the same format, for full VTAB)\n"
        f"{task}/images/... (the files in the lists)",
        get="VTAB-1k as images and lists (vtab-1k); full VTAB from TensorFlow Datasets (docs/reference/sources.md).",
        splits=SPLITS,
        looks_like=lambda root: (root.name == task and _has_lists(root)) or _has_lists(root / task),
        read=partial(_read_vtab, task),
    )


def _has_lists(folder: Path) -> bool:
    return any((folder / f"{split}.txt").is_file() for split in SPLITS)


SETS = (*map(_set, VTAB_TASKS), _KITTI)
