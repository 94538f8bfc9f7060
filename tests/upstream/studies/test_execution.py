"""A study from its file to its table: failures, resuming, and what is refused."""

import json
import shutil
from pathlib import Path

import filelock
import jsonschema
import pytest

from tests.upstream.studies.conftest import CHAIN, CONTENT, RESNET, SCHEMA, VIT, make, make_chain, study_of
from usvit.errors import UsvitError
from usvit.experiments import CrossValidation
from usvit.records import load_record
from usvit.training import Stopped
from usvit.upstream.records.study import StudyRecord
from usvit.upstream.studies import engines, pace
from usvit.upstream.studies.plan import PlannedRun, make_plan
from usvit.upstream.studies.specification import StudyConfig
from usvit.upstream.studies.state import StudyDir
from usvit.upstream.studies.task import TaskResult

pytestmark = pytest.mark.slow


def read(out):
    record = json.loads((out / "study.json").read_text())
    jsonschema.validate(record, SCHEMA, format_checker=jsonschema.FormatChecker())
    return record


def states(out):
    return {run["id"]: (run["state"], run["attempts"]) for run in read(out)["runs"]}


@pytest.fixture
def breaking(finished, monkeypatch):
    """Let runs of the networks in this dictionary raise its errors; the rest are those of ``finished``, copied."""
    errors = {}
    tried = []

    def run(self):
        name = self.config.model.name
        tried.append(name)
        if name in errors:
            raise errors[name]
        shutil.copytree(finished.path / "runs" / self.out.name, self.out)

    monkeypatch.setattr(CrossValidation, "run", run)
    errors["tried"] = tried
    return errors


def test_each_run_is_a_normal_run(finished):
    assert states(finished.path) == {RESNET: ("finished", 1), VIT: ("finished", 1)}
    assert finished.failed == [] and read(finished.path)["state"] == "finished"
    for name in (RESNET, VIT):
        record = json.loads((finished.path / "runs" / name / "run.json").read_text())
        assert record["state"] == "finished" and record["name"] == name
        assert (finished.path / "runs" / name / "report.html").is_file()


def test_its_figures_are_those_of_the_runs_metrics(finished):
    for line in read(finished.path)["table"]:
        metrics = json.loads((finished.path / "runs" / line["runs"]["cv"] / "metrics.json").read_text())
        headline = metrics["headline"]
        for name, value in (
            ("accuracy", headline["accuracy"]),
            ("auc_macro_ovr", headline["auc_macro_ovr"]),
            ("sensitivity.positive", headline["sensitivity"]),
        ):
            assert (line["figures"][name]["value"], line["figures"][name]["ci95"]) == (value["value"], value["ci95"])
        assert (line["n_images"], line["n_groups"]) == (metrics["n_images"], metrics["n_groups"])


def test_a_finished_study_is_not_made_again(finished, small_phantom, breaking):
    before = {path: path.stat().st_mtime_ns for path in (finished.path / "runs").rglob("*") if path.is_file()}
    again = make(small_phantom, finished.path)
    assert breaking["tried"] == [] and again.record.state == "finished"
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_failed_run_is_listed_and_the_others_go_on_and_only_it_is_tried_again(small_phantom, tmp_path, breaking):
    breaking["timm:test_resnet"] = UsvitError("The disk is made of cheese.")
    outcome = make(small_phantom, tmp_path / "study")
    assert [(run.id, run.error) for run in outcome.failed] == [(RESNET, "The disk is made of cheese.")]
    assert states(outcome.path) == {RESNET: ("failed", 1), VIT: ("finished", 1)}
    assert read(outcome.path)["state"] == "partly"
    assert "cheese" in (outcome.path / "errors" / f"{RESNET}.txt").read_text()
    assert "cheese" in outcome.page.read_text() and "cheese" in (outcome.path / "study.md").read_text()

    del breaking["timm:test_resnet"]
    breaking["tried"].clear()
    again = make(small_phantom, outcome.path)
    assert breaking["tried"] == ["timm:test_resnet"]
    assert again.failed == [] and states(again.path) == {RESNET: ("finished", 2), VIT: ("finished", 1)}
    assert not list((again.path / "errors").iterdir())


@pytest.mark.parametrize("error", [MemoryError("no memory"), RuntimeError("CUDA out of memory")])
def test_a_bug_in_one_run_costs_that_run_alone_and_leaves_its_traceback(small_phantom, tmp_path, breaking, error):
    breaking |= {"timm:test_resnet": error, "timm:test_vit": UsvitError("not today")}
    outcome = make(small_phantom, tmp_path / "study")
    assert [run.error for run in outcome.failed] == [f"{type(error).__name__}: {error}", "not today"]
    assert "Traceback" in (outcome.path / "errors" / f"{RESNET}.txt").read_text()
    assert "Traceback" not in (outcome.path / "errors" / f"{VIT}.txt").read_text()


