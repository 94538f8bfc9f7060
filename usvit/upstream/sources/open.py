"""Open the sources that ``source.*`` of a configuration names: splits, limits, coarser classes, unions."""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from usvit.data.datasets import (
    ConcatDataset,
    LabelledByImage,
    Relabelled,
    Subset,
    UpstreamDataset,
    draw,
)
from usvit.errors import UsvitError, unknown
from usvit.files import read_csv
from usvit.seeding import derive_seed
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.catalog import DATA, GENERATED, SOURCES, TORCHVISION

if TYPE_CHECKING:  # modules of single sources are imported when they are needed
    from usvit.upstream.sources.named_set import NamedSet

BY_PATH = ("folder", "unlabeled", "shards")
_FAMILIES = ("imagenet", "robustness_sets", "transfer_sets", "vtab")

_TESTED = ("test", "val")
"""Splits that are tested if none is named, the first that there is."""
_SAME_IMAGES = frozenset({"imagenet", "imagenet_real"})
"""Sources whose splits of the same name have the same images, under other labels."""

__all__ = [
    "SOURCES",
    "name_and_split",
    "named_sets",
    "open_source",
    "open_training",
    "shared_splits",
    "tested_splits",
]


def open_source(
    config: SourceConfig, roots: dict[str, Path], *, split: str, seed: int, data: UpstreamDataset | None = None
) -> UpstreamDataset:
    """Open the images of one split.

    Args:
        config: ``name`` (several joined by '+' are unlabelled together), ``path``, ``coarse``, and what generated
            sources need.
        roots: name -> folder of a data set; the key "" holds the folder given for all.
        split: the split; several of one source are joined by '+': ``train+val``. For ``shards``, ``train`` is all of
            ``source.path``, and any other split is itself the address of shards.
        seed: seed of generated images.
        data: the images that the source ``data`` stands for: the training images of a fold.

    Raises:
        UsvitError: A name or split is unknown, files are missing or have another layout, or labels do not fit.
    """
    check_source(config)
    names = config.name.split("+")
    parts = [_open_splits(config, name, roots, split, seed, data) for name in names]
    source: UpstreamDataset = parts[0] if len(parts) == 1 else ConcatDataset(config.name, parts, labelled=False)
    if config.labels is not None:
        if config.coarse is not None:
            raise UsvitError("source.labels and source.coarse are both set: set one of them.")
        return labelled_by(source, Path(config.labels), split)
    return coarsened(source, config.coarse) if config.coarse is not None else source


def check_source(config: SourceConfig) -> None:
    """Check the names of a source and its path, which takes no time.

    Raises:
        UsvitError: A name is unknown or occurs twice, or the path does not belong to exactly one of them.
    """
    names = config.name.split("+")
    for name in names:
        if name not in SOURCES and not name.startswith(TORCHVISION):
            raise unknown("source", name, SOURCES, "'usvit pretrain --list-sources' lists them.")
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsvitError(f"source.name is '{config.name}', which contains {twice[0]} twice. Remove one of them.")
    if len(with_path := [name for name in names if name in BY_PATH]) > 1:
        raise UsvitError(
            f"source.name joins {' and '.join(with_path)}, but source.path can only apply to one of them. Remove one."
        )
    if config.path is not None and not with_path:
        raise UsvitError(
            f"source.path is set, but {config.name} does not use it: pass the folder of a data set with --data-root."
        )


