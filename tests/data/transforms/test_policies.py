import hashlib
import os
import pickle
import random
import subprocess
import sys

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from tests.data.conftest import speckle
from usvit.data.transforms import policies as augment_module
from usvit.data.transforms import ultrasound_effects
from usvit.data.transforms.geometry import LESION_KEPT, lesion_cells
from usvit.data.transforms.policies import (
    LIGHT_BRIGHTNESS,
    LIGHT_CONTRAST,
    LIGHT_CROP_MIN_SIDE,
    LIGHT_ROTATION_DEGREES,
    POLICIES,
    TRIVIAL_SHIFT,
    make_augment,
)
from usvit.data.transforms.ultrasound_effects import depth_gain, haze
from usvit.errors import UsvitError

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else the import asks a server for the newest version
import albumentations as A

SIZE = 224
SEEDS = range(60)
CHANGING = [policy for policy in POLICIES if policy != "none"]
seeds = st.integers(0, 2**63 - 1)


def rgb(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey.astype(np.uint8)] * 3, axis=2)


def apply(policy: str, image: np.ndarray, seed: int, lesion: np.ndarray | None = None) -> np.ndarray:
    augment = make_augment(policy)
    return image if augment is None else augment(image, seed, lesion)


@pytest.fixture(params=CHANGING)
def augment(request):
    return make_augment(request.param)


