"""Several processes: the same steps as one, and what happens when one of them ends."""

import os
import signal

import pandas as pd
import pytest
import torch

from tests.processes import start
from tests.training.small_training import CASES, impatient_member, member, script, training
from usvit.errors import EXIT_STOPPED, UsvitError
from usvit.training import distributed
from usvit.training.checkpoint import load_checkpoint


def run(orders, processes=1):
    whole = {"strategies": ["ddp"], "cases": ["adamw"], "train": {}, **orders}
    orders["out"].mkdir(exist_ok=True)
    said = orders["out"] / f"said-{len(list(orders['out'].glob('said-*')))}.txt"
    return start(said, script, whole, torchrun=processes if processes > 1 else 0).wait()


def difference(one, other):
    assert one.keys() == other.keys()
    return max((one[key].float() - other[key].float()).abs().max().item() for key in one)


@pytest.mark.slow
def test_two_processes_train_the_weights_that_one_does(tmp_path):
    """DDP and FSDP, gloo; optimisers, clipping, portions that are no divisor, a running mean. Tolerance 2e-6."""
    done = run({"out": tmp_path, "strategies": ["ddp", "fsdp"], "cases": list(CASES)}, processes=2)
    assert done.returncode == 0, done.stderr[-2000:]
    for case, settings in CASES.items():
        alone, _, _ = training(tmp_path / f"alone-{case}", **settings)
        first, _, _ = training(tmp_path / f"first-{case}", **{**settings, "steps": 1})
        moved = difference(alone.state_dict(), first.state_dict())
        for strategy in ("ddp", "fsdp"):
            together = torch.load(tmp_path / f"{strategy}-{case}.pt", weights_only=True)
            assert difference(alone.state_dict(), together) < 2e-6, (strategy, case)
            log = pd.read_csv(tmp_path / f"{strategy}-{case}" / "steps.csv")
            own = pd.read_csv(tmp_path / f"alone-{case}" / "steps.csv")
            assert log.step.tolist() == own.step.tolist()
            assert log.loss.to_numpy() == pytest.approx(own.loss.to_numpy(), abs=1e-5)
        assert moved > 1e-3, case  # the test could fail


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_to_the_bit(tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    every = {"train": {"checkpoint_seconds": 0.0}, "cases": ["mean"]}
    assert run({"out": whole, **every}).returncode == 0
    assert run({"out": broken, "accident": "kill", "at": 5, **every}).returncode == -signal.SIGKILL
    assert load_checkpoint(broken / "ddp-mean" / "state.pt")["step"] == 4  # in the middle of an epoch
    assert run({"out": broken, **every}).returncode == 0
    ours, its = (torch.load(folder / "ddp-mean.pt", weights_only=True) for folder in (whole, broken))
    assert difference(ours, its) == 0
    curves = [pd.read_csv(folder / "ddp-mean" / "steps.csv") for folder in (whole, broken)]
    for column in ("step", "epoch", "lr", "loss"):
        assert curves[0][column].tolist() == curves[1][column].tolist()


@pytest.mark.slow
def test_sigterm_to_torchrun_loses_nothing(tmp_path):
    """What a cluster does: the launcher gets the signal. Goes on with two processes, then ends as one would."""
    orders = {"out": tmp_path, "train": {"steps": 40}}
    table = tmp_path / "ddp-adamw" / "steps.csv"
    said = run({**orders, "accident": "stop launcher", "at": 6}, processes=2).stderr
    step = load_checkpoint(tmp_path / "ddp-adamw" / "state.pt")["step"]
    assert said.count("Stopped by SIGTERM at step") == 1
    assert f"Stopped by SIGTERM at step {step}. Nothing is lost" in said
    assert step == 6
    assert run(orders, processes=2).returncode == 0
    alone, _, _ = training(tmp_path / "alone", **CASES["adamw"], steps=40)
    assert difference(alone.state_dict(), torch.load(tmp_path / "ddp-adamw.pt", weights_only=True)) < 1e-5
    log = pd.read_csv(table)
    assert log.step.tolist() == list(range(1, 41))


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_with_an_explanation(tmp_path):
    done = run({"out": tmp_path, "accident": "kill", "at": 3, "train": {"checkpoint_seconds": 0.0}}, processes=2)
    assert done.returncode != 0
    assert "bug" not in done.stderr
    # Both die at once here; whichever is left must explain itself, and what is on the disk goes on.
    assert load_checkpoint(tmp_path / "ddp-adamw" / "state.pt")["step"] == 2
    assert run({"out": tmp_path}, processes=2).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(("accident", "function"), [("killed", member), ("silent", impatient_member)])
def test_who_is_left_without_a_launcher_explains_itself(tmp_path, accident, function):
    """One dies, which is noticed at once; one is still there and says nothing more, which is borne for three seconds
    (else for half an hour)."""
    first, second = (start(tmp_path / f"said-{rank}", function, rank, tmp_path, accident) for rank in range(2))
    ended = first.wait()
    second.process.kill()
    second.wait()
    assert ended.returncode == 2, ended.stderr
    assert "Another process of this training ended or does not respond" in ended.stderr
    assert "The last checkpoint is of step" in ended.stderr or "no checkpoint yet" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.slow
def test_a_signal_stops_at_the_next_step_and_the_same_call_goes_on(tmp_path):
    from tests.training.small_training import Pictures, asked
    from usvit.training.signals import Stopped

    whole, _, _ = training(tmp_path / "whole")
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Stopped, match=r"Stopped by SIGTERM at step 5\. Nothing is lost.*same command") as stop:
        training(tmp_path / "asked", examples=Pictures(asked, at=5))
    assert stop.value.exit_code == EXIT_STOPPED == 143
    assert signal.getsignal(signal.SIGTERM) is before
    assert load_checkpoint(tmp_path / "asked" / "state.pt")["step"] == 5
    again, result, _ = training(tmp_path / "asked")
    assert difference(whole.state_dict(), again.state_dict()) == 0
    assert result.steps == 8
    assert pd.read_csv(tmp_path / "asked" / "steps.csv").step.tolist() == list(range(1, 9))


