"""The views of worker processes: against timm's and torchvision's transforms, and the authors' choices."""

import pickle
import random

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from timm.data.transforms import RandomResizedCropAndInterpolation
from torchvision import transforms

from tests.data.transforms.views.conftest import picture
from usvit.config.views import ViewsConfig
from usvit.data.transforms.views import Views, test_view
from usvit.data.transforms.views import rng as numbers_of
from usvit.data.transforms.views.rng import numbers, seeded

PLAIN = {"hflip": 0.0, "interpolation": "bicubic"}
EVERYTHING = [
    {"policy": "randaugment"},
    {"policy": "randaugment", "magnitude": 15, "magnitude_std": 0.5, "layers": 3},
    {"policy": "randaugment", "randaugment": "original", "magnitude": 20, "probability": 1},
    {"policy": "autoaugment", "interpolation": "random"},
    {"policy": "trivialaugment", "crop": "inception"},
    {"policy": "three_augment", "three_augment": ("gray", "blur"), "crop": "squash_crop"},
    {"policy": "three_augment", "color_jitter": 0.3},
    {"crop": "src", "policy": "three_augment"},
    {"crop": "resize", "color_jitter": 0.4, "interpolation": "random"},
]


def views(size=48, on_device=False, **settings):
    return Views(ViewsConfig(**settings), size, on_device=on_device)


def view(image, seed, **settings):
    return views(**settings)(image, seed)


@pytest.mark.parametrize("settings", EVERYTHING)
def test_a_seed_gives_the_same_bytes_and_leaves_every_generator_alone(settings, image):
    made = views(**settings)
    twin = pickle.loads(pickle.dumps(made))
    states = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # noqa: NPY002
    first = made(image, 3)
    assert first.shape == (48, 48, 3)
    assert first.dtype == np.uint8
    assert random.getstate() == states[0]
    assert np.array_equal(np.random.get_state()[1], states[1])  # noqa: NPY002
    assert torch.equal(torch.get_rng_state(), states[2])
    random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002
    assert np.array_equal(twin(image, 3), first)
    assert len({made(image, seed).tobytes() for seed in range(8)}) > 4


@pytest.mark.parametrize("settings", EVERYTHING)
@pytest.mark.parametrize("size", [(48, 48), (33, 300), (300, 33), (7, 9)])
def test_pictures_of_any_shape_come_out_square(settings, size):
    assert view(picture(size=size), 1, **settings).shape == (48, 48, 3)


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.2, 1.0)])
def test_rrc_is_timm_s(scale, image):
    crop = RandomResizedCropAndInterpolation(48, scale, (0.75, 4 / 3), "bicubic")
    for seed in range(5):
        with seeded(seed):
            expected = np.asarray(crop(image))
        assert np.array_equal(view(image, seed, scale=scale, **PLAIN), expected)


def test_resize_squashes_the_whole_picture(image):
    expected = np.asarray(image.resize((48, 48), Image.Resampling.BICUBIC))
    assert np.array_equal(view(image, 0, crop="resize", **PLAIN), expected)


def test_src_cuts_a_random_square_of_the_reflected_picture(image):
    resized = transforms.Resize(48, transforms.InterpolationMode.BICUBIC)(image)
    padded = np.pad(np.asarray(resized), ((4, 4), (4, 4), (0, 0)), mode="reflect")
    corners = {
        padded[top : top + 48, left : left + 48].tobytes(): (top, left)
        for top in range(padded.shape[0] - 47)
        for left in range(padded.shape[1] - 47)
    }
    met = [corners[view(image, seed, crop="src", **PLAIN).tobytes()] for seed in range(150)]
    tops, lefts = zip(*met, strict=True)
    assert set(tops) == set(range(9)), "the short side has 4 px on each end"
    assert min(lefts) <= 2
    assert max(lefts) >= padded.shape[1] - 48 - 2


@pytest.mark.slow
def test_flip_mirrors_half_of_the_views(image):
    settings = {"crop": "resize", "interpolation": "bicubic"}
    plain = view(image, 0, hflip=0.0, **settings)
    flipped = [np.array_equal(view(image, seed, hflip=0.5, **settings), plain[:, ::-1]) for seed in range(200)]
    same = [np.array_equal(view(image, seed, hflip=0.5, **settings), plain) for seed in range(200)]
    assert sum(flipped) + sum(same) == 200
    assert abs(sum(flipped) - 100) < 3.5 * np.sqrt(50)


