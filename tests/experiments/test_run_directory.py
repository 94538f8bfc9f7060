import json

import pytest

from tests.messages import record_messages
from tests.records.contents import content
from usvit.config import PretrainConfig
from usvit.errors import UsvitError
from usvit.experiments.run_directory import open_run
from usvit.files import locked, write_json
from usvit.records import PretrainRecord, TransferRecord


@pytest.fixture
def run(tmp_path):
    with open_run(tmp_path / "run", {"kind": "cv"}) as opened:
        yield opened


def written(run):
    return json.loads((run.path / "run.json").read_text())


def test_a_fold_is_entered_once_in_its_place_and_at_once(run):
    run.enter(2, {"steps": 5})
    run.enter(0, {"steps": 3})
    run.enter(2, {"steps": 6, "seconds": 0.1})
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
    for name in ("state.pt", ".model.partial.safetensors", "model.safetensors"):
        (run.fold(0) / name).touch()
    run.finish(1.26)
    assert [path.name for path in run.fold(0).iterdir()] == ["model.safetensors"]
    assert written(run)["state"] == "finished" and written(run)["seconds"] == 1.3


def test_a_run_whose_network_is_built_otherwise_now_is_not_resumed(tmp_path):
    # Networks such as vit_b18x2 lost their LayerScale, so a half-trained one has other tensors.
    record = {"kind": "cv", "config": {}, "device": {"type": "cpu"}, "model": {"name": "vit_b18x2", "params": 7}}
    with open_run(tmp_path / "run", record):
        pass
    with open_run(tmp_path / "run", record):
        pass
    record = {**record, "model": {"name": "vit_b18x2", "params": 5}}
    with (
        pytest.raises(UsvitError, match="a network of 7 parameters, and this version of usvit builds vit_b18x2 with 5"),
        open_run(tmp_path / "run", record),
    ):
        pass


def test_figures_that_are_gone_or_damaged_are_named(run):
    write_json(run.path / "pretrain.json", content("pretrain", kept=[content("pretrain")["kept"][0] | {"step": 3}]))
    outcome = run.outcome(PretrainRecord)
    assert (outcome.path, outcome.result.kept[0].step, outcome.record.kind) == (run.path, 3, "cv")
    assert outcome.record.model_dump(exclude_unset=True) == run.record
    (run.path / "pretrain.json").write_text('{"a"')
    for model, name in ((PretrainRecord, "pretrain.json"), (TransferRecord, "transfer.json")):
        with pytest.raises(UsvitError, match=name):
            run.outcome(model)


def described(**settings):
    config = PretrainConfig.model_validate(settings).model_dump(mode="json")
    return {"kind": "pretrain", "config": config, "device": {"type": "cpu"}}


def begun_earlier(tmp_path, *missing, **settings):
    """A run of a version that did not have some settings."""
    record = described(**settings)
    for key in missing:
        section, name = key.split(".")
        del record["config"][section][name]
    with open_run(tmp_path / "run", record):
        pass
    return tmp_path / "run"


def test_a_run_resumes_although_settings_were_added_since(tmp_path):
    path = begun_earlier(tmp_path, "grafit.triplet", "grafit.memory", "views.erasing", objective="mae")
    with open_run(path, described(objective="mae")):
        pass
    with (
        pytest.raises(UsvitError, match=r"views\.erasing was 0\.0, now 0\.25"),
        open_run(path, described(objective="mae", views={"erasing": 0.25})),
    ):
        pass


def test_a_run_of_grafit_with_the_earlier_memory_is_not_continued_with_another(tmp_path):
    path = begun_earlier(tmp_path, "grafit.memory", objective="grafit")
    with (
        pytest.raises(UsvitError, match=r"grafit\.memory was 'normalized', now 'mean'"),
        open_run(path, described(objective="grafit")),
    ):
        pass
    with open_run(path, described(objective="grafit", grafit={"memory": "normalized"})):
        pass


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_run_that_the_host_augmented_for_a_gpu_is_not_continued_on_the_gpu(tmp_path, device):
    begun = {"kind": "cv", "config": {}, "device": {"type": device}}
    with open_run(tmp_path / "run", begun):
        pass
    for on, refused in (("cpu", device == "cpu"), ("auto", device == "cuda")):
        now = {**begun, "config": {"input": {"augment_on": on}}}
        if refused:
            with pytest.raises(UsvitError, match=r"input\.augment_on was"), open_run(tmp_path / "run", now):
                pass
        else:
            with open_run(tmp_path / "run", now):
                pass


def test_a_folder_in_which_another_run_has_just_begun_is_said_to_be_taken(tmp_path):
    """The winner has its lock but no run.json yet."""
    (tmp_path / "run").mkdir()
    with (
        locked(tmp_path / "run" / ".lock", "taken"),
        pytest.raises(UsvitError, match="Another process is working on"),
        open_run(tmp_path / "run", {"kind": "cv"}),
    ):
        pass
    (tmp_path / "run" / f".run.json.partial-{'0' * 32}").touch()  # of a process that was killed
    with open_run(tmp_path / "run", {"kind": "cv"}) as opened:
        assert written(opened)["state"] == "running"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(UsvitError, match="is not a run of usvit"), open_run(tmp_path / "other", {"kind": "cv"}):
        pass
