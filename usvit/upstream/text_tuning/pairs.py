"""The texts of a transfer's images: from a table, or from the source itself."""

import logging
from pathlib import Path

import numpy as np

from usvit.data.datasets import ImageText
from usvit.errors import UsvitError
from usvit.files import read_csv, sha256_of_text
from usvit.upstream.config.text import TextConfig
from usvit.upstream.transfer_learning.splits import TransferSplit, TransferSplits
from usvit.wording import plural

logger = logging.getLogger(__name__)

_ADVICE = (
    "Set text.pairs to a CSV with the columns image_id and text, or use a source with texts: phantom, or shards with "
    ".txt files."
)


def texts_of(config: TextConfig, splits: TransferSplits) -> tuple[list[str], list[ImageText] | None]:
    """Return the texts of the training images, and those of the test images, or None if not all of these have one.

    Raises:
        UsvitError: The table cannot be used, or a training image has no text.
    """
    return _matched(config, splits, None if config.pairs is None else _read_pairs(Path(config.pairs)))


def _matched(
    config: TextConfig, splits: TransferSplits, table: dict[str, ImageText] | None
) -> tuple[list[str], list[ImageText] | None]:
    parts = splits.train, splits.test
    names = [] if table is None else [_names_in(table, split) for split in parts]
    if both := sorted(set(names[0]) & set(names[1]) & set(table or {})) if names else []:
        raise UsvitError(
            f"{config.pairs} names {both[0]}, which is an image of the training and another one of the test. Write "
            f"train/{both[0]} and test/{both[0]}."
        )
    if table is None:
        train, test = ([split.source.text(int(row)) for row in split.rows] for split in parts)
    else:
        train, test = ([table.get(name) for name in each] for each in names)
    where = config.pairs or f"the source {splits.train.source.name}"
    if not any(train):
        raise UsvitError(f"No training image has a text in {where}. {_ADVICE}")
    if without := [splits.train.names()[at] for at, one in enumerate(train) if one is None or not one.text.strip()]:
        raise UsvitError(
            f"{len(without)} of {plural(len(train), 'training image')} have no text in {where} ({without[0]}"
            f"{', ...' if len(without) > 1 else ''}). Add their texts, or take these images out of the training."
        )
    found = [one for one in test if one is not None and one.text.strip()]
    return [one.text for one in train if one is not None], found if len(found) == len(test) else None


def check_pairs(config: TextConfig, splits: TransferSplits) -> str:
    """Check the texts before any image is read, and return a hash of them.

    Raises:
        UsvitError: As ``texts_of``.
    """
    table = None if config.pairs is None else _read_pairs(Path(config.pairs))
    train, test = _matched(config, splits, table)
    used = [_names_in(table or {}, split) for split in (splits.train, splits.test)]
    if others := set(table or {}).difference(*used):
        logger.warning(
            f"{plural(len(others), 'row')} of {config.pairs} name no image of the training or the test, such as "
            f"{min(others)}, and are not used."
        )
    return sha256_of_text(str((train, test)))


def _names_in(table: dict[str, ImageText], split: TransferSplit) -> list[str]:
    """Return the name that the table may have for each image: its own, or with ``train/`` or ``test/`` before it."""
    return [long if (long := f"{split.name}/{name}") in table else name for name in split.names()]


def _read_pairs(path: Path) -> dict[str, ImageText]:
    """Read the table of ``text.pairs``.

    Raises:
        UsvitError: The file is no table, lacks a column, or names an image twice.
    """
    table = read_csv(path, follow=True, needed=("image_id", "text"), what="text.pairs")
    if len(twice := table.image_id[table.image_id.duplicated()]):
        raise UsvitError(f"{path} has two rows for the image {twice.iloc[0]}. Keep one text of each image.")
    kinds = [name for name in table.columns if name not in ("image_id", "text")]
    values = table[kinds].to_numpy(dtype=np.str_)
    return {
        name: ImageText(text, {kind: value for kind, value in zip(kinds, row.tolist(), strict=True) if value.strip()})
        for name, text, row in zip(table.image_id, table.text, values, strict=True)
    }
