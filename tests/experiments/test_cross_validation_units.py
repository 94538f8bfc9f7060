"""Training with one vote a lesion and attention over its views, from a phantom with views to the figures of lesions."""

import numpy as np
import pandas as pd
import pytest

import usvit as package
from tests.conftest import TINY, tiny_settings
from tests.data.conftest import speckle, write_dicom
from usvit.config import RunConfig
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.records import MetricsRecord, ModelMetadata, SummaryRecord, load_record
from usvit.reports.scores_document import units_sentence

pytestmark = pytest.mark.slow
ATTENTION = ("--unit", "lesion", "--pooling", "attention", "--set", "loss.vote=lesion")


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    write_phantom(PhantomSpec(n=60, size=64, views=4, lesions=2, exams=2), folder / "phantom")
    return folder


@pytest.mark.parametrize("how", ["fitted", "trained"])
def test_a_run_pools_the_views_of_a_lesion_by_attention(usvit, root, tmp_path, how):
    out = tmp_path / "run"
    two = ("--set", "data.classes=[benign,malignant]", "--set", f"loss.attention={how}")
    answer = usvit("cv", "--data-root", root, "--out", out, *TINY, *ATTENTION, *two)
    assert answer.code == 0, answer.err
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


def voted(root, folder, vote, **more):
    """Train two folds, and leave out the report, which the runs above have."""
    settings = tiny_settings() | {"data": {"classes": ["benign", "malignant"]}, "loss": {"vote": vote}, **more}
    settings["split"] = {"folds": 2}
    given = {f"{section}__{name}": value for section, values in settings.items() for name, value in values.items()}
    plain = {"weights": "scratch", "device": "cpu", "precision": "fp32"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reports.write_report", lambda path: None)
        run = package.cross_validate("phantom", "timm:test_resnet", data_root=root, out=folder / vote, **plain, **given)
    return run.path


def voted_logits(run):
    return read_predictions(run / "predictions.csv")["logit_malignant"].to_numpy()


@pytest.fixture(scope="module")
def of_lesions(root):
    """Two folds with thresholds of lesions, trained image by image."""
    return voted(root, root / "runs", "image", units={"unit": "lesion"})


def test_votes_change_what_is_learnt_where_patients_have_different_numbers_of_images(root, of_lesions, tmp_path):
    by_patient = voted(root, tmp_path, "patient")
    assert np.abs(voted_logits(of_lesions) - voted_logits(by_patient)).max() > 1e-3


def test_a_model_of_lesions_decides_studies_at_the_threshold_of_images_and_says_so(of_lesions, tmp_path, caplog):
    for number in range(6):
        study = {"StudyInstanceUID": f"1.2.{number // 3}", "PatientID": f"P{number // 3}"}
        write_dicom(tmp_path / "images" / f"{number}.dcm", speckle(number), **study)
    scored = package.score(of_lesions, tmp_path / "images", tmp_path / "scores", key=tmp_path / "key", device="cpu")
    assert scored.summary.counts.studies == 2
    model = load_record(tmp_path / "scores" / "summary.json", SummaryRecord).model
    assert (model.unit.unit, model.unit.pooling, model.unit.decides) == ("lesion", "mean", None)
    assert "out-of-fold lesions" in model.unit.origin and "out-of-fold images" in model.threshold_origin
    assert model.unit.threshold != model.threshold
    studies = pd.read_csv(tmp_path / "scores" / "studies.csv")
    assert studies["threshold"].tolist() == pytest.approx([model.threshold] * 2, abs=1e-6)
    called = np.where(studies["mean_calibrated_malignant"] >= model.threshold, "malignant", "not malignant")
    assert studies["decision"].tolist() == called.tolist()
    said = "the model's own is for lesions by mean, which these tables do not have"
    assert said in units_sentence(scored.summary)
    assert "threshold is for lesions by mean, of which usvit score has no table" in caplog.text


def test_votes_change_nothing_where_every_patient_has_one_image(tmp_path):
    write_phantom(PhantomSpec(n=40, size=64, views=1), tmp_path / "root" / "phantom")
    by_image, by_patient = (voted_logits(voted(tmp_path / "root", tmp_path, vote)) for vote in ("image", "patient"))
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
        ({"loss": {"attention_layers": 2}}, "or loss.attention_layers to 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings, said):
    with pytest.raises((UsvitError, ValueError), match=said):
        RunConfig.model_validate({"train": {"steps": 1}, **settings})
