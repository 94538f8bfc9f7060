"""Batches whose crops are cut on the device, against those that the host makes from the same store."""

import numpy as np
import pytest
import torch

from tests.data.transforms.views.conftest import picture
from usvit.config.views import ViewsConfig
from usvit.data.datasets.labelled_images import UpstreamDataset
from usvit.data.loading import AugmentedDataset, ImageStore, InfiniteLoader, StoredSource
from usvit.data.transforms import make_views
from usvit.progress import NO_PROGRESS
from usvit.upstream.loading.crop_batches import CropBatches

CPU = torch.device("cpu")
GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
SHAPES = [(72, 54), (54, 72), (60, 60), (72, 30), (30, 22)]


class Pictures(UpstreamDataset):
    def __init__(self):
        super().__init__("pictures", ("a", "b"), np.arange(11) % 2)

    def image(self, index):
        return picture(index, SHAPES[index % len(SHAPES)])


@pytest.fixture
def store(tmp_path) -> ImageStore:
    return ImageStore.build(Pictures(), 72, memory_gb=None, folder=tmp_path, progress=NO_PROGRESS)


def on_device(store, on=CPU, repeats=1, workers=0, rank=0, world=1, **settings):
    views, local = make_views(ViewsConfig(**settings), 32, on_device=True)
    options = {"batch_size": 6, "seed": 3, "workers": workers, "repeats": repeats, "rank": rank, "world": world}
    return CropBatches(Pictures(), store, views, local, on=on, **options)


def on_host(store, repeats=1, **settings):
    views, local = make_views(ViewsConfig(**settings), 32, on_device=True)
    examples = AugmentedDataset(StoredSource(Pictures(), store), *views, local=local)
    return InfiniteLoader(examples, batch_size=6, seed=3, repeats=repeats)


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key].cpu(), other[key].cpu()) for key in one)


@pytest.mark.parametrize("placed", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"repeats": 3, "crop": "src", "policy": "three_augment"},
        {"count": 2, "crop": "inception"},
        {"count": 2, "local_count": 3, "local_size": 16},
    ],
)
def test_the_device_makes_what_the_host_would_have(store, settings, placed):
    made = on_device(store.on(CPU) if placed else store, **settings).iterate(2, 5)
    for expected, batch in zip(on_host(store, **settings).iterate(2, 5), made, strict=True):
        assert list(batch) == list(expected)
        for key, value in expected.items():
            assert batch[key].shape == value.shape
            assert batch[key].dtype == value.dtype
            away = (batch[key].double() - value.double()).abs()
            if key in ("images", "local"):
                assert away.mean() < 0.2, "rounding, see test_gpu_crops"
            else:
                assert not away.any()


def test_where_the_images_lie_and_how_often_a_run_resumes_change_nothing(store):
    whole = list(on_device(store.on(CPU)).iterate(0, 6))
    sent = list(on_device(store).iterate(0, 6))
    resumed = list(on_device(store).iterate(4, 6))
    assert all(same(one, other) for one, other in zip(whole, sent, strict=True))
    assert all(same(one, other) for one, other in zip(whole[4:], resumed, strict=True))


def test_several_processes_together_have_the_batch_of_one(store):
    whole = next(on_device(store).iterate(1, 2))
    shares = [next(on_device(store, rank=rank, world=2).iterate(1, 2)) for rank in range(2)]
    assert same(whole, {key: torch.cat([share[key] for share in shares]) for key in whole})


@pytest.mark.slow
@pytest.mark.parametrize("placed", [True, False])
def test_processes_that_draw_change_nothing(store, placed):
    store = store.on(CPU) if placed else store
    alone = list(on_device(store).iterate(0, 5))
    made = on_device(store, workers=2).iterate(0, 5)
    assert all(same(one, other) for one, other in zip(alone, made, strict=True))


@GPU
@pytest.mark.parametrize("placed", [True, False])
def test_nothing_waits_for_the_gpu(store, placed):
    gpu = torch.device("cuda")
    batches = on_device(store.on(gpu) if placed else store, gpu, workers=2).iterate(0, 9)
    made = [next(batches) for _ in range(2)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        made += [next(batches) for _ in range(4)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(batch["images"].is_cuda and not batch["targets"].is_cuda for batch in made)
    for one, other in zip(on_device(store).iterate(0, 6), made, strict=True):
        assert (one["images"].float() - other["images"].cpu().float()).abs().mean() < 0.1
