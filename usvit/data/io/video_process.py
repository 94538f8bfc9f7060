"""Decode videos with OpenCV's FFmpeg, in a process of its own (``usvit.data.io.video`` is the side of the caller).

FFmpeg reads from memory and is told which demuxer and which decoder to use, so it neither follows a playlist nor opens
another file or an address. Frames are read in their order and are never sought, because seeking is inexact.
"""

import contextlib
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import cv2

from usvit.data.io.bad_image import BadImage, refuse_size
from usvit.data.io.codestream import read_codestream
from usvit.data.io.types import UInt8

_MPEG_HEADERS = (rb"\0\0\x01\xb3(.{3})", rb"\0\0\x01\xb5([\x10-\x1f].)")
_CODECS = {
    "h264": (rb"\0\0\x01[\x07\x27\x47\x67](.*?)(?=\0\0[\0\x01]|$)",),
    "hevc": (rb"\0\0\x01\x42[\0-\x07](.*?)(?=\0\0[\0\x01]|$)",),
    "mpeg4": (rb"\0\0\x01[\x20-\x2f](.*?)(?=\0\0\x01|$)",),
    "mpeg2video": _MPEG_HEADERS,
    "mpeg1video": _MPEG_HEADERS,
    "mjpeg": (rb"\xff[\xc0-\xc2]\0[\x0b\x11](.{15})",),
    "ffv1": (),
    "rawvideo": (),
}
"""FFmpeg's decoders that are used, and the headers in their packets that state the size and the kind of the pixels."""
_BGR = int.from_bytes(b"BGR\x18", "little")
"""OpenCV's number of uncompressed pixels of three bytes."""
_SEVERAL_DESCRIPTIONS = re.compile(rb"stsd\0{7}[\x02-\xff]")
"""A track of MP4 whose size may change: its sample description box has several entries."""
_MOST_FRAMES = 100_000
"""An hour at 28 frames per second. Empty packets, which cost a file nothing, are counted, too."""

_LOGGING = ("OPENCV_FFMPEG_DEBUG", "OPENCV_FFMPEG_LOGLEVEL")
"""Environment variables that would keep FFmpeg's errors from the standard error stream."""


def read_video(path: Path, content: bytes, demuxer: str, first: int) -> Iterator[int | UInt8 | BadImage | None]:
    """Yield the number of frames, then each frame in the order in which it is shown.

    A frame counts if the container holds a packet for it. After an error, of which decoders only tell the log, no
    further frame is yielded, since later frames are predicted from the damaged one.

    Args:
        path: The file, for errors.
        content: The bytes of the video.
        demuxer: FFmpeg's name of the format.
        first: Number of the first frame that is wanted; earlier ones are decoded, and None is yielded for each.

    Yields:
        The number of frames, at least 1; (H, W, 3) uint8 RGB frames; and, as the last value, the error of a video that
        cannot be decoded any further.
    """
    try:
        codec, layout = _codec_of(path, content, demuxer)
        n_frames = _count(path, content, demuxer, codec)
        yield n_frames
        capture = _open(content, demuxer, codec, packets=layout is not None)
        shape = None
        # The container may still hold a part of the last packet, which some decoders take for a whole one.
        is_cut = demuxer == "avi" and int.from_bytes(content[4:8], "little") + 8 > len(content)
        for number in range(n_frames):
            with _complaints() as complaints:
                found, pixels = _next(capture, number >= first)
            if found and pixels is not None and layout is not None:
                pixels = layout.pixels(pixels)
            ends = is_cut and number == n_frames - 1
            if ends or not found or complaints or (pixels is None and number >= first):
                code = "truncated" if ends or b"premature" in b"".join(complaints) else "damaged"
                reason = f"it is damaged or truncated: frame {number} or one before it cannot be decoded without errors"
                raise BadImage(path, reason, code)
            if pixels is None:
                yield None
                continue
            if (shape := shape or pixels.shape) != pixels.shape:
                raise _changes(path)
            yield cast(UInt8, cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB))
    except cv2.error:
        yield BadImage(path, "it is damaged or truncated (its frames)")
    except BadImage as error:
        yield error


def _next(capture: cv2.VideoCapture, wanted: bool) -> tuple[bool, UInt8 | None]:
    """Decode a frame; return whether there is one, and its pixels, blue first, if they are wanted."""
    if not wanted:
        return capture.grab(), None
    found, pixels = capture.read()
    return found, cast(UInt8, pixels) if found else None


