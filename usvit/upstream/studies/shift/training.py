"""The training for each left-out set: an ordinary cross-validation or hold-out of the other sets, as runs of a study.

The inputs of a run (its manifest and its folds) are named after their content, and so is the run. Therefore two
measurements with the same folder of runs share equal runs, and an interrupted one is resumed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from usvit.config import RunConfig, identity
from usvit.data.datasets import Manifest, same_images, write_manifest
from usvit.data.splits import (
    described_among,
    folds_sha256,
    make_folds,
    names_with_same_images,
    refuse_contaminated,
    refuse_seen,
    seen_by_weights,
    together,
)
from usvit.errors import UsvitError
from usvit.files import for_the_owner_alone, sha256_of_text, write_csv
from usvit.models import find_model, resolve_weights
from usvit.records import ContaminationRecord
from usvit.upstream.studies.plan import PlannedRow, PlannedRun, StudyPlan
from usvit.upstream.studies.shift.sets import JoinedSets
from usvit.upstream.studies.specification import FigureColumn, Row, Step, StudyConfig

Kind = Literal["cv", "train"]
_KEY = ["dataset", "image_id"]


@dataclass(frozen=True)
class LeftOut:
    """One set that is left out, and the training on the others."""

    name: str
    trained_on: tuple[str, ...]
    sources: Manifest
    folds: pd.DataFrame
    target: Manifest
    run: PlannedRun
    file: str
    """Stem of the file of the predictions for the left-out set."""


def check_weights(config: RunConfig, sets: JoinedSets) -> tuple[ContaminationRecord, ...]:
    """Refuse initial weights that have seen one of the images, or one of the data sets by a published list.

    Every image is tested in some training, so all of them count.

    Returns:
        Contamination that the user allowed.

    Raises:
        LeakageError: The weights have seen them.
    """
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    seen = together(seen_by_weights(weights.of_fold(fold)) for fold in range(max(1, len(weights.folds))))
    who = f"The network of --weights {config.model.weights}"
    cards = list(dict.fromkeys(sets.cards.values()))
    found = refuse_contaminated(
        names_with_same_images(cards, same_images("+".join(cards))),
        {who: seen.collections},
        allow=config.allow_contaminated,
    )
    rows = sets.table()
    copies = seen.copies_among(described_among(sets.manifest.descriptions, rows.sha256)[0])
    refuse_seen(rows, seen, who, copies=copies)
    return found


def leave_each_out(sets: JoinedSets, config: RunConfig, kind: Kind, runs: Path) -> list[LeftOut]:
    """Plan the training for each left-out set.

    The folds are made once for all images, and each training keeps those of its own images. So an image is held out
    from the same fold in each training that contains its set, and networks are compared on the same images.

    Args:
        sets: the sets.
        config: settings of the runs.
        kind: ``cv`` for cross-validations, ``train`` for hold-outs.
        runs: folder of the runs.

    Raises:
        UsvitError: The folds cannot be made, or leave a class out.
    """
    _refuse_splits(config)
    table = sets.table()
    # Strata are class x data set, so the sets take the place of the data sets; ids must stay unique.
    stand_in = table.assign(dataset=table.set, image_id=table.dataset + "/" + table.image_id)
    joint = make_folds(kind, stand_in, config.split, config.split_seed)
    joint[_KEY] = joint.image_id.str.split("/", n=1, expand=True).to_numpy()
    joint = joint.merge(table[[*_KEY, "set", "label"]], on=_KEY, how="left")
    stems = _stems(sets.names)
    found = []
    for name in sets.names:
        others = tuple(one for one in sets.names if one != name)
        own = joint[joint.set != name].reset_index(drop=True)
        _check_parts(own, name, sets.manifest)
        sources, target = sets.only(*others), sets.only(name)
        folds = own[[*_KEY, "fold", "part"]]
        hashes = {"manifest": sources.sha256(), "folds": folds_sha256(folds)}
        settings = _run_settings(config, sources, hashes, runs)
        compared = {key: value for key, value in identity(settings).items() if not _is_path(key)}
        digest = sha256_of_text(json.dumps([kind, hashes, sorted(compared.items())]))[:8]
        run = PlannedRun(f"without-{stems[name]}-{digest}", kind, config.seed, settings, settings)
        file = f"{stems[name]}-{sha256_of_text(f'{run.id} {target.sha256()}')[:8]}"
        found.append(LeftOut(name, others, sources, folds, target, run, file))
    return found


def write_inputs(left_out: Sequence[LeftOut]) -> None:
    """Write the manifest and the folds of each training, as its configuration names them."""
    for one in left_out:
        data, split = one.run.config["data"], one.run.config["split"]
        write_manifest(one.sources, Path(data["manifest"]))
        with for_the_owner_alone(one.sources.is_private):
            write_csv(Path(split["file"]), one.folds)


def study_of(left_out: Sequence[LeftOut], config: RunConfig, kind: Kind, by: str | None) -> StudyPlan:
    """Return the study whose rows are the trainings."""
    what = "set" if by is None else by
    study = StudyConfig(
        name="shift",
        title=f"Trainings with one {what} left out",
        columns={"auc": FigureColumn(figure="auc.positive", title="AUC on held-out images of the other sets")},
        seeds=(config.seed,),
        rows=tuple(Row(name=f"without {one.name}", steps={kind: Step(run=kind)}) for one in left_out),
        notes=("The figures on the left-out sets are in shift.html.",),
    )
    rows = tuple(
        PlannedRow(f"without {one.name}", None, config.model.name, {}, {}, None, {config.seed: {kind: one.run.id}})
        for one in left_out
    )
    return StudyPlan(study, tuple(one.run for one in left_out), rows, (config.seed,))


def _run_settings(config: RunConfig, sources: Manifest, hashes: dict[str, str], runs: Path) -> dict[str, object]:
    """Return the settings of a training: those of the user, with the images and folds of this one."""
    inputs = runs / "inputs"
    whole = config.model_dump(mode="json")
    keep = {key: whole["data"][key] for key in ("split_seed", "keep_ids", "cache")}
    data = {"dataset": "+".join(sources.roots), "manifest": str(inputs / f"{hashes['manifest'][:16]}.parquet"), **keep}
    split = {**whole["split"], "file": str(inputs / f"{hashes['folds'][:16]}.csv")}
    return RunConfig.model_validate({**whole, "data": data, "split": split}).model_dump(mode="json")


def _is_path(key: str) -> bool:
    return key in ("data.manifest", "split.file")


def _refuse_splits(config: RunConfig) -> None:
    split = config.split
    for key, wrong, why in (
        ("file", split.file is not None, "the folds are made for all sets together"),
        ("unit", split.unit != "group", "a split by image leaks"),
        ("repeats", split.repeats != 1, "each training is made once"),
        ("scheme", split.scheme in ("by_dataset", "by_device"), "the sets are left out by the study itself"),
    ):
        if wrong:
            raise UsvitError(
                f"split.{key}={getattr(split, key)} does not go with 'usvit study shift': {why}. Leave it out."
            )


def _check_parts(folds: pd.DataFrame, left_out: str, manifest: Manifest) -> None:
    """Check that each split has what it needs once a set is left out: all classes to train, both sides to test."""
    for (fold, part), rows in folds.groupby(["fold", "part"]):
        labels = set(rows.label)
        lacking = [label for label in manifest.classes if label not in labels] if part == "train" else []
        if not lacking:
            sides = {label == manifest.positive_class for label in labels}
            lacking = [] if len(sides) == 2 else ["one side of the positive class"]
        if lacking:
            raise UsvitError(
                f"Without {left_out}, the {part} split of fold {fold} has no image of {lacking[0]}: the other sets are "
                "too small. Lower split.folds, join sets, try another data.split_seed, or leave the class out "
                "(data.classes)."
            )


def _stems(names: Sequence[str]) -> dict[str, str]:
    """Return a file name for each set, which may be the name of any device."""
    plain = {name: re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60] or "set" for name in names}
    stems = list(plain.values())
    return {
        name: stem if stems.count(stem) == 1 else f"{stem}-{number}"
        for number, (name, stem) in enumerate(plain.items(), start=1)
    }
