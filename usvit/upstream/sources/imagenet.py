"""ImageNet-1k with its original labels, its reassessed ones and its second test set; ImageNet-21k.

Sources: Russakovsky et al. 2015 (ILSVRC-2012); Beyer et al. 2020, "Are we done with ImageNet?" (ReaL); Recht et al.
2019, "Do ImageNet classifiers generalize to ImageNet?" (V2); Deng et al. 2009 and Ridnik et al. 2021 (21k, 21k-P).
"""

import csv
import io
import json
import re
from functools import lru_cache
from importlib.resources import files as package_files
from pathlib import Path

import numpy as np

from usvit.data.datasets import UpstreamDataset, subfolders
from usvit.upstream.sources.folder import FileSource, class_folders, list_images
from usvit.upstream.sources.named_set import Malformed, NamedSet, json_of, lines, mat_of, text_of

_WNID = re.compile(r"n\d{8}")
_VAL_FILE = re.compile(r"ILSVRC2012_val_(\d{8})\.jpe?g", re.IGNORECASE)
_V2_VARIANTS = ("matched-frequency", "threshold-0.7", "top-images")
_21K_FOLDERS = {"train": ("train", "imagenet21k_train"), "val": ("val", "imagenet21k_val")}


@lru_cache(maxsize=1)
def wnids() -> tuple[str, ...]:
    """Return the WordNet ids of the 1,000 classes in the order of the labels, which is sorted."""
    text = (package_files("timm.data") / "_info" / "imagenet_synsets.txt").read_text(encoding="utf-8")
    return tuple(text.split())


def _read_imagenet(root: Path, split: str) -> UpstreamDataset:
    if split == "train":
        return of_wnids("imagenet", root / "train", wnids())
    return _validation(root)


def of_wnids(name: str, folder: Path, classes: tuple[str, ...]) -> FileSource:
    """List a folder that holds exactly one folder for each class.

    Raises:
        Malformed: A class folder is missing, or there is another folder.
    """
    found = {path.name for path in subfolders(folder)}
    if missing := [label for label in classes if label not in found]:
        raise Malformed(
            f"{folder.name} lacks {len(missing)} of {len(classes)} class folders ({missing[0]}, ...); to use only some "
            "classes, use the source 'folder'"
        )
    if others := sorted(found - set(classes)):
        raise Malformed(f"{folder.name} contains folders that are not classes: {', '.join(others[:5])}")
    return class_folders(name, folder, classes)


def _validation(root: Path) -> FileSource:
    folder = root / "val"
    if any(_WNID.fullmatch(path.name) for path in subfolders(folder)):
        return of_wnids("imagenet", folder, wnids())
    names, truth = list_images(folder), _ground_truth(root)
    targets = []
    for name in names:
        match = _VAL_FILE.fullmatch(Path(name).name)
        if match is None or int(match[1]) not in truth:
            raise Malformed(f"the class of val/{name} is not known")
        targets.append(truth[int(match[1])])
    return FileSource("imagenet", folder, names, wnids(), targets)


def _ground_truth(root: Path) -> dict[int, int]:
    """Map the number of each validation image to its class, from the devkit or the list of the Kaggle download."""
    number = {wnid: at for at, wnid in enumerate(wnids())}
    if (kaggle := root / "LOC_val_solution.csv").is_file():
        # ILSVRC2012_val_00048981,n03995372 85 1 499 272
        try:
            return {
                int(row["ImageId"].rpartition("_")[2]): _class(number, row["PredictionString"].split()[0])
                for row in csv.DictReader(io.StringIO(text_of(kaggle)))
            }
        except (csv.Error, KeyError, ValueError, IndexError, AttributeError) as error:
            raise Malformed(
                f"{kaggle.name} is not the list of the Kaggle download: ImageId,PredictionString"
            ) from error
    devkits = (root / "ILSVRC2012_devkit_t12" / "data", root / "devkit" / "data", root / "data")
    data = next((path for path in devkits if (path / "ILSVRC2012_validation_ground_truth.txt").is_file()), None)
    if data is None:
        raise Malformed("val has no class folders, and there is no list of the classes of its images")
    # Rows: ILSVRC2012_ID, WNID, words, gloss, num_children, ...; the 1,000 classes are those without children.
    synsets = mat_of(data / "meta.mat")["synsets"]
    wnid_of = {int(row[0]): str(row[1]) for row in synsets if int(row[4]) == 0}
    ids = map(int, lines(data / "ILSVRC2012_validation_ground_truth.txt"))
    return {at: _class(number, wnid_of.get(label, str(label))) for at, label in enumerate(ids, start=1)}


def _class(number: dict[str, int], wnid: str) -> int:
    if wnid not in number:
        raise Malformed(f"the list of validation labels names '{wnid[:20]}', which is not one of the 1,000 classes")
    return number[wnid]