def open_training(
    config: SourceConfig, roots: dict[str, Path], *, seed: int, data: UpstreamDataset | None = None
) -> tuple[UpstreamDataset, UpstreamDataset | None]:
    """Open the training images and the validation images of a configuration.

    Args:
        config: ``split`` and ``limit`` of the training; ``val`` (a split, of ``val_source`` if that is set) or
            ``val_share`` of the validation.
        roots, data: see ``open_source``.
        seed: seed of the random choice of validation images and of the limit.

    Returns:
        Training and validation images; the second is None if the configuration asks for no validation. Its labels are
        numbered like those of the training, even if it lacks some classes.

    Raises:
        UsvitError: See ``open_source``; or both ``val`` and ``val_share`` are given.
    """
    if config.val is not None and config.val_share:
        raise UsvitError("source.val and source.val_share are both set: set one of them.")
    if config.val is not None and shared_splits(config, config.val, config.split, of_val=True):
        raise UsvitError(
            f"source.val '{config.val}' and source.split '{config.split}' share images. Set source.val to other splits."
        )
    training: UpstreamDataset = open_source(config, roots, split=config.split, seed=seed, data=data)
    validation: UpstreamDataset | None = None
    if config.val is not None:
        validation = _open_validation(config, roots, seed=seed, data=data)
        validation = aligned(validation, training.classes, "the training")
    elif config.val_share:
        generator = np.random.default_rng(derive_seed(seed, "source", "val"))
        training, validation = keep_back(training, config.val_share, generator)
    if config.limit is not None:
        generator = np.random.default_rng(derive_seed(seed, "source", "limit"))
        training = limited(training, config.limit, generator)
    return training, validation


def shared_splits(config: SourceConfig, first: str, second: str, *, of_val: bool = False) -> set[str]:
    """Return the names of the splits that occur in both, such as in ``train+val`` and ``val``.

    Args:
        config: the source of both.
        first, second: splits, joined by '+'.
        of_val: ``first`` is a split of ``source.val_source``, whose images are other ones unless it is the same source.
    """
    if of_val and config.val_source is not None:
        names = {config.name, config.val_source}
        if len(names) > 1 and names != _SAME_IMAGES:
            return set()
    return set(first.split("+")) & set(second.split("+"))


def _open_validation(
    config: SourceConfig, roots: dict[str, Path], *, seed: int, data: UpstreamDataset | None
) -> UpstreamDataset:
    """Open ``source.val``, a split of ``source.val_source`` if that is set.

    Raises:
        UsvitError: See ``open_source``; or the validation source is not one labelled data set with a name of its own.
    """
    assert config.val is not None
    if config.val_source in (None, config.name):
        return open_source(config, roots, split=config.val, seed=seed, data=data)
    name = str(config.val_source)
    if "+" in name or name in (*BY_PATH, *GENERATED, DATA):
        raise UsvitError(
            f"source.val_source={name} cannot be validated on: name one data set of 'usvit pretrain --list-sources', "
            "such as imagenet_v2. For a folder of your own, let source.val name a folder in source.path."
        )
    other = config.model_copy(update={"name": name, "path": None})
    validation = open_source(other, roots, split=config.val, seed=seed)
    if validation.multi is not None:
        raise UsvitError(
            f"source.val_source={name} has several labels for an image, and validation counts one. Choose another."
        )
    return validation


def named_sets() -> "dict[str, NamedSet]":
    """Return the data sets that are read from disk by name."""
    sets: dict[str, NamedSet] = {}
    for family in _FAMILIES:
        sets |= {one.name: one for one in import_module(f"usvit.upstream.sources.{family}").SETS}
    return sets


def name_and_split(choice: str) -> tuple[str, str | None]:
    """Split ``NAME:SPLIT``; the name of a data set of torchvision has a colon itself.

    Raises:
        UsvitError: The split after the colon is missing.
    """
    prefix = TORCHVISION if choice.startswith(TORCHVISION) else ""
    name, colon, split = choice.removeprefix(prefix).partition(":")
    if colon and not split:
        raise UsvitError(f"--source {choice}: the split after the colon is missing. Write NAME or NAME:SPLIT.")
    return prefix + name, split or None


def tested_splits(name: str, path: str | None = None) -> tuple[str, ...]:
    """Return the splits of a source that are tested if none is named: test, otherwise val, otherwise all.

    Args:
        name: The source.
        path: Folder of ``folder`` and ``unlabeled``.

    Raises:
        UsvitError: The folder is divided into other splits.
    """
    if name in ("folder", "unlabeled") and path is not None:
        from usvit.upstream.sources.folder import split_of_folder

        return (split_of_folder(Path(path).expanduser(), _TESTED),)
    known = named_sets()
    if name not in known:
        return ("train",) if name == "shards" else ("test",)
    preferred = [one for one in _TESTED if one in known[name].splits]
    return tuple(preferred[:1]) or known[name].splits


