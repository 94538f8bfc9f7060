"""From an image file to pixels, without trusting the file.

Every file that usvit reads as an image passes through here: decoding, colour, bit depth
and the refusal of what is truncated, too large or no image at all.
"""

import hashlib
import io
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple

import imagehash
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from usvit.errors import UsvitError

MAX_PIXELS = 50_000_000
"""More pixels than any B-mode frame has (a 4K screen capture has 8 million): a larger header is
taken for a decompression bomb, and refused before a byte of pixels is decoded."""

# Our own limit is stricter. Set once for all: files are decoded in threads, which share these filters.
warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning)

IMAGE_SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff"})
DICOM_SUFFIXES = frozenset({".dcm", ".dicom"})

PICTURE_FORMATS = ("PNG", "JPEG", "TIFF", "BMP")
"""All that Pillow may decode. GIF and WebP are left out: no scanner writes them, and each decoder is a way in."""
HEAD_BYTES = 132
"""So much of a file's beginning tells what it is."""
_BMP = rb"BM.{12}[\x0c\x10\x28\x34\x38\x40\x6c\x7c]\0\0\0"
"""Its two letters alone say little: the length of its second header, of which there are eight kinds, is asked for."""
_PICTURE = re.compile(rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|II[\x2a\x2b]\0|MM\0[\x2a\x2b]|" + _BMP, re.DOTALL)
_VR = b"AE|AS|AT|CS|DA|DS|DT|FD|FL|IS|LO|LT|OB|OD|OF|OL|OV|OW|PN|SH|SL|SQ|SS|ST|SV|TM|UC|UI|UL|UN|UR|US|UT|UV"
# Group 0002 or 0008, then a VR by its letters, or (implicit) the length of a first value: short, and even.
_BARE_DICOM = re.compile(
    rb"[\x02\x08]\0.[\0-\x20](?:" + _VR + rb"|[\0-\xfe]\0\0\0)|\0[\x02\x08][\0-\x20].(?:" + _VR + rb")", re.DOTALL
)

UInt8 = NDArray[np.uint8]
Box = tuple[int, int, int, int]
"""Left, top, right, bottom in pixels; right and bottom are exclusive."""


class BadImage(UsvitError):
    """One image file cannot be used; ``path`` and ``reason`` say which and why.

    ``code`` is a key of ``usvit.score.records.FAILURES``: the same in one word, which quotes nothing of the file.
    """

    def __init__(self, path: Path, reason: str, code: str = "damaged"):
        self.path, self.reason, self.code = path, reason, code
        super().__init__(
            f"Cannot use the image {path}: {reason}. "
            "Replace the file, or pass --skip-bad to leave out such files and list them."
        )

    def __reduce__(self) -> tuple[type["BadImage"], tuple[Path, str, str]]:
        """Pickled whole: processes that read images pass it on."""
        return type(self), (self.path, self.reason, self.code)


class Decoded(NamedTuple):
    """One frame, and what its file says of it."""

    pixels: UInt8
    """(H, W, 3), the whole frame."""
    tissue: Box | None = None
    """The 2-D tissue region that a DICOM header describes; None where none does."""


def read_image(path: Path, frame: int = 0) -> UInt8:
    """Decode an image file to 8-bit RGB: the pixels of ``decode``, with its arguments and errors.

    Returns:
        (H, W, 3) uint8.
    """
    return decode(path, frame).pixels


def decode(path: Path, frame: int = 0) -> Decoded:
    """Decode one frame of an image file to 8-bit RGB, and say where its tissue lies.

    Grey becomes three equal channels, 16-bit grey is scaled by 1/257, transparency is
    dropped, and a camera's rotation tag is applied. DICOM: ``usvit.data.dicom``.

    Args:
        path: a picture of ``PICTURE_FORMATS`` or a DICOM file, whatever its name, or an ``.npz`` of MedMNIST.
        frame: which picture of a file that holds several, from 0.

    Raises:
        BadImage: the file is missing, truncated, no image, larger than ``MAX_PIXELS``, or without such a frame.
    """
    with refusing(path):
        if path.suffix.lower() == ".npz":
            from usvit.data.medmnist import read_npz_frame

            return Decoded(read_npz_frame(path, frame))
        if is_dicom(path):
            from usvit.data.dicom import DicomFile  # imports pydicom, which few runs need

            with DicomFile(path) as file:
                return Decoded(file.frame(frame), file.facts.regions.tissue)
        with PictureFile(path) as picture:
            return Decoded(picture.frame(frame))


def read_mask(path: Path) -> NDArray[np.bool_]:
    """Decode a lesion mask: True where any colour channel is above half.

    Masks come as 1-bit, grey, RGB or RGBA (two of BUSI's); opacity is not part of the mask.

    Returns:
        (H, W) bool.

    Raises:
        BadImage: as ``read_image``.
    """
    red, green, blue = np.moveaxis(read_image(path), 2, 0)
    return (red | green | blue) > 127  # the highest bit of any: many times faster than a maximum over channels


def read_masks(paths: list[Path], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Several lesions' masks joined with OR.

    Args:
        paths: mask files of one image; none gives an empty mask.
        shape: (H, W) of the image they belong to.

    Raises:
        BadImage: a mask cannot be read or has another size than its image.
    """
    joined = np.zeros(shape, dtype=np.bool_)
    for path in paths:
        mask = read_mask(path)
        if mask.shape != shape:
            raise BadImage(path, f"the mask is {_size(mask.shape)} pixels but its image is {_size(shape)}")
        joined |= mask
    return joined


@dataclass(frozen=True)
class Fingerprint:
    """What tells an image from another, whatever its file format."""

    sha256: str
    """Of the decoded RGB pixels and their shape: unchanged by lossless recompression."""
    phash: str
    """64-bit perceptual hash (DCT), 16 hexadecimal digits; near images have near hashes."""
    shape: tuple[int, int]
    """(H, W)."""


def fingerprint(pixels: UInt8) -> Fingerprint:
    """Hashes of decoded pixels, (H, W, 3) uint8."""
    height, width = pixels.shape[:2]
    return Fingerprint(pixel_sha256(pixels), str(imagehash.phash(Image.fromarray(pixels))), (height, width))


def pixel_sha256(pixels: UInt8) -> str:
    """SHA-256 of decoded pixels, (H, W, 3) uint8, and their shape: what an image is, whatever its file."""
    height, width = pixels.shape[:2]
    digest = hashlib.sha256(f"{height}x{width}x3:".encode())
    digest.update(np.ascontiguousarray(pixels).data)
    return digest.hexdigest()


def kind_of(head: bytes) -> Literal["dicom", "picture"] | None:
    """What a file is, by its first ``HEAD_BYTES`` bytes; its name is not asked.

    ``dicom``: the letters DICM at byte 128 (PS3.10 7.1); or, as some archives export it, a bare data set without that
    preamble, which begins with an element of group 0002 or 0008. ``picture``: one of ``PICTURE_FORMATS``.
    """
    if head[128:132] == b"DICM":
        return "dicom"
    if _PICTURE.match(head):
        return "picture"
    return "dicom" if _BARE_DICOM.match(head) else None


def is_dicom(path: Path) -> bool:
    """Whether a file is a DICOM file, by its content; one that is neither that nor a picture, by its suffix."""
    try:
        with path.open("rb") as file:
            kind = kind_of(file.read(HEAD_BYTES))
    except OSError:  # told by who decodes it
        kind = None
    return kind == "dicom" or (kind is None and path.suffix.lower() in DICOM_SUFFIXES)


def refuse_size(path: Path, height: int, width: int) -> None:
    """Raise ``BadImage`` for a picture of more than ``MAX_PIXELS``."""
    if height * width > MAX_PIXELS:
        raise BadImage(path, f"its header claims {_size((height, width))} pixels (a decompression bomb?)", "too_large")


def refuse_frame(path: Path, frame: int, frames: int) -> None:
    """Raise ``BadImage`` for a frame that a file does not hold."""
    if not 0 <= frame < frames:
        raise BadImage(path, f"it has no frame {frame}: it holds {frames}, counted from 0", "no_such_frame")


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into a ``BadImage`` that says why."""
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(path, "its header claims far too many pixels (a decompression bomb?)", "too_large") from error
    except FileNotFoundError as error:
        raise BadImage(path, "there is no such file", "not_found") from error
    except UnidentifiedImageError as error:  # what is no image at all is told before Pillow is asked
        raise BadImage(path, "it is damaged or truncated (its header)") from error
    except Exception as error:  # decoders have many ways to say damaged, even struct.error for a bad EXIF block
        if isinstance(error, OSError) and error.errno is not None:
            raise BadImage(path, f"it cannot be read ({error.strerror})", "unreadable") from error
        said = " ".join(str(error).split())
        code = "truncated" if isinstance(error, EOFError) or "truncated" in said.lower() else "damaged"
        raise BadImage(path, f"it is damaged or truncated ({said})", code) from error


IN_MEMORY = 256_000_000
"""Files of fewer bytes are read whole: a chunk that claims GBs then ends with the file, where Pillow would first make
room for all of it."""


def _stream(source: Path | bytes | BinaryIO) -> BinaryIO:
    if isinstance(source, Path):
        with source.open("rb") as file:
            if os.fstat(file.fileno()).st_size > IN_MEMORY:
                return source.open("rb")
            source = file.read()
    return io.BytesIO(source) if isinstance(source, bytes) else source


class PictureFile:
    """A file of one of ``PICTURE_FORMATS``, opened once; the pages of a TIFF are its frames.

    Args:
        source: a path, the file's bytes, or the open file (which is closed with this one).
        name: what errors call it, where the source is no path.

    Raises:
        BadImage: it is damaged or of another format.
    """

    def __init__(self, source: Path | bytes | BinaryIO, name: Path | None = None):
        self._path = source if isinstance(source, Path) else name or Path("image")
        with refusing(self._path), ExitStack() as stack:
            stream = stack.enter_context(_stream(source))
            stream.seek(0)
            head = stream.read(HEAD_BYTES)
            if kind_of(head) != "picture":
                raise BadImage(self._path, "it is not an image of a known format", "not_an_image")
            stream.seek(0)
            self._image = Image.open(stream, formats=PICTURE_FORMATS)
            self._close = stack.pop_all().close

    @property
    def n_frames(self) -> int:
        """Pages of a TIFF; 1 for all others (a second picture in a JPEG or PNG is a preview or an animation)."""
        with refusing(self._path):
            return int(getattr(self._image, "n_frames", 1)) if self._image.format == "TIFF" else 1

    def frame(self, number: int = 0) -> UInt8:
        """Decode one frame.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BadImage: it is truncated, damaged, larger than ``MAX_PIXELS``, of unsupported pixels, or not there.
        """
        with refusing(self._path):
            refuse_frame(self._path, number, self.n_frames if number else 1)
            self._image.seek(number)
            refuse_size(self._path, self._image.height, self._image.width)
            if self._image.mode in ("I", "F"):
                reason = f"its pixels (mode {self._image.mode}) have no stated range; save it with 8 or 16 bits"
                raise BadImage(self._path, reason, "unsupported_pixels")
            return np.asarray(_to_rgb(ImageOps.exif_transpose(self._image)))

    def __enter__(self) -> "PictureFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._image.close()
        self._close()


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