def _read_real(root: Path, split: str) -> UpstreamDataset:
    """List the validation images with their reassessed labels; images without labels are left out.

    ``multi`` holds all labels of an image; a prediction is correct if it is one of them. ``targets`` holds the first,
    and ``left_out`` the number of images without labels.
    """
    own = root / "real.json"
    shipped = package_files("timm.data") / "_info" / "imagenet_real_labels.json"
    try:
        real = json_of(own) if own.is_file() else json.loads(shipped.read_text(encoding="utf-8"))
        assert isinstance(real, list) and all(isinstance(labels, list) for labels in real)
        assert all(isinstance(label, int) and 0 <= label < 1000 for labels in real for label in labels)
    except (ValueError, AssertionError) as error:
        raise Malformed("real.json is not a list of lists of class numbers") from error
    folder, names, multi = root / "val", [], []
    listed = list_images(folder)
    if own.is_file() and len(real) != len(listed):
        raise Malformed(f"real.json has labels of {len(real)} images, but val holds {len(listed)}")
    for name in listed:
        match = _VAL_FILE.fullmatch(Path(name).name)
        if match is None or not 1 <= int(match[1]) <= len(real):
            raise Malformed(f"val/{name} is not an image of the validation set (ILSVRC2012_val_00000001.JPEG, ...)")
        if labels := real[int(match[1]) - 1]:
            names.append(name)
            multi.append(tuple(labels))
    source = FileSource("imagenet_real", folder, names, wnids(), [labels[0] for labels in multi], multi=multi)
    source.left_out = len(listed) - len(names)
    return source


def _read_v2(root: Path, split: str) -> UpstreamDataset:
    """List ImageNet-V2, whose folders are class numbers: 10 comes after 9, not after 1."""
    folder = _v2_folder(root, split)
    if folder is None:
        raise Malformed(f"there is no folder imagenetv2-{split}-format-val")
    found, expected = {path.name for path in subfolders(folder)}, [str(number) for number in range(len(wnids()))]
    if missing := [label for label in expected if label not in found]:
        raise Malformed(f"{folder.name} lacks {len(missing)} of the folders 0 to {expected[-1]} ({missing[0]}, ...)")
    return class_folders("imagenet_v2", folder, expected, names=wnids())


def _v2_folder(root: Path, variant: str) -> Path | None:
    names = (f"imagenetv2-{variant}-format-val", f"imagenetv2-{variant}")
    return next((root / name for name in names if (root / name).is_dir()), None)


def _read_21k(root: Path, split: str) -> UpstreamDataset:
    folder = _21k_folder(root, split)
    if folder is None:
        raise Malformed(f"it has no folder {' or '.join(_21K_FOLDERS[split])}; use source.val_share to hold images out")
    classes = [path.name for path in subfolders(folder) if _WNID.fullmatch(path.name)]
    source = class_folders("imagenet21k", folder, classes)
    filled = np.bincount(source.targets, minlength=len(classes))
    if not filled.all():
        raise Malformed(f"the class folder {folder.name}/{classes[int(np.argmin(filled))]} contains no images")
    return source


def _21k_folder(root: Path, split: str) -> Path | None:
    inner = (root / name for name in _21K_FOLDERS[split])
    candidates = [*inner, *([root] if split == "train" else [])]
    return next((folder for folder in candidates if folder.is_dir() and _beyond_1k(folder)), None)


def _beyond_1k(folder: Path) -> bool:
    """Return True if the folder holds class folders that ImageNet-1k does not have."""
    known = set(wnids())
    return any(_WNID.fullmatch(path.name) and path.name not in known for path in subfolders(folder))


def _has_wnids(folder: Path) -> bool:
    return any(_WNID.fullmatch(path.name) for path in subfolders(folder))


def _is_val(root: Path) -> bool:
    if not (root / "val").is_dir():
        return False
    first = next(iter(sorted(path.name for path in (root / "val").iterdir())), "")
    return bool(_WNID.fullmatch(first) or _VAL_FILE.fullmatch(first))


_GET = "The ImageNet project gives ImageNet (ILSVRC-2012) to those who accept its terms."
_VAL_LAYOUT = "val/n01440764/ILSVRC2012_val_00000293.JPEG"

SETS = (
    NamedSet(
        name="imagenet",
        layout="train/n01440764/n01440764_10026.JPEG (1,000 folders)\n"
        f"{_VAL_LAYOUT}, or val/ILSVRC2012_val_00000293.JPEG with\n"
        "ILSVRC2012_devkit_t12/data/ (ILSVRC2012_validation_ground_truth.txt, meta.mat) or LOC_val_solution.csv",
        get=_GET,
        splits=("train", "val"),
        looks_like=lambda root: ((root / "train").is_dir() and _has_wnids(root / "train")) or _is_val(root),
        read=_read_imagenet,
    ),
    NamedSet(
        name="imagenet_real",
        layout=f"{_VAL_LAYOUT} or val/ILSVRC2012_val_00000293.JPEG\n"
        "real.json (of reassessed-imagenet; if it is missing, timm's copy is used)",
        get=_GET,
        splits=("val",),
        looks_like=_is_val,
        read=_read_real,
    ),
    NamedSet(
        name="imagenet_v2",
        layout="imagenetv2-matched-frequency-format-val/0/<image>.jpeg (folders 0 to 999)\n"
        "and imagenetv2-threshold-0.7-format-val, imagenetv2-top-images-format-val",
        get="ImageNet-V2 is published by its authors (ImageNetV2).",
        splits=_V2_VARIANTS,
        looks_like=lambda root: any(_v2_folder(root, variant) for variant in _V2_VARIANTS),
        read=_read_v2,
    ),
    NamedSet(
        name="imagenet21k",
        layout="n00004475/n00004475_6590.JPEG (one folder per class); or, for ImageNet-21k-P,\n"
        "imagenet21k_train/n00005787/... and imagenet21k_val/n00005787/...",
        get="The ImageNet project gives ImageNet-21k (winter or fall release) to those who accept its terms.",
        splits=("train", "val"),
        looks_like=lambda root: _21k_folder(root, "train") is not None,
        read=_read_21k,
    ),
)
