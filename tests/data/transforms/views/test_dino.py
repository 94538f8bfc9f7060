"""DINO's colour changes: their probabilities by view (main_dino.py), and the crops of an example."""

import random

import numpy as np
import pytest
from PIL import Image

from usvit.config.views import ViewsConfig
from usvit.data.transforms import make_views
from usvit.data.transforms.views import dino
from usvit.data.transforms.views.dino import DinoPolicy
from usvit.data.transforms.views.rng import seeded

PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (8, 8, 3)).astype(np.uint8))
N = 600


@pytest.mark.parametrize(("place", "blur", "solarize"), [("first", 1, 0), ("other", 0.1, 0.2), ("local", 0.5, 0)])
def test_each_change_is_as_frequent_as_in_the_public_code(place, blur, solarize, monkeypatch):
    done = dict.fromkeys(("blur", "solarize", "grey", "adjust_hue", "adjust_brightness"), 0)
    strengths = []

    def counted(module, name, key):
        real = getattr(module, name)

        def call(*arguments):
            done[key] += 1
            strengths.append((key, arguments[-1]))
            return real(*arguments)

        monkeypatch.setattr(module, name, call)

    counted(dino.ImageFilter, "GaussianBlur", "blur")
    counted(dino.ImageOps, "solarize", "solarize")
    for name in ("adjust_hue", "adjust_brightness"):
        counted(dino.F, name, name)
    policy = DinoPolicy(place)
    for seed in range(N):
        with seeded(seed):
            pixels = np.array(policy(PICTURE))
        done["grey"] += np.ptp(pixels.astype(int), axis=2).max() == 0
    expected = {"blur": blur, "solarize": solarize, "grey": 0.2, "adjust_hue": 0.8, "adjust_brightness": 0.8}
    for name, share in expected.items():
        margin = 4 * (share * (1 - share) / N) ** 0.5
        assert abs(done[name] / N - share) <= margin, name
    assert done["adjust_hue"] == done["adjust_brightness"]  # one decision for all four
    ranges = {"adjust_hue": (-0.1, 0.1), "adjust_brightness": (0.6, 1.4), "blur": (0.1, 2.0), "solarize": (128, 128)}
    for name, (low, high) in ranges.items():
        found = [strength for key, strength in strengths if key == name]
        assert all(low <= strength <= high for strength in found)
        if name != "solarize":
            assert min(found) < low + 0.1 * (high - low) and max(found) > high - 0.1 * (high - low)


def test_the_order_of_the_jitter_is_random(monkeypatch):
    orders = set()
    for seed in range(60):
        order = []
        for name in ("adjust_brightness", "adjust_contrast", "adjust_saturation", "adjust_hue"):
            monkeypatch.setattr(dino.F, name, lambda image, _, name=name, order=order: order.append(name) or image)
        with seeded(seed):
            DinoPolicy("local")(PICTURE)
        orders.add(tuple(order))
    assert len(orders) > 15


def test_an_example_has_two_large_crops_and_several_small_ones():
    config = ViewsConfig(
        policy="dino", count=2, local_count=3, local_size=16, scale=(0.9, 1.0), local_scale=(0.01, 0.02)
    )
    large, local = make_views(config, 32, on_device=False)
    assert [view(PICTURE, 1).shape for view in (*large, *local)] == [(32, 32, 3)] * 2 + [(16, 16, 3)] * 3
    assert [view._policy.blur for view in (*large, *local)] == [1.0, 0.1, 0.5, 0.5, 0.5]
    state = random.getstate()
    assert np.array_equal(local[0](PICTURE, 5), local[2](PICTURE, 5)) and random.getstate() == state
    resized = make_views(config.model_copy(update={"local_size": None}), 32, on_device=False)[1]
    assert resized[0](PICTURE, 1).shape == (32, 32, 3)


def test_a_local_crop_is_a_small_part_of_the_image():
    ramp = np.tile(np.arange(100, dtype=np.uint8)[None, :, None], (100, 1, 3))
    config = ViewsConfig(count=2, local_count=1, local_size=16, scale=(0.9, 1.0), local_scale=(0.05, 0.06), hflip=0)
    large, local = make_views(config, 32, on_device=False)
    for seed in range(10):
        assert np.ptp(large[0](Image.fromarray(ramp), seed)) > 75
        assert np.ptp(local[0](Image.fromarray(ramp), seed)) < 40
