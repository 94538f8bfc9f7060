"""The finished runs of a study as candidates that can be compared in the same folds."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from usvit.data.splits import folds_sha256
from usvit.errors import UsvitError
from usvit.experiments import KINDS, Member, open_member, refuse_other_folds
from usvit.upstream.records.best import LeftOutRun
from usvit.upstream.records.study import StudyRecord, StudyRun


@dataclass(frozen=True)
class StudyCandidate:
    """A configuration of the study: one run, or one run for each seed if the seeds have different folds."""

    name: str
    ids: tuple[str, ...]
    members: tuple[Member, ...]
    """Its runs, in the order of the sets of folds."""

    @property
    def parameters(self) -> int:
        return self.members[0].record.model.params or 0

    @property
    def table(self) -> pd.DataFrame:
        """Predictions of all its runs; the folds of later ones are further repeats."""
        tables, n_folds, n_repeats = [], 0, 0
        for member in self.members:
            own = member.predictions.table
            repeat = own["repeat"] if "repeat" in own else pd.Series(0, own.index)
            numbered = own.assign(fold=own["fold"] + n_folds, repeat=repeat + n_repeats)
            tables.append(numbered)
            n_folds, n_repeats = int(numbered["fold"].max()) + 1, int(numbered["repeat"].max()) + 1
        table = pd.concat(tables, ignore_index=True)
        return table if n_repeats > 1 else table.drop(columns="repeat")


@dataclass(frozen=True)
class _Found:
    """A finished run of the study."""

    run: StudyRun
    member: Member
    folds: str
    """SHA-256 of its folds."""

    @property
    def configuration(self) -> str:
        """Its settings without the seed."""
        settings = {key: value for key, value in self.run.config.items() if key != "seed"}
        return json.dumps(settings, sort_keys=True)


def find_candidates(folder: Path, record: StudyRecord) -> tuple[list[StudyCandidate], list[LeftOutRun]]:
    """Open the finished classifiers of a study.

    Args:
        folder: Folder of the study.
        record: Its ``study.json``.

    Returns:
        The candidates, at least two, and the runs that are left out, each with the reason.

    Raises:
        UsvitError: There are fewer than two candidates; the runs have different folds, and are not the seeds of the
            same configurations; or a run was changed.
        LeakageError: A network was trained on one of its test images.
    """
    found, left_out = [], []
    for run in record.runs:
        if run.kind not in KINDS:
            reason = f"a run of usvit {run.kind} has no classifier of these images"
            left_out.append(LeftOutRun(run=run.id, reason=reason))
        elif run.state != "finished":
            left_out.append(LeftOutRun(run=run.id, reason=f"it is not finished ({run.state})"))
        else:
            member = open_member(Path(os.path.normpath(folder / record.runs_folder / run.id)))
            found.append(_Found(run, member, folds_sha256(member.folds)))
    if len(found) < 2:
        raise UsvitError(
            f"The study {folder} has {len(found)} finished runs of usvit cv or train, and a choice needs two. Give its "
            "command again to finish it."
        )
    first: dict[str, _Found] = {}
    for one in found:
        refuse_other_folds(first.setdefault(one.folds, one).member, one.member)
    if len(first) == 1:
        return [StudyCandidate(one.run.id, (one.run.id,), (one.member,)) for one in found], left_out
    candidates, lacking = _of_seeds(found, list(first.values()))
    return candidates, [*left_out, *lacking]


def _of_seeds(found: Sequence[_Found], first: Sequence[_Found]) -> tuple[list[StudyCandidate], list[LeftOutRun]]:
    """Join the seeds of each configuration, which have different folds, as repeats of one cross-validation.

    Args:
        found: The finished runs.
        first: The first run of each set of folds.
    """
    candidates, left_out = [], []
    for configuration in dict.fromkeys(one.configuration for one in found):
        own = [one for one in found if one.configuration == configuration]
        by_folds = {one.folds: one for one in own}
        if len(by_folds) == len(own) == len(first):
            runs = [by_folds[one.folds] for one in first]
            name = runs[0].run.id.removesuffix(f"-seed{runs[0].run.seed}")
            candidates.append(
                StudyCandidate(name, tuple(one.run.id for one in runs), tuple(one.member for one in runs))
            )
        else:
            reason = f"it has {len(own)} finished runs on {len(by_folds)} of {len(first)} sets of folds"
            left_out += [LeftOutRun(run=one.run.id, reason=reason) for one in own]
    if len(candidates) < 2:
        one, other = first[0].member, first[1].member
        try:
            refuse_other_folds(one, other)
            said = ""
        except UsvitError as error:
            said = f" {error}"
        raise UsvitError(
            f"The runs of the study have {len(first)} different sets of folds, and fewer than two configurations have "
            "one run on each, so that there is nothing to choose between. Finish the missing seeds, or give all runs "
            f"the same folds (data.split_seed, split.file).{said}"
        )
    images = [set(zip(one.member.folds["dataset"], one.member.folds["image_id"], strict=True)) for one in first]
    if any(one != images[0] for one in images[1:]):
        raise UsvitError(
            "The runs of the study are of different images, so that their figures cannot be averaged over the sets of "
            "folds. Choose within one data set: a study with one data set."
        )
    return candidates, left_out
