"""``usvit plan validation``, ``accuracy`` and ``compare`` as their user meets them."""

import json

import jsonschema
import pytest

from tests.cli.runs import make_run
from tests.conftest import REPOSITORY

SCHEMA = json.loads((REPOSITORY / "docs/reference/plan.schema.json").read_text())
COMMANDS = {
    "validation": ["--auc", "0.9", "--prevalence", "0.3", "--threshold", "0.1"],
    "accuracy": [
        "--sensitivity",
        "0.9",
        "--specificity",
        "0.8",
        "--prevalence",
        "0.3",
        "--images",
        "3",
        "--icc",
        "0.5",
    ],
    "compare": ["--auc", "0.9", "--auc-b", "0.88", "--correlation", "0.6", "--prevalence", "0.3", "--margin", "0.05"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_plan_prints_the_size_and_writes_its_record_and_page(usvit, name, tmp_path):
    words = ["plan", name, *COMMANDS[name], "--out", tmp_path / "out"]
    answer = usvit(*words)
    assert answer.code == 0, answer.err
    record = json.loads((tmp_path / "out" / "plan.json").read_text())
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    assert answer.out.startswith(f"The study needs at least {record['n_patients']:,} patients")
    assert f"page: {tmp_path / 'out' / 'plan.html'}" in answer.out
    assert json.loads(usvit(*words, "--json").out)["n_patients"] == record["n_patients"]
    html = (tmp_path / "out" / "plan.html").read_text()
    assert "<svg" in html and "http://" not in html.replace("http://www.w3.org", "") and "<script" not in html


def test_a_run_can_be_named(usvit, tmp_path):
    run = make_run(tmp_path / "run", seed=1, skill=1.2, n=120)
    answer = usvit("plan", "validation", "--like", run, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "Images per patient (2.00, CV 0.00) as in run" in answer.out
    assert usvit("plan", "accuracy", "--like", run, "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["validation", "--auc", "0.9"], "--prevalence is missing"),
        (["accuracy", "--prevalence", "0.3"], "--sensitivity is missing"),
        (["compare", "--auc", "0.9", "--auc-b", "0.9", "--prevalence", "0.3", "--correlation", "0.5"], "are equal"),
    ],
)
def test_what_is_missing_is_one_paragraph(usvit, words, said, tmp_path):
    answer = usvit("plan", *words, "--out", tmp_path / "out")
    assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1 and not (tmp_path / "out").exists()