def test_a_signal_in_the_last_step_is_not_forgotten(tmp_path):
    from usvit.training.signals import Stopped

    def last(module):
        os.kill(os.getpid(), signal.SIGUSR1)
        return {"val_loss": 1.0, "val_accuracy": None, "val_auc": None}

    with pytest.raises(Stopped, match="SIGUSR1 at step 8"):
        training(tmp_path, eval_every=8, evaluate=last)
    _, result, _ = training(tmp_path, eval_every=8)
    assert result.steps == 8


@pytest.mark.slow
def test_a_lost_worker_is_named_with_what_to_do(tmp_path):
    from tests.training.small_training import Pictures, killed

    with pytest.raises(
        UsvitError, match=r"loads batches (was ended by the signal Killed|ended).*fewer --workers.*the same command"
    ):
        training(tmp_path, examples=Pictures(killed, at=3), workers=1, checkpoint_seconds=0.0)


@pytest.mark.slow
def test_a_signal_to_the_whole_process_group_stops_politely(tmp_path):
    """What Slurm does: the workers that make batches get it, too."""
    from tests.training.small_training import Pictures
    from usvit.training.signals import Stopped

    def both():
        os.kill(os.getppid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(Stopped, match="Stopped by SIGTERM at step") as stop:
        training(tmp_path, examples=Pictures(both, at=4), workers=1)
    assert f"step {load_checkpoint(tmp_path / 'state.pt')['step']}." in str(stop.value)


def test_weights_that_are_no_numbers_are_never_kept(tmp_path):
    from tests.training.small_training import vit

    module = vit()
    module.head.weight.register_hook(lambda gradient: gradient * float("nan"))  # the loss itself is still finite
    with pytest.raises(UsvitError, match=r"became NaN or infinite.*learning rate 0\.001.*no checkpoint yet"):
        training(tmp_path, module=module, checkpoint_seconds=0.0, log_every=50, eval_every=8)
    assert not (tmp_path / "state.pt").exists()


def test_batches_that_cannot_be_shared_are_refused(monkeypatch):
    monkeypatch.setattr(distributed, "world_size", lambda: 3)
    with pytest.raises(UsvitError, match=r"train\.batch_size 8.*not a multiple of the 3 processes"):
        distributed.check_share(8)
    distributed.check_share(9)
    with pytest.raises(UsvitError, match=r"mix pairs.*has 3 of train\.batch_size 9: set a multiple of 6"):
        distributed.check_share(9, pairs=True)
    distributed.check_share(12, pairs=True)


def test_more_processes_than_gpus_are_refused(monkeypatch):
    from usvit.training.device import Device

    monkeypatch.setattr(distributed, "world_size", lambda: 4)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(UsvitError, match=r"4 processes on this machine, which has 2 GPUs.*--nproc-per-node 2"):
        distributed.launch(Device("cuda", "bf16"))
