import pickle
import subprocess
import sys

import cv2
import numpy as np
import pytest

from tests.data.conftest import speckle
from usvit.data.augment import (
    LIGHT_BRIGHTNESS,
    LIGHT_CONTRAST,
    LIGHT_CROP_MIN_SIDE,
    LIGHT_ROTATION_DEGREES,
    make_augment,
)
from usvit.errors import UsvitError

SIZE = 224
SEEDS = range(60)
POLICIES = ["light"]


def rgb(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey.astype(np.uint8)] * 3, axis=2)


@pytest.fixture(params=POLICIES)
def augment(request):
    return make_augment(request.param, SIZE)


def test_none_is_nothing_and_an_unknown_policy_suggests_the_known():
    assert make_augment("none", SIZE) is None
    with pytest.raises(UsvitError, match=r"Unknown augmentation policy 'lite'. Nearest: light"):
        make_augment("lite", SIZE)


def test_shape_and_type_are_kept_and_the_input_is_not_written_to(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    before = image.copy()
    image.setflags(write=False)
    for seed in SEEDS:
        out = augment(image, seed)
        assert out.shape == (SIZE, SIZE, 3)
        assert out.dtype == np.uint8
    assert (image == before).all()


def test_same_seed_gives_the_same_image_and_another_seed_another(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    outs = [augment(image, seed) for seed in SEEDS]
    again = make_augment("light", SIZE)
    assert all((again(image, seed) == outs[seed]).all() for seed in reversed(SEEDS))
    assert len({out.tobytes() for out in outs}) == len(SEEDS)


def test_seeds_beyond_32_bits_are_taken(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    assert (augment(image, 2**62 + 7) == augment(image, 2**62 + 7)).all()


def test_global_random_state_neither_matters_nor_moves(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    first = augment(image, 3)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert (augment(image, 3) == first).all()
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002


def test_grey_images_stay_grey(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    for seed in SEEDS:
        out = augment(image, seed).astype(int)
        assert abs(out - out[:, :, :1]).max() <= 1


def centre(image: np.ndarray) -> np.ndarray:
    """The part that no rotation by 10 degrees can reach from outside."""
    return image[50:-50, 50:-50, 0].astype(float)


@pytest.mark.parametrize("level", [40, 128, 200])
def test_a_flat_image_stays_within_the_bounds_of_brightness_and_contrast(augment, level):
    low = level * (1 - LIGHT_CONTRAST) - LIGHT_BRIGHTNESS * 255
    high = level * (1 + LIGHT_CONTRAST) + LIGHT_BRIGHTNESS * 255
    levels = np.array([centre(augment(rgb(np.full((SIZE, SIZE), level)), seed)).mean() for seed in range(200)])
    assert levels.min() >= max(low, 0) - 1
    assert levels.max() <= min(high, 255) + 1
    # The bounds are used, not only kept.
    assert np.ptp(levels) > 0.6 * (min(high, 255) - max(low, 0))


@pytest.mark.parametrize("policy", ["none", *POLICIES])
def test_vertical_order_of_shadow_and_lesion_survives_every_policy(policy):
    """Bright tissue, a dark lesion below it, a darker shadow below that: from top to bottom, always."""
    augment = make_augment(policy, SIZE) or (lambda image, seed: image)
    image = np.full((SIZE, SIZE), 170)
    image[80:120, 70:154] = 110
    image[120:, 70:154] = 60
    for seed in SEEDS:
        column = augment(rgb(image), seed)[:, 90:134, 0].astype(float).mean(axis=1)
        tissue, lesion, shadow = column[45:65].mean(), column[95:108].mean(), column[140:180].mean()
        assert tissue > lesion + 20 > shadow + 40, seed


def test_left_and_right_are_kept_too(augment):
    image = np.full((SIZE, SIZE), 60)
    image[:, : SIZE // 2] = 180
    for seed in SEEDS:
        out = centre(augment(rgb(image), seed))
        assert out[:, :30].mean() > out[:, -30:].mean() + 50


def measured_angle(image: np.ndarray) -> float:
    """Degrees by which a bright horizontal bar has been turned."""
    rows, columns = np.nonzero(image[30:-30, 30:-30, 0] > image[:, :, 0].max() * 0.75)
    slope = np.polyfit(columns, rows, 1)[0]
    return float(np.degrees(np.arctan(slope)))


def test_rotation_stays_within_ten_degrees_and_goes_both_ways(augment):
    assert LIGHT_ROTATION_DEGREES <= 10
    line = np.full((SIZE, SIZE), 20)
    line[SIZE // 2 - 3 : SIZE // 2 + 3] = 200
    angles = [measured_angle(augment(rgb(line), seed)) for seed in range(150)]
    assert max(map(abs, angles)) <= 10 + 0.3
    assert min(angles) < -7
    assert max(angles) > 7


def contour_of(image: np.ndarray) -> np.ndarray:
    bright = (image[:, :, 0] > (int(image[:, :, 0].max()) + int(image[:, :, 0].min())) // 2).astype(np.uint8)
    contours, _ = cv2.findContours(bright, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    return max(contours, key=cv2.contourArea)


def test_a_circle_stays_round_and_a_crop_keeps_nine_tenths_of_the_side(augment):
    radius = 40
    disc = np.full((SIZE, SIZE), 30, np.uint8)
    cv2.circle(disc, (SIZE // 2, SIZE // 2), radius, 180, -1)
    plain = np.sqrt(cv2.contourArea(contour_of(rgb(disc))))
    enlarged = []
    for seed in range(150):
        contour = contour_of(augment(rgb(disc), seed))
        (_, axes, _) = cv2.fitEllipse(contour)
        assert min(axes) / max(axes) > 0.97, seed
        enlarged.append(np.sqrt(cv2.contourArea(contour)) / plain)
    # What is cut off is what the rest grows by.
    assert min(enlarged) > 0.98
    assert max(enlarged) <= 1 / LIGHT_CROP_MIN_SIDE * 1.02
    assert max(enlarged) > 1.06
    assert LIGHT_CROP_MIN_SIDE >= 0.9


def test_a_policy_can_be_sent_to_another_process(augment):
    image = rgb(speckle(0, SIZE, SIZE))
    assert (pickle.loads(pickle.dumps(augment))(image, 5) == augment(image, 5)).all()


@pytest.mark.slow
def test_importing_and_using_it_asks_no_server_for_a_newer_version():
    program = """
import os, socket
os.environ.pop("NO_ALBUMENTATIONS_UPDATE", None)
def refuse(*_, **__):
    raise SystemExit("a socket was opened")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from usvit.data.augment import make_augment
import numpy as np
make_augment("light", 32)(np.zeros((32, 32, 3), np.uint8), 0)
assert os.environ["NO_ALBUMENTATIONS_UPDATE"] == "1"
"""
    done = subprocess.run([sys.executable, "-W", "error::UserWarning", "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
