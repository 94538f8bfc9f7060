"""RandAugment: timm's own with ``inc1``, or the changes of the original code, by its printed formulas."""

import math
from itertools import product

import numpy as np
import pytest
from PIL import Image, ImageEnhance, ImageOps
from timm.data.auto_augment import auto_augment_transform, rand_augment_transform
from timm.data.constants import IMAGENET_DEFAULT_MEAN

from tests.data.transforms.views.conftest import picture
from usvit.config.views import ViewsConfig
from usvit.data.transforms.views.randaugment import Cutout, make_policy
from usvit.data.transforms.views.rng import seeded


def policy(name="randaugment", **settings):
    return make_policy(ViewsConfig(policy=name, **settings))


def as_timm_does(**extra):
    mean = tuple(min(255, round(255 * value)) for value in IMAGENET_DEFAULT_MEAN)  # transforms_factory.py
    return {"img_mean": mean, "interpolation": Image.Resampling.BICUBIC, **extra}


def same(ours, theirs, image, seeds=40):
    compared = 0
    for seed in range(seeds):
        with seeded(seed):
            made = np.asarray(ours(image))
        with seeded(seed):
            try:
                expected = np.asarray(theirs(image))
            except ValueError:  # timm asks PIL for a picture of no bits
                continue
        assert np.array_equal(made, expected), seed
        compared += 1
    assert compared > seeds / 2


@pytest.mark.parametrize(
    ("settings", "timm"),
    [
        ({"magnitude": 9, "magnitude_std": 0.5}, "rand-m9-n2-mstd0.5-inc1"),  # DeiT
        ({"magnitude": 7, "magnitude_std": 0.5}, "rand-m7-mstd0.5-inc1"),  # RSB
        ({"magnitude": 15, "layers": 3, "probability": 1}, "rand-m15-n3-p1-mmax30-inc1"),
    ],
)
def test_timm_s_variant_is_timm_s(settings, timm, image):
    same(policy(**settings), rand_augment_transform(timm, as_timm_does()), image)


@pytest.mark.parametrize(
    "settings", [{"magnitude": 10}, {"magnitude": 30}, {"magnitude": 1, "randaugment": "original"}]
)
def test_no_magnitude_asks_for_a_picture_without_bits(settings, image):
    changes = policy(probability=1, **settings).ops
    posterize = next(change for change in changes if getattr(change, "name", "").startswith("Posterize"))
    assert set(np.unique(np.asarray(posterize(image)))) == {0, 128}


def test_autoaugment_is_timm_s_original_policy(image):
    same(policy("autoaugment"), auto_augment_transform("original", as_timm_does()), image)


def trivial_changes(image):
    """Every picture that TrivialAugment (wide) can make: Müller & Hutter 2021, Table 5; 31 strengths."""
    affine = {"resample": Image.Resampling.NEAREST}
    enhancers = ImageEnhance.Brightness, ImageEnhance.Color, ImageEnhance.Contrast, ImageEnhance.Sharpness
    made = {}

    def add(name, changed):
        made.setdefault(np.asarray(changed).tobytes(), set()).add(name)

    add("Identity", image)
    add("AutoContrast", ImageOps.autocontrast(image))
    add("Equalize", ImageOps.equalize(image))
    for bits in range(2, 9):
        add("Posterize", ImageOps.posterize(image, bits))
    for step, rounding in product(range(31), (-1e-6, -4e-8, 0, 4e-8, 1e-6)):  # torchvision's strengths are float32
        strength = step / 30 * (1 + rounding)
        add("Solarize", ImageOps.solarize(image, math.ceil(255 * (1 - strength))))
        for part in (strength, -strength):
            for enhancer in enhancers:
                add(enhancer.__name__, enhancer(image).enhance(1 + 0.99 * part))
            add("Rotate", image.rotate(135 * part, **affine))
            shift, shear = int(32 * part), 0.99 * part
            add("TranslateX", image.transform(image.size, Image.Transform.AFFINE, (1, 0, -shift, 0, 1, 0), **affine))
            add("TranslateY", image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, 0, 1, -shift), **affine))
            add("ShearX", image.transform(image.size, Image.Transform.AFFINE, (1, -shear, 0, 0, 1, 0), **affine))
            add("ShearY", image.transform(image.size, Image.Transform.AFFINE, (1, 0, 0, -shear, 1, 0), **affine))
    return made


