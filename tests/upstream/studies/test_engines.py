"""Where runs are made: here, or by Ray; the predictions do not tell."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.upstream.studies.conftest import CHAIN, RESNET, VIT, make, make_chain, predictions
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.studies import engines
from usvit.upstream.studies.engines import Ray, Sequential, make_engine
from usvit.upstream.studies.task import StudyTask, TaskResult, make_run, make_run_elsewhere


def task(tmp_path, **changes):
    own = {"id": "x", "kind": "cv", "config": {"model": {"name": "nothing"}}, "roots": {}, "out": str(tmp_path / "run")}
    return StudyTask(**{**own, "command": "", "folder": str(tmp_path), **changes})


def test_options_of_ray_without_ray_are_refused():
    for options in ({"address": "auto", "gpus": None}, {"address": None, "gpus": 1}):
        with pytest.raises(UsvitError, match="belong to --engine ray"):
            make_engine("sequential", cpus=None, device=None, **options)
    with pytest.raises(UsvitError, match="Known: sequential, ray"):
        make_engine("dask", address=None, cpus=None, gpus=None, device=None)


def test_where_ray_is_not_installed_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsvitError, match=r"usvit\[ray\]"):
        make_engine("ray", address=None, cpus=None, gpus=None, device=None)


def test_a_run_has_the_threads_that_it_was_given_and_leaves_them_as_they_were(tmp_path, monkeypatch):
    import torch

    from usvit.upstream.studies import task as module

    seen = []
    monkeypatch.setattr(module, "_experiment", lambda *_: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    assert make_run(task(tmp_path, config={}), before + 1, NoProgress()) == TaskResult("x")
    assert seen == [before + 1] and torch.get_num_threads() == before


def test_a_worker_with_another_usvit_refuses(tmp_path):
    result = make_run_elsewhere(task(tmp_path, usvit_version="0.0.0"), 1, True)
    assert "Install the same version" in result.error


def test_a_run_that_cannot_be_made_is_told_not_raised(tmp_path):
    assert "Unknown model 'nothing'" in make_run(task(tmp_path), 1, NoProgress()).error


ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'usvit[ray]')")


@pytest.fixture(scope="module")
def cluster():
    """A Ray with two CPUs on loopback, started as an administrator would; its address."""
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))  # Ray's sockets need a short path
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block"]
    command += ["--node-ip-address=127.0.0.1", "--num-cpus=2", "--num-gpus=0", "--include-dashboard=false"]
    command += [f"--temp-dir={folder}", "--disable-usage-stats"]
    command += [f"--{port}=0" for port in PORTS]  # whatever is free, as others look for some, too
    # A token that an earlier Ray left in the home folder would make it ask for one.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    address = folder / "ray_current_cluster"  # written when all stands
    for _ in range(5):  # Ray gives up what does not stand after half a minute
        with open(folder / "said", "wb") as said:
            process = subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)
        end = time.monotonic() + 300
        while process.poll() is None and time.monotonic() < end and not (address.exists() and address.read_text()):
            time.sleep(0.1)
        if address.exists():
            break
        _end(process)
    else:
        said = (folder / "said").read_text()
        shutil.rmtree(folder, ignore_errors=True)
        pytest.fail(said)
    yield address.read_text()
    ray.shutdown()
    _end(process)
    shutil.rmtree(folder, ignore_errors=True)


PORTS = ("port", "dashboard-agent-listen-port", "min-worker-port", "max-worker-port")


def _end(process):
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_two_workers_of_ray_give_the_predictions_of_one_run_after_the_other(cluster, finished, small_phantom, tmp_path):
    outcome = make(small_phantom, tmp_path / "study", engine=Ray(1, None, cluster, use_gpus=False))
    assert outcome.failed == [] and outcome.record.engine == "ray"
    assert set(predictions(outcome.path)) == {RESNET, VIT}
    assert predictions(outcome.path) == predictions(finished.path)


@pytest.mark.slow
def test_what_fits_on_no_machine_is_refused_instead_of_waited_for(cluster, small_phantom, tmp_path):
    with pytest.raises(UsvitError, match=r"No machine of the Ray cluster has 3 CPUs and 0 GPUs.*the largest has 2"):
        make(small_phantom, tmp_path / "study", engine=Ray(3, None, cluster, use_gpus=False))


@pytest.mark.slow
def test_a_worker_that_dies_costs_its_run_alone(cluster, tmp_path):
    ray.init(address=cluster, logging_level="error", log_to_driver=False)
    try:

        @ray.remote(max_retries=0)
        def die():
            import os

            os._exit(1)

        result = engines._result(ray, die.remote(), task(tmp_path))
        assert "was lost" in result.error
        elsewhere = engines._result(ray, ray.put(TaskResult("x")), task(tmp_path))
        assert "file system that all machines share" in elsewhere.error
    finally:
        ray.shutdown()


@pytest.mark.parametrize("address", ["127.0.0.1:9", "127.0.0.1:port", "no.such.host.invalid:6379", "127.0.0.1:999999"])
def test_where_nobody_answers_the_address_is_named_at_once(small_phantom, tmp_path, address):
    with pytest.raises(UsvitError, match=f"Nothing answers at --address {address}"):
        make(small_phantom, tmp_path / "study", engine=Ray(1, None, address, use_gpus=False))


def test_nothing_to_do_starts_no_ray(monkeypatch):
    monkeypatch.setattr(engines, "connected", lambda *_: pytest.fail("connected"))
    assert list(Ray(1, None, None, use_gpus=False)([], lambda _: None, NoProgress())) == []
    assert list(Sequential(1)([], lambda _: None, NoProgress())) == []


@pytest.mark.slow
def test_ray_makes_a_run_after_those_that_it_needs(cluster, tmp_path):
    outcome = make_chain(tmp_path / "study", rows=CHAIN["rows"][::2], engine=Ray(1, None, cluster, use_gpus=False))
    assert outcome.failed == [] and {run.state for run in outcome.record.runs} == {"finished"}
    ended = {
        run.id: json.loads((outcome.path / "runs" / run.id / "run.json").read_text())["finished"]
        for run in outcome.record.runs
    }
    assert all(ended[needed] <= ended[run.id] for run in outcome.record.runs for needed in run.needs)
