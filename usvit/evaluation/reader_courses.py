"""Parts of the record of a reader study: reading times, courses of sessions, and agreement within readers."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np

from usvit.evaluation.reader_answers import ReaderAnswers
from usvit.metrics.agreement import repeat_kappa
from usvit.metrics.reader_courses import change_over_readers, rank_errors, reader_means, reader_slopes
from usvit.metrics.reader_study import INFERENCES, ReaderNumbers
from usvit.metrics.repeatability import paired_repeats
from usvit.records import (
    ReaderChange,
    ReaderChangeInference,
    ReaderMedians,
    ReaderRepeats,
    ReaderTimes,
    ReaderValue,
    SessionCourses,
    SessionCurve,
)
from usvit.wording import plural

_What = Literal["seconds", "ratio", "wrong_over_right", "time_course", "error_course"]
_TENTHS = 10


def _change(what: _What, answers: ReaderAnswers, numbers: ReaderNumbers, a: str, b: str | None = None) -> ReaderChange:
    logarithms = what != "error_course"
    mean = []
    for across in INFERENCES:
        found = change_over_readers(numbers, across, logarithms=logarithms)
        # A time of 1 second is no hypothesis.
        mean.append(ReaderChangeInference(across=across, estimate=found.without("p") if what == "seconds" else found))
    values = np.exp(numbers.values) if logarithms else numbers.values
    return ReaderChange(what=what, a=a, b=b, readers=_of_readers(answers, values), mean=mean)


def _of_readers(answers: ReaderAnswers, values: Sequence[float] | np.ndarray) -> list[ReaderValue]:
    return [ReaderValue(reader=one, value=float(v)) for one, v in zip(answers.readers, values, strict=True)]


def reading_times(answers: ReaderAnswers, positive_from: float | None, warnings: list[str]) -> ReaderTimes | None:
    """Analyse the reading times of the cases that have one of each reader in each modality.

    Args:
        answers: the study.
        positive_from: the lowest positive rating; also compare wrong and right decisions.
        warnings: cases that are left out are added here.

    Returns:
        None without times, or if no case has all of them.
    """
    if answers.seconds is None:
        return None
    times = {modality: np.stack([*readers.values()]) for modality, readers in answers.seconds.items()}
    known = np.isfinite(np.stack([*times.values()])).all(axis=(0, 1))
    if not known.all():
        lacking = plural(int((~known).sum()), "case")
        warnings.append(f"Reading times leave out {lacking} without a time above 0 of each reader in each modality.")
    if not known.any():
        return None
    group = answers.group[known]
    seconds = {modality: one[:, known] for modality, one in times.items()}
    logs = {modality: np.log(one) for modality, one in seconds.items()}
    changes = [_change("seconds", answers, reader_means(one, group), modality) for modality, one in logs.items()]
    changes += [
        _change("ratio", answers, reader_means(logs[later] - logs[first], group), later, first)
        for first, later in combinations(logs, 2)
    ]
    for modality, one in logs.items() if positive_from is not None else ():
        ratings = np.stack([*answers.ratings[modality].values()])[:, known]
        wrong = (ratings >= positive_from) != answers.positive[known]
        numbers = reader_slopes(wrong, one, np.zeros(one.shape, dtype=np.int64), group)
        changes += [] if numbers is None else [_change("wrong_over_right", answers, numbers, modality)]
    return ReaderTimes(
        n_cases=int(known.sum()),
        medians=[
            ReaderMedians(modality=modality, readers=_of_readers(answers, np.median(one, axis=1)))
            for modality, one in seconds.items()
        ],
        changes=changes,
    )


def session_courses(answers: ReaderAnswers, warnings: list[str]) -> SessionCourses | None:
    """Analyse learning and fatigue: rank errors, and logarithms of times, against the place in the session.

    Slopes are those within the sessions and the reference classes of a reader.

    Args:
        answers: the study.
        warnings: a study in which all readers read in one order is added here.

    Returns:
        None without positions, or if a reader has a single reading in each session.
    """
    changes, curves = [], []
    for modality, places in (answers.place or {}).items():
        place = np.stack([*places.values()])
        strata = _strata(answers, answers.session[modality])
        errors = np.stack([rank_errors(answers.positive, one) for one in answers.ratings[modality].values()])
        slopes = reader_slopes(place, errors, strata, answers.group)
        if slopes is None:
            continue
        if len(place) > 1 and np.allclose(place, place[0]):
            warnings.append(
                f"All readers read the cases in one order in {modality}: a course of the session cannot be told from "
                "the difficulty of the cases."
            )
        changes.append(_change("error_course", answers, slopes, modality))
        curves.append(SessionCurve(what="rank_error", modality=modality, tenths=_curve(place, errors)))
        seconds = None if answers.seconds is None else np.stack([*answers.seconds[modality].values()])
        known = np.zeros(0) if seconds is None else np.isfinite(seconds).all(axis=0)
        if seconds is None or not known.any():
            continue
        kept = np.flatnonzero(known)
        place, logs = place[:, kept], np.log(seconds[:, kept])
        slopes = reader_slopes(place, logs, [one[kept] for one in strata], answers.group[kept])
        if slopes is not None:
            changes.append(_change("time_course", answers, slopes, modality))
            tenths = [None if one is None else float(np.exp(one)) for one in _curve(place, logs)]
            curves.append(SessionCurve(what="seconds", modality=modality, tenths=tenths))
    return SessionCourses(changes=changes, curves=curves) if changes else None


def _strata(answers: ReaderAnswers, sessions: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Number the sessions of each reader, apart for each reference class."""
    return [2 * np.unique(one, return_inverse=True)[1] + answers.positive for one in sessions.values()]


def _curve(place: np.ndarray, values: np.ndarray) -> list[float | None]:
    """Return the mean over readers of their means in each tenth."""
    tenth = np.minimum((place * _TENTHS).astype(np.int64), _TENTHS - 1)
    found: list[float | None] = []
    for k in range(_TENTHS):
        means = [float(own[at == k].mean()) for own, at in zip(values, tenth, strict=True) if (at == k).any()]
        found.append(float(np.mean(means)) if means else None)
    return found


def within_readers(answers: ReaderAnswers) -> list[ReaderRepeats]:
    """Return the agreement of each reader's second ratings with the first, and its mean over readers."""
    found = []
    for modality, readers in answers.again.items():
        own = answers.ratings[modality]
        read = {name: again for name, again in readers.items() if np.isfinite(again).any()}
        for name, again in read.items():
            kept = np.isfinite(again)
            icc = paired_repeats(own[name][kept], again[kept], answers.group[kept]).icc
            kappa = repeat_kappa([own[name]], [again], answers.group)
            found.append(
                ReaderRepeats(modality=modality, reader=name, n_repeats=int(kept.sum()), weighted_kappa=kappa, icc=icc)
            )
        if len(read) > 1:
            kappa = repeat_kappa([own[name] for name in read], [*read.values()], answers.group)
            n = sum(int(np.isfinite(one).sum()) for one in read.values())
            found.append(ReaderRepeats(modality=modality, reader=None, n_repeats=n, weighted_kappa=kappa, icc=None))
    return found
