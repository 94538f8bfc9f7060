"""Data sets of photographs that papers transfer to, read from the files and lists of their releases.

CIFAR-10 and CIFAR-100 (with 20 superclasses), Flowers-102, Pets, Cars, Food-101, Resisc45, iNaturalist 2018 and 2019
(with their official splits and taxonomy). torchvision reads several of them too, and the tests compare with it; but it
keeps its lists in private attributes, wants each folder under its own name, and ignores iNaturalist's split into
training and validation. The CIFAR releases are pickles, which can run any code when they are loaded: they are loaded
only if their MD5 is that of the release, as torchvision knows it.

Sources: Krizhevsky 2009 (CIFAR); Nilsback & Zisserman 2008; Parkhi et al. 2012; Krause et al. 2013; Bossard et al.
2014; Cheng et al. 2017, with the splits of Neumann et al. 2019; Van Horn et al. 2018 (iNaturalist).
"""

import hashlib
import pickle
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import UpstreamDataset, subfolders
from usvit.files import TABLE_BYTES, read_bytes
from usvit.upstream.sources.folder import FileSource, class_folders
from usvit.upstream.sources.named_set import Malformed, NamedSet, inside, json_of, lines, mat_of


class _PixelSource(UpstreamDataset):
    """Small images that are all in memory: ``pixels`` is (N, H, W, 3) uint8."""

    def __init__(
        self,
        name: str,
        pixels: NDArray[np.uint8],
        classes: Iterable[str],
        targets: NDArray[np.int64],
        levels: dict[str, tuple[str, ...]] | None = None,
    ):
        super().__init__(name, classes, targets)
        self.pixels, self.levels = pixels, levels or {}

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self.pixels,)


def _read_cifar(name: str, root: Path, split: str) -> _PixelSource:
    """Read one split of CIFAR.

    Args:
        name: ``cifar10`` or ``cifar100``.
        root: the folder of the batches, or its parent.
        split: ``train`` or ``test``.

    Raises:
        Malformed: A file is not that of the release.
    """
    release, folder = _release(name), _cifar_folder(name, root)
    files = release.train_list if split == "train" else release.test_list
    batches = [_unpickled(folder / file, md5) for file, md5 in files]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = "labels" if name == "cifar10" else "fine_labels"
    targets = np.concatenate([np.asarray(batch[labels], dtype=np.int64) for batch in batches])
    meta = _unpickled(folder / release.meta["filename"], release.meta["md5"])
    classes = meta[release.meta["key"]]
    levels = {}
    if name == "cifar100":
        coarse = np.concatenate([np.asarray(batch["coarse_labels"], dtype=np.int64) for batch in batches])
        levels["superclass"] = _superclasses(targets, coarse, len(classes), meta["coarse_label_names"])
    return _PixelSource(name, np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), classes, targets, levels)


def _superclasses(fine: Any, coarse: Any, classes: int, names: list[str]) -> tuple[str, ...]:
    of = dict(zip(fine.tolist(), coarse.tolist(), strict=True))
    if len(of) < classes or any(
        of[label] != other for label, other in zip(fine.tolist(), coarse.tolist(), strict=True)
    ):
        raise Malformed("a class has no superclass, or several")
    return tuple(names[of[label]] for label in range(classes))


def _release(name: str) -> Any:
    from torchvision.datasets import CIFAR10, CIFAR100  # checksums of the release

    return CIFAR10 if name == "cifar10" else CIFAR100


