"""The frames of a video, decoded in a limited process (``usvit.limited``) and never in the process of the caller."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usvit.data.io.bad_image import BadImage
from usvit.data.io.types import UInt8
from usvit.data.io.video_process import read_video
from usvit.limited import LimitedCalls, LimitReached

MOST_BYTES = 256_000_000
"""Videos of more bytes are refused: a video is read whole, and FFmpeg is given its bytes."""


class VideoFrames:
    """The frames of a video in memory, in the order in which they are shown; close it.

    Reading them in ascending order decodes each frame once. A frame before the last one that was read makes the decoder
    begin again.

    Args:
        path: The file, for errors.
        content: The bytes of the video.
        demuxer: FFmpeg's name of the format: ``mov``, ``avi``, ``matroska``, ``mpeg``, ``mpegvideo``, ``mpegts``,
            ``h264`` or ``hevc``.

    Raises:
        BadImage: It is damaged or truncated, its codec is not supported, its size changes, or it takes too much time or
            memory.
    """

    def __init__(self, path: Path, content: bytes, demuxer: str):
        if len(content) > MOST_BYTES:
            reason = f"it has more than {MOST_BYTES:,} bytes of video; convert it to H.264, or save parts of it"
            raise BadImage(path, reason, "too_large")
        self._arguments = path, content, demuxer
        self._calls = LimitedCalls(read_video.__module__)
        self._failed: tuple[int, BadImage] | None = None
        try:
            self._start(0)
        except BaseException:
            self.close()
            raise

    def frame(self, number: int) -> UInt8:
        """Decode the frame of this number, from 0: (H, W, 3) uint8.

        Raises:
            BadImage: It, or a frame before it, cannot be decoded.
        """
        if self._failed is not None and number >= self._failed[0]:
            raise self._failed[1]
        if number < self._next:
            self._start(number)
        while True:
            try:
                pixels = self._value()
            except BadImage as error:
                self._failed = self._next, error
                raise
            self._next += 1
            if self._next > number:
                found: UInt8 = pixels
                return found

    def close(self) -> None:
        """End the process."""
        self._calls.close()

    def _start(self, first: int) -> None:
        self._values: Iterator[Any] = self._calls.values(read_video, *self._arguments, first)
        self._next = 0
        self.n_frames: int = self._value()

    def _value(self) -> Any:
        path = self._arguments[0]
        try:
            value = next(self._values, None)
        except LimitReached as error:
            raise BadImage(path, f"its reader was ended: {error}", error.code) from error
        if isinstance(value, BadImage):
            raise value
        return value
