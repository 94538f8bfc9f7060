"""Batches that are made on the device against those that the host makes."""

import numpy as np
import pytest
import torch

from tests.data.conftest import speckle
from usvit.data.loading import device_store
from usvit.data.loading.device_batches import DeviceBatches, train_batches
from usvit.data.loading.device_store import DeviceStore, place_pixels
from usvit.data.loading.pixel_store import PixelStore, TrainBatches, eval_batches
from usvit.data.transforms.geometry import CELLS
from usvit.data.transforms.policies import make_augment
from usvit.training.head_training import FeatureStore

CPU = torch.device("cpu")
ROWS = np.arange(24)[::-1][:17].copy()
TARGETS = ROWS % 3
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def host() -> PixelStore:
    """24 images, some of them padded, with lesions."""
    pixels = np.stack([speckle(number, 32, 32) for number in range(24)])[:, :, :, None].repeat(3, axis=3)
    pixels[::3, :4] = 0
    pixels[1::3, :, 25:] = 0
    lesions = np.zeros((24, CELLS, CELLS), np.uint8)
    lesions[:, 10:20, 24:30] = 255
    return PixelStore(pixels, lesions)


def stream(store, policy="none", device=None, workers=0):
    return train_batches(
        store,
        ROWS,
        TARGETS,
        batch_size=5,
        augment=make_augment(policy),
        seed=4,
        workers=workers,
        device=device,
    )


def images_and_targets(batches, start=0, stop=9):
    made = list(batches.iterate(start, stop))
    assert all(list(batch) == ["images", "targets"] for batch in made)
    return [torch.cat([batch[key] for batch in made]) for key in ("images", "targets")]


def same(one, other) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_what_stays_on_the_host_is_made_as_before(host):
    placed = DeviceStore(host, CPU)
    features = FeatureStore(np.zeros((24, 7), np.float32))
    for store, policy, device in ((host, "none", CPU), (host, "light", None), (placed, "us", None)):
        assert type(stream(store, policy, device)) is TrainBatches
    assert type(stream(features, "none", CPU)) is TrainBatches
    assert same(
        images_and_targets(stream(placed, "light")),
        images_and_targets(TrainBatches(host, ROWS, TARGETS, batch_size=5, augment=make_augment("light"), seed=4)),
    )


def test_without_augmentation_the_bytes_are_the_hosts(host):
    placed = stream(DeviceStore(host, CPU))
    assert type(placed) is DeviceBatches
    assert same(images_and_targets(placed), images_and_targets(stream(host)))
    assert same(images_and_targets(placed, 4, 6), [part[20:30] for part in images_and_targets(stream(host))])


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["light", "us", "trivial"])
def test_the_device_augments_what_the_host_would_have_wherever_the_pixels_are(host, policy):
    expected = images_and_targets(stream(host, policy))
    gathered = images_and_targets(stream(DeviceStore(host, CPU), policy, CPU))
    sent = images_and_targets(stream(host, policy, CPU))
    assert same(gathered, sent)
    assert torch.equal(gathered[1], expected[1])
    away = (gathered[0].int() - expected[0].int()).abs()
    assert away.float().mean() <= 0.002
    assert away.max() <= 4
    plain = images_and_targets(stream(host))[0]
    assert (expected[0].int() - plain.int()).abs().float().mean() > 2, "the policy changes the images"


@pytest.mark.slow
@pytest.mark.parametrize("placed", [True, False])
def test_processes_that_draw_change_nothing(host, placed):
    store = DeviceStore(host, CPU) if placed else host
    alone = images_and_targets(stream(store, "us", CPU))
    assert same(images_and_targets(stream(store, "us", CPU, workers=2)), alone)


def test_evaluation_gathers_the_same_rows(host):
    made = list(eval_batches(DeviceStore(host, CPU), ROWS, 5))
    assert [len(batch) for batch in made] == [5, 5, 5, 2]
    assert torch.equal(torch.cat(made), torch.from_numpy(host.pixels[ROWS]))


def test_pixels_go_to_the_device_if_that_is_said_or_if_they_fit(host, monkeypatch):
    assert place_pixels(host, CPU, "auto") is host
    assert place_pixels(host, torch.device("cuda"), False) is host
    assert isinstance(place_pixels(host, CPU, True), DeviceStore)
    free = 4 * host.pixels.nbytes
    monkeypatch.setattr(device_store, "_free_bytes", lambda device: free)
    monkeypatch.setattr(device_store, "DeviceStore", lambda store, device: "placed")
    gpu = torch.device("cuda")
    assert place_pixels(host, gpu, "auto") == "placed"
    assert place_pixels(host, gpu, "auto", copies=2) is host
    free -= 4
    assert place_pixels(host, gpu, "auto") is host


@GPU
@pytest.mark.parametrize("workers", [0, 2])
def test_nothing_waits_for_the_gpu(host, workers):
    batches = stream(DeviceStore(host, torch.device("cuda")), "us", torch.device("cuda"), workers).iterate(0, 9)
    next(batches)
    torch.cuda.set_sync_debug_mode("error")
    try:
        made = [next(batches) for _ in range(3)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(batch["images"].is_cuda and batch["targets"].is_cuda for batch in made)
