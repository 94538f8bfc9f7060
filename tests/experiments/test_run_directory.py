import json

import pytest

from tests.messages import record_messages
from tests.records.contents import content
from usvit.errors import UsvitError
from usvit.experiments.run_directory import open_run, outcome
from usvit.files import locked, write_json
from usvit.records import RunRecord
from usvit.records.run import FoldResultRecord
from usvit.upstream.records.training import PretrainRecord, TransferRecord

NEW = RunRecord.model_validate(content("run", state="running", finished=None, results=[], seconds=None))


@pytest.fixture
def run(tmp_path):
    with open_run(tmp_path / "run", NEW) as opened:
        yield opened


def written(run):
    return json.loads((run.path / "run.json").read_text())


def test_a_fold_is_entered_once_in_its_place_and_at_once(run):
    run.enter(FoldResultRecord(fold=2, steps=5))
    run.enter(FoldResultRecord(fold=0, steps=3))
    run.enter(FoldResultRecord(fold=2, steps=6, seconds=0.1))
    assert written(run)["results"] == [{"fold": 0, "steps": 3}, {"fold": 2, "steps": 6, "seconds": 0.1}]
    assert written(run)["state"] == "running"


def test_folds_without_their_last_file_are_still_to_be_done(run):
    said = record_messages()
    assert run.unfinished(3, "last.csv") == [0, 1, 2] and said == []
    for fold, name in ((0, "other.csv"), (1, "last.csv")):
        run.fold(fold).mkdir()
        (run.fold(fold) / name).touch()
    assert run.unfinished(3, "last.csv") == [0, 2]
    assert said == [f"Resuming {run.path}: 1 of 3 folds are done."]


def test_a_finished_run_holds_no_leftovers_of_a_killed_process(run):
    run.fold(0).mkdir()
    for name in ("state.pt", ".model.safetensors.partial-0123", "model.safetensors"):
        (run.fold(0) / name).touch()
    run.finish(1.26)
    assert [path.name for path in run.fold(0).iterdir()] == ["model.safetensors"]
    assert written(run)["state"] == "finished" and written(run)["seconds"] == 1.3


def test_a_run_whose_network_is_built_otherwise_now_is_not_resumed(tmp_path):
    # Networks such as vit_b18x2 lost their LayerScale, so a half-trained one has other tensors.
    begun, now = (
        NEW.model_copy(update={"model": NEW.model.model_copy(update={"name": "vit_b18x2", "params": n})})
        for n in (7, 5)
    )
    for _ in range(2):
        with open_run(tmp_path / "run", begun):
            pass
    with (
        pytest.raises(UsvitError, match="a network of 7 parameters, and this version of usvit builds vit_b18x2 with 5"),
        open_run(tmp_path / "run", now),
    ):
        pass


def test_figures_that_are_gone_or_damaged_are_named(run):
    write_json(run.path / "pretrain.json", content("pretrain", kept=[content("pretrain")["kept"][0] | {"step": 3}]))
    found = outcome(run.path, PretrainRecord)
    assert (found.path, found.result.kept[0].step, found.record.kind) == (run.path, 3, "cv")
    assert found.record == run.record
    (run.path / "pretrain.json").write_text('{"a"')
    for model, name in ((PretrainRecord, "pretrain.json"), (TransferRecord, "transfer.json")):
        with pytest.raises(UsvitError, match=name):
            outcome(run.path, model)


def test_a_folder_in_which_another_run_has_just_begun_is_said_to_be_taken(tmp_path):
    """The winner has its lock but no run.json yet."""
    (tmp_path / "run").mkdir()
    with (
        locked(tmp_path / "run" / ".lock", "taken"),
        pytest.raises(UsvitError, match="Another process is working on"),
        open_run(tmp_path / "run", NEW),
    ):
        pass
    (tmp_path / "run" / f".run.json.partial-{'0' * 32}").touch()  # of a process that was killed
    with open_run(tmp_path / "run", NEW) as opened:
        assert written(opened)["state"] == "running"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(UsvitError, match="is not a run of usvit"), open_run(tmp_path / "other", NEW):
        pass
