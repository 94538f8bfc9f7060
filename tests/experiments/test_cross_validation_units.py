"""Training with one vote a lesion and attention over its views, from a phantom with views to the figures of lesions."""

import numpy as np
import pytest

from tests.conftest import TINY
from tests.processes import command_line, ended_well, run
from usvit.config import RunConfig
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.records import MetricsRecord, ModelMetadata, load_record

pytestmark = pytest.mark.slow
ATTENTION = ("--unit", "lesion", "--pooling", "attention", "--set", "loss.vote=lesion")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    write_phantom(PhantomSpec(n=60, size=64, views=4, lesions=2, exams=2), folder / "phantom")
    return folder


@pytest.mark.parametrize("how", ["fitted", "trained"])
def test_a_run_pools_the_views_of_a_lesion_by_attention(root, tmp_path, how):
    out = tmp_path / "run"
    two = ("--set", "data.classes=[benign,malignant]", "--set", f"loss.attention={how}")
    ended_well(run(command_line, "cv", "--data-root", str(root), "--out", str(out), *TINY, *ATTENTION, *two))
    table = read_predictions(out / "predictions.csv")
    assert np.isfinite(table["view_score"]).all()
    metrics = load_record(out / "metrics.json", MetricsRecord)
    assert (metrics.unit.unit, metrics.unit.pooling) == ("lesion", "attention")
    assert metrics.n_images == table["lesion_id"].nunique()
    metadata = load_record(out / "fold-0" / "model.json", ModelMetadata)
    assert (metadata.attention.unit, metadata.attention.fitted) == ("lesion", how)
    assert (out / "fold-0" / metadata.attention.file).is_file()
    assert metadata.unit_thresholds.units.pooling == "attention"
    page = (out / "report.html").read_text()
    assert "lesion" in page


def voted_logits(root, folder, vote):
    out = folder / vote
    two = ("--set", "data.classes=[benign,malignant]", "--set", "split.folds=2", "--set", f"loss.vote={vote}")
    ended_well(run(command_line, "cv", "--data-root", str(root), "--out", str(out), *TINY, *two))
    return read_predictions(out / "predictions.csv")["logit_malignant"].to_numpy()


def test_votes_change_what_is_learnt_where_patients_have_different_numbers_of_images(root, tmp_path):
    by_image, by_patient = (voted_logits(root, tmp_path, vote) for vote in ("image", "patient"))
    assert np.abs(by_image - by_patient).max() > 1e-3


def test_votes_change_nothing_where_every_patient_has_one_image(tmp_path):
    write_phantom(PhantomSpec(n=40, size=64, views=1), tmp_path / "root" / "phantom")
    by_image, by_patient = (voted_logits(tmp_path / "root", tmp_path, vote) for vote in ("image", "patient"))
    np.testing.assert_allclose(by_image, by_patient, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"loss": {"attention": "trained"}}, "set loss.vote to lesion, breast, exam or patient"),
        ({"units": {"unit": "lesion", "pooling": "attention"}}, "set loss.vote to the unit"),
        (
            {"loss": {"attention": "trained", "vote": "lesion"}, "train": {"steps": 1, "micro_batch": 4}},
            "set train.micro_batch to null",
        ),
        ({"loss": {"attention": "trained", "vote": "lesion", "mask_weight": 1}}, "set loss.mask_weight to 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, said):
    with pytest.raises((UsvitError, ValueError), match=said):
        RunConfig.model_validate({"train": {"steps": 1}, **settings})
