"""Fractals: equal in every process, of classes that differ, drawn by the equations of their papers."""

import hashlib
import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest
import torch
from torch import nn

from usvit.progress import NoProgress
from usvit.upstream.sources import fractals
from usvit.upstream.sources.fractals import (
    FractalSource,
    chaos_game,
    count_points,
    sample_singular_values,
    sample_system,
)

SOURCE = FractalSource(classes=8, size=64, image_size=96)

PRINT_HASH = """
import hashlib
from usvit.upstream.sources.fractals import FractalSource
source = FractalSource(classes=8, size=64, image_size=96)
print(hashlib.sha256(b"".join(source.image(index).tobytes() for index in (33, 5))).hexdigest())
"""


def pixels(source, index):
    return np.asarray(source.image(index))


@pytest.mark.slow
def test_an_image_is_the_same_in_every_process_and_order():
    fresh = subprocess.run(
        [sys.executable, "-c", PRINT_HASH], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert hashlib.sha256(b"".join(SOURCE.image(index).tobytes() for index in (33, 5))).hexdigest() == fresh
    again = pickle.loads(pickle.dumps(SOURCE))
    assert np.array_equal(pixels(again, 5), pixels(SOURCE, 5)) and again.record().content() == SOURCE.record().content()


def test_a_picture_needs_no_global_generator():
    state = np.random.get_state()[1].copy()  # noqa: NPY002 - it must not be used
    SOURCE.image(1)
    assert np.array_equal(np.random.get_state()[1], state)  # noqa: NPY002


@pytest.mark.slow
def test_images_are_rgb_and_differ_within_a_class():
    assert SOURCE.image(0).mode == "RGB" and SOURCE.image(0).size == (96, 96)
    images = {pixels(SOURCE, index).tobytes() for index in range(len(SOURCE))}
    assert len(images) == len(SOURCE)


def test_classes_take_turns_and_do_not_depend_on_their_number_nor_on_the_seed():
    assert SOURCE.targets.tolist() == [index % 8 for index in range(64)]
    assert SOURCE.classes[3] == "fractal-3"
    before = fractals.system_of(3).copy()
    fractals.system_of.cache_clear()
    FractalSource(classes=100, size=100, image_size=64, seed=9).image(99)
    assert np.array_equal(fractals.system_of(3), before)


@pytest.mark.parametrize("change", [{"split": "val"}, {"seed": 1}])
def test_another_split_or_seed_has_other_images_of_the_same_classes(change):
    other = FractalSource(classes=8, size=64, image_size=96, **change)
    assert np.array_equal(other.targets, SOURCE.targets) and other.classes == SOURCE.classes
    assert not any(np.array_equal(pixels(other, index), pixels(SOURCE, index)) for index in range(16))
    assert other.listing_sha256() != SOURCE.listing_sha256()


def test_more_images_change_none():
    longer = FractalSource(classes=8, size=640, image_size=96)
    assert np.array_equal(pixels(longer, 63), pixels(SOURCE, 63))


def test_nothing_of_them_stands_elsewhere():
    assert SOURCE.hashes(NoProgress()) is None
    assert sorted(SOURCE.order(np.random.default_rng(0))) == list(range(64))


@pytest.mark.parametrize("seed", range(20))
def test_systems_contract_and_have_the_papers_sigma_factor(seed):
    """Anderson & Farrell 2022: sum of s1 + 2 s2 over N maps within [(5 + N) / 2, (6 + N) / 2]."""
    maps = sample_system(np.random.default_rng(seed))
    values = np.linalg.svd(maps[:, :, :2], compute_uv=False)
    assert values.max() <= 1 + 1e-12 and np.abs(maps[:, :, 2]).max() <= 1
    assert (5 + len(maps)) / 2 - 1e-9 <= (values @ [1, 2]).sum() <= (6 + len(maps)) / 2 + 1e-9
    assert 2 <= len(maps) <= 7


@pytest.mark.parametrize("factor", [0.0, 0.5, 3.0, 7.3, 11.99, 12.0])
def test_singular_values_keep_their_order_and_sum(factor):
    for seed in range(50):
        values = sample_singular_values(4, factor, np.random.default_rng(seed))
        assert (values[:, 0] <= 1 + 1e-9).all() and (values[:, 1] >= -1e-9).all()
        assert (values[:, 1] <= values[:, 0] + 1e-9).all()
        assert (values @ [1, 2]).sum() == pytest.approx(factor)


def test_the_chaos_game_finds_sierpinskis_triangle():
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    maps = np.stack([np.column_stack([np.eye(2) / 2, corner / 2]) for corner in corners])
    x, y = chaos_game(maps, np.random.default_rng(0))
    cells = np.zeros((8, 8), bool)
    cells[(y * 8).clip(0, 7).astype(int), (x * 8).clip(0, 7).astype(int)] = True
    expected = np.array([[row & column == 0 for column in range(8)] for row in range(8)])  # Pascal's triangle mod 2
    assert np.array_equal(cells, expected)
    shares = [((x < 0.5) & (y < 0.5)).mean(), (x > 0.5).mean(), (y > 0.5).mean()]
    assert np.allclose(shares, 1 / 3, atol=0.02), "equal determinants, equal shares"


def test_maps_are_drawn_in_proportion_to_their_determinants():
    big = np.array([[0.9, 0, 0], [0, 0.9, 0]])
    small = np.array([[0.3, 0, 2], [0, 0.3, 2]])
    x, _ = chaos_game(np.stack([big, small]), np.random.default_rng(0))
    assert (x >= 2).mean() >= 0.09 / 0.9 - 0.02


def test_points_are_counted_in_their_pixels_and_outside_not_at_all():
    rng = np.random.default_rng(0)
    points = rng.uniform(-0.5, 1.5, (2, 3000)).astype(np.float32)
    counts = count_points(points, np.zeros(2), np.ones(2), 5)
    expected = np.zeros((5, 5), int)
    for x, y in points.T:
        if 0 <= x < 1 and 0 <= y < 1:
            expected[int(y * np.float32(5)), int(x * np.float32(5))] += 1
    assert np.abs(counts - expected).sum() <= 4, "but for points that rounding puts beyond an edge"
    assert counts.sum() == pytest.approx(expected.sum(), abs=2)


def test_every_class_fills_its_picture_neither_too_little_nor_too_much():
    for number in range(30):
        points = chaos_game(fractals.system_of(number), np.random.default_rng(1))
        low, high = points.min(axis=1).astype(float), points.max(axis=1).astype(float)
        filling = (count_points(points, low, high, 64) > 0).mean()
        assert 0.15 < filling < 0.95
        assert np.isfinite(points).all()


def edges_of(source):
    """(N, 1, 48, 48) where colours change: what a fractal's shape shows, whatever its colours."""
    pictures = []
    for index in range(len(source)):
        pixels = np.asarray(source.image(index)).astype(np.float32)
        across, down = np.abs(np.diff(pixels, axis=1))[:-1], np.abs(np.diff(pixels, axis=0))[:, :-1]
        pictures.append(cv2.resize((across + down).max(axis=2), (48, 48), interpolation=cv2.INTER_AREA))
    edges = torch.from_numpy(np.stack(pictures))[:, None]
    return (edges - edges.mean((2, 3), keepdim=True)) / edges.std((2, 3), keepdim=True)


@pytest.mark.slow
def test_a_small_network_learns_to_tell_ten_classes():
    train = FractalSource(classes=10, size=1000, image_size=96)
    test = FractalSource(classes=10, size=300, image_size=96, split="val")
    images, targets = edges_of(train), torch.from_numpy(train.targets)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 24, 5, 2, 2), nn.BatchNorm2d(24), nn.ReLU()]
        layers += [nn.Conv2d(24, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU()]
        layers += [nn.Conv2d(48, 48, 3, 2, 1), nn.BatchNorm2d(48), nn.ReLU()]
        network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(192, 10))
        optimizer = torch.optim.AdamW(network.parameters(), 3e-3, weight_decay=0.05)
        for epoch in range(20):
            turned = images.rot90(epoch % 4, (2, 3))
            turned = turned.flip(3) if epoch // 4 % 2 else turned
            for rows in torch.randperm(len(images)).split(50):
                loss = nn.functional.cross_entropy(network(turned[rows]), targets[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
    with torch.no_grad():
        hits = (network.eval()(edges_of(test)).argmax(1) == torch.from_numpy(test.targets)).float().mean()
    assert hits > 0.6, f"{hits:.2f}; chance is 0.1"
