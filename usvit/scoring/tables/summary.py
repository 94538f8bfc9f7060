"""``summary.json``: counts of a scoring job, collected while its rows are written."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pandas as pd

from usvit.scoring.abstention import UNCERTAIN, Zone
from usvit.scoring.items import FAILURES
from usvit.scoring.tables.cells import digit, plain

JOB_KEYS = ("model", "settings", "versions", "started", "finished", "seconds")
"""Keys that the job must provide. ``model`` is ``Ensemble.describe()``. ``settings`` contains no paths, because they
may name a person."""
MORE_KEYS = ("products",)
"""Keys that the job may provide: for each kind of product, the numbers of files ``written`` and ``failed``."""


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
        zone: Zone | None = None,
    ):
        self._facts = {"classes": list(classes), "positive_class": positive}
        self._threshold = {"value": None if threshold is None else digit(threshold), "origin": threshold_origin}
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

    def record(
        self, job: Mapping[str, Any], counts: Mapping[str, int], files: Mapping[str, Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the content of ``summary.json`` (docs/reference/scores.schema.json).

        Args:
            job: values of ``JOB_KEYS``, and optionally of ``MORE_KEYS``.
            counts: ``RollUps.counts``.
            files: ``rows`` and ``sha256`` of each table, by its name.

        Raises:
            ValueError: a key of ``job`` is missing or unknown.
        """
        missing, strange = set(JOB_KEYS) - set(job), set(job) - {*JOB_KEYS, *MORE_KEYS}
        if missing or strange:
            raise ValueError(f"Summary of a scoring job: missing {sorted(missing)}, unknown {sorted(strange)}.")
        unusual = self._marks["unusual"]
        detector = job["model"].get("novelty") or {}
        known = detector.get("in_distribution") or {}
        products = {kind: dict(one) for kind, one in (job.get("products") or {}).items()}
        return {
            "research_use_only": True,
            **self._facts,
            "counts": {
                **counts,
                "frames_scored": self._frames,
                "frames_unusual": unusual,
                "frames_abstained": self._abstained.total(),
                "frames_uncertain": self._abstained[UNCERTAIN],
                "frames_seen": self._marks["seen"],
                "frames_positive": self._decisions[plain(self._positive)],
                "frames_negative": self._decisions[plain(f"not {self._positive}")],
                "frames_undecided": self._decisions[""],
                "failures": self._failures.total(),
                "products_failed": sum(one["failed"] for one in products.values()),
            },
            "failures": {
                code: {"rows": n, "reason": FAILURES.get(code, "")} for code, n in sorted(self._failures.items())
            },
            "flags": dict(sorted(self._flags.items())),
            "threshold": self._threshold,
            "abstention": None
            if self._zone is None
            else {"low": self._zone.low, "high": self._zone.high, "origin": self._zone.origin},
            "novelty": {
                "threshold": detector.get("threshold"),
                "stated_rate": known.get("rate"),
                "found_rate": digit(unusual / self._frames) if self._frames else None,
            },
            **{key: job[key] for key in JOB_KEYS},
            "products": products,
            "files": {name: dict(facts) for name, facts in files.items()},
        }
