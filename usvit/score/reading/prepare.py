"""From a decoded frame to what the network takes in; runs in worker processes, knows no torch."""

import io
from collections.abc import Iterable

import numpy as np
from PIL import Image

from usvit.data.audit.flags import pixel_flags
from usvit.data.audit.marks import Look
from usvit.data.audit.words import may_show_words
from usvit.data.copies import describe
from usvit.data.copies.compact import CompactDescriptions
from usvit.data.images import Box, UInt8
from usvit.data.preprocessing import Preprocessing, cropped
from usvit.data.quality import quality
from usvit.score.records import Frame, ReadSettings

THUMBNAIL_QUALITY = 80
"""Of JPEG; 160 px take about 5 kB."""
WHOLE = 0.95
"""A view of at least this share of the frame is taken for the whole frame."""


class Prepare:
    """From a decoded frame to what the network takes in, and what is kept of it beside."""

    def __init__(self, settings: ReadSettings):
        self._settings = settings
        nothing, one = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # the network's own statistics come later
        self._preprocessing = Preprocessing(settings.image_size, settings.resize, nothing, one, settings.crop)

    def __call__(self, number: int, whole: UInt8, tissue: Box | None, file_flags: Iterable[str]) -> Frame:
        """Prepare one frame.

        Args:
            number: in its file, from 0.
            whole: (H, W, 3) uint8 RGB.
            tissue: its part with tissue, where the file tells.
            file_flags: of the file (``Facts.flags``).
        """
        view = cropped(whole, tissue, self._settings.crop)
        look = Look(view)
        flags = tuple(pixel_flags(look))
        # Of what training describes: the whole frame.
        description = describe(look if view.shape == whole.shape else whole)
        return Frame(
            number=number,
            pixels=np.ascontiguousarray(self._preprocessing.resized(whole, tissue)),
            pixel_sha256=description.sha256,
            flags=flags,
            quality=quality(view),
            thumbnail=self._thumbnail(whole, tissue, {*flags, *file_flags}),
            description=CompactDescriptions.of([description]).to_bytes(),
        )

    def _thumbnail(self, whole: UInt8, tissue: Box | None, flags: set[str]) -> bytes | None:
        """None also where the patient's name may be seen: no tissue region is known, or words are found beside it."""
        side = self._settings.thumbnail_side
        if side is None:
            return None
        # What lies beside the tissue is cut off even where the network sees it.
        shown = cropped(whole, tissue, "tissue")
        if not (self._settings.keep_words or is_cut(shown, whole.shape[0], whole.shape[1])):
            words = not {"text", "burned_in"}.isdisjoint(flags)
            if words or not self._settings.pictures or may_show_words(shown):
                return None
        return thumbnail(shown, side)


def is_cut(view: UInt8, height: int, width: int) -> bool:
    """Whether a view is clearly less than the whole frame: what stands at a frame's edge has been cut off it."""
    return view.shape[0] * view.shape[1] < WHOLE * height * width


def thumbnail(view: UInt8, side: int) -> bytes:
    """A small JPEG of an image, made of its pixels alone: no metadata comes along.

    Args:
        view: (h, w, 3) uint8.
        side: the longer side, in px; a smaller image is not enlarged.
    """
    picture = Image.fromarray(view)
    picture.thumbnail((side, side), Image.Resampling.BICUBIC, reducing_gap=2.0)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=THUMBNAIL_QUALITY)
    return buffer.getvalue()
