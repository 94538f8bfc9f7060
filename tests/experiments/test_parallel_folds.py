"""Several folds at once: the same bytes as one after another, and nothing lost when something ends them."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from multiprocessing import forkserver, resource_tracker
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from tests.conftest import TINY
from tests.processes import CONTEXT, command_line, ended_well, run, start
from tests.records.contents import content
from usvit.data.loading.pixel_store import PixelStore
from usvit.errors import UsvitError
from usvit.experiments import parallel_folds
from usvit.experiments.parallel_folds import _Board, train_side_by_side
from usvit.experiments.run_directory import RunDirectory
from usvit.progress import NO_PROGRESS
from usvit.records import RunRecord, load_run_record
from usvit.records.run import FoldResultRecord
from usvit.resources import usable_cores
from usvit.training.signals import Stopped, stop_requests
from usvit.training.trainer import FitResult

pytestmark = pytest.mark.slow
ROOMY = 120
"""Seconds that no step of a test takes, even on a busy machine."""


# --- the processes, with folds that train nothing


@dataclass
class Setup:
    """The parts of a setup that the processes' care takes."""

    fails: str
    device: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(type="cpu"))

    def fold_name(self, fold: int) -> str:
        return f"fold {fold + 1}/4"


def make_trainer(setup, store, statistics, progress, gpu, copies):
    """Trains by adding up pixels. Fold 1 fails as the setup says; the others wait until they are told to stop."""
    assert (gpu, copies) == (None, 1)

    def train(run, fold):
        run.enter(FoldResultRecord(fold=fold, steps=fold))
        (run.path / f"{fold}.begun").touch()
        if setup.fails == "no":
            sums = int(store.pixels[fold].sum()) + int(store.lesions[fold].sum()) + int(statistics[fold, 0])
            return FitResult(sums, os.getpid(), pd.DataFrame(), 0.0, 0.0)
        if fold == 1:
            wait_for(run.path / "0.begun")
        if fold == 1 and setup.fails == "user":
            raise UsvitError("the loss became NaN.")
        if fold == 1 and setup.fails == "bug":
            raise ZeroDivisionError("a bug")
        if fold == 1 and setup.fails == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        with stop_requests() as stop:
            (run.path / f"{fold}.waits").touch()
            deadline = time.monotonic() + ROOMY
            while stop.name is None and time.monotonic() < deadline:
                time.sleep(0.01)
        (run.path / f"{fold}.saved").touch()
        raise Stopped(f"by {stop.name}")

    return train


def wait_for(path):
    deadline = time.monotonic() + ROOMY
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.01)


class Told(RunDirectory):
    """A run directory whose record is only kept."""

    def __init__(self, path):
        super().__init__(path, RunRecord.model_validate(content("run", results=[])))

    def save(self, **changes):
        self.record = self.record.model_copy(update=changes)


def run_folds(tmp_path, fails="no"):
    generator = np.random.default_rng(0)
    store = PixelStore(*(generator.integers(0, 256, shape).astype(np.uint8) for shape in ((4, 8, 8, 3), (4, 4, 4))))
    statistics = np.arange(4.0).reshape(4, 1).astype(np.float32)
    run, results = Told(tmp_path), []
    try:
        train_side_by_side(
            Setup(fails),
            run,
            range(4),
            lambda: (store, statistics),
            make_trainer,
            2,
            1,
            NO_PROGRESS,
            lambda *found: results.append(found),
        )
    finally:
        assert not list(tmp_path.glob(".pixels*")), "the images are gone"
    return store, run, results


@pytest.fixture
def warm(monkeypatch):
    """The processes come from one that has imported PyTorch. The tests of the command start them as for a user."""
    monkeypatch.setattr(parallel_folds, "multiprocessing", SimpleNamespace(get_context=lambda _: CONTEXT))


@pytest.mark.usefixtures("warm")
def test_results_come_in_order_and_the_folds_share_the_images(tmp_path):
    store, run, results = run_folds(tmp_path)
    assert [fold for fold, _ in results] == [0, 1, 2, 3]
    expected = [int(store.pixels[k].sum()) + int(store.lesions[k].sum()) + k for k in range(4)]
    assert [result.steps for _, result in results] == expected
    pids = {result.best_step for _, result in results}
    assert len(pids) in (1, 2) and os.getpid() not in pids
    assert [entry.fold for entry in run.record.results] == [0, 1, 2, 3]


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(
    ("fails", "error", "said"),
    [
        ("user", UsvitError, r"Fold 2/4: the loss became NaN\.$"),
        ("bug", RuntimeError, r"Fold 2/4 failed in its process:(?s:.*)ZeroDivisionError: a bug"),
        ("killed", UsvitError, r"Fold 2/4: its process was ended by the signal SIGKILL\. .* lack of memory"),
    ],
)
def test_a_fold_that_fails_stops_the_others_which_save(tmp_path, fails, error, said):
    with pytest.raises(error, match=said):
        run_folds(tmp_path, fails)
    assert (tmp_path / "0.saved").exists()
    assert not (tmp_path / "2.begun").exists(), "no other fold is begun"


@pytest.mark.usefixtures("warm")
@pytest.mark.parametrize(("number", "error"), [(signal.SIGTERM, Stopped), (signal.SIGINT, KeyboardInterrupt)])
def test_a_signal_stops_all_folds_which_save(tmp_path, number, error):
    def send():
        wait_for(tmp_path / "0.waits")
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    before = signal.getsignal(number)
    with pytest.raises(error, match="SIGTERM" if error is Stopped else None):
        run_folds(tmp_path, "never")
    sender.join()
    assert signal.getsignal(number) is before
    assert (tmp_path / "0.saved").exists()


