"""The folder contract of mercure, and the command of XNAT's container service, with a trained run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydicom import dcmread
from typer.testing import CliRunner

from tests.conftest import REPOSITORY
from tests.node.images import PLANTED, ROOT, image
from usvit.errors import UsvitError
from usvit.node import score_mercure_task
from usvit.node.cli.node import app

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    """A folder as mercure prepares it: names with both UIDs, a file of tags beside each image, and the task."""
    folder = tmp_path_factory.mktemp("task")
    for number in (1, 2):
        name = f"{ROOT}.1.1#{ROOT}.1.1.{number}"
        image(folder / f"{name}.dcm", 1, number)
        (folder / f"{name}.tags").write_text('{"PatientName": "Doe^Jane"}')
    settings = {"usvit": {"outputs": ["sr", "sc"], "folds": "0"}, "other": 1}
    process = [{"module_name": "other", "settings": {}}, {"module_name": "usvit", "settings": settings}]
    (folder / "task.json").write_text(json.dumps({"id": "1", "info": {}, "process": process}))
    return folder


def test_results_are_dicom_files_and_result_json_that_names_nobody(task, run, tmp_path, monkeypatch):
    monkeypatch.setenv("USVIT_KEY", str(tmp_path / "key"))
    variables = {"MERCURE_IN_DIR": str(task), "MERCURE_OUT_DIR": str(tmp_path), "USVIT_MODEL": str(run)}
    before = sorted(path.name for path in task.iterdir())
    result = CliRunner().invoke(app, ["mercure", "--device", "cpu"], env=variables, catch_exceptions=False)
    assert result.exit_code == 0 and sorted(path.name for path in task.iterdir()) == before
    written = {path.name for path in tmp_path.iterdir()} - {"key"}
    assert "result.json" in written and len(written) == 5
    found = [dcmread(path) for path in tmp_path.glob("*.dcm")]
    assert sorted(one.Modality for one in found) == sorted(["SR", "SR", "US", "US"]) or len(found) == 4
    assert {one.StudyInstanceUID for one in found} == {f"{ROOT}.1"}
    content = json.loads((tmp_path / "result.json").read_text())
    assert (content["n_scored"], content["n_failed"]) == (2, 0) and len(content["frames"]) == 2
    assert content["__mercure_notification"]["text"].startswith("usvit (for research only)")
    assert content["__mercure_notification"]["requested"] == (content["n_called_positive"] > 0)
    for name in PLANTED:
        assert name not in json.dumps(content) and name not in result.output


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"outputs": ["pdf"]}, "usvit.outputs.0"),
        ({"modle": "x"}, "usvit.modle"),
        ({"model": "nowhere"}, "nowhere"),
    ],
)
def test_wrong_settings_are_one_sentence(tmp_path, settings, said):
    (tmp_path / "task.json").write_text(json.dumps({"process": {"settings": {"usvit": settings}}}))
    image(tmp_path / "a.dcm", 1, 1)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsvitError, match=said):
        score_mercure_task(tmp_path, tmp_path / "out", model="model")
    assert not list((tmp_path / "out").iterdir())


def test_a_task_of_which_nothing_can_be_scored_is_an_error(run, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "a.dcm").write_bytes(b"x" * 300)
    with pytest.raises(UsvitError, match="No image of the task could be scored"):
        score_mercure_task(tmp_path, tmp_path / "out", model=run / "fold-0", device="cpu")
    with pytest.raises(UsvitError, match="MERCURE_OUT_DIR"):
        score_mercure_task(tmp_path, tmp_path / "nowhere")
    with pytest.raises(UsvitError, match="No model is given"):
        score_mercure_task(tmp_path, tmp_path / "out")


@pytest.mark.skipif(os.name != "posix", reason="a shell command")
def test_the_command_of_xnat_fits_together_and_runs(task, run, tmp_path):
    """The container service replaces the keys of the inputs, mounts the folders, and runs the line with a shell."""
    command = json.loads((REPOSITORY / "deploy" / "xnat-command.json").read_text())
    mounts = {one["name"]: one["path"] for one in command["mounts"]}
    outputs = {one["name"]: one for one in command["outputs"]}
    (wrapper,) = command["xnat"]
    inputs = {one["name"] for one in [*wrapper["external-inputs"], *wrapper["derived-inputs"]]}
    handlers = wrapper["output-handlers"]
    assert {one["accepts-command-output"] for one in handlers} == set(outputs)
    assert {one["as-a-child-of"] for one in handlers} <= inputs
    assert {one["mount"] for one in outputs.values()} <= set(mounts)
    fed = {one["provides-files-for-command-mount"] for one in wrapper["external-inputs"]}
    assert fed == {one["name"] for one in command["mounts"] if not one["writable"]}
    line = command["command-line"]
    for one in command["inputs"]:
        assert one["replacement-key"] in line
        line = line.replace(one["replacement-key"], str(one["default-value"]))
    out = tmp_path / "out"
    out.mkdir()
    places = {"/tmp/pseudonym.key": tmp_path / "key", "/model": run / "fold-0", "/input": task, "/output": out}
    for inside, outside in places.items():
        line = line.replace(inside, str(outside), 1)
    line = line.replace("usvit ", f"{sys.executable} -m usvit ", 1)
    subprocess.run(["/bin/sh", "-c", line], check=True, capture_output=True)  # task.json and .tags are no images
    assert len(list((out / "scores" / "dicom").glob("*-sr.dcm"))) == 2
    assert Path(out / outputs["scores"]["path"] / "scores.html").is_file()
