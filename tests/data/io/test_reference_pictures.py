"""One reference picture, stored in every way that a format has, by encoders that share no code with the decoders.

A picture is read as it is meant to be seen, or refused with a code; it is never inverted, black or wrapped.
"""

import io
import itertools
from collections.abc import Iterator

import cv2
import numpy as np
import pytest
from PIL import Image
from pydicom import uid
from pydicom.pixels import get_encoder

from tests.data.io import encoders
from usvit.data.io.bad_image import BadImage
from usvit.data.io.raster import PictureFile

Y, X = np.mgrid[:48, :72]
GREY = np.rint(X * 153 / 71 + Y * 102 / 47).astype(np.uint8)
"""Every turn, mirror image and inversion of it differs from it; it has black, white, and what lies between."""
GREY[9:27, 12:36] = 30
GREY[0, 0], GREY[-1, -1] = 0, 255
COLOUR = np.stack([GREY, GREY[::-1], 255 - GREY], axis=2)
ALPHA = np.concatenate([COLOUR, np.full((*GREY.shape, 1), 90, np.uint8)], axis=2)
YCC = np.asarray(Image.fromarray(COLOUR).convert("YCbCr"))
CMYK = 255 - np.concatenate([COLOUR, np.full((*GREY.shape, 1), 255, np.uint8)], axis=2)
ASSUMED = ("assumed_range",)
ZERO = ("white", "black")
"""What a value of 0 stands for, by the photometric interpretation of a TIFF."""
Case = tuple[bytes, np.ndarray, int, tuple[str, ...]]
"""A file, the picture that it holds, the largest error, and the flags that are expected."""


def levels(bits: int, picture: np.ndarray = GREY) -> np.ndarray:
    """The picture in values of so many bits."""
    return np.rint(picture / 255 * (2**bits - 1)).astype(np.int64)


def shown(bits: int) -> np.ndarray:
    """The grey picture as values of so many bits can show it."""
    return np.rint(levels(bits) / (2**bits - 1) * 255).astype(np.uint8)


def turned(orientation: int, picture: np.ndarray = GREY) -> np.ndarray:
    """The picture as it is seen if a file says that its rows and columns begin elsewhere (TIFF 6.0, page 36)."""
    return {
        1: picture,
        2: np.fliplr(picture),
        3: np.rot90(picture, 2),
        4: np.flipud(picture),
        5: np.transpose(picture),
        6: np.rot90(picture, -1),
        7: np.transpose(np.rot90(picture, 2)),
        8: np.rot90(picture),
    }[orientation]


