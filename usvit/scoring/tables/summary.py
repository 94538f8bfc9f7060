"""``summary.json``: counts of a scoring job, collected while its rows are written."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from usvit.plain_data import Settings
from usvit.records import (
    AbstentionZone,
    OodSummary,
    ProductRecord,
    Reason,
    ScoreCounts,
    ScoredTable,
    ScoreThresholdRecord,
    ScoringModelRecord,
    SummaryRecord,
)
from usvit.scoring.abstention import UNCERTAIN
from usvit.scoring.items import FAILURES
from usvit.scoring.tables.cells import digit, plain


@dataclass(frozen=True)
class JobFacts:
    """What the job tells about itself in ``summary.json``."""

    model: ScoringModelRecord
    settings: Settings
    """Options, without paths, because they may name a person."""
    versions: dict[str, str]
    started: str
    finished: str
    seconds: float
    products: dict[str, ProductRecord] = field(default_factory=dict)
    """For each kind of product, the numbers of files."""


class Summary:
    """Counts over the rows of the tables, collected while they are written.

    Args:
        classes: names of the classes, in the order of the network's outputs.
        positive: the positive class.
        threshold: threshold of single images; None if no decision is made.
        threshold_origin: description of the threshold.
        zone: probabilities for which no decision is made; None without ``--abstain-at``.
    """

    def __init__(
        self,
        *,
        classes: tuple[str, ...],
        positive: str,
        threshold: float | None,
        threshold_origin: str,
        zone: AbstentionZone | None = None,
    ):
        self._classes = list(classes)
        self._threshold = ScoreThresholdRecord(
            value=None if threshold is None else digit(threshold), origin=threshold_origin
        )
        self._positive, self._zone, self._abstained = positive, zone, Counter[str]()
        self._frames, self._decisions, self._marks = 0, Counter[str](), Counter[str]()
        self._flags, self._failures = Counter[str](), Counter[str]()

    def add_scores(self, rows: pd.DataFrame) -> None:
        """Count typed rows of ``scores.csv``."""
        self._frames += len(rows)
        self._decisions.update(rows["decision"])
        self._abstained.update(one for one in rows["abstained"] if one)
        for name in ("unusual", "seen"):
            self._marks[name] += int(rows[name].fillna(False).sum())
        for flags in rows["flags"]:
            self._flags.update(flags.split(";") if flags else ())

    def add_failures(self, rows: pd.DataFrame) -> None:
        """Count typed rows of ``failures.csv``."""
        self._failures.update(rows["code"])

    def record(self, job: JobFacts, counts: Mapping[str, int], files: dict[str, ScoredTable]) -> SummaryRecord:
        """Return the content of ``summary.json``.

        Args:
            job: what the job tells about itself.
            counts: ``RollUps.counts``.
            files: the tables by their names.
        """
        unusual, detector = self._marks["unusual"], job.model.novelty
        return SummaryRecord(
            research_use_only=True,
            classes=self._classes,
            positive_class=self._positive,
            counts=ScoreCounts(
                **counts,
                frames_scored=self._frames,
                frames_unusual=unusual,
                frames_abstained=self._abstained.total(),
                frames_uncertain=self._abstained[UNCERTAIN],
                frames_seen=self._marks["seen"],
                frames_positive=self._decisions[plain(self._positive)],
                frames_negative=self._decisions[plain(f"not {self._positive}")],
                frames_undecided=self._decisions[""],
                failures=self._failures.total(),
                products_failed=sum(one.failed for one in job.products.values()),
            ),
            failures={
                code: Reason(rows=n, reason=FAILURES.get(code, "")) for code, n in sorted(self._failures.items())
            },
            flags=dict(sorted(self._flags.items())),
            threshold=self._threshold,
            abstention=self._zone,
            novelty=OodSummary(
                threshold=None if detector is None else detector.threshold,
                stated_rate=None if detector is None else detector.in_distribution.rate,
                found_rate=digit(unusual / self._frames) if self._frames else None,
            ),
            **vars(job),
            files=files,
        )