def test_progress_counts_the_steps_of_all_folds_and_says_where_each_is():
    said = []
    progress = SimpleNamespace(
        start=lambda *told: said.append(told), update=lambda *told: said.append(told), finish=lambda: said.append("end")
    )
    board = _Board(Setup("no"), progress, n_folds=3, at_once=2)
    board.open(1)
    board.open(0)
    board.show(None, "start", 9, "images", 0)
    board.show(1, "start", 10, "steps", 0)
    board.show(0, "start", 10, "steps", 4)
    board.show(1, "update", 3)
    board.show(0, "finish")
    board.show(0, "start", 48, "images", 0)
    board.close(0)
    board.finish()
    assert said[0] == ("3 folds, 2 at once", 30, "steps", 0)
    assert (7, "fold 1/4 4/10 steps, fold 2/4 3/10 steps") in said
    assert said[-3:] == [(7, "fold 1/4 0/48 images, fold 2/4 3/10 steps"), (13, "fold 2/4 3/10 steps"), "end"]


# --- a cross-validation


SHORT = ("--set", "train.steps=2", "--set", "train.eval_every=2")
LONGER = ("--set", "train.steps=16", "--set", "train.eval_every=8", "--set", "train.checkpoint_seconds=0")


def command(root, out, *more):
    return ["cv", "--data-root", str(root), "--out", str(out), *TINY, *LONGER, *more]


def with_warm_workers(*arguments):
    """The command; the processes of its folds come from the one that it comes from itself."""
    forkserver._forkserver.ensure_running = resource_tracker.ensure_running  # it runs; this process is a child of it
    parallel_folds.multiprocessing = SimpleNamespace(get_context=lambda _: CONTEXT)
    command_line(*arguments)


AT_ONCE = ("--set", "folds_at_once=2")
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}
KEPT = ("predictions.csv", *(f"fold-{k}/{name}" for k in range(3) for name in ("predictions.csv", "model.safetensors")))


@pytest.fixture(scope="module")
def one_by_one(small_phantom, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "one"
    ended_well(run(command_line, *command(small_phantom, out)))
    return out


def test_stopped_continued_failed_and_continued_it_gives_the_bytes_of_one_after_another(
    one_by_one, small_phantom, tmp_path
):
    out = tmp_path / "run"
    arguments = command(small_phantom, out, *AT_ONCE)
    process = subprocess.Popen(  # as a user starts it, and its workers as for a user
        [sys.executable, "-m", "usvit", *arguments],
        stderr=subprocess.PIPE,
        env=ONE_THREAD,
        start_new_session=True,
        text=True,
    )
    deadline = time.monotonic() + ROOMY
    while not list(out.glob("fold-*/state.pt")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does for Ctrl-C, and a cluster for its signals
    said = process.communicate(timeout=ROOMY)[1]
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert "same command" in said
    begun = list(out.glob("fold-*/state.pt"))
    assert begun and not list(out.glob(".pixels*"))

    state = begun[0].read_bytes()
    begun[0].write_bytes(state[: len(state) // 2])
    failed = run(with_warm_workers, *arguments)
    assert failed.returncode == 2, failed.stderr
    assert "Traceback" not in failed.stderr
    assert re.search(rf"Fold {int(begun[0].parent.name[-1]) + 1}/3: .*state\.pt", failed.stderr.replace("\n", " "))

    begun[0].write_bytes(state)
    ended_well(run(with_warm_workers, *arguments))
    for name in KEPT:
        assert (out / name).read_bytes() == (one_by_one / name).read_bytes(), name


@pytest.mark.skipif(usable_cores() < 2, reason="PyTorch uses no more threads than there are cores")
def test_a_run_is_continued_with_the_threads_with_which_it_began(small_phantom, tmp_path):
    """The number of threads changes the last digits, so it must depend neither on what is left nor on the machine."""
    whole, part = tmp_path / "whole", tmp_path / "part"
    alone, at_once = ((*SHORT, "--set", f"folds_at_once={n}") for n in (1, 2))
    ended_well(run(command_line, *command(small_phantom, whole, *alone), threads=2))
    assert load_run_record(whole).folds.threads == 2
    started = start(tmp_path / "said", command_line, *command(small_phantom, part, *alone), threads=2)
    deadline = time.monotonic() + ROOMY
    while not (part / "fold-0/predictions.csv").exists():
        assert started.process.is_alive() and time.monotonic() < deadline
        time.sleep(0.01)
    started.process.kill()
    started.wait(ROOMY)
    ended_well(run(with_warm_workers, *command(small_phantom, part, *at_once)))
    for name in KEPT:
        assert (part / name).read_bytes() == (whole / name).read_bytes(), name


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_gpus_the_folds_at_once_give_the_bytes_of_one_after_another(small_phantom, tmp_path):
    options = ("--device", "cuda", "--set", "input.augment=us")  # the last --device counts
    for name, more in (("one", ()), ("two", AT_ONCE), ("sent", ("--set", "input.device_store=false"))):
        arguments = [sys.executable, "-m", "usvit", *command(small_phantom, tmp_path / name, *options, *more)]
        subprocess.run(arguments, check=True, capture_output=True, env=ONE_THREAD)
    for name in KEPT:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "sent" / name).read_bytes(), name