@st.composite
def images(draw) -> np.ndarray:
    """Speckled, flat, black, white or coloured, with padding of any width: (S, S, 3)."""
    size = draw(st.integers(32, 80))
    number = draw(st.integers(0, 1000))
    level = draw(st.sampled_from([0, 1, 40, 128, 255]))
    image = rgb(draw(st.sampled_from([speckle(number, size, size), np.full((size, size), level)])))
    if draw(st.booleans()):
        image[:, :, draw(st.integers(0, 2))] = speckle(number + 1, size, size)
    top, left = draw(st.integers(0, size // 2)), draw(st.integers(0, size // 2))
    image[:top] = image[size - top :] = 0
    image[:, :left] = image[:, size - left :] = 0
    return image


# --- what holds for every image under every policy


def test_none_is_nothing_and_an_unknown_policy_suggests_the_known():
    assert make_augment("none") is None
    with pytest.raises(UsvitError, match=r"Unknown augmentation policy 'lite'. Nearest: light"):
        make_augment("lite")


@pytest.mark.slow
@pytest.mark.parametrize("policy", CHANGING)
@given(image=images(), seed=seeds)
def test_shape_type_and_input_are_kept_and_a_seed_gives_one_image(policy, image, seed):
    before = image.copy()
    image.setflags(write=False)
    out = apply(policy, image, seed)
    assert out.shape == image.shape
    assert out.dtype == np.uint8
    assert (image == before).all()
    assert (apply(policy, image, seed) == out).all()


@pytest.mark.slow
@pytest.mark.parametrize("policy", CHANGING)
@given(image=images(), seed=seeds)
def test_padding_and_what_lies_beyond_the_image_are_black(policy, image, seed):
    augment = make_augment(policy)
    lit = image.any(axis=2)
    picture = np.outer(lit.any(axis=1), lit.any(axis=0))
    view, _ = augment.draw(seed)
    outside = view.of(rgb(picture * 255)) == 0
    assert (augment(image, seed)[outside] == 0).all()


@pytest.mark.slow
def test_other_seeds_give_other_images_in_any_order(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    outs = [augment(image, seed) for seed in SEEDS]
    again = pickle.loads(pickle.dumps(augment))  # as it reaches the processes that prepare batches
    assert all((again(image, seed) == outs[seed]).all() for seed in reversed(SEEDS))
    different = len({out.tobytes() for out in outs})
    # An eighth or so of TrivialAugment's changes is none; sharpening and contrast are drawn again.
    assert different == len(SEEDS) if len(augment.alternatives) == 1 else different > 0.8 * len(SEEDS)


def digest() -> str:
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3)).astype(np.uint8)
    outs = [make_augment(policy)(image, seed) for policy in CHANGING for seed in range(40)]
    return hashlib.sha256(np.stack(outs).tobytes()).hexdigest()


@pytest.mark.slow
def test_another_process_gives_the_same_bytes():
    program = "from tests.data.transforms.test_policies import digest\nprint(digest())"
    other = subprocess.run([sys.executable, "-c", program], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest()


def test_global_random_state_neither_matters_nor_moves(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    firsts = [augment(image, seed) for seed in range(12)]
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert all((augment(image, seed) == first).all() for seed, first in enumerate(firsts))
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_grey_images_stay_grey(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    for seed in SEEDS:
        out = augment(image, seed).astype(int)
        assert abs(out - out[:, :, :1]).max() <= 1


# --- depth


def bars(levels: list[int], size: int) -> np.ndarray:
    """Horizontal bars from top to bottom."""
    return rgb(np.repeat(levels, -(-size // len(levels)))[:size, None].repeat(size, axis=1))


def seen_bars(image: np.ndarray) -> list[float]:
    """Mean of each of three bars in the middle columns, away from where they may meet."""
    middle = image[:, int(0.45 * len(image)) : int(0.55 * len(image)), 0].astype(float).mean(axis=1)
    spans = [(0.13, 0.2), (0.46, 0.54), (0.8, 0.87)]
    return [float(middle[round(start * len(image)) : round(stop * len(image))].mean()) for start, stop in spans]


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(levels=st.permutations([50, 120, 210]), seed=seeds)
def test_vertical_order_of_tissues_survives_every_policy(policy, levels, seed):
    """Three tissues, each the brightest, the middle or the darkest: from top to bottom, always in their order."""
    seen = seen_bars(apply(policy, bars(levels, 120), seed))
    assert np.argsort(seen).tolist() == np.argsort(levels).tolist()


def test_flipped_upside_down_the_same_test_fails():
    levels = [210, 120, 50]
    assert np.argsort(seen_bars(bars(levels, 120)[::-1])).tolist() != np.argsort(levels).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_vertical_order_of_shadow_and_lesion_survives_every_policy(policy):
    """Bright tissue, a dark lesion below it, a darker shadow below that: from top to bottom, always."""
    image = np.full((SIZE, SIZE), 170)
    image[80:120, 70:154] = 110
    image[120:, 70:154] = 60
    for seed in SEEDS:
        column = apply(policy, rgb(image), seed)[:, 90:134, 0].astype(float).mean(axis=1)
        tissue, lesion, shadow = column[45:57].mean(), column[97:104].mean(), column[146:180].mean()
        assert tissue > lesion + 15 > shadow + 30, seed


def mirrored(policy: str, n: int = 300) -> float:
    """How often left and right are exchanged."""
    image = np.full((64, 64), 60)
    image[:, :32] = 180
    outs = [apply(policy, rgb(image), seed)[16:48, 16:48, 0].astype(float) for seed in range(n)]
    assert all(abs(out[:, :8].mean() - out[:, -8:].mean()) > 40 for out in outs)
    return float(np.mean([out[:, :8].mean() < out[:, -8:].mean() for out in outs]))


@pytest.mark.slow
def test_left_and_right_are_exchanged_only_where_the_policy_says_so():
    assert mirrored("light") == 0
    assert 0.4 < mirrored("us") < 0.6
    assert 0.4 < mirrored("trivial") < 0.6


# --- shape


def measured_angle(image: np.ndarray) -> float:
    """Degrees by which a bright horizontal bar has been turned."""
    smooth = cv2.GaussianBlur(image[:, :, 0], (0, 0), 2)[30:-30, 30:-30]
    rows, columns = np.nonzero(smooth > (int(smooth.max()) + int(np.median(smooth))) / 2)
    slope = np.polyfit(columns, rows, 1)[0]
    return float(np.degrees(np.arctan(slope)))


def line() -> np.ndarray:
    image = np.full((SIZE, SIZE), 90)
    image[SIZE // 2 - 3 : SIZE // 2 + 3] = 200
    return rgb(image)


@pytest.mark.slow
def test_rotation_stays_within_ten_degrees_and_goes_both_ways(augment):
    assert LIGHT_ROTATION_DEGREES <= 10
    angles = [measured_angle(augment(line(), seed)) for seed in range(150)]
    assert max(map(abs, angles)) <= 10 + 0.4
    assert min(angles) < -6
    assert max(angles) > 6


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["light", "us"])
def test_how_far_it_is_turned_says_nothing_of_its_contrast(policy):
    """Albumentations' own set_random_seed gives each transform the same numbers: they went hand in hand."""
    augment = make_augment(policy)
    angles, contrasts = [], []
    for seed in range(200):
        out = augment(line(), seed)
        angles.append(measured_angle(out))
        middle = cv2.GaussianBlur(out[:, :, 0], (0, 0), 1)[40:-40, 40:-40].astype(float)
        contrasts.append(np.percentile(middle, 99.5) - np.median(middle))
    assert abs(np.corrcoef(angles, contrasts)[0, 1]) < 0.25


def contour_of(image: np.ndarray) -> np.ndarray:
    smooth = cv2.GaussianBlur(image[:, :, 0], (0, 0), 2)
    disc, around = smooth[SIZE // 2, SIZE // 2], np.median(smooth)
    bright = (smooth > (float(disc) + around) / 2).astype(np.uint8)
    contours, _ = cv2.findContours(bright, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return max(contours, key=cv2.contourArea)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
@given(radius=st.integers(28, 45), x=st.integers(-12, 12), y=st.integers(-12, 12), seed=seeds)
def test_a_circle_stays_a_circle(policy, radius, x, y, seed):
    disc = np.full((SIZE, SIZE), 40, np.uint8)
    cv2.circle(disc, (SIZE // 2 + x, SIZE // 2 + y), radius, 180, -1)
    _, axes, _ = cv2.fitEllipse(contour_of(apply(policy, rgb(disc), seed)))
    assert min(axes) / max(axes) > 0.96
    # Enlarged by what a crop takes away, never made smaller.
    assert 0.95 < np.sqrt(axes[0] * axes[1]) / (2 * radius) <= 1.05 / LIGHT_CROP_MIN_SIDE


def test_a_crop_keeps_nine_tenths_of_the_side_and_uses_it(augment):
    assert LIGHT_CROP_MIN_SIDE >= 0.9
    views = [augment.draw(seed)[0] for seed in range(300)]
    assert min(view.side for view in views) >= LIGHT_CROP_MIN_SIDE
    # What leaves the image on one side, in all: by a smaller window or by a shift.
    lost = [max(abs(view.right), abs(view.down)) + (1 - view.side) / 2 for view in views]
    assert max(lost) <= max(1 - LIGHT_CROP_MIN_SIDE, TRIVIAL_SHIFT) + 1e-9
    assert max(lost) > 0.08


# --- the lesion


@pytest.mark.slow
@pytest.mark.parametrize("policy", CHANGING)
@given(x=st.integers(0, 111), y=st.integers(0, 111), radius=st.integers(3, 60), seed=seeds)
def test_a_known_lesion_is_never_cut_away_by_more_than_the_bound(policy, x, y, radius, seed):
    size = 112
    mask = np.zeros((size, size), np.uint8)
    cv2.circle(mask, (x, y), radius, 1, -1)
    out = apply(policy, rgb(np.where(mask, 230, 90)), seed, lesion_cells(mask.astype(bool)))
    # A view never makes the picture smaller, so that what is left of the lesion has at least that many pixels.
    smooth = cv2.GaussianBlur(out[:, :, 0], (0, 0), 1).astype(float)
    seen = (smooth > smooth.max() * (90 + 230) / 2 / 230).sum()
    assert seen >= LESION_KEPT * mask.sum() - 0.7 * np.pi * radius - 12


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["light", "us"])
def test_without_its_mask_a_lesion_at_the_edge_would_be_cut(policy):
    mask = np.zeros((SIZE, SIZE), bool)
    mask[-20:, -20:] = True
    augment = make_augment(policy)

    def least(lesion):
        views = [augment.draw(seed, lesion)[0] for seed in range(100)]
        return min(view.of(rgb(mask * 255))[:, :, 0].sum() / 255 * view.side**2 / mask.sum() for view in views)

    assert least(None) < 0.4
    assert least(lesion_cells(mask)) > LESION_KEPT - 0.02


@pytest.mark.slow
def test_lesions_of_real_images_stay_in_view(real_data):
    from usvit.data.io.decoding import read_image, read_masks
    from usvit.data.transforms.preprocessing import Preprocessing

    folder = real_data / "Dataset_BUSI_with_GT"
    paths = [folder / f"{label}/{label} ({number}).png" for label in ("benign", "malignant") for number in range(1, 26)]
    for number, path in enumerate(paths):
        image = read_image(path)
        mask = read_masks(sorted(path.parent.glob(f"{path.stem}_mask*.png")), image.shape[:2])
        for resize in ("pad", "squash"):
            small = Preprocessing(SIZE, resize, (0, 0, 0), (1, 1, 1)).resized_mask(mask)
            for policy in CHANGING:
                augment = make_augment(policy)
                for seed in range(number, number + 4):
                    view, _ = augment.draw(seed, lesion_cells(small))
                    kept = view.of(rgb(small * 255))[:, :, 0].sum() / 255 * view.side**2 / small.sum()
                    assert kept > LESION_KEPT - 0.02, (path, policy, seed)


# --- strengths


def centre(image: np.ndarray) -> np.ndarray:
    """The part that no rotation by 10 degrees can reach from outside."""
    return image[50:-50, 50:-50, 0].astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("level", [40, 128, 200])
def test_a_flat_image_stays_within_the_bounds_of_brightness_and_contrast(level):
    augment = make_augment("light")
    low = level * (1 - LIGHT_CONTRAST) - LIGHT_BRIGHTNESS * 255
    high = level * (1 + LIGHT_CONTRAST) + LIGHT_BRIGHTNESS * 255
    levels = np.array([centre(augment(rgb(np.full((SIZE, SIZE), level)), seed)).mean() for seed in range(200)])
    assert levels.min() >= max(low, 0) - 1
    assert levels.max() <= min(high, 255) + 1
    # The bounds are used, not only kept.
    assert np.ptp(levels) > 0.6 * (min(high, 255) - max(low, 0))


@pytest.mark.slow
def test_us_changes_what_light_does_not():
    """A flat image shows depth gain as a slope, speckle as a spread, haze as a glow at the top."""
    flat = rgb(np.full((SIZE, SIZE), 120))
    spreads = {policy: [centre(apply(policy, flat, seed)).std() for seed in SEEDS] for policy in ("light", "us")}
    assert max(spreads["light"]) < 0.5
    assert np.mean(np.array(spreads["us"]) > 2) > 0.5


def test_trivial_makes_one_change_an_image():
    """A flat image under a turn or a shift keeps its grey; under a change of grey it keeps its place."""
    augment = make_augment("trivial")
    flat = rgb(np.full((SIZE, SIZE), 120))
    for seed in range(100):
        view, _ = augment.draw(seed)
        turned = bool(view.degrees or view.right or view.down)
        regreyed = abs(centre(augment(flat, seed)) - 120).max() > 1
        assert not (turned and regreyed)


# --- albumentations, which applied the changes of grey values in earlier versions


class _Effect(A.ImageOnlyTransform):
    def __init__(self, change, p):
        super().__init__(p=p)
        self.change = change

    def apply(self, img, **_):
        return self.change(img, self.random_generator)


def earlier(policy: str) -> list[A.Compose]:
    """The changes of each alternative, as they were written with albumentations."""
    linear = [A.RandomBrightnessContrast(brightness_limit=0.15, contrast_limit=0.15, p=1.0)]
    if policy == "light":
        return [A.Compose(linear)]
    if policy == "us":
        acoustics = [_Effect(change, p=0.5) for change in (ultrasound_effects.speckle, haze, depth_gain)]
        return [A.Compose([*acoustics, A.RandomGamma(gamma_limit=(85.0, 118.0), p=0.5), *linear])]
    filters = [
        A.Sharpen(alpha=(0, 0.1), lightness=(1, 1), p=1),
        A.GaussianBlur(sigma_limit=(0.1, 1.0), p=1),
    ]
    single = [
        A.RandomBrightnessContrast(brightness_limit=0.2, contrast_limit=0, p=1.0),
        A.RandomBrightnessContrast(brightness_limit=0, contrast_limit=0.3, p=1.0),
        A.OneOf(filters, p=1),
    ]
    return [*(A.Compose([]) for _ in range(4)), *(A.Compose([change]) for change in single)]


@pytest.mark.slow
@pytest.mark.parametrize("policy", CHANGING)
def test_a_seed_gives_the_bytes_that_it_gave_with_albumentations(policy):
    augment, greys = make_augment(policy), earlier(policy)
    coloured = np.random.default_rng(1).integers(0, 256, (61, 83, 3)).astype(np.uint8)
    padded = np.zeros((96, 96, 3), np.uint8)
    padded[11:72, 5:88] = coloured
    black, lesion = np.zeros((64, 64, 3), np.uint8), lesion_cells(np.eye(96, dtype=bool))
    for image in (rgb(speckle(3, 80, 80)), coloured[:, :61], padded, black):
        for seed in range(150):
            rng = np.random.default_rng(seed)
            which = rng.integers(len(augment.alternatives))
            view = augment.alternatives[which][0].draw(rng, lesion)
            greys[which].set_random_state(rng, random.Random(int(rng.integers(2**62))))
            expected = image.copy()
            if image.any():
                picture = augment_module.picture_of(image)
                expected[picture] = greys[which](image=np.ascontiguousarray(image[picture]))["image"]
            assert (augment(image, seed, lesion) == view.of(expected)).all(), seed


def test_configuration_offers_exactly_the_policies_that_there_are():
    from typing import get_args

    from usvit.config import InputConfig

    assert get_args(InputConfig.model_fields["augment"].annotation) == augment_module.POLICIES
