"""From ``source.*`` of a configuration to images: by name, in splits, limited, coarsened, joined."""

from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from usvit.config import SourceConfig
from usvit.data.sources.catalog import DATA, SOURCES, TORCHVISION
from usvit.errors import UsvitError, unknown
from usvit.seeding import derive_seed

if TYPE_CHECKING:  # imported where they are needed: the list of names comes without them
    from usvit.data.sources.named_set import NamedSet
    from usvit.data.sources.source import Source

GENERATED = ("fractals", "phantom")
BY_PATH = ("folder", "unlabeled", "shards")
_FAMILIES = ("imagenet", "cifar", "fine_grained", "inaturalist", "kitti", "vtab")

__all__ = ["SOURCES", "named_sets", "open_source", "open_training"]


def open_source(
    config: SourceConfig, roots: dict[str, Path], *, split: str, seed: int, data: "Source | None" = None
) -> "Source":
    """The images of one split.

    Args:
        config: ``name`` (several joined by '+' are unlabelled together), ``path``, ``coarse``, and what generated
            sources need.
        roots: name -> folder of a data set; the key "" holds the folder given for all.
        split: the part; several of one source joined by '+': ``train+val``. Of ``shards``, ``train`` is all of
            ``source.path``, and any other split is itself the address of shards.
        seed: of generated images.
        data: what ``data`` stands for: the training images of a fold.

    Raises:
        UsvitError: an unknown name or split; files that are missing or of another layout; labels that do not fit.
    """
    from usvit.data.sources.combine import Joined, coarsened

    names = config.name.split("+")
    for name in names:
        if name not in SOURCES and not name.startswith(TORCHVISION):
            raise unknown("source", name, SOURCES, "'usvit pretrain --list-sources' lists them.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsvitError(f"source.name is '{config.name}': {twice[0]} stands there twice.")
    if len(with_path := [name for name in names if name in BY_PATH]) > 1:
        raise UsvitError(f"source.name joins {' and '.join(with_path)}, but there is only one source.path.")
    if config.path is not None and not with_path:
        raise UsvitError(
            f"source.path is set, but {config.name} is not read from it: a data set's folder is given by --data-root."
        )
    parts = [_open_splits(config, name, roots, split, seed, data) for name in names]
    source: Source = parts[0] if len(parts) == 1 else Joined(config.name, parts, labelled=False)
    return coarsened(source, config.coarse) if config.coarse is not None else source


def open_training(
    config: SourceConfig, roots: dict[str, Path], *, seed: int, data: "Source | None" = None
) -> "tuple[Source, Source | None]":
    """What a training learns from, and what it is validated on.

    Args:
        config: ``split`` and ``limit`` of the training; ``val`` (a split) or ``val_share`` of the validation.
        roots, data: as ``open_source``'s.
        seed: draws what is kept back and what a limit leaves.

    Returns:
        Training and validation; the second is None where nothing is said of it. Its labels are counted as the
        training's are, whatever classes it lacks.

    Raises:
        UsvitError: as ``open_source``; or both ``val`` and ``val_share`` are given.
    """
    from usvit.data.sources.combine import aligned, keep_back, limited

    if config.val is not None and config.val_share:
        raise UsvitError("source.val and source.val_share are both set: set one of them.")
    if config.val is not None and set(config.val.split("+")) & set(config.split.split("+")):
        raise UsvitError(
            f"source.val '{config.val}' and source.split '{config.split}' share images: validate on others."
        )
    training: Source = open_source(config, roots, split=config.split, seed=seed, data=data)
    validation: Source | None = None
    if config.val is not None:
        validation = open_source(config, roots, split=config.val, seed=seed, data=data)
        validation = aligned(validation, training.classes, "the training")
    elif config.val_share:
        generator = np.random.default_rng(derive_seed(seed, "source", "val"))
        training, validation = keep_back(training, config.val_share, generator)
    if config.limit is not None:
        generator = np.random.default_rng(derive_seed(seed, "source", "limit"))
        training = limited(training, config.limit, generator)
    return training, validation


def named_sets(names: Iterable[str] | None = None) -> "dict[str, NamedSet]":
    """The data sets that are read from disk by name."""
    sets: dict[str, NamedSet] = {}
    for family in _FAMILIES:
        sets |= {one.name: one for one in import_module(f"usvit.data.sources.{family}").SETS}
    return sets if names is None else {name: sets[name] for name in names}


def _open_splits(
    config: SourceConfig, name: str, roots: dict[str, Path], split: str, seed: int, data: "Source | None"
) -> "Source":
    from usvit.data.sources.combine import Joined, aligned

    splits = split.split("+")
    if len(splits) == 1 or name == "shards":
        return _open_one(config, name, roots, split, seed, data)
    if len(set(splits)) < len(splits):
        raise UsvitError(f"The split '{split}' names a part twice.")
    parts = [_open_one(config, name, roots, one, seed, data) for one in splits]
    classes = max((part.classes for part in parts), key=len)
    parts = [aligned(part, classes, splits[0]) for part in parts]
    return Joined(name, parts, labelled=bool(classes))


def _open_one(
    config: SourceConfig, name: str, roots: dict[str, Path], split: str, seed: int, data: "Source | None"
) -> "Source":
    if name == DATA:
        if data is None:
            raise UsvitError("The source 'data' needs a data set: pass --dataset, and --data-root to its folder.")
        return data
    if name in GENERATED:
        from usvit.data.sources.generated import open_generated

        return open_generated(config.model_copy(update={"name": name, "path": None}), split=split, seed=seed)
    if name in BY_PATH:
        return _open_path(config, name, split)
    if name.startswith(TORCHVISION):
        from usvit.data.sources.torchvision_sets import open_torchvision

        return open_torchvision(name, roots, split)
    from usvit.data.sources.named_set import open_named

    return open_named(named_sets()[name], roots, split)


def _open_path(config: SourceConfig, name: str, split: str) -> "Source":
    if config.path is None:
        example = "train-{0000..0146}.tar" if name == "shards" else "DIR"
        raise UsvitError(f"The source '{name}' needs source.path: --set source.path={example}.")
    if name == "shards":
        from usvit.data.sources.shards import open_shards

        if split != "train" and ".tar" not in split:
            raise UsvitError(
                f"Shards have no split '{split}': set {'test' if split == 'test' else 'source.val'} to the address of "
                f"{'other' if split == 'test' else 'the validation'} shards, such as val-{{0000..0006}}.tar"
                f"{'' if split == 'test' else ', or keep images back with source.val_share'}."
            )
        return open_shards(config.path if split == "train" else split)
    from usvit.data.sources.folder import open_folder, open_unlabeled

    return (open_folder if name == "folder" else open_unlabeled)(Path(config.path).expanduser(), split)
