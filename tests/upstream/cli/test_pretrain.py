"""``usvit pretrain``: what it lists, what it prints in the end, and the options of its own."""

import sys

import pytest

from tests.records.contents import content
from usvit.cli import main
from usvit.cli.printing import go_on
from usvit.records import RunRecord


@pytest.fixture
def usvit(monkeypatch, capsys):
    def called(*words):
        monkeypatch.setattr(sys, "argv", ["usvit", "pretrain", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return called


def test_cells_are_listed_with_those_that_are_recommended(usvit):
    _, out, _ = usvit("--recipe", "augreg_i21k", "--list-cells")
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert len(rows) == 28
    assert rows["medium1-plain-wd0.1"] == ["recommended:", "vit_b16"] and rows["none-reg-wd0.1"] == []


def test_cells_of_a_recipe_without_a_sweep_are_an_error(usvit):
    code, _, err = usvit("--recipe", "fractals", "--list-cells")
    assert code == 2 and "has no sweep" in err


@pytest.mark.parametrize("option", [["--dataset", "busi"], ["--folds", "folds.csv"]])
def test_a_data_set_that_would_not_be_learnt_from_is_refused(option, usvit):
    code, _, err = usvit("--recipe", "mae", *option)
    assert code == 2 and "those of imagenet" in err and "--source data" in err and "source.exclude" in err


def test_the_next_command_names_the_network_with_its_parts(tmp_path):
    def record(kind, source):
        whole = content(f"run-{kind}")
        whole["config"] |= {"source": {"name": source}, "data": whole["config"].get("data", {}) | {"dataset": "busi"}}
        whole["model"] |= {"name": "vit_ti16", "vit": {"width": 32, "head": "hidden"}}
        return RunRecord.model_validate(whole)

    run = tmp_path / "a run"
    of_folds = go_on(run, record("pretrain", "phantom+data"))  # the head of the pre-training is replaced
    assert of_folds == f"usvit cv --dataset busi --model vit_ti16 --weights '{run}' --set model.vit.width=32"
    assert "--dataset DATASET" in go_on(run, record("pretrain", "fractals"))
    # A transfer to a data card has seen its hold-out: other folds of it are refused.
    assert "--dataset DATASET" in go_on(run, record("transfer", "data"))
