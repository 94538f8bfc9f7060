"""From the answers of a reader study to the record of its multi-reader multi-case analysis."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

import numpy as np

from usvit import __version__
from usvit.config.reader_study import ReaderStudySettings
from usvit.errors import UsvitError
from usvit.evaluation.reader_answers import ReaderAnswers
from usvit.evaluation.reader_courses import reading_times, session_courses, within_readers
from usvit.metrics.agreement import fleiss_kappa, gwet_ac1, rater_icc, weighted_kappa
from usvit.metrics.margin_tests import check_margin, equivalence, non_inferiority
from usvit.metrics.paired_tests import holm
from usvit.metrics.reader_courses import reader_means
from usvit.metrics.reader_study import (
    INFERENCES,
    ReaderFigure,
    ReaderNumbers,
    ReaderParts,
    mean_over_readers,
    reader_parts,
    reader_power,
)
from usvit.records import (
    AnswerRows,
    MrmcRecord,
    ReaderAgreement,
    ReaderComponents,
    ReaderDifference,
    ReaderFigureRecord,
    ReaderInference,
    ReaderMean,
    ReaderPower,
    ReaderShare,
    ReaderValue,
    StudyProtocol,
)
from usvit.wording import plural

MODEL, READERS = "model", "readers"
ReaderShareKind = Literal["with_model", "to_right", "to_wrong"]
_SIZES = (3, 5, 8, 12), (0.5, 1.0, 2.0, 4.0)
"""Readers of later studies, and their patients relative to this one."""
_FEW_READERS = 5


def analyse_answers(
    answers: ReaderAnswers, settings: ReaderStudySettings, name: str, protocol: StudyProtocol | None = None
) -> MrmcRecord:
    """Analyse a reader study: each figure by modality, and the differences of modalities and of model and readers.

    Args:
        answers: the ratings (``read_answers``).
        settings: what is analysed.
        name: name of the table.
        protocol: of the study from which the table comes; its threshold is that of the model by default.

    Raises:
        UsvitError: a margin out of range, or ``test`` without one.
    """
    if settings.margin is not None:
        check_margin(settings.margin)
    elif settings.test is not None:
        raise UsvitError(f"--test {settings.test} needs a margin that is stated before the study: pass --margin.")
    if settings.model_from is None and settings.positive_from is not None:
        threshold = None if protocol is None else protocol.threshold
        settings = settings.model_copy(
            update={"model_from": settings.positive_from if threshold is None else threshold}
        )
    figures: list[ReaderFigure] = ["auc"]
    figures += ["sensitivity", "specificity"] if settings.positive_from is not None else []
    warnings = list(answers.warnings)
    if len(answers.readers) < _FEW_READERS:
        warnings.append(
            f"The study has {plural(len(answers.readers), 'reader')}: what holds for other readers is uncertain with "
            f"fewer than {_FEW_READERS}."
        )
    return MrmcRecord(
        table=name,
        usvit_version=__version__,
        n_cases=len(answers.cases),
        n_positive=int(answers.positive.sum()),
        n_patients=len(set(answers.group.tolist())),
        readers=answers.readers,
        modalities=[*answers.ratings],
        model=answers.model_name,
        positive_from=settings.positive_from,
        model_from=settings.model_from if answers.model is not None and settings.positive_from is not None else None,
        margin=settings.margin,
        test=None if settings.margin is None else settings.test or "noninferiority",
        effect=settings.effect,
        figures=[_figure(one, answers, settings) for one in figures],
        agreement=_agreement(answers, settings.positive_from) if len(answers.readers) > 1 else [],
        repeats=within_readers(answers),
        times=reading_times(answers, settings.positive_from, warnings),
        courses=session_courses(answers, warnings),
        decisions=None if settings.positive_from is None else reader_decisions(answers, settings),
        protocol=protocol,
        rows=AnswerRows(
            analysed=len(answers.cases) * len(answers.readers) * len(answers.ratings),
            repeats=sum(int(np.isfinite(one).sum()) for readers in answers.again.values() for one in readers.values()),
            training=answers.left_out["training"],
            unfinished=answers.left_out["unfinished"],
        ),
        warnings=warnings,
    )


def _figure(figure: ReaderFigure, answers: ReaderAnswers, settings: ReaderStudySettings) -> ReaderFigureRecord:
    def parts(ratings: Sequence[np.ndarray], positive_from: float | None = settings.positive_from) -> ReaderParts:
        found = reader_parts(answers.positive, ratings, answers.group, figure, positive_from)
        assert found is not None  # read_answers refuses a single class
        return found

    of = {modality: parts([*ratings.values()]) for modality, ratings in answers.ratings.items()}
    pairs = [(later, first, of[later], of[first]) for first, later in combinations(of, 2)]
    own = None
    if answers.model is not None:
        own = parts([answers.model], settings.model_from)
        several = len(of) > 1
        pairs += [(MODEL, f"{READERS}, {name}" if several else READERS, own, one) for name, one in of.items()]
    return ReaderFigureRecord(
        figure=figure,
        modalities=[
            ReaderMean(
                modality=name,
                readers=_values(answers.readers, ReaderNumbers.of(one)),
                mean=_inferences(ReaderNumbers.of(one), None),
                components=_components(ReaderNumbers.of(one)),
            )
            for name, one in of.items()
        ],
        model=None if own is None else float(own.values[0]),
        differences=_corrected([_difference(*pair, answers.readers, settings) for pair in pairs]),
    )


def _agreement(answers: ReaderAnswers, positive_from: float | None) -> list[ReaderAgreement]:
    found = []
    for modality, own in answers.ratings.items():
        ratings = [*own.values()]
        called = None if positive_from is None else [one >= positive_from for one in ratings]
        found.append(
            ReaderAgreement(
                modality=modality,
                weighted_kappa=weighted_kappa(ratings, answers.group),
                fleiss_kappa=None if called is None else fleiss_kappa(called, answers.group),
                gwet_ac1=None if called is None else gwet_ac1(called, answers.group),
                icc=rater_icc(ratings, answers.group),
            )
        )
    return found


def reader_decisions(answers: ReaderAnswers, settings: ReaderStudySettings) -> list[ReaderShare]:
    """Return how often readers decide as the model does, and how often a later modality changes their decisions.

    Each is a share of the cases of each reader, whose mean has the intervals of a figure.
    """
    called = {
        modality: np.stack([*readers.values()]) >= settings.positive_from
        for modality, readers in answers.ratings.items()
    }
    asked: list[tuple[ReaderShareKind, str, str | None, np.ndarray]] = []
    if answers.model is not None:
        model = answers.model >= settings.model_from
        asked += [("with_model", modality, None, one == model) for modality, one in called.items()]
    for first, later in combinations(called, 2):
        before, after = (called[modality] == answers.positive for modality in (first, later))
        asked += [("to_right", first, later, ~before & after), ("to_wrong", first, later, before & ~after)]
    found = []
    for what, a, b, cases in asked:
        numbers = replace(reader_means(cases, answers.group), differences=False)
        found.append(
            ReaderShare(what=what, a=a, b=b, readers=_values(answers.readers, numbers), mean=_inferences(numbers, None))
        )
    return found


def _difference(
    a: str, b: str, of: ReaderParts, minus: ReaderParts, readers: list[str], settings: ReaderStudySettings
) -> ReaderDifference:
    numbers = ReaderNumbers.of(of, minus)
    power = []
    for n in _SIZES[0] if len(readers) > 1 else ():
        for factor in _SIZES[1]:
            found = reader_power(numbers, settings.effect, n, factor)
            if np.isfinite(found):
                power.append(ReaderPower(readers=n, patients=round(factor * numbers.n_groups), power=found))
    return ReaderDifference(
        a=a,
        b=b,
        readers=_values(readers, numbers),
        mean=_inferences(numbers, settings),
        components=_components(numbers),
        power=power,
    )


def _values(readers: list[str], numbers: ReaderNumbers) -> list[ReaderValue]:
    return [ReaderValue(reader=one, value=float(v)) for one, v in zip(readers, numbers.values, strict=True)]


def _inferences(numbers: ReaderNumbers, settings: ReaderStudySettings | None) -> list[ReaderInference]:
    """Return the mean over readers by what is random; of a difference (with settings) also its tests."""
    found = []
    for across in INFERENCES:
        estimate, limits = mean_over_readers(numbers, across)
        if settings is None:
            found.append(ReaderInference(across=across, estimate=estimate))
            continue
        margin, reason = settings.margin, estimate.reason or ""
        same = settings.test == "equivalence"
        found.append(
            ReaderInference(
                across=across,
                estimate=estimate,
                noninferiority=None if margin is None or same else non_inferiority(limits, margin, reason=reason),
                equivalence=equivalence(limits, margin, reason=reason) if margin is not None and same else None,
            )
        )
    return found


def _components(numbers: ReaderNumbers) -> ReaderComponents:
    square, variance, shared = numbers.mean_square, numbers.variance, numbers.shared
    return ReaderComponents(
        **{
            name: float(value) if np.isfinite(value) else None
            for name, value in (("mean_square", square), ("variance", variance), ("covariance", shared))
        }
    )


def _corrected(differences: list[ReaderDifference]) -> list[ReaderDifference]:
    """Add Holm's correction over the comparisons of a figure, for each inference."""
    if len(differences) < 2:
        return differences
    found = [list(one.mean) for one in differences]
    for k in range(len(INFERENCES)):
        for number, corrected in holm({n: one[k].estimate.p for n, one in enumerate(found)}).items():
            found[number][k] = found[number][k].model_copy(update={"p_holm": corrected})
    return [one.model_copy(update={"mean": mean}) for one, mean in zip(differences, found, strict=True)]