@dataclass(frozen=True)
class _Bitmaps:
    """Uncompressed blue, green and red of 8 bits, rows from the bottom, which OpenCV would read out of bounds."""

    height: int
    width: int
    from_bottom: bool

    def pixels(self, packet: UInt8) -> UInt8 | None:
        """Return the pixels of a packet, (H, W, 3) uint8; None if it is too short."""
        stride = -(-self.width * 3 // 4) * 4
        if packet.size < self.height * stride:
            return None
        rows = packet.reshape(-1)[: self.height * stride].reshape(self.height, stride)
        pixels = rows[:, : self.width * 3].reshape(self.height, self.width, 3)
        return pixels[::-1] if self.from_bottom else pixels


def _codec_of(path: Path, content: bytes, demuxer: str) -> tuple[str, _Bitmaps | None]:
    """Return the decoder of the first video stream; FFmpeg refuses to open a stream with the decoder of another."""
    with _complaints() as complaints:
        for codec in _CODECS:
            capture = _open(content, demuxer, codec)
            if not capture.isOpened() or (codec == "rawvideo" and demuxer != "avi"):
                continue
            height, width = (int(capture.get(side)) for side in (cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH))
            refuse_size(path, height, width)
            if int(capture.get(cv2.CAP_PROP_CODEC_PIXEL_FORMAT)) != _BGR:
                return codec, None
            signed = content[content.find(b"strf", content.find(b"strh\x38\0\0\0vids")) + 16 :][:4]
            return codec, _Bitmaps(height, width, from_bottom=int.from_bytes(signed, "little", signed=True) > 0)
        known = _open(content, demuxer, None, packets=True).isOpened()
    if b"Picture size" in b"".join(complaints):
        raise BadImage(path, "its header claims far too many pixels (a decompression bomb?)", "too_large")
    if known:
        reason = "its codec is none of those that are decoded here"
        raise BadImage(path, f"{reason}; convert it to H.264 in MP4, or to multi-frame DICOM", "unsupported_codec")
    raise BadImage(path, "it is damaged or truncated (its header), or holds no video")


def _count(path: Path, content: bytes, demuxer: str, codec: str) -> int:
    """Count the packets, and refuse a size that changes: OpenCV converts all frames as it does the first."""
    capture = _open(content, demuxer, codec, packets=True)
    headers: list[set[bytes]] = [set() for _ in _CODECS[codec]]
    n_frames = 0
    with _complaints():
        while capture.grab():
            n_frames += 1
            if n_frames > _MOST_FRAMES:
                raise BadImage(path, f"it has more than {_MOST_FRAMES:,} frames", "too_large")
            if not headers:
                continue
            packet = capture.retrieve()[1].tobytes()
            for seen, header in zip(headers, _CODECS[codec], strict=True):
                seen.update(re.findall(header, packet, re.DOTALL))
            if codec == "mjpeg" and (stream := read_codestream(packet)) is not None:
                refuse_size(path, stream.rows, stream.columns)
            if any(len(seen) > 1 for seen in headers):
                raise _changes(path)
    if demuxer == "mov" and _SEVERAL_DESCRIPTIONS.search(content):
        raise _changes(path)
    if not n_frames:
        raise BadImage(path, "it holds no frame", "truncated")
    return n_frames


def _changes(path: Path) -> BadImage:
    reason = "the size or the kind of its pixels changes within the video; convert each part to a file of its own"
    return BadImage(path, reason)


def _open(content: bytes, demuxer: str, codec: str | None, packets: bool = False) -> cv2.VideoCapture:
    """Open a video with one decoder; ``packets`` reads compressed packets in place of frames.

    Never call its ``release``, which frees the Python object of the bytes without holding the interpreter's lock.
    """
    options = {
        "input_format": demuxer,
        "protocol_whitelist": "none",
        "format_whitelist": demuxer,
        "codec_whitelist": ",".join(_CODECS),
        **({} if codec is None else {"video_codec": codec}),
    }
    wanted = {"OPENCV_FFMPEG_CAPTURE_OPTIONS": "|".join(f"{name};{value}" for name, value in options.items())}
    before = {name: os.environ.pop(name) for name in (*wanted, *_LOGGING) if name in os.environ}
    os.environ.update(wanted)
    try:
        settings = [cv2.CAP_PROP_N_THREADS, 1, *((cv2.CAP_PROP_FORMAT, -1) if packets else ())]
        stream: Any = io.BytesIO(content)  # OpenCV wraps any stream of Python; its annotations do not say so
        return cv2.VideoCapture(stream, cv2.CAP_FFMPEG, settings)
    finally:
        for name in wanted:
            del os.environ[name]
        os.environ.update(before)


@contextlib.contextmanager
def _complaints() -> Iterator[list[bytes]]:
    """Collect what FFmpeg writes to the standard error stream, its only sign that a frame was concealed or repaired."""
    found: list[bytes] = []
    reading, writing = os.pipe()
    if hasattr(os, "set_blocking"):  # on Windows from Python 3.12
        for end in (reading, writing):
            os.set_blocking(end, False)  # a full pipe drops the rest
    kept = os.dup(2)
    os.dup2(writing, 2)
    try:
        yield found
    finally:
        os.dup2(kept, 2)
        with contextlib.suppress(BlockingIOError):
            found.append(os.read(reading, 1 << 16))
        for end in (reading, writing, kept):
            os.close(end)