def _open_splits(
    config: SourceConfig, name: str, roots: dict[str, Path], split: str, seed: int, data: UpstreamDataset | None
) -> UpstreamDataset:
    splits = split.split("+")
    if len(splits) == 1 or name == "shards":
        return _open_one(config, name, roots, split, seed, data)
    if len(set(splits)) < len(splits):
        raise UsvitError(f"The split '{split}' contains the same split twice. Remove one of them.")
    parts = [_open_one(config, name, roots, one, seed, data) for one in splits]
    classes = max((part.classes for part in parts), key=len)
    parts = [aligned(part, classes, splits[0]) for part in parts]
    return ConcatDataset(name, parts, labelled=bool(classes))


def _open_one(
    config: SourceConfig, name: str, roots: dict[str, Path], split: str, seed: int, data: UpstreamDataset | None
) -> UpstreamDataset:
    if name == DATA:
        if data is None:
            raise UsvitError("The source 'data' needs a data set: pass --dataset, and --data-root to its folder.")
        return data
    if name in GENERATED:
        from usvit.upstream.sources.generated import open_generated

        return open_generated(config.model_copy(update={"name": name, "path": None}), split=split, seed=seed)
    if name in BY_PATH:
        return _open_path(config, name, split)
    if name.startswith(TORCHVISION):
        from usvit.upstream.sources.torchvision_sets import open_torchvision

        return open_torchvision(name, roots, split)
    from usvit.upstream.sources.named_set import open_named

    return open_named(named_sets()[name], roots, split)


def _open_path(config: SourceConfig, name: str, split: str) -> UpstreamDataset:
    if config.path is None:
        example = "train-{0000..0146}.tar" if name == "shards" else "DIR"
        raise UsvitError(f"The source '{name}' needs source.path: --set source.path={example}.")
    if name == "shards":
        from usvit.upstream.sources.shards import open_shards

        if split != "train" and ".tar" not in split:
            raise UsvitError(
                f"Shards have no split '{split}': set {'test' if split == 'test' else 'source.val'} to the address of "
                f"{'other' if split == 'test' else 'the validation'} shards, such as val-{{0000..0006}}.tar"
                f"{'' if split == 'test' else ', or hold images out with source.val_share'}."
            )
        return open_shards(config.path if split == "train" else split)
    from usvit.upstream.sources.folder import open_folder, open_unlabeled

    return (open_folder if name == "folder" else open_unlabeled)(Path(config.path).expanduser(), split)


def keep_back(source: UpstreamDataset, share: float, generator: np.random.Generator) -> tuple[Subset, Subset]:
    """Split off a stratified share of the images, at least one, and return (training, validation).

    Raises:
        UsvitError: Nothing would be left to train on.
    """
    count = max(1, round(share * len(source)))
    if count >= len(source):
        raise UsvitError(
            f"source.val_share {share:g} of the {len(source)} images of {source.name} leaves no training images. "
            "Reduce it."
        )
    validation = draw(source, count, generator)
    rest = np.setdiff1d(np.arange(len(source)), validation, assume_unique=True)
    return Subset(source, rest), Subset(source, validation)


def limited(source: UpstreamDataset, limit: int, generator: np.random.Generator) -> UpstreamDataset:
    """Return at most ``limit`` images, drawn at random and stratified by class."""
    return source if limit >= len(source) else Subset(source, draw(source, limit, generator))


def aligned(source: UpstreamDataset, classes: tuple[str, ...], of: str) -> UpstreamDataset:
    """Renumber the labels of a validation source by class name, so that they match those of the training.

    Raises:
        UsvitError: The source has a class that the training does not have, or no classes.
    """
    if source.classes == classes or not classes:
        return source
    number = {label: at for at, label in enumerate(classes)}
    others = [label for label in source.classes if label not in number]
    if others or not source.classes:
        what = f"{len(others)} classes that {of} does not have ({', '.join(others[:5])})" if others else "no labels"
        raise UsvitError(f"The validation images of {source.name} have {what}. Set source.val to a suitable split.")
    return Relabelled(source, classes, np.array([number[label] for label in source.classes]))


