"""Trackers of experiments, through their own libraries."""

import importlib.util

import pytest

from tests.conftest import TINY
from usvit.errors import UsvitError
from usvit.training import trackers
from usvit.training.trackers import MlflowTracker, WandbTracker, check_trackers


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_a_missing_library_is_named_with_its_command_before_anything_is_written(usvit, small_phantom, tmp_path, name):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trackers, "find_spec", lambda module: None)
        with pytest.raises(UsvitError, match=f"pip install 'usvit\\[{name}\\]'"):
            check_trackers([name])
        options = ("--data-root", small_phantom, "--out", tmp_path / "run", "--set", f"train.loggers=[{name}]")
        said = usvit("cv", *TINY, *options)
    assert said.code == 2 and f"usvit[{name}]" in said.err and not (tmp_path / "run").exists()


def test_an_unknown_tracker_is_refused(usvit):
    said = usvit("cv", "--set", "train.loggers=[neptune]")
    assert said.code == 2 and "train.loggers" in said.err


def test_mlflow_goes_on_after_a_stop_without_repeating_steps(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    fold = tmp_path / "a run" / "fold-1"
    fold.mkdir(parents=True)
    first = MlflowTracker(fold, resumed=False)
    first.log(1, {"train/loss": 0.5, "val_loss": None})
    first.log(2, {"train/loss": 0.25, "val_loss": float("nan")})
    first.close()
    second = MlflowTracker(fold, resumed=True)
    second.log(2, {"train/loss": 0.75})
    second.log(3, {"train/loss": 0.125})
    second.close()
    third = MlflowTracker(fold, resumed=False)  # trained anew: another run
    third.log(1, {"train/loss": 9.0})
    third.close()
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{fold.parent / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("a run")
    again, run = client.search_runs([experiment.experiment_id])  # the newest first
    assert again.data.metrics == {"train/loss": 9.0}
    assert (run.info.run_name, run.info.status, [*run.data.metrics]) == ("fold-1", "FINISHED", ["train/loss"])
    rows = client.get_metric_history(run.info.run_id, "train/loss")
    assert [(one.step, one.value) for one in rows] == [(1, 0.5), (2, 0.25), (3, 0.125)]


def test_wandb_writes_offline_and_without_links(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    fold = tmp_path / "run" / "fold-0"
    fold.mkdir(parents=True)
    tracker = WandbTracker(fold, resumed=False)
    tracker.log(1, {"train/loss": 0.5})
    tracker.close()
    written = [*(tmp_path / "run" / "wandb").rglob("*")]
    assert any(path.suffix == ".wandb" and path.stat().st_size for path in written)
    assert not any(path.is_symlink() for path in written)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mlflow") is None, reason="needs mlflow")
def test_each_fold_of_a_cross_validation_is_a_run(usvit, small_phantom, tmp_path, without_report):
    import mlflow

    out = tmp_path / "run"
    said = usvit("cv", *TINY, "--data-root", small_phantom, "--out", out, "--set", "train.loggers=[mlflow]")
    assert said.code == 0, said.err
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{out / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name("run").experiment_id])
    assert sorted(one.info.run_name for one in runs) == ["fold-0", "fold-1", "fold-2"]
    for one in runs:
        steps = [point.step for point in client.get_metric_history(one.info.run_id, "val_loss")]
        assert steps == [2, 4, 6] and one.data.metrics["train/loss"] > 0
