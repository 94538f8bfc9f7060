"""Distance to the training images, its limits, and what is refused."""

import dataclasses

import numpy as np
import pytest
import sklearn
from pydantic import ValidationError
from sklearn.covariance import LedoitWolf, ledoit_wolf_shrinkage

from tests.records.contents import content, network
from usvit.errors import UsvitError
from usvit.models import ood
from usvit.models.ood import (
    NOVELTY_FILE,
    Observed,
    OodDetector,
    conformal_quantile,
    fit_gaussian,
    fit_ood_detector,
    read_ood_detector,
)
from usvit.records import ModelMetadata
from usvit.records.model import InDistribution

SIZE = 23


def observed(rng, n, dimensions=16, shift=0.0, code=None):
    """Features around one direction a class, and statistics around zero."""
    directions = np.random.default_rng(9).normal(size=(3, dimensions))
    code = rng.integers(0, 3, n) if code is None else code
    features = directions[code] + rng.normal(size=(n, dimensions)) * 0.2 + shift
    statistics = rng.normal(size=(n, SIZE)) * np.linspace(0.02, 1, SIZE) + shift
    return Observed(features.astype(np.float32), statistics.astype(np.float32)), code


@pytest.fixture
def fitted():
    rng = np.random.default_rng(0)
    train, code = observed(rng, 300)
    return fit_ood_detector(train, code, observed(rng, 100)[0], range(100))


@pytest.mark.parametrize("n", [400, 30])  # more images than dimensions, and fewer
def test_distances_are_mahalanobis_under_scikit_learn_s_shrunk_covariance(n):
    rng = np.random.default_rng(1)
    values = rng.normal(size=(n, 60)) @ rng.normal(size=(60, 60)) * 0.3
    code = rng.integers(0, 3, n)
    view = fit_gaussian(values, code, "features")
    means = np.stack([values[code == k].mean(0) for k in range(3)])
    with sklearn.config_context(assume_finite=False):
        precision = LedoitWolf(assume_centered=True).fit(values - means[code]).precision_
    x = rng.normal(size=(7, 60)) * 2
    away = x[:, None] - means
    expected = np.sqrt(np.einsum("nci,ij,ncj->nc", away, precision, away).min(1))
    np.testing.assert_allclose(view.distance(x), expected, rtol=0.01)  # directions within 1 % of the rest are the rest


def test_length_of_the_features_says_nothing_and_direction_does(fitted):
    seen, _ = observed(np.random.default_rng(2), 20)
    longer = Observed(seen.features * 7, seen.statistics)
    np.testing.assert_allclose(fitted.of(longer), fitted.of(seen), rtol=1e-4)
    turned = Observed(-seen.features, seen.statistics)
    assert (fitted.of(turned) > 3).all()


@pytest.mark.parametrize("view", ["features", "statistics"])
def test_either_view_alone_calls_an_image_unusual(fitted, view):
    seen, _ = observed(np.random.default_rng(3), 50)
    far = dataclasses.replace(seen, **{view: getattr(seen, view) + np.float32(4)})
    assert (fitted.of(far) > 1).mean() > 0.95 and (fitted.of(seen) > 1).mean() < 0.2


def test_images_like_the_training_images_are_flagged_at_the_stated_rate_with_both_views():
    rng, flagged = np.random.default_rng(4), []
    for _ in range(40):
        train, code = observed(rng, 80)
        novelty = fit_ood_detector(train, code, observed(rng, 60)[0], range(60))
        assert novelty.rate == 0.05
        flagged.append((novelty.of(observed(rng, 200)[0]) > 1).mean())
    assert np.mean(flagged) == pytest.approx(0.05, abs=0.015)


def test_the_quantile_is_the_conformal_one_and_the_largest_of_too_few():
    assert conformal_quantile(np.arange(1.0, 20), np.arange(19), 0.05) == 19  # rank ceil(20 * 0.95) of 19
    assert conformal_quantile(np.arange(1.0, 100), np.arange(99), 0.05) == 95
    assert conformal_quantile(np.array([3.0, 1, 2]), np.arange(3), 0.05) == 3


def test_a_patient_s_images_share_one_weight_in_the_quantile():
    # 39 patients; the first has 61 images, all of them far out. By image, rank 95 of 100 would lie among these.
    code = np.concatenate([np.zeros(61, int), np.arange(1, 40)])
    values = np.where(code == 0, 1000.0, code)
    # Weights of 1 / 41 a patient: 39 of the others sum to 0.951, so that the largest of these is the limit.
    assert conformal_quantile(values, code, 0.05) == 39


@pytest.mark.slow
@pytest.mark.parametrize(("n", "images"), [(19, 1), (19, 3), (60, 1)])
def test_scale_and_limit_of_different_images_keep_the_promise_with_few_of_them(n, images):
    """With both of the same 19 images the rate was 0.097; see the table 'novelty' of benchmarks.coverage."""
    flagged = []
    for trial in range(250):
        rng = np.random.default_rng([n, images, trial])
        train, code = observed(rng, 60)
        own = rng.normal(size=(n, 1)).repeat(images, 0) * 0.5  # images of one patient lie alike
        val = observed(rng, n * images)[0]
        val.statistics[:] += own
        new = observed(rng, 200)[0]
        new.statistics[:] += rng.normal(size=(200, 1)) * 0.5
        novelty = fit_ood_detector(train, code, val, np.arange(n).repeat(images))
        assert novelty.rate == 0.05 and novelty.note is None
        flagged.append((novelty.of(new) > 1).mean())
    error = np.std(flagged) / len(flagged) ** 0.5
    assert np.mean(flagged) < 0.05 + 3 * error


