"""The public functions: settings, overrides and data roots become the configuration of an experiment."""

import subprocess
import sys
from pathlib import Path

import pytest

from usvit import experiments
from usvit.errors import UsvitError
from usvit.experiments.base import Experiment
from usvit.upstream import api


@pytest.fixture
def made(monkeypatch):
    """The experiments that would have been run."""
    found = []
    monkeypatch.setattr(Experiment, "run", lambda self: found.append(self) or self)
    return found


def test_overrides_win_over_settings_and_settings_over_the_recipe(made, tmp_path):
    experiments.cross_validate(
        "phantom", recipe="demo", seed=3, out=tmp_path, train__steps=20, optim__lr=0.5, overrides={"optim.lr": 0.25}
    )
    config = made[0].config
    assert (config.recipe, config.seed, config.train.steps, config.train.epochs, config.optim.lr) == (
        *("demo", 3, 20, None, 0.25),
    )
    assert (made[0].kind, made[0].out) == ("cv", tmp_path)


def test_a_setting_of_none_is_kept_and_an_argument_of_none_is_not(made):
    experiments.train("phantom", recipe="demo", weights=None, optim__clip_norm=None)
    config = made[0].config
    assert (made[0].kind, config.optim.clip_norm, config.model.weights) == ("train", None, "scratch")


@pytest.mark.parametrize(
    "given, expected",
    [(None, {}), ("a", {"": Path("a")}), (Path("a"), {"": Path("a")}), ({"busi": "a"}, {"busi": Path("a")})],
)
def test_data_roots(made, given, expected):
    experiments.cross_validate("phantom", data_root=given)
    assert made[0].roots == expected


def test_the_record_names_the_call(made):
    experiments.cross_validate("phantom", train__steps=1)
    experiments.cross_validate("phantom", command="usvit cv")
    assert [one.command for one in made] == ["usvit.cross_validate(dataset='phantom', train__steps=1)", "usvit cv"]


def test_several_weights_are_compared_and_one_is_not(made):
    api.transfer("knn", "scratch", dataset="phantom")
    api.transfer("knn", ["scratch", "hub"], dataset="phantom")
    assert [type(one).__name__ for one in made] == ["Transfer", "UpstreamSelection"]
    assert made[0].config.model.weights == "scratch" and made[1].config.upstream == ("scratch", "hub")
    assert not made[0].model_named


def test_what_cannot_be_meant_is_refused(made, tmp_path):
    with pytest.raises(UsvitError, match="not both"):
        experiments.cross_validate("phantom", manifest=tmp_path / "manifest.parquet")
    with pytest.raises(UsvitError, match="pretrain_sweep"):
        api.pretrain("augreg_i1k", cell="all")
    with pytest.raises(UsvitError, match="batch_size"):
        experiments.train("phantom", train__batchsize=3)
    assert not made


@pytest.mark.slow
def test_the_facade_imports_no_torch():
    code = "import sys, usvit.experiments as e; e.cross_validate; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_a_training_imports_the_statistics_after_its_first_step(tmp_path):
    code = (
        "import os, sys\n"
        "from usvit.experiments import cross_validate\n"
        "from usvit.progress import NoProgress\n"
        "class UntilFirstStep(NoProgress):\n"
        "    def start(self, name, total, unit, done=0):\n"
        "        if unit == 'steps':\n"
        "            os._exit(bool({'sklearn', 'scipy.stats', 'matplotlib'} & set(sys.modules)))\n"
        "cross_validate('phantom', 'timm:test_resnet', weights='scratch', out='out', progress=UntilFirstStep(),\n"
        "               overrides={'folds_at_once': 1})\n"
        "os._exit(2)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)