def test_a_stopped_study_keeps_what_it_has(small_phantom, tmp_path, breaking):
    breaking["timm:test_vit"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        make(small_phantom, tmp_path / "study")
    assert states(tmp_path / "study") == {RESNET: ("finished", 1), VIT: ("running", 0)}
    assert RESNET in (tmp_path / "study" / "study.html").read_text()
    del breaking["timm:test_vit"]
    breaking["tried"].clear()
    assert make(small_phantom, tmp_path / "study").failed == []
    assert breaking["tried"] == ["timm:test_vit"]


def test_a_signal_stops_the_study_and_not_only_its_run(small_phantom, tmp_path, breaking):
    breaking["timm:test_resnet"] = Stopped("Stopped by SIGTERM.")
    with pytest.raises(Stopped):
        make(small_phantom, tmp_path / "study")
    assert breaking["tried"] == ["timm:test_resnet"]
    assert states(tmp_path / "study") == {RESNET: ("running", 0), VIT: ("waiting", 0)}


def test_a_study_that_is_shown_rarely_ends_and_stops_with_all_states(small_phantom, tmp_path, breaking, monkeypatch):
    monkeypatch.setattr(pace, "FREE_SECONDS", -1.0)  # nothing is written while runs begin and end
    breaking["timm:test_vit"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        make(small_phantom, tmp_path / "study")
    assert states(tmp_path / "study") == {RESNET: ("finished", 1), VIT: ("running", 0)}
    assert RESNET in (tmp_path / "study" / "study.html").read_text()
    breaking["timm:test_vit"] = UsvitError("not today")
    outcome = make(small_phantom, tmp_path / "study")
    assert states(outcome.path) == {RESNET: ("finished", 1), VIT: ("failed", 1)}
    assert "not today" in outcome.page.read_text()


def test_a_run_whose_folder_was_deleted_is_made_again(small_phantom, tmp_path, breaking):
    only = {"rows": CONTENT["rows"][:1]}
    make(small_phantom, tmp_path / "study", **only)
    shutil.rmtree(tmp_path / "study" / "runs" / RESNET)
    make(small_phantom, tmp_path / "study", **only)
    assert breaking["tried"] == ["timm:test_resnet"] * 2
    assert states(tmp_path / "study") == {RESNET: ("finished", 2)}


@pytest.mark.parametrize(
    ("changes", "options", "says"),
    [
        ({"name": "other"}, {}, "its name is tiny, now other"),
        ({"steps": {"cv": {**CONTENT["steps"]["cv"], "run": "train"}}}, {}, f"{RESNET}-train is new"),
        ({}, {"scale": "tiny"}, "its scale is paper, now tiny"),
        ({"seeds": [0, 1]}, {}, "seed1 is new"),
        ({"seeds": [1]}, {}, f"{RESNET} is gone"),
        ({}, {"overrides": {"train": {"steps": 7}}}, "train.steps was 6, now 7"),
    ],
)
def test_another_study_is_refused_and_nothing_is_changed(finished, small_phantom, changes, options, says):
    before = (finished.path / "study.json").read_bytes()
    with pytest.raises(UsvitError, match="holds another study") as refused:
        make(small_phantom, finished.path, plan=make_plan(study_of(**changes), **options))
    assert says in str(refused.value)
    assert (finished.path / "study.json").read_bytes() == before


def test_a_corrected_figure_of_the_paper_is_shown_without_a_run(finished, small_phantom, tmp_path, breaking):
    out = shutil.copytree(finished.path, tmp_path / "study")
    rows = [CONTENT["rows"][0], {**CONTENT["rows"][1], "printed": {"accuracy": "12.3%"}}]
    make(small_phantom, out, title="Another title", rows=rows)
    assert breaking["tried"] == []
    assert "12.3%" in (out / "study.md").read_text() and "Another title" in (out / "study.html").read_text()


def test_what_only_the_speed_depends_on_may_change(finished, small_phantom, breaking):
    make(small_phantom, finished.path, plan=make_plan(study_of(), options={"workers": 2}))
    assert breaking["tried"] == []


def test_a_foreign_folder_a_lock_and_a_damaged_state_are_refused(small_phantom, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")
    with pytest.raises(UsvitError, match="is not a study of usvit"):
        make(small_phantom, tmp_path / "full")
    (tmp_path / "locked").mkdir()
    with filelock.FileLock(tmp_path / "locked" / ".lock"), pytest.raises(UsvitError):
        make(small_phantom, tmp_path / "locked")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "study.json").write_text("{")
    with pytest.raises(UsvitError, match="damaged"):
        make(small_phantom, tmp_path / "damaged")
    (tmp_path / "damaged" / "study.json").write_text('{"schema_version": "3.0"}')
    with pytest.raises(UsvitError, match="another version of usvit"):
        make(small_phantom, tmp_path / "damaged")


def test_two_processes_do_not_work_on_one_study(finished, small_phantom):
    with filelock.FileLock(finished.path / ".lock"), pytest.raises(UsvitError, match="Another process"):
        make(small_phantom, finished.path)


def test_another_run_in_a_runs_place_is_refused(finished, small_phantom, tmp_path):
    out = shutil.copytree(finished.path, tmp_path / "study")
    path = out / "runs" / VIT / "run.json"
    record = json.loads(path.read_text())
    record["config"]["train"]["steps"] = 999
    path.write_text(json.dumps(record))
    with pytest.raises(UsvitError, match=r"train\.steps is 999 there, 6 here"):
        make(small_phantom, out)


def test_a_finished_fine_tuning_of_an_upstream_run_is_recognised(finished, tmp_path):
    """Its record names the folder of its weights, and the plan the run that they come from."""
    shutil.copytree(finished.path / "runs" / RESNET, tmp_path / "runs" / "tuned-1234")
    settings = json.loads((finished.path / "runs" / RESNET / "run.json").read_text())["config"]
    planned = settings | {"model": settings["model"] | {"weights": "${train-5678}"}}
    run = PlannedRun("tuned-1234", "cv", 0, planned, planned, ("train-5678",))
    assert StudyDir(tmp_path, load_record(finished.path / "study.json", StudyRecord)).is_finished(run)


def test_no_path_of_this_machine_is_in_the_state(finished, small_phantom):
    assert str(small_phantom.parent) not in (finished.path / "study.json").read_text()


@pytest.fixture(scope="module")
def finished_chain(tmp_path_factory):
    """A tiny study of pre-trainings and transfers that need one another; not to be written to."""
    return make_chain(tmp_path_factory.mktemp("chain") / "finished")


def test_runs_that_need_one_another_are_made_in_turn(finished_chain):
    record = read(finished_chain.path)
    assert finished_chain.failed == [] and {run["state"] for run in record["runs"]} == {"finished"}
    weights = {}
    for run in record["runs"]:
        made = json.loads((finished_chain.path / "runs" / run["id"] / "run.json").read_text())
        weights[run["id"]] = made["config"]["model"]["weights"]
    for row in record["table"]:
        runs = row["runs"]
        assert weights[runs["tuned"]] == str(finished_chain.path / "runs" / runs["train"])
        assert weights[runs["knn"]] == str(finished_chain.path / "runs" / runs["tuned"])
    figures = record["table"][0]["figures"]
    assert 0 <= figures["knn"]["value"] <= 1 and figures["knn"]["within_reason"] == "tiny networks on generated images"
    assert figures["params"]["within"] is True, "the network is counted at the paper's scale"


def test_studies_that_share_a_folder_of_runs_make_an_equal_run_once(finished_chain, tmp_path):
    before = {path: path.stat().st_mtime_ns for path in (finished_chain.path / "runs").rglob("*") if path.is_file()}
    other = make_chain(tmp_path / "other", finished_chain.path / "runs", name="other", rows=CHAIN["rows"][:1])
    assert other.failed == [] and {run.attempts for run in other.record.runs} == {0}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    run = other.record.runs[0].id
    assert (tmp_path / "other" / other.record.runs_folder / run).resolve() == finished_chain.path / "runs" / run
    assert f"{other.record.runs_folder}/{run}/report.html" in other.page.read_text()


def failing(monkeypatch, failing_id):
    """Let one run fail and all others succeed at once, without training; return the ids in the order of the runs."""
    made = []

    def make_run(task, cpus, progress):
        made.append(task.id)
        if task.id == failing_id[0]:
            return TaskResult(task.id, "The disk is made of cheese.")
        (Path(task.out)).mkdir(parents=True)
        return TaskResult(task.id)

    monkeypatch.setattr(engines, "make_run", make_run)
    monkeypatch.setattr("usvit.upstream.studies.execution._show", lambda study, plan: study.save())
    return made


def test_a_run_that_needs_a_failed_one_waits_and_says_for_which(tmp_path, monkeypatch):
    plan = make_plan(StudyConfig.model_validate(CHAIN), scale="tiny")
    first, _, sgd = (row.runs[0] for row in plan.rows)
    made = failing(monkeypatch, [first["tuned"]])
    make_chain(tmp_path / "study")
    record = read(tmp_path / "study")
    states = {run["id"]: (run["state"], run["attempts"], run["error"]) for run in record["runs"]}
    assert states[first["tuned"]] == ("failed", 1, "The disk is made of cheese.")
    assert states[first["knn"]] == ("waiting", 0, f"It needs {first['tuned']}, which failed.")
    assert states[sgd["knn"]] == ("finished", 1, None) and first["knn"] not in made
    assert record["state"] == "partly"


def test_a_moved_study_keeps_its_finished_runs(finished_chain, tmp_path):
    moved = shutil.copytree(finished_chain.path, tmp_path / "moved")
    again = make_chain(moved)
    assert again.failed == [] and {run.attempts for run in again.record.runs} == {1}
