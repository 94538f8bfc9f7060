"""iNaturalist 2018 and 2019 with their official splits and the levels of their taxonomy.

torchvision's reader ignores the release's split into training and validation, and takes files in the order in which
the system lists them; DeiT reads the same JSON files as this one. Source: Van Horn et al. 2018, CVPR.
"""

import json
from pathlib import Path
from typing import Any

from usvit.data.sources.base import ListedSource
from usvit.data.sources.folder import FileSource
from usvit.data.sources.named_set import Malformed, NamedSet, inside

LEVELS = ("kingdom", "phylum", "class", "order", "family", "genus")
"""Coarser classes, where ``categories.json`` (released after the competition) is there."""


def _read(year: int) -> Any:
    return lambda root, split: read_inaturalist(year, root, split)


def read_inaturalist(year: int, root: Path, split: str) -> ListedSource:
    """One split; classes in the order of their ids.

    Raises:
        Malformed: a JSON file is not the release's.
    """
    listed, own = _loaded(root / f"{split}{year}.json"), root / "categories.json"
    try:
        categories = _loaded(own) if own.is_file() else listed["categories"]
        by_id = {int(category["id"]): category for category in categories}
        label_of = {int(row["image_id"]): int(row["category_id"]) for row in listed["annotations"]}
        rows = sorted((inside(image["file_name"]), label_of[int(image["id"])]) for image in listed["images"])
        if sorted(by_id) != list(range(len(by_id))) or not {label for _, label in rows} <= set(by_id):
            raise Malformed(f"the classes of {split}{year}.json are not numbered from 0 as its categories are")
        ordered = [by_id[number] for number in range(len(by_id))]
        names = [str(category["name"]) for category in ordered]
        levels = {level: tuple(str(one[level]) for one in ordered) for level in LEVELS if level in ordered[0]}
        if "supercategory" in ordered[0]:
            levels["supercategory"] = tuple(str(one["supercategory"]) for one in ordered)
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"{split}{year}.json or categories.json lacks what the release has ({error!r})") from error
    if len(set(names)) < len(names):  # species of one name in two genera: the id tells them apart
        names = [f"{number} {name}" for number, name in enumerate(names)]
    return FileSource(
        f"inat{year % 100}", root, [file for file, _ in rows], names, [label for _, label in rows], levels=levels
    )


def _loaded(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path.name} is damaged ({error})") from error


def _set(year: int) -> NamedSet:
    return NamedSet(
        name=f"inat{year % 100}",
        layout=f"train_val{year}/<group>/<class>/<image>.jpg, train{year}.json, val{year}.json,\n"
        "categories.json (for the names and the coarser levels)",
        get=f"iNaturalist {year} competition data, from the visipedia/inat_comp project.",
        splits=("train", "val"),
        looks_like=lambda root: (root / f"train{year}.json").is_file() or (root / f"val{year}.json").is_file(),
        read=_read(year),
    )


SETS = (_set(2018), _set(2019))