def test_trivialaugment_makes_one_of_its_14_changes():
    image = picture(4, (40, 40)).point(lambda level: 40 + level * 5 // 8)  # so that AutoContrast changes it
    known, trivial, unchanged, counts = trivial_changes(image), policy("trivialaugment"), 0, {}
    for seed in range(420):
        with seeded(seed):
            names = known[np.asarray(trivial(image)).tobytes()]
        unchanged += "Identity" in names  # or a strength of zero
        if len(names) == 1:
            (name,) = names
            counts[name] = counts.get(name, 0) + 1
    assert len(counts) == 13
    assert min(counts.values()) > 30 - 3.5 * np.sqrt(30)
    assert max(counts.values()) < 30 + 3.5 * np.sqrt(30)
    assert abs(unchanged - 30 * (1 + 11 / 31)) < 3.5 * np.sqrt(40)


def test_other_policies_have_no_part_on_the_host():
    assert policy("none") is None
    assert policy("three_augment") is None


def originals(magnitude):
    changes = policy(randaugment="original", magnitude=magnitude, probability=1).ops
    return {getattr(change, "name", "Cutout"): change for change in changes}


def test_the_original_has_its_sixteen_changes():
    listed = (
        "AutoContrast Equalize Invert Rotate Posterize Solarize Color Contrast Brightness Sharpness ShearX ShearY "
        "TranslateX TranslateY Cutout SolarizeAdd"
    )  # distort_image_with_randaugment
    assert set(originals(10)) == set(listed.split())


@pytest.mark.parametrize("m", [2, 10, 15, 20])
def test_original_strengths_follow_its_formulas(m):
    """big_vision/pp/autoaugment.py: level_to_arg, with _MAX_LEVEL 10, translate_const 100 and cutout_const 40."""
    changes = originals(m)

    def strength(name):
        return changes[name].level_fn(float(m), changes[name].hparams)[0]

    assert abs(strength("Rotate")) == pytest.approx(m / 10 * 30)
    assert abs(strength("ShearX")) == pytest.approx(m / 10 * 0.3)
    assert abs(strength("TranslateY")) == pytest.approx(m / 10 * 100)
    for name in ("Color", "Contrast", "Brightness", "Sharpness"):
        assert strength(name) == pytest.approx(m / 10 * 1.8 + 0.1)
    assert strength("Posterize") == max(1, int(m / 10 * 4))  # no bits are black, and an error in PIL
    assert strength("Solarize") == min(256, int(m / 10 * 256))  # at 256 and above nothing changes
    assert strength("SolarizeAdd") == int(m / 10 * 110)
    assert changes["Cutout"].half == int(m / 10 * 40)


def test_magnitudes_above_ten_are_not_cut_in_the_original(image):
    bright = originals(15)["Brightness"](image)
    expected = (np.asarray(image).astype(float) * 2.8).clip(0, 255)
    assert np.abs(np.asarray(bright) - expected).max() <= 1


def test_original_fills_with_grey_and_does_not_smooth(image):
    moved = np.asarray(originals(5)["TranslateX"](image)).astype(int)
    old = np.asarray(image).astype(int)
    right = (moved[:, :50] == 128).all()
    assert (moved[:, :50] == 128).all() or (moved[:, -50:] == 128).all()
    assert np.array_equal(moved[:, 50:] if right else moved[:, :-50], old[:, :-50] if right else old[:, 50:])


def test_cutout_greys_one_square_also_over_the_border():
    image, sizes = Image.new("RGB", (60, 40), (10, 20, 30)), set()
    for seed in range(60):
        with seeded(seed):
            cut = np.asarray(Cutout(1.0, 2)(image))  # 16 px
        rows, columns = np.nonzero((cut == 128).all(-1))
        box = cut[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert (box == 128).all()
        assert ((cut == 128).all(-1) | (cut == (10, 20, 30)).all(-1)).all()
        sizes.add(box.shape[:2])
    assert max(sizes) == (16, 16)
    assert len(sizes) > 5
    assert np.array_equal(np.asarray(image), np.asarray(Image.new("RGB", (60, 40), (10, 20, 30))))


def test_probability_zero_changes_nothing(image):
    for variant in ("timm", "original"):
        made = policy(randaugment=variant, probability=0.0, layers=8)
        same(made, lambda picture: picture, image, seeds=5)
    assert ImageOps.invert(image) != image
