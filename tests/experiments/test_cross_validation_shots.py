"""Trainings on a few images of each class, by the real command."""

import numpy as np
import pandas as pd
import pytest

from usvit.data.splits import seen_by
from usvit.evaluation.predictions import read_predictions
from usvit.experiments import fold_training
from usvit.records import ModelMetadata, load_record

SMALL = ("--device", "cpu", "--precision", "fp32", "--model", "timm:test_resnet", "--weights", "scratch")
SETTINGS = ("model.image_size=32", "train.steps=2", "train.batch_size=8", "split.folds=2", "folds_at_once=1")
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_report")]


def options(*settings):
    return *SMALL, *(part for one in (*SETTINGS, *settings) for part in ("--set", one))


def test_only_the_drawn_images_are_trained_on_and_the_others_are_not_seen(usvit, small_phantom, tmp_path, monkeypatch):
    trained, real = [], fold_training.train_batches
    monkeypatch.setattr(
        fold_training,
        "train_batches",
        lambda store, rows, *more, **a: trained.append(rows) or real(store, rows, *more, **a),
    )
    for number, more in enumerate(((), ("shots=2",))):
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / str(number), *options(*more))
        assert answer.code == 0, answer.err
    table = pd.read_parquet(tmp_path / "1" / "manifest.parquet")
    for fold, (every, few) in enumerate(zip(trained[:2], trained[2:], strict=True)):
        assert set(few) < set(every)
        assert table.label.iloc[few].value_counts().to_dict() == {"benign": 2, "malignant": 2, "normal": 2}
        of_fold = [read_predictions(tmp_path / n / f"fold-{fold}" / "predictions.csv") for n in ("0", "1")]
        assert of_fold[0].image_id.tolist() == of_fold[1].image_id.tolist()  # validation and test stay whole
        folder = tmp_path / "1" / f"fold-{fold}"
        seen = seen_by(load_record(folder / "model.json", ModelMetadata), folder)
        assert seen.listed["train"] == set(table.sha256.iloc[few])
    assert not np.array_equal(*[sorted(few) for few in trained[2:]])


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (("shots=500",), "images of each class, but class 'normal' has"),
        (("shots=0",), "shots"),
        (
            ("shots=2", "optim.name=logistic", "optim.refit=true", "model.tune=head", "input.augment=none"),
            "shots to null",
        ),
    ],
)
def test_shots_that_cannot_be_drawn_are_refused_before_anything_is_written(
    usvit, small_phantom, tmp_path, settings, says
):
    answer = usvit("train", "--data-root", small_phantom, "--out", tmp_path / "run", *options(*settings))
    assert answer.code == 2 and says in " ".join(answer.err.split()) and "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()
