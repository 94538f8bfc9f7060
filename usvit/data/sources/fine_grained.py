"""Flowers-102, Pets, Cars, Food-101, Resisc45: lists that come with a release, read as they are.

torchvision reads four of them too, and is what the tests compare with; but it keeps what it lists in private
attributes, and wants each folder under a name of its own.

Sources: Nilsback & Zisserman 2008; Parkhi et al. 2012; Krause et al. 2013; Bossard et al. 2014; Cheng et al. 2017, with
the splits of Neumann et al. 2019.
"""

import json
from pathlib import Path
from typing import Any

from usvit.data.readers import subfolders
from usvit.data.sources.base import ListedSource
from usvit.data.sources.folder import FileSource, class_folders
from usvit.data.sources.named_set import Malformed, NamedSet, inside, lines


def _folder(root: Path, name: str) -> Path:
    """torchvision's folder of a data set inside ``root``, or ``root`` itself."""
    return root / name if (root / name).is_dir() else root


def _loadmat(path: Path) -> dict[str, Any]:
    from scipy.io import loadmat

    try:
        content: dict[str, Any] = loadmat(path, squeeze_me=True)
    except OSError:
        raise
    except Exception as error:  # its readers have many ways to say damaged
        raise Malformed(f"{path.name} is damaged ({error})") from error
    return content


def _read_flowers(root: Path, split: str) -> ListedSource:
    from torchvision.datasets import Flowers102  # its class names: the release has none

    folder = _folder(root, "flowers-102")
    ids = _loadmat(folder / "setid.mat")[{"train": "trnid", "val": "valid", "test": "tstid"}[split]].tolist()
    labels = _loadmat(folder / "imagelabels.mat")["labels"].tolist()  # of image 1, 2, ...; classes from 1
    if max(ids) > len(labels) or not all(1 <= label <= 102 for label in labels):
        raise Malformed("setid.mat and imagelabels.mat do not belong together")
    files = [f"jpg/image_{number:05d}.jpg" for number in ids]
    return FileSource("flowers102", folder, files, Flowers102.classes, [labels[number - 1] - 1 for number in ids])


def _read_pets(root: Path, split: str) -> ListedSource:
    folder = _folder(root, "oxford-iiit-pet")
    names, rows = {}, []
    # Both lists, so that a class has its name and number even where one of them lacks it.
    for part in ("trainval", "test"):
        for line in lines(folder / "annotations" / f"{part}.txt"):
            try:
                file, number, *_ = line.split()
                label = int(number) - 1
            except ValueError as error:
                raise Malformed(f"a line of annotations/{part}.txt is no 'name class species breed': {line}") from error
            names[label] = file.rpartition("_")[0]
            if part == split:
                rows.append((inside(f"images/{file}.jpg"), label))
    classes = _numbered(names, f"annotations/{split}.txt")
    return FileSource("pets", folder, [file for file, _ in rows], classes, [label for _, label in rows])


def _read_cars(root: Path, split: str) -> ListedSource:
    folder = _folder(root, "stanford_cars")
    classes = [str(name) for name in _loadmat(folder / "devkit" / "cars_meta.mat")["class_names"]]
    table = folder / ("devkit/cars_train_annos.mat" if split == "train" else "cars_test_annos_withlabels.mat")
    rows = _loadmat(table)["annotations"]
    if "class" not in (rows.dtype.names or ()):
        raise Malformed(f"{table.name} has no classes (the release's cars_test_annos_withlabels.mat has)")
    files = [inside(f"cars_{split}/{row['fname']}") for row in rows]
    targets = [int(row["class"]) - 1 for row in rows]
    if not all(0 <= target < len(classes) for target in targets):
        raise Malformed(f"{table.name} has classes that cars_meta.mat does not name")
    return FileSource("cars", folder, files, classes, targets)


def _read_food(root: Path, split: str) -> ListedSource:
    folder = _folder(root, "food-101")
    try:
        listed = json.loads((folder / "meta" / f"{split}.json").read_text(encoding="utf-8"))
        classes = sorted(listed)
        rows = [(inside(f"images/{file}.jpg"), at) for at, label in enumerate(classes) for file in listed[label]]
    except (ValueError, TypeError) as error:
        raise Malformed(f"meta/{split}.json is no list of files for each class") from error
    return FileSource("food101", folder, [file for file, _ in rows], classes, [at for _, at in rows])