def test_with_few_inner_validation_images_the_rate_is_stated_as_it_is():
    rng = np.random.default_rng(5)
    train, code = observed(rng, 50)
    found = fit_ood_detector(train, code, observed(rng, 4)[0], range(4))
    assert found.rate == pytest.approx(0.2) and "4 groups" in found.note and "guaranteed rate is 20.0%" in found.note
    assert found.record(b"", MEASURED).note == found.note


def test_a_few_odd_training_images_do_not_make_the_odd_usual():
    rng = np.random.default_rng(6)
    train, code = observed(rng, 200)
    grey = train.statistics.copy()
    grey[:, 4] = 0  # no colour but in 4 of 200
    grey[:4, 4] = 0.5
    val = observed(rng, 60)[0]
    val.statistics[:, 4] = 0
    novelty = fit_ood_detector(Observed(None, grey), code, Observed(None, val.statistics), range(60))
    coloured = val.statistics.copy()
    coloured[:, 4] = 0.5
    assert (novelty.of(Observed(None, coloured)) > 2).all()


@pytest.mark.parametrize(
    ("features", "says"),
    [
        (None, "no classifier"),
        (np.ones((40, 8), np.float32), "are equal"),
        (np.full((40, 8), np.nan, np.float32), "not finite"),
    ],
)
def test_without_features_the_picture_alone_is_judged_and_it_says_so(features, says):
    rng = np.random.default_rng(7)
    train, code = observed(rng, 40)
    novelty = fit_ood_detector(
        Observed(features, train.statistics), code, Observed(features, train.statistics), range(40)
    )
    assert list(novelty.views) == ["picture"] and says in novelty.left_out["features"]


def test_pictures_that_are_all_one_still_have_a_limit_or_a_reason():
    rng = np.random.default_rng(8)
    train, code = observed(rng, 40)
    same = np.zeros((40, SIZE), np.float32)
    novelty = fit_ood_detector(Observed(train.features, same), code, Observed(train.features, same), range(40))
    assert list(novelty.views) == ["features"] and "median distance" in novelty.left_out["picture"]
    assert "picture: " in fit_ood_detector(Observed(None, same), code, Observed(None, same), range(40))


def test_without_inner_validation_images_there_is_a_reason():
    train, code = observed(np.random.default_rng(10), 40)
    assert "no inner validation images" in fit_ood_detector(train, code, train[np.array([], dtype=np.int64)], [])


MEASURED = InDistribution.model_validate(content("model")["novelty"]["in_distribution"])


def write(folder, novelty: OodDetector):
    folder.mkdir(exist_ok=True)
    content = novelty.save()
    (folder / NOVELTY_FILE).write_bytes(content)
    return ModelMetadata.model_validate(network(novelty=novelty.record(content, MEASURED).content()))


def test_what_is_written_judges_bit_for_bit_as_what_was_fitted(fitted, tmp_path):
    metadata = write(tmp_path, fitted)
    seen, _ = observed(np.random.default_rng(11), 30)
    again = read_ood_detector(tmp_path, metadata)
    assert np.array_equal(again.of(seen), fitted.of(seen)) and again.save() == fitted.save()
    assert read_ood_detector(tmp_path, ModelMetadata(**network())) is None


def test_a_missing_exchanged_or_damaged_file_is_told(fitted, tmp_path):
    metadata = write(tmp_path, fitted)
    content = (tmp_path / NOVELTY_FILE).read_bytes()
    (tmp_path / NOVELTY_FILE).write_bytes(content[:-1] + b"x")
    with pytest.raises(UsvitError, match=r"novelty.safetensors is not the file that the model.json"):
        read_ood_detector(tmp_path, metadata)
    (tmp_path / NOVELTY_FILE).unlink()
    with pytest.raises(UsvitError, match=r"has no readable novelty.safetensors"):
        read_ood_detector(tmp_path, metadata)
    (tmp_path / NOVELTY_FILE).write_bytes(content)
    for damage in (
        lambda record: record["views"]["picture"].update(threshold=-1),
        lambda record: record.pop("left_out"),
        lambda record: record["views"].update(features=7),
    ):
        damaged = metadata.content()
        damage(damaged["novelty"])
        with pytest.raises(ValidationError, match="novelty"):
            ModelMetadata.model_validate(damaged)
    metadata.novelty.views.clear()
    with pytest.raises(UsvitError, match="is damaged"):
        read_ood_detector(tmp_path, metadata)
    metadata.novelty.statistics = ["mean"]
    with pytest.raises(UsvitError, match="with other image statistics"):
        read_ood_detector(tmp_path, metadata)


def test_arrays_that_do_not_belong_together_are_refused(fitted, tmp_path):
    view = fitted.views["picture"]
    odd = dataclasses.replace(fitted, views={**fitted.views, "picture": dataclasses.replace(view, rest=view.rest * 0)})
    with pytest.raises(UsvitError, match="do not match"):
        read_ood_detector(tmp_path, write(tmp_path, odd))


@pytest.mark.parametrize("rank", [3, 40])
def test_the_shrinkage_of_many_features_is_that_of_scikit_learn(rank):
    rng = np.random.default_rng(rank)
    away = rng.normal(size=(40, rank)) @ rng.normal(size=(rank, 4100)) + 0.1 * rng.normal(size=(40, 4100))
    assert ood._shrinkage(away) == pytest.approx(ledoit_wolf_shrinkage(away, assume_centered=True), rel=1e-9)
