"""Crops of upstream images: BiT's and Inception's against literal versions, and their variety on photographs."""

import math
import random

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms import functional as F

from tests.data.transforms.views.conftest import picture
from usvit.config import build
from usvit.config.views import ViewsConfig
from usvit.data.transforms.views import Views
from usvit.data.transforms.views.crops import InceptionCrop
from usvit.data.transforms.views.rng import seeded
from usvit.upstream.config.sweep import cells as cells_of
from usvit.upstream.config.sweep import for_dataset, read_recipe, settings_for
from usvit.upstream.config.transfer import TransferConfig

TF_RATIO = (0.75, 1.33)
"""Default ``aspect_ratio_range`` of ``tf.image.sample_distorted_bounding_box``."""


def crop_of(image, seed, size, **settings):
    config = ViewsConfig(hflip=0.0, interpolation="bilinear", **settings)
    return Views(config, size, on_device=False)(image, seed)


def transfer_views(name, dataset):
    recipe = for_dataset(read_recipe(name, "transfer"), dataset)
    config = build(TransferConfig, settings_for(recipe), {"source": {"name": dataset}})
    first = next(iter(cells_of(recipe).values()), {})
    return build(TransferConfig, settings_for(recipe), first, {"source": {"name": dataset}}), config.model.image_size


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dataset"),
    [("vit", "pets"), ("augreg", "pets"), ("bit", "flowers102"), ("bit", "cifar10"), ("sovit_linear", "imagenet")],
)
@pytest.mark.parametrize("size", [(500, 375), (500, 333), (333, 500), (500, 500)])
def test_transfer_recipes_crop_photographs_at_random(name, dataset, size):
    """A random resized crop of a fixed share and ratio 1 is one central crop if the share does not fit."""
    config, image_size = transfer_views(name, dataset)
    views = Views(config.views.model_copy(update={"hflip": 0.0}), image_size, on_device=False)
    image = picture(0, size)
    assert len({views(image, seed).tobytes() for seed in range(30)}) > 25


def test_a_fixed_share_that_does_not_fit_is_one_central_crop():
    """The former setting of bit.yaml, 480 of 512 as a share of the area: why ``squash_crop`` exists."""
    image = picture(0, (100, 75))
    made = {crop_of(image, seed, 48, scale=(0.8789, 0.8789), ratio=(1, 1)).tobytes() for seed in range(30)}
    assert len(made) == 1
    assert len({crop_of(image, seed, 48, crop="squash_crop", train_crop=0.8).tobytes() for seed in range(30)}) > 20


@pytest.mark.parametrize(
    ("image_size", "train_crop", "squashed"),
    [(480, 0.9375, 512), (128, 0.8, 160), (384, 0.857143, 448), (224, 0.857143, 261), (224, 0.875, 256), (64, 1.0, 64)],
)
def test_squash_crop_is_a_window_of_the_squashed_picture(image_size, train_crop, squashed):
    """BiT's public PyTorch code: Resize((precrop, precrop)), then RandomCrop((crop, crop))."""
    image = picture(1, (90, 60))
    whole = np.asarray(F.resize(image, [squashed, squashed]))
    seen = set()
    for seed in range(3):
        made = crop_of(image, seed, image_size, crop="squash_crop", train_crop=train_crop)
        with seeded(seed):
            top = random.randint(0, squashed - image_size)
            left = random.randint(0, squashed - image_size)
        assert np.array_equal(made, whole[top : top + image_size, left : left + image_size])
        seen.add((top, left))
    assert len(seen) == (3 if squashed > image_size else 1)


def test_squash_crop_reaches_every_corner():
    image = picture(2, (30, 20))
    whole = np.asarray(F.resize(image, [20, 20]))
    corners = {whole[y : y + 16, x : x + 16].tobytes(): (y, x) for y in range(5) for x in range(5)}
    met = {corners[crop_of(image, seed, 16, crop="squash_crop", train_crop=0.8).tobytes()] for seed in range(300)}
    assert met == set(corners.values())


