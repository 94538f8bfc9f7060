"""Preprocessing of decoded frames for the network; runs in worker processes and does not import torch."""

import io
from collections.abc import Iterable

import numpy as np
from PIL import Image

from usvit.data.audit import grey_levels, pixel_flags, quality
from usvit.data.burned_in import Look, may_show_words
from usvit.data.io import Box, UInt8
from usvit.data.near_duplicates import CompactDescriptions, describe
from usvit.data.transforms import cropped
from usvit.scoring.items import Frame, ReadSettings

_THUMBNAIL_QUALITY = 80
"""JPEG quality; an image of 160 px needs about 5 kB."""
WHOLE = 0.95
"""A view that covers at least this share of the frame counts as the whole frame."""


class Prepare:
    """Prepares decoded frames: pixels for the network, hash, flags, quality, thumbnail and description."""

    def __init__(self, settings: ReadSettings):
        self._settings = settings
        self._preprocessing = settings.square

    def __call__(self, number: int, whole: UInt8, tissue: Box | None, file_flags: Iterable[str]) -> Frame:
        """Prepare one frame.

        Args:
            number: number of the frame in its file, from 0.
            whole: (H, W, 3) uint8 RGB.
            tissue: the tissue region, if the file describes one.
            file_flags: flags of the file (``ItemFacts.flags``).
        """
        view = cropped(whole, tissue, self._settings.crop)
        look = Look(view)
        flags = tuple(pixel_flags(look))
        # Training also describes the whole frame.
        description = describe(look if view.shape == whole.shape else whole)
        return Frame(
            number=number,
            pixels=np.ascontiguousarray(self._preprocessing.resized(whole, tissue)),
            pixel_sha256=description.sha256,
            flags=flags,
            quality=quality(view),
            grey=grey_levels(view),
            size=(view.shape[1], view.shape[0]),
            thumbnail=self._thumbnail(whole, tissue, {*flags, *file_flags}),
            description=CompactDescriptions.of([description]).to_bytes(),
            others={
                name: np.ascontiguousarray(one.resized(whole, tissue)) for name, one in self._settings.others.items()
            },
        )

    def _thumbnail(self, whole: UInt8, tissue: Box | None, flags: set[str]) -> bytes | None:
        """Return a JPEG; None if none is wanted, or if the image may show the patient's name."""
        side = self._settings.thumbnail_side
        if side is None:
            return None
        # Everything outside the tissue is cut off, even if the network sees it.
        shown = cropped(whole, tissue, "tissue")
        if not (self._settings.keep_words or is_cut(shown, whole.shape[0], whole.shape[1])):
            words = not {"text", "burned_in"}.isdisjoint(flags)
            if words or not self._settings.pictures or may_show_words(shown):
                return None
        return thumbnail(shown, side)


def is_cut(view: UInt8, height: int, width: int) -> bool:
    """Return whether a view is clearly smaller than the whole frame, so that text at its edge has been cut off."""
    return view.shape[0] * view.shape[1] < WHOLE * height * width


def thumbnail(view: UInt8, side: int) -> bytes:
    """Return a small JPEG of an image, without any metadata.

    Args:
        view: (h, w, 3) uint8.
        side: longer side in pixels; a smaller image is not enlarged.
    """
    picture = Image.fromarray(view)
    picture.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=_THUMBNAIL_QUALITY)
    return buffer.getvalue()
