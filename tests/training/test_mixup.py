"""Mixing: the equations, timm's own draws, and no trace of how a batch is cut."""

import numpy as np
import pytest
import torch
from timm.data.mixup import Mixup as TimmMixup

from usvit.config.views import MixConfig
from usvit.errors import UsvitError
from usvit.seeding import derive_seed
from usvit.training.mixup import Mixup

K, N, SIZE = 5, 12, 16


def mix_of(smoothing=0.0, **settings):
    return Mixup(MixConfig(**settings), K, smoothing)


def batch():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(N, 3, SIZE, SIZE, generator=generator), torch.arange(N) % K


def one_hot(targets, smoothing=0.0):
    hard = torch.nn.functional.one_hot(targets, K).float()
    return hard * (1 - smoothing) + smoothing / K


PARTNER = torch.tensor([index ^ 1 for index in range(N)])
KINDS = [{"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0}, {"mixup": 0.2, "probability": 0.5}]


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("portion", [2, 4, 6])
def test_portions_are_mixed_as_the_whole_batch(settings, portion):
    images, targets = batch()
    mix = mix_of(0.1, **settings)
    for seed in range(6):
        whole = mix(images, targets, seed)
        parts = [mix(images[at : at + portion], targets[at : at + portion], seed) for at in range(0, N, portion)]
        for index in range(2):
            assert torch.equal(whole[index], torch.cat([part[index] for part in parts]))


@pytest.mark.parametrize("settings", KINDS)
def test_inputs_and_numpy_s_generator_stay(settings):
    images, targets = batch()
    before, state = images.clone(), np.random.get_state()[1].copy()  # noqa: NPY002
    mix_of(**settings)(images, targets, 1)
    assert torch.equal(images, before)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_mixup_is_the_equation():
    images, targets = batch()
    shares = []
    for seed in range(20):
        mixed, labels = mix_of(0.1, mixup=0.8)(images, targets, seed)
        first, second = one_hot(targets, 0.1)[0], one_hot(targets, 0.1)[1]
        share = ((labels[0] - second) @ (first - second) / (first - second).square().sum()).item()
        expected = share * images + (1 - share) * images[PARTNER]
        assert torch.allclose(mixed, expected, atol=1e-5)
        assert torch.allclose(labels, share * one_hot(targets, 0.1) + (1 - share) * one_hot(targets, 0.1)[PARTNER])
        shares.append(share)
    assert len(set(shares)) == 20
    assert 0 <= min(shares) < max(shares) <= 1


def test_cutmix_pastes_one_box_and_counts_its_pixels():
    images, targets = batch()
    boxes = set()
    for seed in range(20):
        mixed, labels = mix_of(cutmix=1.0)(images, targets, seed)
        pasted = (mixed == images[PARTNER]).all(1) & (mixed != images).any(1)
        assert ((mixed == images).all(1) | pasted).all()
        assert (pasted == pasted[0]).all(), "one box for all"
        rows, columns = torch.nonzero(pasted[0], as_tuple=True)
        if len(rows):
            area = (rows.max() - rows.min() + 1) * (columns.max() - columns.min() + 1)
            assert area == len(rows)
            boxes.add((rows.min().item(), columns.min().item(), len(rows)))
        kept = 1 - len(rows) / SIZE**2
        assert torch.allclose(labels, kept * one_hot(targets) + (1 - kept) * one_hot(targets)[PARTNER])
    assert len(boxes) > 10


@pytest.fixture
def _numpys_generator():
    """timm draws from numpy's global one, which is as it was afterwards."""
    state = np.random.get_state()  # noqa: NPY002
    yield
    np.random.set_state(state)  # noqa: NPY002


@pytest.mark.usefixtures("_numpys_generator")
def test_draws_are_timm_s():
    """Both on: which is made, and how strong, follows numpy's generator as in timm's Mixup."""
    mix, kinds = mix_of(mixup=0.8, cutmix=1.0), set()
    images, targets = batch()
    theirs = TimmMixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.0, num_classes=K)
    order = [0, 2, 4, 6, 8, 10, 11, 9, 7, 5, 3, 1]
    for seed in range(20):
        mixed, labels = mix(images, targets, seed)
        np.random.seed((seed >> 32, seed & 0xFFFFFFFF))  # noqa: NPY002
        expected = theirs(images[order].clone(), targets[order])
        assert torch.equal(mixed[order], expected[0])
        assert torch.equal(labels[order], expected[1])
        kinds.add(bool((mixed[0] == images[0]).all(0).any()))  # cutmix leaves pixels as they are
    assert kinds == {True, False}


def test_probability_leaves_batches_alone():
    images, targets = batch()
    mix = mix_of(mixup=0.8, probability=0.3)
    alone = [torch.equal(mix(images, targets, derive_seed(0, step))[0], images) for step in range(200)]
    assert abs(sum(alone) - 140) < 3.5 * np.sqrt(200 * 0.3 * 0.7)


def test_nothing_is_mixed_by_default():
    images, targets = batch()
    mixed, labels = mix_of(0.1)(images[:5], targets[:5], 0)
    assert torch.equal(mixed, images[:5])
    assert torch.allclose(labels, one_hot(targets[:5], 0.1))
    assert not mix_of().on


def test_an_odd_portion_is_refused():
    images, targets = batch()
    with pytest.raises(UsvitError, match=r"pairs of images.*portion of the batch has 5 images.*train\.micro_batch"):
        mix_of(mixup=0.1)(images[:5], targets[:5], 0)
