"""The winner among the runs of a study, by nested choice with the one-standard-error rule."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import usvit
from usvit.config.keywords import takes_settings
from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError, unknown
from usvit.evaluation import CandidateScores, Members
from usvit.figure_table import BY_KEY, HEADLINE
from usvit.metrics.fold_figures import FoldFigure
from usvit.metrics.nested_choice import CandidateChoice, NestedChoice, nested_choice, one_standard_error
from usvit.records import load_record, save_record
from usvit.upstream.config.study import ChoiceSettings
from usvit.upstream.records.best import ApparentBest, BestCandidate, BestFold, BestRecord, BestValidation, BestWinner
from usvit.upstream.records.study import StudyRecord
from usvit.upstream.studies.candidates import StudyCandidate, find_candidates

FIGURES = tuple(row.key for row in HEADLINE if row.chooses)
"""Figures by which a winner can be chosen; auc is that of the positive class against the rest."""


@dataclass(frozen=True)
class _Option:
    """A candidate, or the mean of the best ones."""

    name: str
    size: int
    """Number of members; 1 for a single candidate."""
    final: tuple[int, ...]
    """Candidates that it consists of when the inner validation images of all folds choose them."""
    by_fold: Members
    """The same when those of each fold choose them."""


@takes_settings
def best_of_study(study: str | Path, settings: ChoiceSettings) -> BestRecord:
    """Choose the winner among the finished runs of a study, with an honest figure of the choice.

    The figure to report is ``nested``: in each fold, the candidate is chosen on the inner validation images of this
    fold by the one-standard-error rule, and measured on its test images. ``apparent_minus_nested`` is how far the
    best figure on the test images lies above it: by the optimism of choosing on these images, and by the loss from
    choosing on the fewer inner validation images. The winner itself is chosen on the inner validation images of all
    folds: among the candidates within one standard error of the best, the one with the fewest parameters.

    Args:
        study: Folder of a study, or the name of one in ``studies``. Seeds with different folds count as repeats.
        settings: See ``ChoiceSettings``.

    Returns:
        The content of ``best.json``, which is written into the folder of the study.

    Raises:
        UsvitError: The folder holds no study; it has fewer than two finished classifiers, or they have different
            folds; or a figure is undefined on the inner validation images of a fold.
        LeakageError: A network was trained on one of its test images.

    Example:
        >>> import usvit
        >>> best = usvit.best_of_study("studies/small")
        >>> len(best.candidates), best.winner.name in [one.name for one in best.candidates]
        (2, True)
        >>> best.commands[-1].startswith("usvit score --model studies/small/runs/phantom-timm-test_")
        True
    """
    figure, ensembles = settings.figure, settings.ensembles
    if figure not in FIGURES:
        raise unknown("figure", figure, FIGURES)
    folder = _folder_of(study)
    record = load_record(folder / "study.json", StudyRecord)
    candidates, left_out = find_candidates(folder, record)
    predictions = candidates[0].members[0].predictions
    scores = CandidateScores([one.table for one in candidates], predictions.positive, figure)
    lower = BY_KEY[figure].lower_is_better
    sizes = [one.parameters for one in candidates]
    val = [scores.figures("val", scores.of(c)) for c in range(len(candidates))]
    _refuse_undefined(val, scores, figure)
    options = _options(candidates, val, sizes, scores, min(ensembles, len(candidates)), lower)
    parameters = [[sum(sizes[c] for c in own) for own in one.by_fold] for one in options]
    choice = nested_choice(
        [scores.figures("val", one.by_fold) for one in options],
        [scores.figures("test", one.by_fold) for one in options],
        parameters,
        scores.repeat,
        reported=[scores.figures("test", scores.of(*one.final)) for one in options],
        lower_is_better=lower,
    )
    final = one_standard_error(
        [scores.figures("val", scores.of(*one.final)) for one in options],
        [sum(sizes[c] for c in one.final) for one in options],
        scores.repeat,
        lower_is_better=lower,
    )
    tests = [scores.value(scores.of(*one.final)) for one in options]
    winner = options[final.chosen]
    runs = [candidates[c].members[0].path for c in winner.final]
    contamination = dict.fromkeys(
        one for each in candidates for member in each.members for one in member.predictions.contamination
    )
    warning = contamination_warning(list(contamination))
    test = predictions.table[predictions.table["part"] == "test"]
    best = BestRecord(
        usvit_version=usvit.__version__,
        study=record.name,
        figure=figure,
        positive_class=predictions.positive,
        classes=predictions.classes,
        n_images=len(test.drop_duplicates(["dataset", "image_id"])),
        n_groups=int(test["group_id"].nunique()),
        n_folds=len(scores.folds),
        n_repeats=len({*scores.repeat}),
        candidates=[
            BestCandidate(
                name=one.name,
                runs=[id_ for c in one.final for id_ in candidates[c].ids],
                members=_names(candidates, one.final),
                parameters=sum(sizes[c] for c in one.final),
                validation=BestValidation(value=final.values[k], standard_error=final.errors[k]),
                within_one_se=k in final.within,
                test=tests[k],
            )
            for k, one in enumerate(options)
        ],
        folds=_folds(choice, options, candidates, scores),
        nested=scores.value([options[one.chosen].by_fold[k] for k, one in enumerate(choice.folds)]),
        apparent=ApparentBest(name=options[choice.apparent].name, test=tests[choice.apparent]),
        apparent_minus_nested=choice.apparent_minus_nested,
        winner=BestWinner(
            name=winner.name,
            members=_names(candidates, winner.final),
            runs=[path.as_posix() for path in runs],
            parameters=sum(sizes[c] for c in winner.final),
        ),
        commands=_commands(runs, folder),
        left_out=left_out,
        warnings=[warning] if warning else [],
    )
    save_record(folder / "best.json", best)
    return best


def _folder_of(study: str | Path) -> Path:
    places = [Path(study), Path("studies") / study]
    for folder in places:
        if (folder / "study.json").is_file():
            return folder
    if Path(study).is_file() and (own := Path("studies") / Path(study).stem) and (own / "study.json").is_file():
        return own
    raise UsvitError(
        f"There is no study in {study}: no study.json in {places[0]} or {places[1]}. Name the folder of a study that "
        "'usvit study' made."
    )


def _refuse_undefined(val: Sequence[Sequence[FoldFigure | None]], scores: CandidateScores, figure: str) -> None:
    for k, fold in enumerate(scores.folds):
        if any(one[k] is None for one in val):
            raise UsvitError(
                f"The figure {figure} is undefined on the inner validation images of fold {fold}: there are none, or a "
                "class is absent, so that nothing can be chosen there. Choose by another figure (--figure accuracy), "
                "or make runs with more inner validation images (split.val_fraction)."
            )


def _options(
    candidates: Sequence[StudyCandidate],
    val: Sequence[Sequence[FoldFigure | None]],
    sizes: Sequence[int],
    scores: CandidateScores,
    most: int,
    lower: bool,
) -> list[_Option]:
    """Return the candidates, and the means of the best 2 to ``most`` of them.

    The members of a mean are the best on the inner validation images: for the final choice on those of all folds, for
    the choice of a fold on those of this fold.
    """
    each = range(len(candidates))
    options = [_Option(candidates[c].name, 1, (c,), scores.of(c)) for c in each]
    if most < 2:
        return options
    final = _ranked(one_standard_error(val, sizes, scores.repeat, lower_is_better=lower), lower)
    by_fold = [
        _ranked(one_standard_error([[val[c][k]] for c in each], sizes, [0], lower_is_better=lower), lower)
        for k in range(len(scores.folds))
    ]
    return options + [
        _Option(
            f"mean of the best {size}",
            size,
            tuple(sorted(final[:size])),
            [tuple(sorted(own[:size])) for own in by_fold],
        )
        for size in range(2, most + 1)
    ]


def _ranked(choice: CandidateChoice, lower: bool) -> list[int]:
    return sorted(range(len(choice.values)), key=lambda c: choice.values[c] if lower else -choice.values[c])


def _folds(
    choice: NestedChoice, options: Sequence[_Option], candidates: Sequence[StudyCandidate], scores: CandidateScores
) -> list[BestFold]:
    return [
        BestFold(
            fold=fold,
            repeat=repeat,
            chosen=options[own.chosen].name,
            members=_names(candidates, options[own.chosen].by_fold[k]),
            best=options[own.best].name,
            validation=BestValidation(value=own.values[own.best], standard_error=own.errors[own.best]),
            chosen_validation=own.values[own.chosen],
            test=None if tested is None else tested.value,
        )
        for k, (fold, repeat, own, tested) in enumerate(
            zip(scores.folds, scores.repeat, choice.folds, choice.figures, strict=True)
        )
    ]


def _names(candidates: Sequence[StudyCandidate], members: Sequence[int]) -> list[str]:
    return [candidates[c].name for c in members] if len(members) > 1 else []


def _commands(runs: Sequence[Path], folder: Path) -> list[str]:
    """Return the commands that score with the winner; those of a mean make the ensemble first."""
    model, first = runs[0], []
    if len(runs) > 1:
        model = folder / "best"
        first = [f"usvit ensemble {shlex.join(path.as_posix() for path in runs)} --out {shlex.quote(model.as_posix())}"]
    return [*first, f"usvit score --model {shlex.quote(model.as_posix())} --input IMAGES --out SCORES"]
