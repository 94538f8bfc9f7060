"""A model beside the BI-RADS categories of readers on the same test images, as readers.json contains it.

Decisions and combined rules are compared by the code that compares two runs, fold by fold (``decision_comparison``). A
reader is not trained, so the categories are the same in each repeat. The mean of several readers takes them as given.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pandas as pd

from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError
from usvit.estimate import Difference, Estimate
from usvit.evaluation.birads import INCOMPLETE, KNOWN_CANCER, NONE, UNDIVIDED, levels_on, scale_of
from usvit.evaluation.comparison import fold_ratio
from usvit.evaluation.decision_comparison import decision_difference
from usvit.evaluation.evaluate_predictions import Predictions
from usvit.evaluation.predictions import repeats_of
from usvit.evaluation.readers_areas import reader_areas
from usvit.evaluation.readers_decisions import Matched, ReadImages, ReadRepeat, source_of
from usvit.metrics.checks import group_codes
from usvit.metrics.combined_rules import COMBINATIONS, BiopsyChange, combined_biopsies, per_thousand
from usvit.metrics.paired_tests import holm, paired_difference
from usvit.metrics.proportions import clustered_share, share
from usvit.metrics.support import few_groups_sentences
from usvit.metrics.threshold_choice import outcome
from usvit.records import (
    CategoryCounts,
    Changed,
    CombinedRule,
    GivenDifferences,
    LeftOutReadings,
    MatchedPoint,
    OutcomeRecord,
    ReaderPoint,
    ReadersRecord,
    Record,
)

MEAN = "mean of the readers"
_Part = TypeVar("_Part", bound=Record)
_Sets = Mapping[str, Sequence[ReadImages]]
"""Name of a reader, or ``MEAN`` -> the images read, of each repeat."""
_FIGURES = ("sensitivity", "specificity")
_UNDIVIDED = (
    "A reader has not divided category 4, so 4a, 4b and 4c count as 4 for all readers, and the whole category 4 is "
    "downgraded."
)
_FEWER = (
    "Some images have fewer readings than others in one column. If the readers of different data sets are different "
    "people, they count as one reader here."
)
_GIVEN = (
    "The mean of the readers is that of the images that all have read. It takes these readers as given: its intervals "
    "hold for these readers on new patients, and not for other readers."
)


@dataclass(frozen=True)
class _Scheme:
    """Ordered categories, and what is done with them."""

    scale: tuple[str, ...]

    @property
    def cuts(self) -> range:
        """The lowest positive category of each operating point of a reader."""
        return range(self.scale.index("3"), len(self.scale))

    @property
    def biopsied_from(self) -> int:
        return self.scale.index("4" if self.scale == UNDIVIDED else "4a")

    @property
    def downgraded(self) -> list[int]:
        return [at for at, name in enumerate(self.scale) if name in ("3", "4", "4a", "4b")]

    @property
    def upgraded(self) -> list[int]:
        return [self.scale.index("2"), self.scale.index("3")]

    def cut_name(self, cut: int) -> str:
        """Return ``>= 4a`` of the place of 4a; the highest category stands alone."""
        return self.scale[cut] if cut == len(self.scale) - 1 else f">= {self.scale[cut]}"


def compare_with_readers(found: Predictions, readers: pd.DataFrame) -> ReadersRecord:
    """Compare a model with readers.

    Args:
        found: the predictions, with one row for each image or unit, model and split.
        readers: one column for each reader with the categories of the same rows (``readers.read_readers``).

    Raises:
        UsvitError: a reader has no category from 1 to 5 of a tested image; and as ``rows_of``.
    """
    categories = {str(name): readers[name].to_numpy(object) for name in readers}
    scheme = _Scheme(scale_of(categories.values()))
    level = np.stack([levels_on(scheme.scale, one) for one in categories.values()])
    repeats = ReadRepeat.all_of(found.table, level, found.positive, found.classes)
    sets, said = _sets([*categories], repeats)
    repeat = repeats_of(found.table)
    tested = (found.table["part"] == "test").to_numpy() & (repeat == repeat.min())
    left_out = {name: _left_out(one[tested]) for name, one in categories.items()}
    if any(", reader " in name for name in categories) and len({one.missing for one in left_out.values()}) > 1:
        said.append(_FEWER)
    rows = repeats[0].decided.rows
    ratio = found.test_over_train or fold_ratio(np.concatenate([one.decided.rows.fold for one in repeats]), len(rows))
    areas = [
        reader_areas(found, name, images[0], level[list(images[0].readers)], left_out.get(name))
        for name, images in sets.items()
    ]
    for test in ("within_folds", "pooled"):
        areas = _corrected(areas, (test,))
    rules = [one for one in repeats[0].decided.called if all(one in other.decided.called for other in repeats)]
    source = source_of(repeats)
    return ReadersRecord(
        run=found.name,
        positive_class=found.positive,
        classes=found.classes,
        n_images=len(rows),
        n_groups=rows.n_groups,
        n_folds=len(np.unique(rows.fold)),
        n_repeats=len(repeats),
        scale=list(scheme.scale),
        biopsied_from=scheme.scale[scheme.biopsied_from],
        downgraded=[scheme.scale[one] for one in scheme.downgraded],
        upgraded=[scheme.scale[one] for one in scheme.upgraded],
        thresholds_from=source,
        readers=areas,
        points=[
            ReaderPoint(reader=name, cut=scheme.cut_name(cut), outcome=_outcome(images[0], images[0].level >= cut))
            for name, images in sets.items()
            for cut in scheme.cuts
        ],
        matched=_corrected([*_every_match(sets, scheme, source, ratio)], _FIGURES),
        categories=[
            one for name in categories for rule in rules for one in _categories(name, sets[name][0], rule, scheme.scale)
        ],
        rules=_corrected(
            [one for name in sets for rule in rules for one in _combined(name, sets[name], rule, scheme, ratio)],
            _FIGURES,
        ),
        warnings=[*_warnings(found, sets), *said, *([_UNDIVIDED] if scheme.scale == UNDIVIDED else [])],
    )


def _sets(names: Sequence[str], repeats: Sequence[ReadRepeat]) -> tuple[dict[str, list[ReadImages]], list[str]]:
    """Return the images of each reader and, of several, of their mean; and what must be said about the mean."""
    sets = {name: [one.of_readers([k]) for one in repeats] for k, name in enumerate(names)}
    for name, images in sets.items():
        if not len(images[0].at):
            raise UsvitError(f"No tested image has a category from 1 to 5 of the reader '{name}'.")
    if len(names) == 1:
        return sets, []
    together = [one.of_readers(range(len(names))) for one in repeats]
    if not len(together[0].at):
        return sets, ["No tested image has a category of all readers, so there is no mean of the readers."]
    return sets | {MEAN: together}, [_GIVEN]


def _left_out(categories: np.ndarray) -> LeftOutReadings:
    n = {name: int((categories == name).sum()) for name in (NONE, INCOMPLETE, KNOWN_CANCER)}
    return LeftOutReadings(missing=n[NONE], category_0=n[INCOMPLETE], category_6=n[KNOWN_CANCER])


def _warnings(found: Predictions, sets: _Sets) -> list[str]:
    said = [warning for warning in [contamination_warning(found.contamination)] if warning] + found.warnings
    if found.split_by_image:
        said.append("LEAKING SPLIT: the images were split one by one, so patients occur in both training and test.")
    rows = min((images[0].once for images in sets.values()), key=len)
    return [*said, *few_groups_sentences(rows.label, group_codes(rows.group, len(rows))[0], found.classes)]


def _outcome(images: ReadImages, called: np.ndarray) -> OutcomeRecord:
    return outcome(images.cancer, called, images.rows.group, interval=clustered_share)


def _difference(
    images: Sequence[ReadImages], a: Sequence[np.ndarray], b: Sequence[np.ndarray], ratio: float
) -> tuple[Difference, Difference]:
    """Compute the differences of sensitivity and of specificity of the decisions of each repeat, a minus b."""
    ours, theirs = (
        [one.decided(called, "rule") for one, called in zip(images, decisions, strict=True)] for decisions in (a, b)
    )
    return (
        decision_difference(ours, theirs, "sensitivity", "rule", ratio),
        decision_difference(ours, theirs, "specificity", "rule", ratio),
    )


def _given(images: ReadImages, a: np.ndarray, b: np.ndarray) -> GivenDifferences:
    """Compute the same of the pooled images of one repeat."""
    cancer, group = images.cancer, images.rows.group
    return GivenDifferences(
        sensitivity=Difference.of(paired_difference(a[cancer], b[cancer], group[cancer], of="positive images")),
        specificity=Difference.of(paired_difference(~a[~cancer], ~b[~cancer], group[~cancer], of="negative images")),
    )


def _every_match(sets: _Sets, scheme: _Scheme, source: str, ratio: float) -> Iterator[MatchedPoint]:
    kinds: tuple[Matched, ...] = ("specificity", "sensitivity")
    for name, images in sets.items():
        for cut in scheme.cuts:
            for kind in kinds:
                unnamed = _matched(images, cut, kind, source, ratio)
                yield unnamed.model_copy(update={"reader": name, "cut": scheme.cut_name(cut)})


def _matched(images: Sequence[ReadImages], cut: int, kind: Matched, source: str, ratio: float) -> MatchedPoint:
    called = []
    for one in images:
        decided = one.matched(cut, kind, source)
        if isinstance(decided, str):
            return MatchedPoint(
                reader=MEAN,
                cut="",
                matched=kind,
                model=None,
                sensitivity=None,
                specificity=None,
                given=None,
                reason=decided,
            )
        called.append(decided)
    readers = [one.level >= cut for one in images]
    sensitivity, specificity = _difference(images, called, readers, ratio)
    return MatchedPoint(
        reader=MEAN,
        cut="",
        matched=kind,
        model=_outcome(images[0], called[0]),
        sensitivity=sensitivity,
        specificity=specificity,
        given=_given(images[0], called[0], readers[0]),
        reason=None,
    )


def _categories(name: str, images: ReadImages, rule: str, scale: Sequence[str]) -> Iterator[CategoryCounts]:
    called, cancer = images.called(rule), images.cancer
    for place, category in enumerate(scale):
        own = images.level == place
        yield CategoryCounts(
            reader=name,
            decision=rule,
            category=category,
            positive_called=int((own & cancer & called).sum()),
            positive_not_called=int((own & cancer & ~called).sum()),
            negative_called=int((own & ~cancer & called).sum()),
            negative_not_called=int((own & ~cancer & ~called).sum()),
        )


def _combined(
    name: str, images: Sequence[ReadImages], decision: str, scheme: _Scheme, ratio: float
) -> Iterator[CombinedRule]:
    alone = [one.level >= scheme.biopsied_from for one in images]
    first, group = images[0], images[0].rows.group

    def changed(hits: np.ndarray) -> Changed:
        return Changed(n=int(hits.sum()), per_1000=per_thousand(hits, group))

    def ppv(biopsied: np.ndarray) -> Estimate:
        return share(first.cancer[biopsied], group[biopsied], of="biopsied images", interval=clustered_share)

    for rule in COMBINATIONS:
        after = [
            combined_biopsies(
                before,
                np.isin(one.level, scheme.downgraded),
                np.isin(one.level, scheme.upgraded),
                one.called(decision),
                rule,
            )
            for one, before in zip(images, alone, strict=True)
        ]
        change = BiopsyChange.of(first.cancer, alone[0], after[0])
        sensitivity, specificity = _difference(images, after, alone, ratio)
        yield CombinedRule(
            reader=name,
            decision=decision,
            rule=rule,
            n_biopsies_alone=int(alone[0].sum()),
            n_biopsies=int(after[0].sum()),
            avoided=changed(change.avoided),
            missed=changed(change.missed),
            added=changed(change.added),
            found=changed(change.found),
            ppv_alone=ppv(alone[0]),
            ppv=ppv(after[0]),
            sensitivity=sensitivity,
            specificity=specificity,
            given=_given(first, after[0], alone[0]),
        )


def _corrected(parts: Sequence[_Part], figures: Sequence[str]) -> list[_Part]:
    """Return the parts with ``p_holm`` of these figures, corrected for all of them together."""
    values = {(at, name): getattr(part, name) for at, part in enumerate(parts) for name in figures}
    adjusted = holm({at: one.p for at, one in values.items() if one is not None and one.p is not None})
    changes: list[dict[str, Difference]] = [{} for _ in parts]
    for (at, name), p_holm in adjusted.items():
        changes[at][name] = values[at, name].replace(p_holm=p_holm)
    return [part.model_copy(update=change) for part, change in zip(parts, changes, strict=True)]