def pillow(picture: np.ndarray, format_: str, mode: str | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    image = Image.fromarray(picture).convert("1") if mode == "1" else Image.fromarray(picture, mode)
    image.save(buffer, format_, **options)
    return buffer.getvalue()


def jpeg_2000(values: np.ndarray, bits: int) -> bytes:
    """A codestream without loss, made by OpenJPEG."""
    described = {
        "rows": values.shape[0],
        "columns": values.shape[1],
        "number_of_frames": 1,
        "samples_per_pixel": values.shape[2] if values.ndim == 3 else 1,
        "bits_allocated": values.dtype.itemsize * 8,
        "bits_stored": bits,
        "pixel_representation": int(values.dtype.kind == "i"),
        "photometric_interpretation": "RGB" if values.ndim == 3 else "MONOCHROME2",
        "planar_configuration": 0,
    }
    return bytes(get_encoder(uid.JPEG2000Lossless).encode(values.tobytes(), **described))


def tiffs() -> Iterator[tuple[str, Case]]:
    for order, polarity, bits in itertools.product("<>", (1, 0), (1, 2, 4, 8, 10, 12, 14, 16, 32)):
        stored = levels(bits) if polarity else 2**bits - 1 - levels(bits)
        for compression in (1, 5, 8, 32773):
            content = encoders.tiff(stored, bits=bits, photometric=polarity, order=order, compression=compression)
            yield (
                f"{bits} bits, {ZERO[polarity]} is 0, {order}, {compression}",
                (content, shown(bits), 0, ()),
            )
    for order, polarity, used in itertools.product("<>", (1, 0), (8, 10, 12, 14)):
        stored = levels(used) if polarity else 2**used - 1 - levels(used)
        content = encoders.tiff(stored, bits=16, photometric=polarity, order=order)
        yield f"{used} of 16 bits, {ZERO[polarity]} is 0, {order}", (content, GREY, 0, ASSUMED)
    for order, polarity, compression in itertools.product("<>", (1, 0), (1, 5, 8)):
        stored = (GREY / 255 if polarity else 1 - GREY / 255).astype(np.float32)
        options = {"photometric": polarity, "order": order, "compression": compression, "sample_format": 3}
        yield (
            f"float, {polarity}, {order}, {compression}",
            (encoders.tiff(stored, bits=32, **options), GREY, 0, ASSUMED),
        )
    yield "float up to 255", (encoders.tiff(GREY.astype(np.float32), bits=32, sample_format=3), GREY, 0, ASSUMED)
    yield "float of 64 bits", (encoders.tiff(GREY / 255, bits=64, sample_format=3), GREY, 0, ASSUMED)
    for order in "<>":
        for bits, compression in itertools.product((16, 32), (1, 8)):
            stored = levels(12).astype(f"i{bits // 8}")
            content = encoders.tiff(stored, bits=bits, sample_format=2, order=order, compression=compression)
            yield f"signed {bits} without negatives, {order}, {compression}", (content, GREY, 0, ASSUMED)
        for tile, bits, compression in itertools.product((16, 32), (8, 12, 16), (1, 8)):
            content = encoders.tiff(levels(bits), bits=bits, tile=tile, order=order, compression=compression)
            yield f"tiles of {tile}, {bits} bits, {order}, {compression}", (content, GREY, 0, ())
        for bits in (8, 12, 16):
            yield (
                f"strips, {bits} bits, {order}",
                (encoders.tiff(levels(bits), bits=bits, rows_per_strip=7, order=order), GREY, 0, ()),
            )
        for bits in (1, 4, 8):
            content = encoders.tiff(levels(bits), bits=bits, fill_order=2, order=order)
            yield f"lowest bit first, {bits} bits, {order}", (content, shown(bits), 0, ())
        for bits, top in itertools.product((1, 4, 8), (65535, 255)):  # some writers fill words with bytes
            ramp = [round(level / (2**bits - 1) * top) for level in range(2**bits)]
            content = encoders.tiff(levels(bits), bits=bits, photometric=3, order=order, tags={320: (3, ramp * 3)})
            yield f"palette of {bits} bits up to {top}, {order}", (content, shown(bits), 0, ())
        for orientation, bits in itertools.product(range(1, 9), (8, 16)):
            content = encoders.tiff(levels(bits), bits=bits, order=order, tags={274: (3, [orientation])})
            yield f"orientation {orientation}, {bits} bits, {order}", (content, turned(orientation), 0, ())
        for compression in (1, 5):
            options = {"photometric": 2, "order": order, "compression": compression}
            yield f"RGB, {order}, {compression}", (encoders.tiff(COLOUR, bits=8, **options), COLOUR, 0, ())
            yield (
                f"RGB in planes, {order}, {compression}",
                (encoders.tiff(COLOUR, bits=8, planar=2, **options), COLOUR, 0, ()),
            )
            yield (
                f"RGB of 16 bits, {order}, {compression}",
                (encoders.tiff(levels(16, COLOUR), bits=16, **options), COLOUR, 0, ()),
            )
            yield (
                f"RGB, 12 of 16 bits, {order}, {compression}",
                (encoders.tiff(levels(12, COLOUR), bits=16, **options), COLOUR, 0, ASSUMED),
            )
            for meaning in (0, 1, 2):  # none, multiplied in, apart
                stored = ALPHA.copy()
                stored[..., :3] = np.rint(COLOUR * (90 / 255)) if meaning == 1 else COLOUR
                content = encoders.tiff(stored, bits=8, tags={338: (3, [meaning])}, **options)
                yield f"alpha {meaning}, {order}, {compression}", (content, COLOUR, 2 if meaning == 1 else 0, ())
    yield "grey with alpha", (encoders.tiff(ALPHA[..., [0, 3]], bits=8, tags={338: (3, [2])}), GREY, 0, ())
    yield "BigTIFF", (encoders.tiff(GREY, bits=8, big=True), GREY, 0, ())
    yield "BigTIFF of 16 bits", (encoders.tiff(levels(16), bits=16, big=True, order=">"), GREY, 0, ())
    yield "CMYK", (encoders.tiff(CMYK, bits=8, photometric=5), COLOUR, 0, ())
    yield "YCbCr", (encoders.tiff(YCC, bits=8, photometric=6, tags={530: (3, [1, 1])}), COLOUR, 3, ())
    predicted = np.diff(levels(16), axis=1, prepend=0) % 65536
    yield "predictor", (encoders.tiff(predicted, bits=16, compression=8, tags={317: (3, [2])}), GREY, 0, ())
    strip = pillow(GREY, "JPEG", quality=100)
    yield "JPEG in TIFF", (encoders.tiff(GREY, bits=8, compression=7, packed=[strip]), GREY, 2, ())
    for compression in ("group3", "group4", "tiff_ccitt"):
        yield compression, (pillow(shown(1), "TIFF", "1", compression=compression), shown(1), 0, ())
    yield "JPEG in TIFF, colour", (pillow(COLOUR, "TIFF", compression="jpeg", quality=100), COLOUR, 40, ())
    copies = encoders.tiff(GREY, GREY[::2, ::2], bits=8, kinds=[0, 1])
    yield "a reduced copy is no frame", (copies, GREY, 0, ())


def pngs() -> Iterator[tuple[str, Case]]:
    for bits in (1, 2, 4, 8, 16):
        yield f"{bits} bits", (encoders.png(levels(bits), bits), shown(bits), 0, ())
    for used in (8, 10, 12, 14):
        stated = ((b"sBIT", bytes([used])),)
        yield f"{used} of 16 bits", (encoders.png(levels(used), 16), GREY, 0, ASSUMED)
        yield f"{used} of 16 bits, stated", (encoders.png(levels(used), 16, chunks=stated), GREY, 0, ())
        filled = levels(used) << (16 - used)
        yield f"{used} upper bits of 16, stated", (encoders.png(filled, 16, chunks=stated), GREY, 1, ())
    dark, stated = np.minimum(levels(12), 900), ((b"sBIT", b"\x0c"),)
    yield (
        "dark, and stated",
        (encoders.png(dark, 16, chunks=stated), np.rint(dark / 4095 * 255).astype(np.uint8), 0, ()),
    )
    yield "RGB of 16 bits", (encoders.png(levels(16, COLOUR), 16, 2), COLOUR, 0, ())
    yield "RGB, 12 of 16 bits", (encoders.png(levels(12, COLOUR), 16, 2), COLOUR, 0, ASSUMED)
    yield "RGBA", (encoders.png(ALPHA, 8, 6), COLOUR, 0, ())
    yield "RGBA of 16 bits", (encoders.png(levels(16, ALPHA), 16, 6), COLOUR, 0, ())
    yield "grey with alpha", (encoders.png(ALPHA[..., [0, 3]], 8, 4), GREY, 0, ())
    yield "grey with alpha, 16 bits", (encoders.png(levels(16, ALPHA[..., [0, 3]]), 16, 4), GREY, 0, ())
    yield "grey with alpha, 12 of 16 bits", (encoders.png(levels(12, ALPHA[..., [0, 3]]), 16, 4), GREY, 0, ASSUMED)
    palette = (b"PLTE", bytes(level for level in range(256) for _ in range(3)))
    yield "palette", (encoders.png(GREY, 8, 3, (palette,)), GREY, 0, ())
    yield "transparent palette", (encoders.png(GREY, 8, 3, (palette, (b"tRNS", bytes(256)))), GREY, 0, ())
    yield "a transparent grey", (encoders.png(GREY, 8, 0, ((b"tRNS", b"\0\x1e"),)), GREY, 0, ())
    for orientation in range(1, 9):
        exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0" + bytes([orientation]) + b"\0\0\0\0\0\0"
        chunks = ((b"eXIf", exif),)
        yield f"orientation {orientation}", (encoders.png(GREY, 8, chunks=chunks), turned(orientation), 0, ())
        yield (
            f"orientation {orientation}, 16 bits",
            (encoders.png(levels(16), 16, chunks=chunks), turned(orientation), 0, ()),
        )


def bmps() -> Iterator[tuple[str, Case]]:
    for bits, top_down, polarity in itertools.product((1, 4, 8), (False, True), (1, 0)):
        grey = [round(level / (2**bits - 1) * 255) for level in range(2**bits)]
        palette = b"".join(bytes([level] * 3 + [0]) for level in (grey if polarity else grey[::-1]))
        stored = levels(bits) if polarity else 2**bits - 1 - levels(bits)
        yield (
            f"{bits} bits, {top_down}, {polarity}",
            (encoders.bmp(stored, bits, palette, top_down=top_down), shown(bits), 0, ()),
        )
    parts = COLOUR.astype(int)
    for top_down in (False, True):
        yield f"24 bits, {top_down}", (encoders.bmp(COLOUR[..., ::-1], 8, top_down=top_down), COLOUR, 0, ())
        yield f"32 bits, {top_down}", (encoders.bmp(ALPHA[..., [2, 1, 0, 3]], 8, top_down=top_down), COLOUR, 0, ())
        for middle in (5, 6):
            depths = np.array([5, middle, 5])
            kept = parts >> (8 - depths)
            stored = kept[..., 0] << (5 + middle) | kept[..., 1] << 5 | kept[..., 2]
            masks = (0xF800, 0x07E0, 0x001F) if middle == 6 else ()
            picture = np.rint(kept / (2**depths - 1) * 255).astype(np.uint8)
            yield (
                f"16 bits, green {middle}, {top_down}",
                (encoders.bmp(stored, 16, masks=masks, top_down=top_down), picture, 1, ()),
            )
    grey = bytes(value for level in range(256) for value in (level, level, level, 0))
    yield "runs", (encoders.run_length_bmp(GREY, grey), GREY, 0, ())
    yield "OS/2", (encoders.os2_bmp(GREY, bytes(level for level in range(256) for _ in range(3))), GREY, 0, ())


def jpegs() -> Iterator[tuple[str, Case]]:
    full = [cv2.IMWRITE_JPEG_QUALITY, 100, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444]
    yield "colour", (cv2.imencode(".jpg", COLOUR[..., ::-1], full)[1].tobytes(), COLOUR, 4, ())
    progressive = [*full, cv2.IMWRITE_JPEG_PROGRESSIVE, 1]
    yield "progressive", (cv2.imencode(".jpg", COLOUR[..., ::-1], progressive)[1].tobytes(), COLOUR, 4, ())
    yield "grey", (cv2.imencode(".jpg", GREY, full)[1].tobytes(), GREY, 2, ())
    yield "RGB without conversion", (pillow(COLOUR, "JPEG", quality=100, keep_rgb=True, subsampling=0), COLOUR, 2, ())
    yield "CMYK", (pillow(CMYK, "JPEG", "CMYK", quality=100), COLOUR, 4, ())
    # Four planes of YCCK, of the inverse picture, are those of a CMYK file whose Adobe segment says so. Pillow inverts.
    inverse = np.asarray(Image.fromarray(255 - COLOUR).convert("YCbCr"))
    inverse = np.concatenate([inverse, np.full((*GREY.shape, 1), 255, np.uint8)], axis=2)
    ycck = bytearray(pillow(255 - inverse, "JPEG", "CMYK", quality=100))
    ycck[ycck.index(b"Adobe") + 11] = 2
    yield "YCCK", (bytes(ycck), COLOUR, 5, ())
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"orientation {orientation}", (pillow(GREY, "JPEG", quality=100, exif=exif), turned(orientation), 2, ())


def others() -> Iterator[tuple[str, Case]]:
    for largest, plain in itertools.product((100, 255, 300, 4095), (False, True)):
        for kind, picture in (("PGM", GREY), ("PPM", COLOUR)):
            stored = np.rint(picture / 255 * largest).astype(int)
            expected = np.rint(stored / largest * 255).astype(np.uint8)
            content = encoders.pnm(stored, largest, plain=plain, comment="# of a scanner\n")
            yield f"{kind} up to {largest}, {plain}", (content, expected, 1, ())
    yield "PGM of 16 bits", (encoders.pnm(levels(16), 65535), GREY, 0, ())
    yield "PGM, 12 of 16 bits", (encoders.pnm(levels(12), 65535), GREY, 0, ASSUMED)
    yield "PPM, 12 of 16 bits", (encoders.pnm(levels(12, COLOUR), 65535), COLOUR, 0, ASSUMED)
    for plain in (False, True):
        yield f"PBM, {plain}", (encoders.pbm(1 - levels(1), plain=plain), shown(1), 0, ())
    yield "GIF", (pillow(GREY, "GIF"), GREY, 0, ())
    yield "WebP", (pillow(COLOUR, "WEBP", lossless=True), COLOUR, 0, ())
    yield "WebP with alpha", (pillow(ALPHA, "WEBP", lossless=True, exact=True), COLOUR, 0, ())
    yield (
        "WebP of OpenCV",
        (cv2.imencode(".webp", COLOUR[..., ::-1], [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes(), COLOUR, 0, ()),
    )
    yield "JP2", (pillow(COLOUR, "JPEG2000"), COLOUR, 0, ())
    yield "JP2 with alpha", (pillow(ALPHA, "JPEG2000"), COLOUR, 0, ())
    yield (
        "JP2 of OpenCV",
        (
            cv2.imencode(".jp2", COLOUR[..., ::-1], [cv2.IMWRITE_JPEG2000_COMPRESSION_X1000, 1000])[1].tobytes(),
            COLOUR,
            2,
            (),
        ),
    )
    for bits in (4, 8, 10, 12, 16):
        stored = levels(bits).astype(np.uint8 if bits <= 8 else np.uint16)
        yield f"J2K of {bits} bits", (jpeg_2000(stored, bits), shown(bits), 0, ())
    yield "J2K, signed", (jpeg_2000((levels(12) - 2048).astype(np.int16), 12), GREY, 0, ())
    yield "J2K of 12 bits in colour", (jpeg_2000(levels(12, COLOUR).astype(np.uint16), 12), COLOUR, 0, ())


CASES = {
    f"{name}: {case}": expected
    for name, cases in (("TIFF", tiffs), ("PNG", pngs), ("BMP", bmps), ("JPEG", jpegs), ("others", others))
    for case, expected in cases()
}


@pytest.mark.parametrize("case", CASES)
def test_a_picture_is_the_same_in_every_way_to_store_it(case):
    content, expected, tolerance, flags = CASES[case]
    with PictureFile(content) as file:
        picture = file.frame()
        assert file.flags == flags
    if expected.ndim == 2:
        expected = np.repeat(expected[:, :, None], 3, axis=2)
    assert picture.shape == expected.shape
    assert np.abs(picture.astype(int) - expected).max() <= tolerance


signed = GREY.astype(int) - 128
REFUSED = {
    "signed bytes": (encoders.tiff(signed, bits=8, sample_format=2), "unknown_range"),
    "signed words": (encoders.tiff(signed * 256, bits=16, sample_format=2), "unknown_range"),
    "negative floats": (encoders.tiff(signed.astype(np.float32), bits=32, sample_format=3), "unknown_range"),
    "floats without a number": (
        encoders.tiff(np.where(GREY == 30, np.nan, GREY), bits=32, sample_format=3),
        "unknown_range",
    ),
    "huge floats": (encoders.tiff(GREY.astype(np.float32) * 1e6, bits=32, sample_format=3), "unknown_range"),
    "planes of 16 bits": (encoders.tiff(levels(16, COLOUR), bits=16, photometric=2, planar=2), "unsupported_pixels"),
    "grey with alpha of 16 bits": (
        encoders.tiff(levels(16, ALPHA[..., [0, 3]]), bits=16, tags={338: (3, [2])}),
        "unsupported_pixels",
    ),
    "white is zero, with alpha": (
        encoders.tiff(ALPHA[..., [0, 3]], bits=8, photometric=0, tags={338: (3, [2])}),
        "unsupported_pixels",
    ),
    "Lab": (encoders.tiff(YCC, bits=8, photometric=8), "unsupported_pixels"),
    "RGB of 32 bits": (encoders.tiff(levels(32, COLOUR), bits=32, photometric=2), "unsupported_pixels"),
    "several PGM in one file": (encoders.pnm(GREY, 255) * 2, "several_frames"),
    "PGM beyond its largest value": (encoders.pnm(GREY, 100), "damaged"),
    "JPEG of 12 bits": (b"\xff\xd8\xff\xc1\0\x0b\x0c\0\x30\0\x48\x01\x01\x11\0" + bytes(40), "unsupported_pixels"),
    "JPEG without loss": (b"\xff\xd8\xff\xc3\0\x0b\x08\0\x30\0\x48\x01\x01\x11\0" + bytes(40), "unsupported_pixels"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_known_or_decoded_is_refused_with_its_code(case):
    content, code = REFUSED[case]
    with pytest.raises(BadImage) as caught, PictureFile(content) as file:
        file.frame()
    assert caught.value.code == code


WHOLE = {
    "TIFF of 12 bits": encoders.tiff(levels(12), bits=12, rows_per_strip=7),
    "compressed TIFF of 16 bits": encoders.tiff(levels(16), bits=16, compression=8),
    "TIFF of 8 bits": encoders.tiff(GREY, bits=8),
    "PNG of 16 bits": encoders.png(levels(16), 16),
    "PGM": encoders.pnm(levels(12), 4095),
    "plain PGM": encoders.pnm(levels(12), 4095, plain=True),
    "PBM": encoders.pbm(levels(1)),
    "GIF": pillow(GREY, "GIF"),
    "WebP": pillow(COLOUR, "WEBP"),
    "JP2": pillow(COLOUR, "JPEG2000"),
    "J2K of 12 bits": jpeg_2000(levels(12).astype(np.uint16), 12),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_picture_that_is_cut_off_is_refused(case):
    content = WHOLE[case]
    for kept in (0.3, 0.6, 0.9):
        with pytest.raises(BadImage) as caught, PictureFile(content[: int(len(content) * kept)]) as file:
            file.frame()
        assert caught.value.code in ("truncated", "damaged")


PAGES = [np.roll(GREY, 7 * number, axis=1) for number in range(3)]


def animation(format_: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    first, *rest = (Image.fromarray(page) for page in PAGES)
    first.save(buffer, format_, save_all=True, append_images=rest, **options)
    return buffer.getvalue()


ANIMATIONS = {
    "GIF": animation("GIF"),
    "WebP": animation("WEBP", lossless=True),
    "PNG": animation("PNG"),
    "TIFF": encoders.tiff(*PAGES, bits=8),
    "TIFF of 16 bits": encoders.tiff(*(levels(16, page) for page in PAGES), bits=16, order=">", photometric=1),
}


@pytest.mark.parametrize("case", ANIMATIONS)
def test_every_frame_is_read_and_none_is_taken_without_being_chosen(case):
    with PictureFile(ANIMATIONS[case]) as file:
        assert file.n_frames == 3
        for number in (2, 0, 1):
            assert np.abs(file.frame(number)[..., 1].astype(int) - PAGES[number]).max() <= 1
        with pytest.raises(BadImage) as caught:
            file.frame()
        assert caught.value.code == "several_frames"
        with pytest.raises(BadImage) as caught:
            file.frame(3)
        assert caught.value.code == "no_such_frame"


def test_all_frames_of_a_file_have_one_range():
    dark, bright = levels(12) // 8, levels(12)
    with PictureFile(encoders.tiff(dark, bright, bits=16)) as file:
        assert np.abs(file.frame(0)[..., 0].astype(float) - GREY / 8).max() <= 1
        assert (file.frame(1)[..., 0] == GREY).all()


def test_a_black_picture_of_16_bits_stays_black():
    with PictureFile(encoders.tiff(levels(16) * 0, bits=16)) as file:
        assert not file.frame().any()
