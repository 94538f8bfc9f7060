"""``usvit shape plan``, ``fit`` and ``predict`` as their user meets them."""

import json
import re

import pytest

from usvit.upstream.scaling import example_sweep
from usvit.upstream.scaling.step_time import StepTime


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "study.csv"
    path.write_text(example_sweep(0.0005))
    return path


def test_a_sweep_is_planned(usvit, tmp_path, monkeypatch):
    monkeypatch.setattr("usvit.upstream.scaling.step_time.measure_step_time", lambda *_: StepTime(0.01, 1e-10))
    words = ["--center", "64,4,128", "--widths", "16,24,40", "--depths", "1,2,3", "--mlps", "16,32,64"]
    words += ["--head-dim", "8", "--set", "model.vit.patch=8", "--set", "model.image_size=32"]
    budgets = ["--budget", "1e11", "--budget", "4e11", "--out", str(tmp_path / "sweep.yaml")]
    result = usvit("shape", "plan", *budgets, *words)
    assert result.code == 0 and "18 trainings" in result.out and "w16-d4-m128" in result.out
    budgets[-1] = str(tmp_path / "other.yaml")
    told = json.loads(usvit("shape", "plan", *budgets, *words, "--json").out)
    assert len(told["trainings"]) == 18 and told["study"].endswith("other.yaml")


def test_a_sweep_is_fitted_and_a_shape_predicted(usvit, table, tmp_path):
    result = usvit("shape", "fit", str(table), "--draws", "50")
    assert result.code == 0, result.err
    assert re.search(r"^width +\d+, .* 0\.2\d\d \[", result.out, flags=re.M) and "scaling.html" in result.out
    result = usvit("shape", "predict", str(tmp_path / "shape-fit"), "--flops", "1e20", "--heads", "16")
    assert result.code == 0, result.err
    assert "predicted" in result.out and "sovit_400m_14" in result.out and "1,152" in result.out
    told = json.loads(usvit("shape", "predict", str(tmp_path / "shape-fit"), "--flops", "1e20", "--json").out)
    assert told["method"] == "surface"


def test_what_is_not_identified_is_said_and_not_printed(usvit, tmp_path):
    path = tmp_path / "study.csv"
    path.write_text(example_sweep(0.2))
    result = usvit("shape", "fit", str(path), "--draws", "50")
    assert result.code == 2 and "The data do not identify" in result.err and result.err.count("\n") == 1
    assert "not identified" in result.out and (tmp_path / "shape-fit" / "scaling.json").is_file()
    result = usvit("shape", "predict", str(tmp_path / "shape-fit"), "--flops", "1e20")
    assert result.code == 2 and "Nothing is predicted" in result.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fit", "absent.csv"], "absent.csv"),
        (["plan", "--budget", "much"], "--budget"),
        (
            ["plan", "--budget", "1e12", "--widths", "a,b"],
            "--widths: give whole numbers, separated",
        ),
        (["plan", "--budget", "1e12", "--grid", "1,2"], "32,64:2,4:64,128"),
        (["predict", "absent", "--flops", "1e20"], "usvit shape fit"),
        (["predict", "absent", "--flops", "0"], "above 0"),
        (["predict", "absent", "--flops", "1", "--fix", "mlp"], "mlp=1536"),
    ],
)
def test_wrong_input_is_one_line(usvit, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    result = usvit("shape", *words)
    assert result.code == 2 and said in result.err and "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []
