"""Figures and tables of a test: ``test.json``, ``per_class.csv`` and ``predictions.csv``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from usvit.metrics.calibration_statistics import reliability
from usvit.metrics.proportions import clustered_share
from usvit.upstream.classifier_test.classifiers import FixedClassifier
from usvit.upstream.classifier_test.inference import ClassifierAnswers
from usvit.upstream.classifier_test.matching import Matching
from usvit.upstream.classifier_test.test_sets import TestImages
from usvit.upstream.config.test import HeadRule
from usvit.upstream.records.test import DisagreementMatrix, TestResult, TestSource

TOP = 5
_GROUND_TRUTH = "labels"
"""Name of the row and column of a disagreement matrix that stands for the labels (thesis, Table 3.4)."""


@dataclass(frozen=True)
class Tested:
    """The answers of one classifier, by one rule of its heads, to one test set."""

    classifier: FixedClassifier
    head: HeadRule | None
    test_set: TestImages
    matching: Matching
    answers: ClassifierAnswers
    images_per_second: float

    @property
    def row_name(self) -> str:
        return self.classifier.row_name(self.head)

    @property
    def hits(self) -> np.ndarray:
        """Whether the decision is right, of shape (n,) bool."""
        return self.answers.rank == 1

    def figures(self) -> TestResult:
        """Return the entry ``results`` of ``test.json``."""
        answers, groups = self.answers, self.test_set.groups()
        calibration = reliability(self.hits, answers.probability, groups)
        n_outputs = len(self.classifier.classes) if self.matching.kept is None else len(self.matching.kept)
        per_class = self.per_class()
        return TestResult(
            classifier=self.row_name,
            source=self.test_set.label,
            rule=self.matching.rule,
            n_images=len(self.hits),
            n_outputs=n_outputs,
            top1=clustered_share(self.hits, groups),
            top5=clustered_share(answers.rank <= TOP, groups) if n_outputs > TOP else None,
            mean_class_accuracy=float(per_class.accuracy.mean()),
            nll=float(-answers.right_log_probability.mean()),
            ece=calibration.ece,
            ece_debiased=calibration.ece_debiased,
            images_per_second=self.images_per_second,
        )

    def per_class(self) -> pd.DataFrame:
        """Return the rows of ``per_class.csv``: the classes that have images, with their accuracy.

        An image with several labels counts in the class of each.
        """
        source, labels = self.test_set.source, self.test_set.labels()
        image = np.repeat(np.arange(len(labels)), [len(one) for one in labels])
        target = np.concatenate(labels)
        n_images = np.bincount(target, minlength=len(source.classes))
        n_right = np.bincount(target, weights=self.hits[image], minlength=len(source.classes)).astype(np.int64)
        there = np.flatnonzero(n_images)
        return pd.DataFrame(
            {
                "classifier": self.row_name,
                "source": self.test_set.label,
                "class": [source.classes[one] for one in there],
                "n_images": n_images[there],
                "n_right": n_right[there],
                "accuracy": n_right[there] / n_images[there],
            }
        )

    def predictions(self) -> pd.DataFrame:
        """Return the rows of ``predictions.csv``, one for each image in the order of the source."""
        source, answers = self.test_set.source, self.answers
        names = [source.image_name(int(row)) for row in self.test_set.images.rows]
        return pd.DataFrame(
            {
                "classifier": self.row_name,
                "source": self.test_set.label,
                "image": names,
                "label": [";".join(source.classes[one] for one in labels) for labels in self.test_set.labels()],
                "predicted": [self.classifier.classes[one] for one in answers.predicted],
                "probability": answers.probability,
                "rank": answers.rank,
                "right": self.hits,
            }
        )


def disagreement(tested: Sequence[Tested]) -> list[DisagreementMatrix]:
    """Return, for each source, the share of images that each pair of classifiers decides differently.

    The first row and column are the labels: the share of wrong decisions.

    Source: Touvron 2022, thesis, Table 3.4.
    """
    by_source: dict[str, list[Tested]] = {}
    for one in tested:
        by_source.setdefault(one.test_set.label, []).append(one)
    return [_matrix(source, rows) for source, rows in by_source.items() if len(rows) > 1]


def _matrix(source: str, rows: Sequence[Tested]) -> DisagreementMatrix:
    decided = [np.array(one.classifier.classes)[one.answers.predicted] for one in rows]
    share = np.zeros((len(rows) + 1, len(rows) + 1))
    for at, one in enumerate(rows, start=1):
        share[0, at] = share[at, 0] = 1 - one.hits.mean()
    for a, b in combinations(range(len(rows)), 2):
        share[a + 1, b + 1] = share[b + 1, a + 1] = (decided[a] != decided[b]).mean()
    return DisagreementMatrix(
        source=source,
        names=[_GROUND_TRUTH, *(one.row_name for one in rows)],
        share=[[float(value) for value in row] for row in share],
    )


def source_entry(test_set: TestImages, known: Mapping[str, str], drops: bool) -> TestSource:
    """Return the entry ``sources`` of ``test.json``.

    Args:
        test_set: The images.
        known: Classifier -> what is known of the images that it was trained on.
        drops: Images that a classifier was trained on were left out.
    """
    source = test_set.source
    groups = test_set.groups()
    return TestSource(
        source=test_set.label,
        n_images=len(test_set.images),
        n_groups=len(np.unique(groups)),
        n_classes=len(source.classes),
        n_classes_with_images=len({label for labels in test_set.labels() for label in labels}),
        left_out=source.left_out,
        seen=test_set.seen,
        seen_dropped=drops,
        several_labels=source.multi is not None,
        leaks=dict(known),
    )
