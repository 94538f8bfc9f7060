"""Functions that run in reader processes: they open the files of cases, and encode what the page shows as PNG."""

import io
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset

from usvit.data.io import BadImage, UInt8, read_masks
from usvit.data.transforms import cropped
from usvit.reviewing.cases import ImageFacts
from usvit.scoring import ReadSettings, ScoringItem, open_item

_READ = ReadSettings(image_size=1, resize="squash", crop="whole")  # how items are opened, not how they are shown
_OUTLINE = (0, 255, 255, 230)
"""Cyan, in the outline of a lesion."""
_open: tuple[tuple[ScoringItem, str], ExitStack, Any] | None = None
"""The item that was opened last, which the next frame of a loop needs again."""


def look_at(item: ScoringItem, crop: str) -> ImageFacts:
    """Open an image, decode its first frame, and return what the file says.

    Raises:
        BadImage: The file cannot be read.
    """
    with open_item(item, _READ) as opened:
        facts, header = opened.facts, opened.header
        pixels = opened.view(item.frame or 0, crop)
        return ImageFacts(
            file_sha256=facts.file_sha256,
            n_frames=1 if item.frame is not None else facts.n_frames,
            width=pixels.shape[1],
            height=pixels.shape[0],
            spacing_mm=facts.pixel_spacing_mm,
            frame_ms=None if header is None else _frame_ms(header),
            is_dicom=header is not None,
            box=opened.region(crop),
            side=facts.side(item.frame or 0),
            patient=facts.patient,
            exam=facts.study,
        )


def is_ready() -> bool:
    """Return True, when this module has been imported."""
    return True


def made(function: Callable[..., bytes], *arguments: Any) -> bytes | BadImage:
    """Call one of the functions below, and return its error, whose text would name the file, instead of raising it."""
    try:
        return function(*arguments)
    except BadImage as error:
        return error


def frame_png(item: ScoringItem, file_sha256: str, crop: str, number: int) -> bytes:
    """Return a frame as PNG, without loss.

    Raises:
        BadImage: The file cannot be read, or is not the one with which the study began.
    """
    pixels: UInt8 = _view(item, file_sha256)(item.frame if item.frame is not None else number, crop)
    grey = pixels[:, :, :1]
    return _png(grey[:, :, 0] if (pixels == grey).all() else pixels)


def mask_png(item: ScoringItem, file_sha256: str, crop: str, masks: Sequence[Path]) -> bytes:
    """Return the outline of the lesions as a transparent PNG of the size of the image.

    Raises:
        BadImage: A mask cannot be read, or does not fit the image.
    """
    global _open
    whole: UInt8 = _view(item, file_sha256)(item.frame or 0, "whole")
    assert _open is not None
    mask = cropped(read_masks([*masks], whole.shape[:2]), _open[2].tissue, crop)
    from scipy import ndimage  # takes half a second, which the first image need not wait for

    edge = ndimage.binary_dilation(mask, iterations=2) & ~mask
    return _png(edge[:, :, None] * np.array(_OUTLINE, dtype=np.uint8))


def _view(item: ScoringItem, file_sha256: str) -> Callable[[int, str], UInt8]:
    """Return ``Opened.view`` of an item, which stays open until the next one is asked for."""
    global _open
    if _open is None or _open[0] != (item, file_sha256):
        if _open is not None:
            _open[1].close()
            _open = None
        with ExitStack() as stack:
            opened = stack.enter_context(open_item(item, _READ, file_sha256))
            _open = (item, file_sha256), stack.pop_all(), opened
    view: Callable[[int, str], UInt8] = _open[2].view
    return view


def _frame_ms(header: Dataset) -> float | None:
    """Return the duration of a frame that a header states (DICOM PS3.3, C.7.6.5)."""
    try:
        if time := float(header.get("FrameTime") or 0):
            milliseconds = time
        else:
            milliseconds = 1000 / float(header.get("RecommendedDisplayFrameRate") or header.get("CineRate") or 0)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return milliseconds if 1 <= milliseconds <= 10_000 else None


def _png(pixels: UInt8) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG", compress_level=1)
    return buffer.getvalue()