def coarsened(source: UpstreamDataset, coarse: str) -> Relabelled:
    """Replace the classes of a source by coarser ones.

    Args:
        source: labelled images.
        coarse: a CSV file with columns ``class`` and ``coarse``, a level that the source knows itself, such as
            ``superclass`` of CIFAR-100 and ``order`` of iNaturalist, or ``all``: one class.

    Raises:
        UsvitError: There is no such file or level, the source has no labels, or a class has no coarse class or two.
    """
    if not source.classes:
        raise UsvitError(f"source.coarse is set, but the images of {source.name} have no labels.")
    if coarse == "all":
        return Relabelled(source, ["all"], np.zeros(len(source.classes), dtype=np.int64))
    names = source.levels.get(coarse) or _coarse_of_file(Path(coarse), source)
    classes, new = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    return Relabelled(source, classes.tolist(), new.astype(np.int64))


def labelled_by(source: UpstreamDataset, path: Path, split: str) -> LabelledByImage:
    """Give each image the label that a CSV file with columns ``image_id`` and ``label`` has for it.

    Args:
        source: images with unique names.
        path: the file; it may have rows for other images.
        split: for error messages.

    Raises:
        UsvitError: The file cannot be read, names an image twice, or lacks one.
    """
    table = read_csv(path, follow=True, needed=("image_id", "label"), what="source.labels")
    if len(twice := table.image_id[table.image_id.duplicated()]):
        raise UsvitError(f"{path} has two rows for the image {twice.iloc[0]}.")
    names = [source.image_name(index) for index in range(len(source))]
    found = table.set_index("image_id").label.reindex(names)
    if found.isna().any():
        raise UsvitError(
            f"{path} has no label for {int(found.isna().sum())} images of the split '{split}' of {source.name} "
            f"({names[int(np.argmax(found.isna()))]}, ...). Use the table of the same images; labels that exist only "
            "for training images need source.val=null."
        )
    classes, targets = np.unique(found.to_numpy(np.str_), return_inverse=True)
    return LabelledByImage(source, classes.tolist(), targets.astype(np.int64))


def _coarse_of_file(path: Path, source: UpstreamDataset) -> tuple[str, ...]:
    if not path.is_file():
        known = f" (its own levels: {', '.join(source.levels)})" if source.levels else ""
        raise UsvitError(f"source.coarse is '{path}', which is neither a file nor a level of {source.name}{known}.")
    table = read_csv(path, follow=True, needed=("class", "coarse"))
    mapping: dict[str, str] = {}
    for name, coarse in zip(table["class"].str.strip(), table["coarse"].str.strip(), strict=True):
        if not name or not coarse:
            raise UsvitError(f"{path} has a row without a class or a coarse class: {name},{coarse}.")
        if mapping.setdefault(name, coarse) != coarse:
            raise UsvitError(f"{path} gives the class '{name}' two coarse classes: {mapping[name]} and {coarse}.")
    if others := [name for name in mapping if name not in source.classes]:
        raise unknown("class", others[0], source.classes, f"It is listed in {path}.")
    if missing := [label for label in source.classes if label not in mapping]:
        raise UsvitError(
            f"{path} has no coarse class for {len(missing)} classes of {source.name}: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}."
        )
    return tuple(mapping[label] for label in source.classes)


def open_named(choice: str | None, path: str | None, roots: dict[str, Path]) -> tuple[str, UpstreamDataset]:
    """Open the images of ``NAME[:SPLIT]``, or those of a folder, and return them with that name.

    Raises:
        UsvitError: The source or split does not exist, or the source is a data card.
    """
    name, split = name_and_split(choice or "unlabeled")
    if name == DATA:
        raise UsvitError(
            "The source data stands for a data card, whose images are explained by a run of usvit cv or train: "
            "usvit explain RUN. For other weights, pass the folder of the images with --path."
        )
    split = split or tested_splits(name, path)[0]
    return f"{name}:{split}", open_source(SourceConfig(name=name, path=path), roots, split=split, seed=0)