def _read_resisc(root: Path, split: str) -> ListedSource:
    folder = _folder(root, "NWPU-RESISC45")
    classes = [path.name for path in subfolders(folder)]
    if len(classes) != 45:
        raise Malformed(f"{folder.name} holds {len(classes)} class folders instead of 45")
    if split == "all":
        return class_folders("resisc45", folder, classes)
    table = next((path for path in _lists(root, folder, split) if path.is_file()), None)
    if table is None:
        raise Malformed(
            f"there is no list resisc45-{split}.txt: the release has no splits; the split 'all' needs no list, and "
            "source.val_share keeps images back"
        )
    number, files, targets = {label: at for at, label in enumerate(classes)}, [], []
    for line in lines(table):  # airplane_001.jpg
        label = Path(line).stem.rpartition("_")[0]
        if label not in number:
            raise Malformed(f"{table.name} names {line[:60]}, which belongs to no class folder")
        files.append(inside(f"{label}/{Path(line).name}"))
        targets.append(number[label])
    return FileSource("resisc45", folder, files, classes, targets)


def _lists(root: Path, folder: Path, split: str) -> list[Path]:
    return [parent / f"resisc45-{split}.txt" for parent in (root, folder, folder.parent)]


def _numbered(names: dict[int, str], where: str) -> list[str]:
    """Names of classes 0, 1, ..., without a gap."""
    if sorted(names) != list(range(len(names))):
        raise Malformed(f"the class numbers of {where} have gaps")
    return [names[number] for number in range(len(names))]


SETS = (
    NamedSet(
        name="flowers102",
        layout="[flowers-102/]jpg/image_00001.jpg, setid.mat, imagelabels.mat",
        get="Oxford 102 Flowers, from the Visual Geometry Group.",
        splits=("train", "val", "test"),
        looks_like=lambda root: (_folder(root, "flowers-102") / "setid.mat").is_file(),
        read=_read_flowers,
    ),
    NamedSet(
        name="pets",
        layout="[oxford-iiit-pet/]images/Abyssinian_1.jpg, annotations/trainval.txt, annotations/test.txt",
        get="Oxford-IIIT Pet Dataset, from the Visual Geometry Group.",
        splits=("trainval", "test"),
        looks_like=lambda root: (_folder(root, "oxford-iiit-pet") / "annotations" / "trainval.txt").is_file(),
        read=_read_pets,
    ),
    NamedSet(
        name="cars",
        layout="[stanford_cars/]cars_train/00001.jpg, cars_test/00001.jpg, cars_test_annos_withlabels.mat,\n"
        "devkit/cars_train_annos.mat, devkit/cars_meta.mat",
        get="Stanford Cars (Krause et al. 2013); its first host is gone.",
        splits=("train", "test"),
        looks_like=lambda root: (_folder(root, "stanford_cars") / "devkit" / "cars_meta.mat").is_file(),
        read=_read_cars,
    ),
    NamedSet(
        name="food101",
        layout="[food-101/]images/apple_pie/134.jpg, meta/train.json, meta/test.json",
        get="Food-101, from ETH Zurich.",
        splits=("train", "test"),
        looks_like=lambda root: (_folder(root, "food-101") / "meta" / "train.json").is_file(),
        read=_read_food,
    ),
    NamedSet(
        name="resisc45",
        layout="[NWPU-RESISC45/]airplane/airplane_001.jpg (45 folders)\n"
        "resisc45-train.txt, resisc45-val.txt, resisc45-test.txt (the lists of Neumann et al. 2019, a file a line)",
        get="NWPU-RESISC45, from Northwestern Polytechnical University.",
        splits=("train", "val", "test", "all"),
        looks_like=lambda root: (_folder(root, "NWPU-RESISC45") / "airplane").is_dir(),
        read=_read_resisc,
    ),
)
