"""The sets of a measurement of shift: opened, joined to one manifest, and refused if they overlap."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config import DataConfig
from usvit.data.datasets import Manifest, card_names, datasets_of, keep_only, open_manifest, same_images
from usvit.data.near_duplicates import find_near_duplicates_between
from usvit.data.splits import OwnIds, described_among, joined
from usvit.errors import LeakageError, UsvitError
from usvit.progress import Progress
from usvit.records import PhantomRecord, load_record

_MOST_SETS = 20
_LEAST_GROUPS = 5
"""Fewest groups (patients) with a positive image, and without one, of each set."""
PHANTOM = "phantom"
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_NOT_BY = frozenset(
    {
        *("image_id", "path", "frame", "label", "patient_id", "group_id", "mask_path", "sha256", "phash"),
        *("birads", "pixel_spacing_mm", "official_folds", "exclude_reason"),
    }
)


@dataclass(frozen=True)
class Source:
    """Images that the user named: ``NAME=SOURCE``, or ``SOURCE`` alone."""

    name: str
    given: str
    renamed: bool
    """Its data set gets the name, so that several sources may have the same data card."""
    data: DataConfig
    roots: dict[str, Path]


@dataclass(frozen=True)
class JoinedSets:
    """All sets in one manifest, without overlap."""

    manifest: Manifest
    set_of: NDArray[np.object_]
    """(n,) the set of each row of the manifest's table."""
    names: tuple[str, ...]
    cards: Mapping[str, str]
    """Name of a data set in the manifest -> name by its data card, by which published lists know it."""

    def table(self) -> pd.DataFrame:
        """Return the usable rows with the further column ``set``."""
        table = self.manifest.table.assign(set=self.set_of)
        return table[table.exclude_reason.isna()].reset_index(drop=True)

    def only(self, *names: str) -> Manifest:
        """Return the manifest of some of the sets."""
        chosen = np.isin(self.set_of.astype(str), names)
        table = self.manifest.table[chosen].reset_index(drop=True)
        roots = {name: root for name, root in self.manifest.roots.items() if (table.dataset == name).any()}
        return dataclasses.replace(
            self.manifest,
            table=table,
            roots=roots,
            licenses={name: self.manifest.licenses[name] for name in roots},
            identities={name: one for name, one in self.manifest.identities.items() if name in roots},
        )


def parse_sources(texts: Sequence[str], data: DataConfig, roots: Mapping[str, Path]) -> list[Source]:
    """Parse what the user named.

    Args:
        texts: names of data cards (or several joined by '+'), files of cards, manifests or folders; each may have a
            name in front, as in ``a=phantoms/a``.
        data: settings for reading them.
        roots: data set -> folder; the key "" holds the folder for all others.

    Raises:
        UsvitError: A source does not exist, or two sets have the same name.
    """
    found = [_parse(text, data, dict(roots)) for text in texts]
    names = [one.name for one in found]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsvitError(f"Two sets are called '{twice}'. Give them different names: a=SET b=SET.")
    return found


def _parse(text: str, data: DataConfig, roots: dict[str, Path]) -> Source:
    name, equals, rest = text.partition("=")
    named = bool(equals) and _NAME.fullmatch(name) is not None and not Path(text).exists()
    if not named:
        name, rest = "", text
    path = Path(rest)
    known = card_names()
    if all(part in known or part.endswith(".md") for part in rest.split("+")):
        own = "+".join(Path(part).stem for part in rest.split("+"))
        return Source(name or own, rest, named, data.model_copy(update={"dataset": rest}), roots)
    if path.suffix == ".parquet":
        settings = data.model_copy(update={"dataset": datasets_of(path), "manifest": rest})
        return Source(name or _plain(path.stem), rest, True, settings, roots)
    if path.is_dir():
        card = PHANTOM if (path / "phantom.csv").is_file() else "folder"
        settings = data.model_copy(update={"dataset": card})
        return Source(name or _plain(path.absolute().name), rest, True, settings, {card: path})
    raise UsvitError(
        f"'{text}' is not a set: it is neither the name of a data card ('usvit data list'), nor the file of a card "
        "(.md) or of a manifest (.parquet), nor a folder of images. Write NAME=SET to name a set."
    )


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9_-]+", "-", text.lower()).strip("-_") or "set"


