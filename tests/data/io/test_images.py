import io
import pickle
import struct
import tracemalloc
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.data.conftest import blob, save, speckle, write_dicom
from usvit.data.io.bad_image import MAX_PIXELS, BadImage
from usvit.data.io.decoding import decode, read_image, read_mask, read_masks
from usvit.data.io.image_hashes import fingerprint
from usvit.data.io.raster import PictureFile
from usvit.data.io.sniffing import HEAD_BYTES, kind_of

GREY = speckle(1)
COLOUR = np.stack([speckle(1), speckle(2), speckle(3)], axis=2)


def sha256(path: Path) -> str:
    return fingerprint(read_image(path)).sha256


def png_header(width: int, height: int) -> bytes:
    """A PNG whose header claims a size, and which holds next to nothing."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")


def refused(path: Path) -> BadImage:
    with pytest.raises(BadImage) as caught:
        read_image(path)
    assert caught.value.path == path
    assert str(path) in str(caught.value)
    assert "--skip-bad" in str(caught.value)
    return caught.value


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


@pytest.mark.parametrize(("dtype", "mode"), [(np.int32, "I"), (np.float32, "F")])
def test_pixels_without_a_stated_range_are_refused(tmp_path, dtype, mode):
    error = refused(save(GREY.astype(dtype), tmp_path / "raw.tif"))
    assert f"mode {mode}" in error.reason
    assert "damaged" not in error.reason


def test_rotation_tag_of_a_camera_is_applied(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held upright: turn by 90 degrees to see it
    bright_left = np.zeros((16, 48), np.uint8)
    bright_left[:, :24] = 200
    pixels = read_image(save(bright_left, tmp_path / "turned.jpg", exif=exif, quality=95))
    assert pixels.shape == (48, 16, 3)
    assert pixels[:20].min() > 190  # what was left is on top
    assert pixels[28:].max() < 10


def test_lossless_recompression_and_another_format_keep_the_hash(tmp_path):
    files = [
        save(COLOUR, tmp_path / "fast.png", compress_level=0),
        save(COLOUR, tmp_path / "small.png", compress_level=9),
        save(COLOUR, tmp_path / "same.bmp"),
        save(COLOUR, tmp_path / "same.tif", compression="tiff_lzw"),
    ]
    assert len({sha256(path) for path in files}) == 1


def test_grey_and_its_rgb_copy_have_one_hash(tmp_path):
    assert sha256(save(GREY, tmp_path / "a.png")) == sha256(save(GREY, tmp_path / "b.png", "RGB"))


def test_one_pixel_changed_by_one_level_alters_the_hash(tmp_path):
    other = COLOUR.copy()
    other[20, 30, 2] ^= 1
    assert sha256(save(COLOUR, tmp_path / "a.png")) != sha256(save(other, tmp_path / "b.png"))


def test_the_same_bytes_in_another_shape_have_another_hash():
    flat = np.zeros((4, 9, 3), np.uint8)
    assert fingerprint(flat).sha256 != fingerprint(flat.reshape(9, 4, 3)).sha256


def test_perceptual_hash_is_near_for_a_brighter_copy_and_far_for_another_image():
    def distance(one: np.ndarray, other: np.ndarray) -> int:
        bits = [int(fingerprint(np.stack([image] * 3, axis=2)).phash, 16) for image in (one, other)]
        return (bits[0] ^ bits[1]).bit_count()

    brighter = (GREY * 0.8 + 20).astype(np.uint8)
    assert distance(GREY, brighter) <= 6
    assert distance(GREY, speckle(2)) > 16


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
    assert "Is a directory" in refused(tmp_path / "folder.png").reason


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
@pytest.mark.parametrize("suffix", [".png", ".jpg", ".tif", ".bmp"])
def test_whatever_bytes_are_damaged_the_answer_is_an_image_or_a_bad_image(tmp_path, suffix):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker"
    options = {} if suffix == ".bmp" else {"exif": exif}
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


def packed(format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(COLOUR).save(buffer, format_, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "BMP"])
def test_a_picture_is_known_by_its_content_whatever_it_is_called(tmp_path, format_):
    data = packed(format_)
    assert kind_of(data[:HEAD_BYTES]) == "picture"
    for name in ("IM0001", "a.dcm", "b.jpg", "c.txt"):
        (tmp_path / name).write_bytes(data)
        assert (read_image(tmp_path / name) == COLOUR).all()


@pytest.mark.parametrize(
    "head", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"BM" + b"\7" * 12 + b"\x28\0\0\0", b"\xff\xd8\xff\xe0"]
)
def test_both_byte_orders_and_big_tiff_are_pictures(head):
    assert kind_of(head.ljust(HEAD_BYTES, b"\7")) == "picture"


@pytest.mark.parametrize("format_", ["GIF", "WEBP", "PPM", "TGA", "ICO", "PCX", "EPS", "PDF"])
def test_formats_that_no_scanner_writes_are_never_given_to_a_decoder(tmp_path, format_):
    (tmp_path / "image.png").write_bytes(packed(format_))
    assert kind_of(packed(format_)[:HEAD_BYTES]) is None
    assert refused(tmp_path / "image.png").code == "not_an_image"


def test_dicom_is_known_with_and_without_a_preamble_and_text_is_not(tmp_path):
    data = write_dicom(tmp_path / "whole.dcm", GREY).read_bytes()
    assert kind_of(data[:HEAD_BYTES]) == "dicom"
    assert kind_of(data[132 : 132 + HEAD_BYTES]) == "dicom"  # group 0002 comes first
    implicit, big = b"\x08\0\5\0\x0a\0\0\0ISO_IR 100", b"\0\x08\0\5CS\0\x0aISO_IR 100"
    assert kind_of(implicit) == kind_of(big) == kind_of(b"\x08\0\5\0CS\x0a\0ISO_IR 100") == "dicom"
    others = (
        b"",
        b"\0" * 132,
        b"DICM",
        b"Patient: ...",
        b"\x08\0",
        b"PK\3\4",
        b"\x7fELF",
        b"%PDF-1.7",
        b"\0\0\1\0\1\0",
    )
    for other in others:
        assert kind_of(other) is None
    (tmp_path / "letter.dcm").write_text("Dear colleague, " * 20)
    assert refused(tmp_path / "letter.dcm").code == "not_an_image"
    (tmp_path / "named.png").write_bytes(data)
    assert (read_image(tmp_path / "named.png") == GREY[:, :, None]).all()


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_are_no_image(seed):
    random = np.random.default_rng(seed)
    assert not any(kind_of(random.bytes(HEAD_BYTES)) for _ in range(200))


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("cut.png", packed("PNG")[:2000], "truncated"),
        ("cut.jpg", packed("JPEG")[:1000], "truncated"),
        ("begun.png", packed("PNG")[:12], "damaged"),
        ("bomb.png", png_header(30_000, 30_000), "too_large"),
        ("text.png", b"no image", "not_an_image"),
        ("minutes.bmp", b"BMI of the patients", "not_an_image"),
    ],
)
def test_a_bad_image_has_a_code(tmp_path, name, content, code):
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name).code == code


def test_what_cannot_be_opened_has_a_code(tmp_path):
    assert refused(tmp_path / "gone").code == "not_found"
    (tmp_path / "folder.png").mkdir()
    assert refused(tmp_path / "folder.png").code == "unreadable"
    with pytest.raises(BadImage) as caught:
        read_image(save(GREY, tmp_path / "still.png"), 4)
    assert caught.value.code == "no_such_frame"
    assert refused(save(GREY.astype(np.int32), tmp_path / "raw.tif")).code == "unsupported_pixels"


def test_a_bad_image_survives_the_way_from_another_process():
    again = pickle.loads(pickle.dumps(BadImage(Path("a.png"), "it is gone", "not_found")))
    assert (again.path, again.reason, again.code) == (Path("a.png"), "it is gone", "not_found")
    assert "a.png: it is gone." in str(again)


def test_pages_are_read_from_bytes_in_any_order_and_a_bad_one_leaves_the_others():
    buffer = io.BytesIO()
    pages = [Image.fromarray(speckle(seed)) for seed in range(3)]
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    with PictureFile(buffer.getvalue()) as picture:
        assert picture.n_frames == 3
        for frame in (2, 0, 1, 1):
            assert (picture.frame(frame) == speckle(frame)[:, :, None]).all()
        with pytest.raises(BadImage, match="no frame 3"):
            picture.frame(3)
        assert (picture.frame(2) == speckle(2)[:, :, None]).all()


def test_an_animation_is_one_picture(tmp_path):
    frames = [Image.fromarray(speckle(seed)) for seed in range(3)]
    frames[0].save(tmp_path / "a.png", save_all=True, append_images=frames[1:])
    with PictureFile(tmp_path / "a.png") as picture:
        assert picture.n_frames == 1
        assert (picture.frame() == speckle(0)[:, :, None]).all()


def test_the_tissue_region_comes_with_a_dicom_frame_alone(tmp_path, real_data):
    assert decode(save(GREY, tmp_path / "a.png")).tissue is None
    decoded = decode(real_data / "us_dicom" / "gdcm-US-ALOKA-16.dcm")
    assert decoded.pixels.shape == (480, 640, 3)
    assert decoded.tissue == (32, 24, 336, 416)  # the left one of two, as dcmdump shows its corners