def _cifar_folder(name: str, root: Path) -> Path:
    inner = root / ("cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
    return inner if inner.is_dir() else root


def _unpickled(path: Path, md5: str) -> dict[str, Any]:
    data = read_bytes(path, TABLE_BYTES, follow=True)
    # Unpickle the bytes that were checked: the file could be exchanged between the two steps.
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise Malformed(f"{path.name} is not the file of the release (its MD5 is not {md5}); fetch it again")
    content: dict[str, Any] = pickle.loads(data, encoding="latin1")
    return content


_CIFAR = "The python version of the release, by Alex Krizhevsky (University of Toronto)."

_CIFAR_SETS = (
    NamedSet(
        name="cifar10",
        layout="cifar-10-batches-py/data_batch_1 to data_batch_5, test_batch, batches.meta",
        get=_CIFAR,
        splits=("train", "test"),
        looks_like=lambda root: (_cifar_folder("cifar10", root) / "batches.meta").is_file(),
        read=partial(_read_cifar, "cifar10"),
    ),
    NamedSet(
        name="cifar100",
        layout="cifar-100-python/train, test, meta",
        get=_CIFAR,
        splits=("train", "test"),
        looks_like=lambda root: all(
            (_cifar_folder("cifar100", root) / file).is_file() for file in ("meta", "train", "test")
        ),
        read=partial(_read_cifar, "cifar100"),
    ),
)


def _folder(root: Path, name: str) -> Path:
    """Return torchvision's folder of a data set inside ``root``, or ``root`` itself."""
    return root / name if (root / name).is_dir() else root


def _read_flowers(root: Path, split: str) -> UpstreamDataset:
    from torchvision.datasets import Flowers102  # its class names: the release has none

    folder = _folder(root, "flowers-102")
    ids = mat_of(folder / "setid.mat")[{"train": "trnid", "val": "valid", "test": "tstid"}[split]].tolist()
    labels = mat_of(folder / "imagelabels.mat")["labels"].tolist()  # of image 1, 2, ...; classes from 1
    if max(ids) > len(labels) or not all(1 <= label <= 102 for label in labels):
        raise Malformed("setid.mat and imagelabels.mat do not match")
    files = [f"jpg/image_{number:05d}.jpg" for number in ids]
    return FileSource("flowers102", folder, files, Flowers102.classes, [labels[number - 1] - 1 for number in ids])


def _read_pets(root: Path, split: str) -> UpstreamDataset:
    folder = _folder(root, "oxford-iiit-pet")
    names, rows = {}, []
    # Read both lists, so that a class has its name and number even if one list lacks it.
    for part in ("trainval", "test"):
        for line in lines(folder / "annotations" / f"{part}.txt"):
            try:
                file, number, *_ = line.split()
                label = int(number) - 1
            except ValueError as error:
                raise Malformed(
                    f"annotations/{part}.txt has a line other than 'name class species breed': {line}"
                ) from error
            names[label] = file.rpartition("_")[0]
            if part == split:
                rows.append((inside(f"images/{file}.jpg"), label))
    classes = _numbered(names, f"annotations/{split}.txt")
    return FileSource("pets", folder, [file for file, _ in rows], classes, [label for _, label in rows])


def _read_cars(root: Path, split: str) -> UpstreamDataset:
    folder = _folder(root, "stanford_cars")
    classes = [str(name) for name in mat_of(folder / "devkit" / "cars_meta.mat")["class_names"]]
    table = folder / ("devkit/cars_train_annos.mat" if split == "train" else "cars_test_annos_withlabels.mat")
    rows = mat_of(table)["annotations"]
    if "class" not in (rows.dtype.names or ()):
        raise Malformed(f"{table.name} has no classes (the release's cars_test_annos_withlabels.mat has)")
    files = [inside(f"cars_{split}/{row['fname']}") for row in rows]
    targets = [int(row["class"]) - 1 for row in rows]
    if not all(0 <= target < len(classes) for target in targets):
        raise Malformed(f"{table.name} has classes that cars_meta.mat does not name")
    return FileSource("cars", folder, files, classes, targets)


def _read_food(root: Path, split: str) -> UpstreamDataset:
    folder = _folder(root, "food-101")
    try:
        listed = json_of(folder / "meta" / f"{split}.json")
        classes = sorted(listed)
        rows = [(inside(f"images/{file}.jpg"), at) for at, label in enumerate(classes) for file in listed[label]]
    except (ValueError, TypeError) as error:
        raise Malformed(f"meta/{split}.json is not a list of files for each class") from error
    return FileSource("food101", folder, [file for file, _ in rows], classes, [at for _, at in rows])


def _read_resisc(root: Path, split: str) -> UpstreamDataset:
    folder = _folder(root, "NWPU-RESISC45")
    classes = [path.name for path in subfolders(folder)]
    if len(classes) != 45:
        raise Malformed(f"{folder.name} contains {len(classes)} class folders instead of 45")
    if split == "all":
        return class_folders("resisc45", folder, classes)
    lists = [parent / f"resisc45-{split}.txt" for parent in (root, folder, folder.parent)]
    table = next((path for path in lists if path.is_file()), None)
    if table is None:
        raise Malformed(
            f"there is no list resisc45-{split}.txt, since the release has no splits; use the split 'all', which needs "
            "no list, and source.val_share to hold images out"
        )
    number, files, targets = {label: at for at, label in enumerate(classes)}, [], []
    for line in lines(table):  # airplane_001.jpg
        label = Path(line).stem.rpartition("_")[0]
        if label not in number:
            raise Malformed(f"{table.name} names {line[:60]}, which is in none of the class folders")
        files.append(inside(f"{label}/{Path(line).name}"))
        targets.append(number[label])
    return FileSource("resisc45", folder, files, classes, targets)


def _numbered(names: dict[int, str], where: str) -> list[str]:
    """Return the names of classes 0, 1, ..., and refuse gaps."""
    if sorted(names) != list(range(len(names))):
        raise Malformed(f"the class numbers of {where} have gaps")
    return [names[number] for number in range(len(names))]


_LISTED_SETS = (
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
        get="Stanford Cars (Krause et al. 2013); its original host no longer exists.",
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
        "resisc45-train.txt, resisc45-val.txt, resisc45-test.txt (lists of Neumann et al. 2019, one file per line)",
        get="NWPU-RESISC45, from Northwestern Polytechnical University.",
        splits=("train", "val", "test", "all"),
        looks_like=lambda root: (_folder(root, "NWPU-RESISC45") / "airplane").is_dir(),
        read=_read_resisc,
    ),
)


LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus")
"""Coarser classes, available if ``categories.json`` (released after the competition) is present."""


def _read_inaturalist(year: int, root: Path, split: str) -> UpstreamDataset:
    """Read one split of iNaturalist; classes are in the order of their ids.

    Raises:
        Malformed: A JSON file is not the release's.
    """
    listed, own = json_of(root / f"{split}{year}.json"), root / "categories.json"
    try:
        categories = json_of(own) if own.is_file() else listed["categories"]
        by_id = {int(category["id"]): category for category in categories}
        label_of = {int(row["image_id"]): int(row["category_id"]) for row in listed["annotations"]}
        rows = sorted((inside(image["file_name"]), label_of[int(image["id"])]) for image in listed["images"])
        if sorted(by_id) != list(range(len(by_id))) or not {label for _, label in rows} <= set(by_id):
            raise Malformed(f"the classes of {split}{year}.json are not numbered from 0 in the order of its categories")
        ordered = [by_id[number] for number in range(len(by_id))]
        names = [str(category["name"]) for category in ordered]
        levels = {level: tuple(str(one[level]) for one in ordered) for level in LEVELS if level in ordered[0]}
        if "supercategory" in ordered[0]:
            levels["supercategory"] = tuple(str(one["supercategory"]) for one in ordered)
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"{split}{year}.json or categories.json lacks an entry of the release ({error!r})") from error
    if len(set(names)) < len(names):  # two species can have the same name; the id distinguishes them
        names = [f"{number} {name}" for number, name in enumerate(names)]
    return FileSource(
        f"inat{year % 100}", root, [file for file, _ in rows], names, [label for _, label in rows], levels=levels
    )


def _inaturalist_set(year: int) -> NamedSet:
    return NamedSet(
        name=f"inat{year % 100}",
        layout=f"train_val{year}/<group>/<class>/<image>.jpg, train{year}.json, val{year}.json,\n"
        "categories.json (for the names and the coarser levels)",
        get=f"iNaturalist {year} competition data, from the visipedia/inat_comp project.",
        splits=("train", "val"),
        looks_like=lambda root: (root / f"train{year}.json").is_file() or (root / f"val{year}.json").is_file(),
        read=partial(_read_inaturalist, year),
    )


SETS = (*_CIFAR_SETS, *_LISTED_SETS, _inaturalist_set(2018), _inaturalist_set(2019))
