"""The step log: what a killed training leaves, and what the share of the device's peak means."""

import struct

import pytest
import torch
from tensorboardX.proto.event_pb2 import Event

from usvit.models.complexity import Cost
from usvit.training.device import peak_by_name, peak_tflops
from usvit.training.step_log import COLUMNS, EVENTS, StepLog

CPU = torch.device("cpu")


def row(step, loss=0.5):
    return {
        "step": step,
        "epoch": step / 10,
        "lr": 0.1,
        "loss": loss,
        "images_per_second": 1000.0,
        "seconds_left": 7.0,
    }


def events(folder):
    """(step, tag, value) of each scalar, read by TensorBoard's record format: length, its CRC, data, its CRC."""
    data, found, versions = (folder / EVENTS).read_bytes(), [], []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        event = Event.FromString(data[12 : 12 + length])
        versions += [event.file_version] if event.file_version else []
        found += [(event.step, value.tag, pytest.approx(value.simple_value)) for value in event.summary.value]
        data = data[16 + length :]
    assert versions == ["brain.Event:2"]
    return found


def test_rows_of_a_killed_process_after_its_checkpoint_are_dropped_and_written_once(tmp_path):
    log = StepLog(tmp_path, device=CPU)
    log.resume(0)
    for step in (2, 4, 6):
        log.add(row(step, loss=1 / step))
    # Killed here, its checkpoint was of step 4, a crash of the machine left zeros, and a line was cut short.
    with open(tmp_path / "steps.csv", "ab") as file:
        file.write(bytes(20) + b"3,1,1,1,1,,,\n\xff,1,1,1,1,,,\n1e999,1,1,1,1,,,\n8,0.8,0.")
    again = StepLog(tmp_path, device=CPU)
    again.resume(4)
    for step in (6, 8):
        again.add(row(step, loss=1 / step))
    again.evaluated(8, {"val_loss": 0.25, "val_auc": None})
    again.close()
    rows = again.rows()
    assert [int(one["step"]) for one in rows] == [2, 4, 6, 8]
    assert [float(one["loss"]) for one in rows] == [1 / 2, 1 / 4, 1 / 6, 1 / 8]
    losses = [(step, value) for step, tag, value in events(tmp_path) if tag == "train/loss"]
    assert [step for step, _ in losses] == [2, 4, 6, 8]
    assert [1 / step for step, _ in losses] == [value for _, value in losses]
    assert (8, "val_loss", 0.25) in events(tmp_path)


def test_a_training_that_begins_anew_leaves_no_old_rows(tmp_path):
    for _ in range(2):
        log = StepLog(tmp_path, device=CPU)
        log.resume(0)
        log.add(row(1))
        log.close()
    assert (tmp_path / "steps.csv").read_text().splitlines()[0] == ",".join(COLUMNS)
    assert len(log.rows()) == 1
    assert sum(tag == "train/loss" for _, tag, _ in events(tmp_path)) == 1


def test_mfu_is_six_operations_for_each_multiplication_over_the_peak_of_all_devices(tmp_path):
    """ViT-B/16 (17.56 GMACs, thesis digest) at 1000 images/s on two devices of 312 TFLOP/s."""
    log = StepLog(tmp_path, device=CPU, cost=Cost(17_560_000_000), world=2, stated_peak=312.0)
    log.add(row(1))
    log.close()
    assert float(log.rows()[0]["mfu"]) == pytest.approx(6 * 17.56e9 * 1000 / (2 * 312e12), rel=1e-4)


def test_what_is_not_known_is_empty(tmp_path):
    log = StepLog(tmp_path, device=CPU, cost=Cost(10**9))
    log.add(row(1))
    log.close()
    assert log.rows()[0]["mfu"] == ""
    assert float(log.rows()[0]["memory_gb"]) > 0.05  # PyTorch alone takes more
    assert "train/mfu" not in [tag for _, tag, _ in events(tmp_path)]


def test_a_loss_survives_the_table_to_the_last_digit(tmp_path):
    log = StepLog(tmp_path, device=CPU)
    log.add(row(1, loss=0.1 + 0.2))
    log.close()
    assert float(log.rows()[0]["loss"]) == 0.1 + 0.2


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A100-PCIE-40GB", 312.0),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.4),
        ("Tesla V100-SXM2-32GB", 125.0),
        ("Tesla V100-PCIE-16GB", 112.0),
        ("NVIDIA L40S", 362.05),
        ("NVIDIA L4", 121.0),
        ("NVIDIA GeForce GTX 1080", None),
    ],
)
def test_peaks_are_found_by_the_names_that_devices_give_themselves(name, peak):
    assert peak_by_name(name) == peak


def test_a_cpu_has_a_peak_only_where_the_user_states_it():
    assert peak_tflops(CPU) is None
    assert peak_tflops(CPU, 0.5) == 0.5
