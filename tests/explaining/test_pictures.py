"""Pictures hold what they may, and are the same each time."""

import numpy as np
import pytest
from matplotlib import colormaps
from PIL import Image

from usvit.explaining.output import file_name
from usvit.explaining.pictures import COLOURS, OUTLINE, Panel, write_maps

RAMP = np.tile(np.linspace(0, 1, 64), (64, 1))


def pixels(path):
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB"))


def panel_of(path, column):
    """One panel: 64 pixels enlarged four times, 6 pixels apart, below two lines."""
    return pixels(path)[6 + 2 * 17 :, 6 + column * 262 :][:256, :256]


def test_without_the_image_the_picture_is_the_map_alone(tmp_path):
    write_maps(tmp_path / "a.png", ["one line"], None, None, [Panel("map", RAMP)])
    panel = panel_of(tmp_path / "a.png", 0)
    colours = (colormaps[COLOURS](RAMP)[..., :3] * 255).round().astype(np.uint8)
    assert np.array_equal(panel, colours.repeat(4, 0).repeat(4, 1))


def test_the_image_stands_beside_its_map_with_the_lesion_outlined_on_both(tmp_path):
    image = np.full((64, 64, 3), 90, dtype=np.uint8)
    mask = np.zeros((64, 64), dtype=bool)
    mask[10:20, 30:40] = True
    write_maps(tmp_path / "a.png", ["one line"], image, mask, [Panel("map", RAMP)])
    for column in (0, 1):
        panel = panel_of(tmp_path / "a.png", column)
        line = (panel == OUTLINE).all(axis=2)
        assert line[40, 120:160].all() and line[79, 120:160].all() and line[40:80, 120].all() and line[40:80, 159].all()
        assert line.sum() == 4 * 40 - 4
    assert (panel_of(tmp_path / "a.png", 0)[0, 0] == 90).all()


def test_the_same_map_gives_the_same_file(tmp_path):
    for name in "ab":
        write_maps(tmp_path / f"{name}.png", ["x"], None, None, [Panel("map", RAMP)] * 6)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_a_long_heading_is_wrapped_and_a_blank_map_is_drawn(tmp_path):
    write_maps(tmp_path / "a.png", ["word " * 60, "ž <script>"], None, None, [Panel("map", np.zeros((64, 64)))])
    assert pixels(tmp_path / "a.png").shape[0] > 400


@pytest.mark.parametrize(
    "hostile", ["../../etc/passwd", "a/b\\c", "<img src=x onerror=alert(1)>", "x" * 400, "ž", ".", ""]
)
def test_a_files_name_is_safe_whatever_the_images_id(hostile):
    name = file_name("rollout", "busi", hostile)
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") and len(name) < 120
    assert name.endswith(".png") and "/" not in name


def test_other_images_have_other_files():
    names = ["benign (1)", "benign [1]", "benign_1", "benign 1", "BENIGN (1)"]
    assert len({file_name("gradcam", "busi", name).lower() for name in names}) == 5
    assert file_name("gradcam", "phantom", "p015-v1") == "gradcam-phantom-p015-v1.png"