def open_sets(
    sources: Sequence[Source], by: str | None, progress: Progress, *, keep_list: str | None = None
) -> JoinedSets:
    """Open all sources, join them and check that the sets can be compared.

    Args:
        sources: the sources, each of which is a set, unless ``by`` is given.
        by: column of the manifests whose values are the sets.
        progress: shown while files are decoded.
        keep_list: CSV of the images to use, by the names of the data sets after renaming.

    Raises:
        LeakageError: Two sets share an image, a near-duplicate or a patient.
        UsvitError: There are fewer than two sets, they have different classes, a set has too few patients of a side, or
            the column is missing or empty.
    """
    if by is None and len(sources) < 2:
        raise UsvitError(
            "Shift is measured between sets, and only one is named. Name at least two (usvit study shift A B), or a "
            "column whose values are the sets (--by device)."
        )
    opened = [open_manifest(one.data, one.roots, progress) for one in sources]
    _refuse_other_classes(sources, opened)
    _refuse_same_patients(sources, opened)
    renamed = [_renamed(one, manifest) for one, manifest in zip(sources, opened, strict=True)]
    names = [name for manifest in renamed for name in manifest.roots]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UsvitError(f"The data set '{twice}' is in two sets. Leave one out, or give them names: a=SET b=SET.")
    cards = {
        new: old
        for after, before in zip(renamed, opened, strict=True)
        for new, old in zip(after.roots, before.roots, strict=True)
    }
    _refuse_same_cards(cards)
    manifest = _joined(renamed) if keep_list is None else keep_only(_joined(renamed), Path(keep_list))
    of_source = np.repeat([one.name for one in sources], [len(one.table) for one in renamed]).astype(object)
    set_of = of_source if by is None else _values_of(manifest.table, by)
    found = JoinedSets(manifest, set_of, tuple(dict.fromkeys(set_of[manifest.table.exclude_reason.isna()])), cards)
    _check_sizes(found, by)
    _refuse_overlap(found, by, progress)
    return found


def _values_of(table: pd.DataFrame, by: str) -> NDArray[np.object_]:
    possible = [name for name in table.columns if name not in _NOT_BY and table[name].nunique() > 1]
    if by not in table or by in _NOT_BY or table[by].isna().all():
        have = ", ".join(possible) or "none"
        raise UsvitError(
            f"--by {by}: these images have no such column to divide them by; columns with several values: {have}."
        )
    usable = table.exclude_reason.isna()
    if missing := int((table[by].isna() & usable).sum()):
        raise UsvitError(
            f"--by {by}: {missing} of {int(usable.sum())} images have no {by}. Leave them out with a keep-list "
            "(--set data.keep_list=FILE), or fill the column in."
        )
    return table[by].fillna("").astype(str).to_numpy(object)


def _renamed(source: Source, manifest: Manifest) -> Manifest:
    """Give the data sets of a manifest the name of the set, also in the ids of their groups."""
    if not source.renamed:
        return manifest
    alone = len(manifest.roots) == 1
    new = {old: source.name if alone else f"{source.name}-{old}" for old in manifest.roots}
    table = manifest.table.copy()

    def group(text: str) -> str:
        kind, _, rest = text.partition(":")
        old = next((old for old in new if rest.startswith(f"{old}:")), None)
        return text if old is None or kind == "copies" else f"{kind}:{new[old]}:{rest.removeprefix(f'{old}:')}"

    table["group_id"] = table.group_id.map(group)
    table["dataset"] = table.dataset.map(new)
    return dataclasses.replace(
        manifest,
        table=table,
        roots={new[old]: root for old, root in manifest.roots.items()},
        licenses={new[old]: text for old, text in manifest.licenses.items()},
        identities={new[old]: one for old, one in manifest.identities.items()},
        own_ids=OwnIds({(new[old], own): ours for (old, own), ours in manifest.own_ids.ids.items()}),
    )


def _joined(manifests: Sequence[Manifest]) -> Manifest:
    first = manifests[0]
    return Manifest(
        pd.concat([one.table for one in manifests], ignore_index=True),
        {name: root for one in manifests for name, root in one.roots.items()},
        first.classes,
        first.positive_class,
        {name: text for one in manifests for name, text in one.licenses.items()},
        descriptions={key: found for one in manifests for key, found in one.descriptions.items()},
        identities={name: found for one in manifests for name, found in one.identities.items()},
        own_ids=OwnIds({key: ours for one in manifests for key, ours in one.own_ids.ids.items()}),
    )


def _refuse_other_classes(sources: Sequence[Source], opened: Sequence[Manifest]) -> None:
    for source, one in zip(sources[1:], opened[1:], strict=True):
        first = opened[0]
        if set(one.classes) != set(first.classes):
            common = [label for label in first.classes if label in one.classes]
            advice = (
                f" To compare them on the classes that they share, pass --set data.classes=[{','.join(common)}]."
                if len(common) > 1
                else ""
            )
            raise UsvitError(
                f"The sets have different classes: {sources[0].name} has {', '.join(first.classes)}, and {source.name} "
                f"has {', '.join(one.classes)}.{advice}"
            )
        if one.positive_class != first.positive_class:
            raise UsvitError(
                f"The sets have different positive classes: '{first.positive_class}' in {sources[0].name}, and "
                f"'{one.positive_class}' in {source.name}. State the same positive_class in their data cards."
            )


