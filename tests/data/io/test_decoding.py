import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from tests.data.conftest import blob, save, speckle
from tests.data.io.pictures import COLOUR, GREY, png_header, refused
from usvit.data.io.bad_image import MAX_PIXELS, BadImage
from usvit.data.io.decoding import decode, read_image, read_mask, read_masks
from usvit.data.io.sniffing import HEAD_BYTES, kind_of


def test_grey_becomes_three_equal_channels(tmp_path):
    pixels = read_image(save(GREY, tmp_path / "grey.png"))
    assert pixels.dtype == np.uint8
    assert (pixels == GREY[:, :, None]).all()


def test_colour_is_kept(tmp_path):
    assert (read_image(save(COLOUR, tmp_path / "colour.png")) == COLOUR).all()


def test_opacity_is_dropped_and_colours_under_it_stay(tmp_path):
    opacity = np.zeros((*GREY.shape, 1), np.uint8)
    path = save(np.concatenate([COLOUR, opacity], axis=2), tmp_path / "transparent.png")
    assert (read_image(path) == COLOUR).all()


def test_a_palette_is_looked_up(tmp_path):
    levels = GREY // 32 * 32  # few enough for a palette to be exact
    assert (read_image(save(levels, tmp_path / "palette.png", "P"))[:, :, 0] == levels).all()


def test_one_bit_becomes_black_and_white(tmp_path):
    pixels = read_image(save(blob(), tmp_path / "one.png", "1"))
    assert (pixels[:, :, 1] == blob()).all()


@pytest.mark.parametrize("name", ["deep.png", "deep.tif"])
def test_sixteen_bits_are_scaled_so_that_black_and_white_stay(tmp_path, name):
    deep = GREY.astype(np.uint16) * 257
    deep[0, :2] = 0, 65535
    pixels = read_image(save(deep, tmp_path / name))
    assert (pixels[1:, :, 0] == GREY[1:]).all()
    assert pixels[0, :2, 0].tolist() == [0, 255]


def test_rotation_tag_of_a_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees to see it
    bright_left = np.zeros((16, 48), np.uint8)
    bright_left[:, :24] = 200
    pixels = read_image(save(bright_left, tmp_path / "turned.jpg", exif=exif, quality=95))
    assert pixels.shape == (48, 16, 3)
    assert pixels[:20].min() > 190  # what was left is on top
    assert pixels[28:].max() < 10


@pytest.mark.parametrize("name", ["cut.png", "cut.jpg", "cut.bmp", "cut.tif"])
def test_truncated_file_is_refused(tmp_path, name):
    path = save(COLOUR, tmp_path / name)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "damaged or truncated" in refused(path).reason


@pytest.mark.parametrize("content", [b"", b"no image at all\n" * 20], ids=["empty", "text"])
def test_what_is_no_image_is_refused(tmp_path, content):
    path = tmp_path / "letter.png"
    path.write_bytes(content)
    assert "not an image" in refused(path).reason


def test_missing_file_and_folder_are_refused_and_not_called_damaged(tmp_path):
    assert "no such file" in refused(tmp_path / "gone.png").reason
    (tmp_path / "folder.png").mkdir()
    assert "not a regular file" in refused(tmp_path / "folder.png").reason


@pytest.mark.parametrize("side", [8_000, 12_000, 60_000])
def test_decompression_bomb_is_refused_before_its_pixels_take_memory(tmp_path, side):
    assert side**2 > MAX_PIXELS
    path = tmp_path / "bomb.png"
    path.write_bytes(png_header(side, side))
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "bomb" in refused(path).reason
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp", ".gif", ".webp", ".ppm"])
def test_whatever_bytes_are_damaged_the_answer_is_an_image_or_a_bad_image(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker"
    options = {} if suffix in (".bmp", ".gif", ".ppm") else {"exif": exif}
    data = save(COLOUR, tmp_path / f"whole{suffix}", **options).read_bytes()
    random = np.random.default_rng(0)
    path = tmp_path / f"damaged{suffix}"
    for _ in range(150):
        damaged = bytearray(data)
        for place in random.integers(0, min(len(data), 400), size=random.integers(1, 9)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            assert read_image(path).ndim == 3
        except BadImage as bad:
            assert bad.path == path


def test_decoding_in_threads_leaves_the_filters_of_warnings_alone(tmp_path):
    path = save(GREY, tmp_path / "image.png")
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read_image, [path] * 200))
    assert list(warnings.filters) == before


def test_mask_is_true_where_the_lesion_is_whatever_its_mode(tmp_path):
    for mode in ("1", "L", "RGB", "RGBA", "P"):
        mask = read_mask(save(blob(), tmp_path / f"{mode}.png", mode))
        assert mask.dtype == np.bool_
        assert (mask == (blob() > 0)).all(), mode


def test_masks_of_several_lesions_are_joined(tmp_path):
    paths = [save(blob(left=left), tmp_path / f"{left}.png") for left in (0, 5, 40)]
    joined = read_masks(paths, (40, 56))
    assert (joined == (blob(left=0) | blob(left=5) | blob(left=40) > 0)).all()


def test_no_mask_gives_an_empty_one_of_the_image_s_size():
    mask = read_masks([], (40, 56))
    assert mask.shape == (40, 56)
    assert not mask.any()


def test_mask_of_another_size_is_refused_with_both_sizes_as_width_x_height(tmp_path):
    path = save(blob(40, 50), tmp_path / "mask.png")
    with pytest.raises(BadImage, match=r"mask is 50 x 40 pixels but its image is 56 x 40") as caught:
        read_masks([path], (40, 56))
    assert caught.value.path == path


def test_a_page_of_a_tiff_is_a_frame(tmp_path):
    pages = [Image.fromarray(speckle(seed)) for seed in range(3)]
    pages[0].save(tmp_path / "pages.tif", save_all=True, append_images=pages[1:])
    for frame in range(3):
        assert (read_image(tmp_path / "pages.tif", frame) == speckle(frame)[:, :, None]).all()
    with pytest.raises(BadImage, match=r"it has no frame 3: it holds 3, counted from 0"):
        read_image(tmp_path / "pages.tif", 3)


def test_a_still_has_no_second_frame(tmp_path):
    with pytest.raises(BadImage, match=r"it has no frame 1: it holds 1"):
        read_image(save(GREY, tmp_path / "still.png"), 1)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_no_image(seed):
    random = np.random.default_rng(seed)
    assert not any(kind_of(random.bytes(HEAD_BYTES)) for _ in range(200))


def test_the_tissue_region_comes_with_a_dicom_frame_alone(tmp_path, real_data):
    assert decode(save(GREY, tmp_path / "a.png")).tissue is None
    decoded = decode(real_data / "us_dicom" / "gdcm-US-ALOKA-16.dcm")
    assert decoded.pixels.shape == (480, 640, 3)
    assert decoded.tissue == (32, 24, 336, 416)  # the left one of two, as dcmdump shows its corners
