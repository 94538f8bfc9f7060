"""From an image file to pixels, without trusting the file.

Every file that usvit reads as an image passes through here: decoding, colour, bit depth
and the refusal of what is truncated, too large or no image at all.
"""

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

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

UInt8 = NDArray[np.uint8]


class BadImage(UsvitError):
    """One image file cannot be used; ``path`` and ``reason`` say which and why."""

    def __init__(self, path: Path, reason: str):
        self.path, self.reason = path, reason
        super().__init__(
            f"Cannot use the image {path}: {reason}. "
            "Replace the file, or pass --skip-bad to leave out such files and list them."
        )


def read_image(path: Path, frame: int = 0) -> UInt8:
    """Decode an image file to 8-bit RGB.

    Grey becomes three equal channels, 16-bit grey is scaled by 1/257, transparency is
    dropped, and a camera's rotation tag is applied. DICOM: ``usvit.data.dicom``.

    Args:
        path: a file with one of ``IMAGE_SUFFIXES``, a DICOM file, or an ``.npz`` of MedMNIST.
        frame: which picture of a file that holds several, from 0.

    Returns:
        (H, W, 3) uint8.

    Raises:
        BadImage: the file is missing, truncated, no image, larger than ``MAX_PIXELS``, or without such a frame.
    """
    with refusing(path):
        if path.suffix.lower() == ".npz":
            from usvit.data.medmnist import read_npz_frame

            return read_npz_frame(path, frame)
        if is_dicom(path):
            from usvit.data.dicom import read_dicom_frame  # imports pydicom, which few runs need

            return read_dicom_frame(path, frame)
        return np.asarray(_decode(path, frame))


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


def is_dicom(path: Path) -> bool:
    """Whether a file is a DICOM file: by its suffix, or by the four letters at byte 128 where it has no image's."""
    suffix = path.suffix.lower()
    if suffix in DICOM_SUFFIXES or suffix in IMAGE_SUFFIXES:
        return suffix in DICOM_SUFFIXES
    with path.open("rb") as file:
        return file.read(132)[128:] == b"DICM"


def refuse_size(path: Path, height: int, width: int) -> None:
    """Raise ``BadImage`` for a picture of more than ``MAX_PIXELS``."""
    if height * width > MAX_PIXELS:
        raise BadImage(path, f"its header claims {_size((height, width))} pixels (a decompression bomb?)")


def refuse_frame(path: Path, frame: int, frames: int) -> None:
    """Raise ``BadImage`` for a frame that a file does not hold."""
    if not 0 <= frame < frames:
        raise BadImage(path, f"it has no frame {frame}: it holds {frames}, counted from 0")


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn whatever a decoder raises into a ``BadImage`` that says why."""
    try:
        yield
    except (BadImage, MemoryError):
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise BadImage(path, "its header claims far too many pixels (a decompression bomb?)") from error
    except FileNotFoundError as error:
        raise BadImage(path, "there is no such file") from error
    except UnidentifiedImageError as error:
        raise BadImage(path, "it is not an image of a known format") from error
    except Exception as error:  # decoders have many ways to say damaged, even struct.error for a bad EXIF block
        if isinstance(error, OSError) and error.errno is not None:
            raise BadImage(path, f"it cannot be read ({error.strerror})") from error
        raise BadImage(path, f"it is damaged or truncated ({' '.join(str(error).split())})") from error


def _decode(path: Path, frame: int) -> Image.Image:
    with Image.open(path) as image:
        refuse_frame(path, frame, getattr(image, "n_frames", 1) if frame else 1)
        image.seek(frame)
        refuse_size(path, image.height, image.width)
        if image.mode in ("I", "F"):
            raise BadImage(path, f"its pixels (mode {image.mode}) have no stated range; save it with 8 or 16 bits")
        return _to_rgb(ImageOps.exif_transpose(image))


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16"):
        return Image.fromarray((np.asarray(image) // 257).astype(np.uint8)).convert("RGB")
    return image.convert("RGB")


def _size(shape: tuple[int, ...]) -> str:
    return f"{shape[1]} x {shape[0]}"
