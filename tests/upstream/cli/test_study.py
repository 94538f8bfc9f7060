"""``usvit study`` as its user meets it."""

import json
import sys

import jsonschema
import pytest

from tests.dying import kill
from tests.upstream.studies.conftest import (
    RESNET,
    SCHEMA,
    VIT,
    finished,  # noqa: F401 - a fixture
    predictions,
    write_study,
)

pytestmark = pytest.mark.slow


def test_a_dry_run_lists_the_runs_and_makes_none(usvit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = usvit("study", write_study(tmp_path / "tiny.yaml"), "--dry-run", "--seeds", 2)
    assert answer.code == 0
    assert answer.out.split() == [RESNET, VIT, RESNET[:-1] + "1", VIT[:-1] + "1"]
    assert not (tmp_path / "studies").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("gheflati2022_table5",), "Nearest: gheflati2022_table"),
        (("gheflati2022_table1", "--set", "train.stepps=3"), "Nearest: train.steps"),
        (("gheflati2022_table1", "--set", "model.name=vgg16"), "grid.models"),
        (("gheflati2022_table1", "--dataset", "phantm"), "Nearest: phantom"),
        (("gheflati2022_table1", "--engine", "spark"), "Known: ray, sequential"),
        (("gheflati2022_table1", "--address", "auto"), "--engine ray"),
        (("gheflati2022_table1", "--scale", "small"), "Known: paper, tiny"),
        (("gheflati2022_table1", "--paper", "gheflati2022"), "'usvit study list' and 'usvit study all'"),
        (("gheflati2022_table1", "--hours"), "'usvit study list'"),
        (("list", "--paper", "gheflati2021"), "Nearest: gheflati2022"),
    ],
)
def test_a_users_mistake_is_one_paragraph_and_exit_2(usvit, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    answer = usvit("study", *arguments)
    assert answer.code == 2 and says in answer.err and "Traceback" not in answer.err
    assert not (tmp_path / "studies").exists()


def test_the_list_shows_each_table_and_with_hours_its_estimated_time(usvit):
    quick = usvit("study", "list", "--paper", "gheflati2022")
    assert quick.code == 0 and quick.out.splitlines()[0].endswith("rows")
    answer = usvit("study", "list", "--paper", "gheflati2022", "--hours")
    assert answer.code == 0
    header, *lines = answer.out.splitlines()
    assert header.split("  ")[0] == "study" and header.endswith("H200-hours (estimate)")
    assert [line.split()[0] for line in lines] == [
        "gheflati2022_by_image",
        *(f"gheflati2022_table{number}" for number in (1, 2, 3, 4)),
    ]
    found = json.loads(usvit("study", "list", "--paper", "gheflati2022", "--hours", "--json").out)
    assert [one["table"] for one in found] == ["Tables I and II", "Table I", "Table II", "Table III", "Table IV"]
    assert [one["n_rows"] for one in found] == [int(line.split()[-1]) for line in quick.out.splitlines()[1:]]
    assert [one["n_runs"] for one in found] == [18, 4, 5, 5, 6] and all(0 < one["h200_hours"] < 1 for one in found)


@pytest.mark.usefixtures("without_report")  # of the runs; those of the studies are made
def test_all_studies_of_a_paper_share_their_runs(usvit, tmp_path, small_phantom):
    shared = ("--scale", "tiny", "--out", tmp_path / "out", "--cpus", 1, "--device", "cpu")
    shared += ("--data-root", small_phantom)
    answer = usvit("study", "gheflati2022_table1", "gheflati2022_table4", *shared)
    assert answer.code == 0 and answer.out.count("page: ") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "gheflati2022_table1-tiny",
        "gheflati2022_table4-tiny",
        "runs",
    }
    dry = usvit("study", "all", "--paper", "gheflati2022", "--scale", "tiny", "--dry-run")
    runs = {path.name for path in (tmp_path / "out" / "runs").iterdir()}
    assert dry.code == 0 and runs <= set(dry.out.split()), "the runs of two of the four tables"


def test_a_finished_study_prints_its_table_and_its_state(finished, small_phantom, tmp_path, usvit):  # noqa: F811
    file = write_study(tmp_path / "tiny.yaml")
    options = ("--out", finished.path, "--data-root", small_phantom, "--cpus", 1)
    answer = usvit("study", file, *options)
    assert answer.code == 0 and "2 of 2 runs finished" in answer.out and "Tiny/8" in answer.out
    assert str(finished.path / "study.html") in answer.out
    answer = usvit("study", file, *options, "--json")
    jsonschema.validate(json.loads(answer.out), SCHEMA)


def test_while_any_run_fails_the_exit_code_is_3(tmp_path, usvit):
    answer = usvit(
        *("study", write_study(tmp_path / "tiny.yaml"), "--out", tmp_path / "study"),
        *("--data-root", tmp_path / "nowhere", "--cpus", 1),
    )
    assert answer.code == 3 and "0 of 2 runs finished, 2 failed" in answer.out
    assert answer.out.count("does not exist. Pass --data-root DIR") == 2
    assert {run["attempts"] for run in json.loads((tmp_path / "study" / "study.json").read_text())["runs"]} == {1}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_study_killed_in_its_second_run_goes_on_there_to_the_same_predictions(
    finished,  # noqa: F811
    small_phantom,
    tmp_path,
    usvit,
):
    out = tmp_path / "study"
    file = write_study(tmp_path / "tiny.yaml")
    arguments = ["study", str(file), "--out", str(out), "--data-root", str(small_phantom), "--cpus", "1"]
    every_step = ["--set", "train.checkpoint_seconds=0"]
    kill([*arguments, *every_step], 18, "after")  # each run saves 15 times
    states = {run["id"]: run["state"] for run in json.loads((out / "study.json").read_text())["runs"]}
    assert states == {RESNET: "finished", VIT: "running"}
    before = (out / "runs" / RESNET / "predictions.csv").stat().st_mtime_ns
    assert usvit(*arguments, *every_step).code == 0
    assert predictions(out) == predictions(finished.path)
    assert (out / "runs" / RESNET / "predictions.csv").stat().st_mtime_ns == before
