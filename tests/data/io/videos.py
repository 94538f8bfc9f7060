"""Small videos, and the grey values that their frames must have."""

import base64
import json
import struct
from pathlib import Path

import cv2
import numpy as np
from pydicom.encaps import encapsulate
from pydicom.uid import UID

from tests.conftest import REPOSITORY
from tests.data.dicom_files import Kind, as_bytes, dataset
from tests.oracles.make_video_streams import luma

_STREAMS = json.loads((REPOSITORY / "tests" / "oracles" / "video_streams.json").read_text())


def stream(name: str) -> bytes:
    """H.264 or HEVC without loss."""
    return base64.b64decode(_STREAMS[name])


def shown(n_frames: int, full_range: bool = False) -> np.ndarray:
    """(frames, H, W, 3): what the frames of ``stream`` must show, by ITU-R BT.601 and not rounded."""
    values = np.stack([luma(number) for number in range(n_frames)]).astype(float)
    grey = values if full_range else ((values - 16) * 255 / 219).clip(0, 255)
    return np.repeat(grey[..., None], 3, axis=-1)


def grey_loop(n_frames: int, height: int = 48, width: int = 64, noise: int = 0) -> np.ndarray:
    """(frames, H, W, 3) uint8, each frame another one."""
    y, x = np.mgrid[:height, :width]
    grey = np.stack([20 + 2 * x + y + 7 * number for number in range(n_frames)])
    grey = grey + np.random.default_rng(7).integers(0, noise + 1, grey.shape)
    return np.repeat(grey.clip(0, 255).astype(np.uint8)[..., None], 3, axis=-1)


def written(path: Path, codec: str, frames: np.ndarray) -> bytes:
    """Write a video with OpenCV, and return its bytes."""
    writer = cv2.VideoWriter(str(path), cv2.CAP_FFMPEG, cv2.VideoWriter.fourcc(*codec), 25, frames.shape[2:0:-1])
    assert writer.isOpened()
    for frame in frames:
        writer.write(np.ascontiguousarray(frame[..., ::-1]))
    writer.release()
    return path.read_bytes()


def avi(packets: list[bytes], codec: bytes, height: int, width: int, bits: int = 24) -> bytes:
    """An AVI without an index: packets of any kind, and any claim of their size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    main = struct.pack("<14I", 40_000, 0, 0, 0, len(packets), 0, 1, 0, width, height, 0, 0, 0, 0)
    track = b"vids" + codec + struct.pack("<IHHIIIIIIII4H", 0, 0, 0, 0, 1, 25, 0, len(packets), 0, 0, 0, *[0] * 4)
    pixels = struct.pack("<IiiHH4sIiiII", 40, width, height, 1, bits, codec, 0, 0, 0, 0, 0)
    streams = chunk(b"LIST", b"strl" + chunk(b"strh", track) + chunk(b"strf", pixels))
    head = chunk(b"LIST", b"hdrl" + chunk(b"avih", main) + streams)
    return chunk(b"RIFF", b"AVI " + head + chunk(b"LIST", b"movi" + b"".join(chunk(b"00dc", one) for one in packets)))


def uncompressed(frames: np.ndarray) -> bytes:
    """An AVI of (frames, H, W, 3) as bitmaps: rows from the bottom, of a multiple of four bytes, blue first."""
    n_frames, height, width, _ = frames.shape
    rows = np.zeros((n_frames, height, -(-width * 3 // 4) * 4), np.uint8)
    rows[:, :, : width * 3] = frames[:, ::-1, :, ::-1].reshape(n_frames, height, -1)
    return avi([one.tobytes() for one in rows], b"\0\0\0\0", height, width)


def encapsulated(video: bytes, syntax: str, frames: int, shape: tuple[int, int] = (50, 66), parts: int = 1) -> bytes:
    """A DICOM file of a video in ``parts`` fragments."""
    data = dataset(Kind("YBR_PARTIAL_420", 8), frames, UID(syntax), *shape)
    data.NumberOfFrames = frames
    step = -(-len(video) // parts) // 2 * 2 + 2
    pieces = [video[start : start + step] for start in range(0, len(video), step)]
    data.add_new("PixelData", "OB", encapsulate(pieces, has_bot=False))
    data["PixelData"].is_undefined_length = True
    return as_bytes(data)
