"""Which images a transfer must not test, and the parts of the thesis's Tables 2.8 and 2.13."""

import shutil
from dataclasses import replace

import pytest

from tests.upstream.transfer_learning.conftest import CLASSES
from tests.upstream.transfer_learning.test_experiment import run
from usvit.config import build
from usvit.errors import LeakageError
from usvit.progress import NoProgress
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.transfer_learning.transfer_setup import forbidden, prepare

pytestmark = pytest.mark.slow

TRAINING = {"train": {"steps": 2, "batch_size": 6}, "views": {"test_crop": 1.0, "crop": "resize"}}


@pytest.fixture
def coarse(tmp_path):
    file = tmp_path / "coarse.csv"
    file.write_text("class,coarse\nbars,b\ndots,d\ngrass,d\n")
    return file


@pytest.fixture
def pretrained(settings, tmp_path):
    """A function that pre-trains a network, and follows its accuracy on the images that will be tested."""

    def train(name, *more):
        keys = ("source", "model", "device", "precision")
        own = {key: settings[key] for key in keys} | TRAINING
        config = build(PretrainConfig, own, {"source": {"val": "test"}}, *more)
        return Pretraining(config, out=tmp_path / name).run().path

    return train


def transferred(settings, weights, out, *more):
    """The images of the test, without validation images."""
    own = {"how": "knn", "model": {"weights": str(weights)}, "source": {"val": None, "val_share": 0.0}}
    return run({**settings, "model": {}}, out, {"source": {"val": None}}, own, *more, named=False).result


def test_validation_images_of_a_training_that_kept_its_last_step_can_be_tested(settings, pretrained, tmp_path):
    one, other = pretrained("one"), pretrained("other", {"seed": 1})
    result = transferred(settings, one, tmp_path / "knn")
    assert (result.images.n_test, result.dropped.seen_by_weights) == (18, 0)
    with pytest.raises(LeakageError, match="has seen images"):  # the better upstream validation would be the choice
        transferred(settings, one, tmp_path / "both", {"upstream": [str(one), str(other)]})

    still = {
        "train": {"steps": 3, "eval_every": 1, "early_stopping": {"keep": "best"}}
    }  # no step is better than the first
    best = pretrained("best", still, {"optim": {"name": "sgd", "lr": 1e-300}})
    with pytest.raises(LeakageError, match="has seen images"):
        transferred(settings, best, tmp_path / "no")
    alone = tmp_path / "alone"  # a folder without run.json does not say whether a cell was chosen
    shutil.copytree(one / "fold-0", alone / "fold-0")
    with pytest.raises(LeakageError, match="has seen images"):
        transferred(settings, alone / "fold-0", tmp_path / "no")


def test_validation_images_that_chose_a_cell_cannot_be_tested(settings, tmp_path):
    cells = {"low": {"optim": {"lr": 1e-4}}, "high": {"optim": {"lr": 1e-3}}}
    chosen = run(settings, tmp_path / "chosen", TRAINING, {"how": "finetune", "cells": cells})
    with pytest.raises(LeakageError, match="has seen images"):
        transferred(settings, chosen.path, tmp_path / "no", {"test": "val"})


def test_images_of_a_data_card_are_never_excepted(settings, pretrained):
    config = build(TransferConfig, settings, {"model": {"weights": str(pretrained("one"))}})
    (setup,) = prepare(config, {}, NoProgress(), model_named=True)
    assert not forbidden(setup, alone=True).of_parts("val").listed
    train = replace(setup.splits.train, manifest=object())
    card = replace(setup, splits=replace(setup.splits, train=train))
    assert len(forbidden(card, alone=True).of_parts("val").listed["val"]) == 18


@pytest.mark.parametrize(("objective", "trained"), [("supervised", "coarse"), ("grafit", "fine")])
def test_the_parts_of_tables_2_8_and_2_13(settings, pretrained, coarse, tmp_path, objective, trained):
    """Trained and tested on coarse and on fine classes, by nearest neighbours and by fine-tuning."""
    grafit = {"hidden": 16, "width": 8} if objective == "grafit" else {}
    of_training = {
        "source": {"coarse": str(coarse) if trained == "coarse" else None},
        "views": {"count": 2 if grafit else 1},
    }
    upstream = pretrained("upstream", {"objective": objective, "grafit": grafit}, of_training)
    for level, classes in (("fine", CLASSES), ("coarse", ("b", "d"))):
        searched = {"source": {"coarse": str(coarse)}} if level == "fine" else {"fine": str(coarse)}
        retrieval = {"how": "retrieval", **searched}
        finetune = {"how": "finetune", **TRAINING}
        finetune["source"] = {"coarse": str(coarse) if level == "coarse" else None}
        for part in (retrieval, finetune):
            result = transferred(settings, upstream, tmp_path / f"{part['how']}-{level}", part)
            assert tuple(result.images.classes) == classes and result.images.n_test == 18
            line = result.summary[0]
            assert (line.mean_average_precision is not None) == (part is retrieval)
            assert (line.map_oracle is not None) == (part is retrieval and level == "fine")