def shares_of_tensorflow(width, height, scale, ratio, steps=400):
    """Area shares and probabilities of the boxes that the kernel's rules allow, by enumeration.

    sample_distorted_bounding_box_op.cc: a uniform aspect ratio; a uniform height, from that of the smallest area to
    that of the largest that fits; another ratio if rounding leaves the range of areas.
    """
    shares, weights = [], []
    for ratio_drawn in np.linspace(*ratio, steps):
        low = np.rint(np.sqrt(np.float32(scale[0] * width * height) / ratio_drawn))
        high = np.rint(np.sqrt(np.float32(scale[1] * width * height) / ratio_drawn))
        fitting = [h for h in range(1, height + 1) if np.rint(h * ratio_drawn) <= width and h <= high]
        heights = [h for h in fitting if h >= min(low, fitting[-1])]
        for h in heights:
            area = h * np.rint(h * ratio_drawn)
            if scale[0] * width * height <= area <= scale[1] * width * height:
                shares.append(area / (width * height))
                weights.append(1 / len(heights))
    order = np.argsort(shares)
    return np.array(shares)[order], np.cumsum(np.array(weights)[order]) / np.sum(weights)


@pytest.mark.parametrize("size", [(120, 90), (90, 120), (200, 40)])
def test_inception_s_areas_are_those_of_tensorflow(size):
    crop = InceptionCrop(8, (0.05, 1.0), TF_RATIO, "bilinear")
    with seeded(7):
        boxes = np.array([crop.box(*size) for _ in range(4000)])
    drawn = np.sort(boxes[:, 2] * boxes[:, 3] / (size[0] * size[1]))
    shares, below = shares_of_tensorflow(*size, (0.05, 1.0), TF_RATIO)
    levels = np.linspace(0.05, 0.95, 19)
    expected = np.interp(levels, below, shares)
    away = np.abs((drawn[:, None] <= expected).mean(0) - levels)
    assert away.max() < 1.63 / math.sqrt(4000) + 0.01, "Kolmogorov's bound at 1 %, and the steps of the enumeration"


def test_inception_s_boxes_are_inside_and_have_the_stated_shape():
    crop = InceptionCrop(8, (0.05, 1.0), TF_RATIO, "bilinear")
    with seeded(1):
        boxes = np.array([crop.box(160, 100) for _ in range(3000)])
    left, top, width, height = boxes.T
    area = width * height / 16000
    assert ((area >= 0.05) & (area <= 1.0)).all()
    assert ((width + 0.5 >= 0.75 * height) & (width - 0.5 <= 1.33 * height)).all()
    assert (left + width < 160).all(), "TensorFlow draws below the free room, so that the last column is never met"
    assert (top + height < 100)[height < 100].all()
    assert left.min() == 0
    assert (160 - left - width).min() == 1
    ratios = np.sort(width / height)
    middle = ratios[len(ratios) // 2]
    assert abs(middle - 1.04) < 0.03, "the ratio itself is uniform, not its logarithm (whose median would be 1.0)"


def test_inception_takes_smaller_boxes_than_rrc():
    """E[share] of rrc is the middle of its range; a uniform height makes the share uniform in its square root."""
    from timm.data.transforms import RandomResizedCropAndInterpolation

    image, crop = Image.new("RGB", (100, 100)), InceptionCrop(8, (0.05, 1.0), (1.0, 1.0), "bilinear")
    with seeded(3):
        inception = np.mean([np.prod(crop.box(100, 100)[2:]) / 1e4 for _ in range(3000)])
        boxes = [RandomResizedCropAndInterpolation.get_params(image, (0.05, 1.0), (1.0, 1.0)) for _ in range(3000)]
    root = math.sqrt(0.05)
    assert inception == pytest.approx((1 - root**3) / (1 - root) / 3, abs=0.02)
    assert np.mean([box[2] * box[3] / 1e4 for box in boxes]) == pytest.approx(0.525, abs=0.02)


def test_inception_gives_the_whole_picture_if_no_box_fits():
    image = picture(0, (300, 20))
    whole = np.asarray(F.resize(image, [16, 16]))
    assert np.array_equal(crop_of(image, 0, 16, crop="inception", scale=(0.9, 1.0), ratio=TF_RATIO), whole)
    assert InceptionCrop(16, (0.05, 1.0), TF_RATIO, "bilinear").box(1, 1) == (0, 0, 1, 1)


def test_inception_resizes_its_box():
    image = picture(3, (90, 60))
    crop = InceptionCrop(24, (0.05, 1.0), TF_RATIO, "bilinear")
    for seed in range(5):
        with seeded(seed):
            left, top, width, height = crop.box(90, 60)
        expected = F.resize(image.crop((left, top, left + width, top + height)), [24, 24])
        made = crop_of(image, seed, 24, crop="inception", scale=(0.05, 1.0), ratio=TF_RATIO)
        assert np.array_equal(made, np.asarray(expected))
