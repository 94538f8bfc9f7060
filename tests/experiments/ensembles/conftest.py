"""Two tiny runs with the same folds, and one with other folds, that the tests of ensembles share."""

import shutil

import pytest

import usvit

SMALL = {
    "recipe": "demo",
    "weights": "scratch",
    "model__image_size": 32,
    "train__batch_size": 8,
    "train__epochs": None,
    "train__steps": 12,
    "split__folds": 2,
    "optim__lr": 0.003,
    "optim__warmup_steps": 0,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture(scope="session")
def trained(small_phantom, tmp_path_factory):
    """``a`` and ``b`` with the same two folds of the small phantom, and ``c`` with others."""
    out = tmp_path_factory.mktemp("members")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reports.write_report", lambda path: None)
        for name, model, seed in (
            ("a", "timm:test_resnet", 0),
            ("b", "timm:test_vit", 0),
            ("c", "timm:test_resnet", 7),
        ):
            usvit.cross_validate("phantom", model, data_root=small_phantom, out=out / name, seed=seed, **SMALL)
    return out


@pytest.fixture
def runs(trained, tmp_path):
    """The same in a folder that a test may change."""
    return shutil.copytree(trained, tmp_path / "runs")
