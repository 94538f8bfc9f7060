"""The policies of a batch on its device against the policies of the host, change by change and in all."""

import functools
import pickle

import numpy as np
import pytest
import torch

from tests.data.conftest import speckle
from usvit.data.phantom.render import render_image, sample_patient
from usvit.data.transforms.batch_draws import box_of, draw_batch
from usvit.data.transforms.device_policies import augment_batch
from usvit.data.transforms.geometry import ViewBounds, lesion_cells
from usvit.data.transforms.grey_changes import (
    GreyBounds,
    GreyChange,
    gamma_table,
    sharpening_kernel,
    smoothing_kernel,
)
from usvit.data.transforms.policies import POLICIES, Policy, make_augment
from usvit.data.transforms.ultrasound_effects import draw_depth_gain, draw_haze, draw_speckle

CHANGING = [policy for policy in POLICIES if policy != "none"]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
SEEDS = range(40)


@functools.cache
def phantoms(size: int) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Images of the phantom with and without padding, and the cells of their lesions."""
    images, lesions = [], []
    for number in range(8):
        made = render_image(sample_patient(3, number, number % 2 == 1), 1, size=size, with_lesion=number % 4 != 0)
        image = np.stack([made.image] * 3, axis=2)
        if number % 2:
            image[:17], image[-9:] = 0, 0
        if number % 3 == 1:
            image[:, :5], image[:, -23:] = 0, 0
        images.append(image)
        lesions.append(lesion_cells(made.mask) if made.mask.any() else None)
    return images, lesions


def noises(size: int) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """Random images: the steepest there are, coloured, black, white, and a single bright pixel or row."""
    generator = np.random.default_rng(0)
    images = [generator.integers(0, 256, (size, size, 3)).astype(np.uint8) for _ in range(3)]
    images.append(np.stack([speckle(1, size, size)] * 3, axis=2))
    images += [np.zeros((size, size, 3), np.uint8), np.full((size, size, 3), 255, np.uint8)]
    dot, row = np.zeros((2, size, size, 3), np.uint8)
    dot[50, 31], row[12] = 200, 90
    return [*images, dot, row], [None] * 8


KINDS = {"phantoms": phantoms, "noises": noises}


def drawn(policy: Policy, kind: str, size: int, seeds=SEEDS):
    """Images (N, S, S, 3) of the host after the policy, the batch before it, and its draws: each image, each seed."""
    images, lesions = KINDS[kind](size)
    whole = [(image, lesion, seed) for seed in seeds for image, lesion in zip(images, lesions, strict=True)]
    host = np.stack([policy(image, seed, lesion) for image, lesion, seed in whole])
    boxes = np.array([box_of(image) for image, _, _ in whole])
    draws = draw_batch(policy, size, [seed for _, _, seed in whole], [lesion for _, lesion, _ in whole], boxes)
    return host, torch.from_numpy(np.stack([image for image, _, _ in whole])), draws


def away(policy: Policy, kind: str, device: str = "cpu", size: int = 96, seeds=SEEDS) -> np.ndarray:
    """Absolute differences between the host's result and the device's, in grey levels."""
    host, batch, draws = drawn(policy, kind, size, seeds)
    assert (host != batch.numpy()).any(axis=(1, 2, 3)).mean() > 0.2, "the policy changes images"
    there = batch.to(device)
    made = augment_batch(there, draws.to(torch.device(device)))
    assert torch.equal(there.cpu(), batch)
    assert (made.dtype, made.shape) == (torch.uint8, batch.shape)
    return abs(host.astype(int) - made.cpu().numpy())


class Only:
    """Bounds of one change of grey values, always applied."""

    def __init__(self, change):
        self.change = change

    def draw(self, shape, rng, coin):
        return self.change(shape, rng)


STILL = ViewBounds()
SINGLE = {
    "view": (ViewBounds(min_side=0.9, degrees=10, right=0.1, down=0.1, flip=0.5), None),
    "table": (STILL, GreyBounds(0.2, 0.3, (0.85, 1.18), 0.0)),
    "gamma": (STILL, Only(lambda shape, rng: GreyChange(table=gamma_table(rng.uniform(0.85, 1.18))))),
    "speckle": (STILL, Only(lambda shape, rng: GreyChange(speckle=draw_speckle(shape, rng)))),
    "haze": (STILL, Only(lambda shape, rng: GreyChange(haze=draw_haze(shape, rng)))),
    "depth_gain": (STILL, Only(lambda shape, rng: GreyChange(depth_gain=draw_depth_gain(rng)))),
    "sharpening": (STILL, Only(lambda shape, rng: GreyChange(sharpening=sharpening_kernel(rng.uniform(0, 0.1))))),
    "smoothing": (STILL, Only(lambda shape, rng: GreyChange(smoothing=smoothing_kernel(rng.uniform(0.1, 1))))),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SINGLE)
def test_each_change_is_the_host_s_to_a_grey_level_almost_never_missed(name, kind):
    """Tables agree to the level. The rest rounds a value next to a half the other way, in 0.1 % of pixels at most."""
    levels = away(Policy([SINGLE[name]]), kind)
    assert levels.max() <= (0 if name in ("table", "gamma") else 1)
    assert levels.mean() <= 0.002


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", CHANGING)
def test_a_device_makes_what_the_host_makes(name, kind, device):
    """A later change may enlarge a level that was missed, but that is one pixel of a hundred thousand."""
    levels = away(make_augment(name), kind, device)
    assert levels.mean() <= 0.002
    assert (levels > 1).mean() <= 1e-4
    assert levels.max() <= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGING)
def test_at_the_usual_size_where_speckle_is_enlarged(name):
    levels = away(make_augment(name), "phantoms", size=224, seeds=range(4))
    assert levels.mean() <= 0.002
    assert levels.max() <= 4


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CHANGING)
def test_an_image_depends_on_its_own_seed_alone(name, device):
    policy = make_augment(name)
    images, lesions = phantoms(64)
    boxes = np.array([box_of(image) for image in images])
    batch = torch.from_numpy(np.stack(images)).to(device)

    def made(rows):
        draws = draw_batch(policy, 64, [7 + row for row in rows], [lesions[row] for row in rows], boxes[rows])
        sent = pickle.loads(pickle.dumps(draws))  # as from a process that makes batches
        return augment_batch(batch[rows], sent.to(torch.device(device)))

    whole = made([*range(8)])
    assert torch.equal(whole, torch.cat([made([0]), made([1, 2, 3, 4, 5]), made([6, 7])]))
    assert torch.equal(whole, made([*range(7, -1, -1)]).flip(0))


def test_black_images_stay_black_and_borders_too():
    host, batch, draws = drawn(make_augment("us"), "noises", 64, range(6))
    made = augment_batch(batch, draws)
    black = batch.flatten(1).amax(1) == 0
    assert black.sum() == 6
    assert (made[black] == 0).all()
    assert ((host == 0).all(axis=3) == (made == 0).all(3).numpy()).mean() > 0.999


def test_draws_are_small_next_to_the_images_where_no_noise_is_drawn():
    _, batch, draws = drawn(make_augment("light"), "phantoms", 224, range(1))
    tensors = [*draws[:4], *draws.speckle, *draws.haze, draws.filter_row, draws.kernel]
    assert sum(tensor.nbytes for tensor in tensors) < 0.01 * batch.nbytes