@pytest.mark.slow
def test_three_augment_makes_exactly_one_of_three_changes(image):
    """DeiT III: RandomChoice of gray_scale, Solarization and GaussianBlur(radius in [0.1, 2])."""
    square = image.resize((48, 48), Image.Resampling.BICUBIC)
    gray, solar = transforms.Grayscale(3)(square), ImageOps.solarize(square)
    counts = [0, 0, 0]
    for seed in range(300):
        made = view(image, seed, crop="resize", policy="three_augment", **PLAIN)
        sigma = float(0.1 + 1.9 * numbers(seed)[numbers_of.SIGMA])
        blur = square.filter(ImageFilter.GaussianBlur(sigma))
        which = [np.array_equal(made, np.asarray(one)) for one in (gray, solar, blur)]
        assert sum(which) == 1
        counts[which.index(True)] += 1
    assert max(abs(count - 100) for count in counts) < 3.5 * np.sqrt(300 * 2 / 9)


@pytest.mark.parametrize("parts", [("gray",), ("gray", "blur"), ("solarize",)])
def test_parts_of_three_augment_share_the_images_equally(parts, image):
    """Thesis, Table 6.2: the parts one by one."""
    square = image.resize((48, 48), Image.Resampling.BICUBIC)
    plain = {"gray": transforms.Grayscale(3)(square), "solarize": ImageOps.solarize(square)}
    counts = dict.fromkeys(parts, 0)
    for seed in range(60):
        made = view(image, seed, crop="resize", policy="three_augment", three_augment=parts, **PLAIN)
        sigma = float(0.1 + 1.9 * numbers(seed)[numbers_of.SIGMA])
        changed = {**plain, "blur": square.filter(ImageFilter.GaussianBlur(sigma))}
        (which,) = [part for part in changed if np.array_equal(made, np.asarray(changed[part]))]
        counts[which] += 1
    spread = 3.5 * np.sqrt(60 / 4) if len(parts) > 1 else 0
    assert min(counts.values()) >= 60 / len(parts) - spread


@pytest.mark.parametrize("parts", [(), ("gray", "gray"), ("sepia",)])
def test_parts_of_three_augment_are_checked(parts):
    with pytest.raises(ValueError, match="three_augment"):
        ViewsConfig(three_augment=parts)


def test_jitter_is_torchvision_s_three_changes_in_some_order(image):
    square = image.resize((48, 48), Image.Resampling.BICUBIC)
    orders = set()
    for seed in range(40):
        made = view(image, seed, crop="resize", color_jitter=0.3, **PLAIN)
        factors = 0.7 + 0.6 * numbers(seed)[numbers_of.BRIGHTNESS : numbers_of.SATURATION + 1]
        adjust = (
            transforms.functional.adjust_brightness,
            transforms.functional.adjust_contrast,
            transforms.functional.adjust_saturation,
        )
        matches = set()
        for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
            expected = square
            for which in order:
                expected = adjust[which](expected, float(factors[which]))
            if np.array_equal(made, np.asarray(expected)):
                matches.add(order)
        assert matches
        orders |= matches
    assert len(orders) == 6


def test_views_for_a_device_leave_out_what_it_makes(image):
    settings = {"policy": "three_augment", "color_jitter": 0.3, "hflip": 1.0}
    for seed in range(5):
        plain = view(image, seed, hflip=0.0)
        assert np.array_equal(views(on_device=True, **settings)(image, seed), plain)
    assert not np.array_equal(views(on_device=True, policy="randaugment")(image, 1), view(image, 1, hflip=0.0)), (
        "RandAugment cannot be batched"
    )


@pytest.mark.parametrize(("size", "crop"), [(224, 0.875), (48, 1.0), (384, 1.0), (100, 0.95)])
@pytest.mark.parametrize("shape", [(90, 66), (66, 90), (300, 40)])
def test_test_view_is_torchvision_s_resize_and_center_crop(size, crop, shape):
    image = picture(size=shape)
    expected = transforms.Compose(
        [transforms.Resize(int(size / crop), transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(size)]
    )(image)
    assert np.array_equal(test_view(image, size, crop), np.asarray(expected))


def test_views_are_of_the_type_that_is_advertised():
    assert isinstance(views(), Views)


@pytest.mark.parametrize(
    "wrong", [{"scale": (0.9, 0.1)}, {"scale": (0.0, 1.0)}, {"scale": (0.5, 1.2)}, {"ratio": (0, 1)}]
)
def test_ranges_of_the_crop_are_checked(wrong):
    with pytest.raises(ValueError, match="give the smaller first, above 0"):
        ViewsConfig(**wrong)
