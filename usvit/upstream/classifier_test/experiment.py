"""A test of fixed classifiers: classifiers and images -> figures, tables and a page, as ``usvit test`` runs it."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.data.datasets import same_images
from usvit.data.splits import (
    contamination_warning,
    names_with_same_images,
    refuse_contaminated,
    unrecorded,
)
from usvit.errors import UsvitError
from usvit.experiments import Experiment, RunDirectory, in_runs, new_record
from usvit.files import sha256_of_text, write_csv
from usvit.records import ContaminationRecord, RunRecord, save_record
from usvit.records.run import Classifiers, Data
from usvit.training import Device, resolve_device
from usvit.upstream.classifier_test.classifiers import FixedClassifier, joint_sha256_text, resolve_classifiers
from usvit.upstream.classifier_test.figures import Tested, disagreement, source_entry
from usvit.upstream.classifier_test.inference import answers_of
from usvit.upstream.classifier_test.matching import Matching, match
from usvit.upstream.classifier_test.test_sets import (
    TestImages,
    knowledge_of_training,
    open_sets,
    with_crop,
    without_seen,
)
from usvit.upstream.config.test import TestConfig
from usvit.upstream.records.test import TestedClassifier, TestMachine, TestRecord
from usvit.upstream.reports.test_page import report_test

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _ClassifierTestSetup:
    """Everything that a test needs, resolved and checked."""

    config: TestConfig
    device: Device
    classifiers: list[FixedClassifier]
    sets: list[TestImages]
    matchings: dict[tuple[str, str], Matching]
    """(classifier, test set) -> which outputs compete and which are right."""
    known: dict[str, str]
    """Classifier -> what is known of the images that it was trained on."""
    contamination: tuple[ContaminationRecord, ...] = ()
    """Tested data sets that a foundation model behind a classifier was pre-trained on, which the user allowed."""


class ClassifierTest(Experiment[_ClassifierTestSetup, list[Tested], TestRecord]):
    """A test of one or several fixed classifiers on one or several sets of labelled images.

    A test that was killed starts again; the tables are written when all images have been seen.

    Args:
        config: The complete configuration.
        **arguments: Those of ``Experiment``.
    """

    result_model = TestRecord

    def __init__(self, config: TestConfig, **arguments: Any):
        super().__init__(**arguments)
        self.config = config

    def prepare(self) -> _ClassifierTestSetup:
        config = self.config
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsvitError("usvit test runs in one process: start it without torchrun.")
        if not config.classifiers:
            raise UsvitError("There is nothing to test: name a run, the folder of a fold, MODEL or MODEL=WEIGHTS.")
        if not config.sources:
            raise UsvitError("There are no images to test on: name them with --source, such as --source imagenet.")
        device = resolve_device(config.device, config.precision)
        sets = open_sets(config, self.roots, self.progress)
        classifiers = resolve_classifiers(config)
        matchings = {
            (one.name, images.label): match(one.name, one.classes, images.source, images.label, config)
            for one in classifiers
            for images in sets
        }
        seen = {f"The classifier {one.name}": one.trained_on() for one in classifiers}
        for who, images in seen.items():
            if doubt := unrecorded(images, who):
                logger.warning(doubt)
        datasets = [name for one in sets for name in one.images.table().dataset]
        tested = names_with_same_images(datasets, same_images(config.data.dataset))
        lists = {who: images.collections for who, images in seen.items()}
        contamination = refuse_contaminated(tested, lists, allow=config.allow_contaminated)
        if warning := contamination_warning(contamination):
            logger.warning(warning)
        crops: set[str] = {one.view.crop for one in classifiers}
        sets = [without_seen(with_crop(one, crops), config, seen, self.progress) for one in sets]
        known = {
            one.name: knowledge_of_training(
                one.trained_on(), hub=one.weights.source in ("hub", "package"), compared=config.source.hashes
            )
            for one in classifiers
        }
        return _ClassifierTestSetup(config, device, classifiers, sets, matchings, known, contamination)

    def default_out(self, setup: _ClassifierTestSetup) -> Path:
        sources = "+".join(dict.fromkeys(one.label for one in setup.sets))
        classifier = setup.classifiers[0].name if len(setup.classifiers) == 1 else "several"
        return in_runs("test", sources, classifier.replace("=", "-"))

    def new_record(self, setup: _ClassifierTestSetup) -> RunRecord:
        sources = [one.record() for one in setup.sets]
        data = Data(
            sources=sources,
            sha256=sha256_of_text(str([one.content() for one in sources])),
            contamination=list(setup.contamination) or None,
        )
        classifiers = Classifiers(
            networks=[one.record() for one in setup.classifiers],
            sha256=sha256_of_text(joint_sha256_text(setup.classifiers)),
        )
        out = self.default_out(setup)
        return new_record("test", out, setup.config, setup.device, self.command, data, classifiers=classifiers)

    def train(self, setup: _ClassifierTestSetup, run: RunDirectory) -> list[Tested]:
        """Run every classifier over every set of images; nothing is trained."""
        fabric = setup.device.fabric()
        tested = []
        for classifier in setup.classifiers:
            for images in setup.sets:
                matching = setup.matchings[classifier.name, images.label]
                found, speed = answers_of(classifier, images, matching, fabric, setup.config.batch_size, self.progress)
                for head, answers in found.items():
                    tested.append(Tested(classifier, head, images, matching, answers, speed))
        return tested

    def conclude(self, setup: _ClassifierTestSetup, run: RunDirectory, trained: list[Tested]) -> None:
        write_csv(run.path / "predictions.csv", pd.concat([one.predictions() for one in trained], ignore_index=True))
        write_csv(run.path / "per_class.csv", pd.concat([one.per_class() for one in trained], ignore_index=True))
        result = TestRecord(
            classifiers=[_entry(one) for one in setup.classifiers],
            sources=[source_entry(one, setup.known, setup.config.leaks != "report") for one in setup.sets],
            results=[one.figures() for one in trained],
            disagreement=disagreement(trained),
            machine=TestMachine(**dict(setup.device.record()), batch_size=setup.config.batch_size),
            contamination=list(setup.contamination) or None,
        )
        save_record(run.path / "test.json", result)

    def report(self, run: RunDirectory) -> None:
        report_test(run.path)


def _entry(classifier: FixedClassifier) -> TestedClassifier:
    """Return the entry ``classifiers`` of ``test.json``."""
    return TestedClassifier(
        name=classifier.name,
        model=classifier.spec.name,
        heads=list(classifier.heads),
        n_classes=len(classifier.classes),
        classes_origin=classifier.classes_origin,
        parameters=classifier.n_parameters,
        weights=classifier.weights.record(),
        preprocessing=classifier.view,
    )