def _check_sizes(sets: JoinedSets, by: str | None) -> None:
    what = "sets" if by is None else f"values of {by}"
    if not 2 <= len(sets.names) <= _MOST_SETS:
        there = f"only one ('{sets.names[0]}')" if len(sets.names) < 2 else str(len(sets.names))
        raise UsvitError(f"Shift is measured between 2 to {_MOST_SETS} {what}, and there is {there}.")
    table = sets.table()
    for name in sets.names:
        rows = table[table.set == name]
        positive = rows.label == sets.manifest.positive_class
        n_positive, n_negative = rows.group_id[positive].nunique(), rows.group_id[~positive].nunique()
        if min(n_positive, n_negative) < _LEAST_GROUPS:
            kind = "set" if by is None else by
            raise UsvitError(
                f"The {kind} '{name}' has {n_positive} patients (or groups) with an image of class "
                f"'{sets.manifest.positive_class}' and {n_negative} with another one; at least {_LEAST_GROUPS} of each "
                "are needed to test on it. Leave it out, or join it with a similar one."
            )


def _refuse_same_cards(cards: Mapping[str, str]) -> None:
    same = same_images("+".join(dict.fromkeys(cards.values())))
    for one, other in itertools.permutations(cards.values(), 2):
        if other in same.get(one, ()):
            raise LeakageError(
                f"{one} and {other} contain the same images (data card '{one}'), so one is not a test set of the "
                "other. Use only one of them."
            )


def _refuse_same_patients(sources: Sequence[Source], opened: Sequence[Manifest]) -> None:
    """Refuse sets of one data card that share patients; the ids of other cards do not mean the same people."""
    for (a, first), (b, second) in itertools.combinations(zip(sources, opened, strict=True), 2):
        for card in first.roots.keys() & second.roots.keys():
            if card == PHANTOM:
                if _phantom_seed(first) is not None and _phantom_seed(first) == _phantom_seed(second):
                    raise LeakageError(
                        f"{a.name} and {b.name} are phantoms of the same seed ({_phantom_seed(first)}), so they have "
                        "the same patients. Make one of them with another --seed."
                    )
                continue
            shared = _patients(first, card) & _patients(second, card)
            if shared:
                raise LeakageError(
                    f"{a.name} and {b.name} share {len(shared)} patients of {card}. Networks that were trained on one "
                    "would be tested on patients of their training. Leave these patients out of one of the sets "
                    "(--set data.keep_list=FILE)."
                )


def _patients(manifest: Manifest, card: str) -> set[str]:
    rows = manifest.usable
    return set(rows.patient_id[rows.dataset == card].dropna())


def _phantom_seed(manifest: Manifest) -> int | None:
    file = manifest.roots[PHANTOM] / "phantom.json"
    return load_record(file, PhantomRecord).spec.seed if file.is_file() else None


def _refuse_overlap(sets: JoinedSets, by: str | None, progress: Progress) -> None:
    table = sets.table()
    advice = "Leave them out of one of the sets (--set data.keep_list=FILE)."
    groups = table.groupby("group_id").set.nunique()
    if crossing := sorted(groups[groups > 1].index):
        what = "two sets" if by is None else f"two values of {by}"
        raise LeakageError(
            f"{len(crossing)} groups (patients, or near-duplicates of one image) have images in {what}: "
            f"{', '.join(crossing[:5])}{', ...' if len(crossing) > 5 else ''}. Networks that were trained on one would "
            f"be tested on patients of their training. {advice}"
        )
    described = {
        name: described_among(sets.manifest.descriptions, table.sha256[table.set == name])[0] for name in sets.names
    }
    for one, other in itertools.combinations(sets.names, 2):
        first, second = list(described[one]), list(described[other])
        pairs = find_near_duplicates_between(
            joined(described[one]).images, joined(described[other]).images, progress, images=len(first) + len(second)
        )
        if pairs:
            hashes = {name: dict(zip(table.sha256, table.image_id, strict=True)) for name in (one, other)}
            example = f"'{hashes[one][first[pairs[0].first]]}' and '{hashes[other][second[pairs[0].second]]}'"
            identical = sum(pair.kind == "identical" for pair in pairs)
            raise LeakageError(
                f"{one} and {other} share images: {len(pairs)} pairs of near-duplicates, "
                f"{identical} of them with identical pixels, such as {example}. {advice}"
            )
