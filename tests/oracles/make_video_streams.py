"""Make ``video_streams.json``: H.264 and HEVC without loss, which no encoder that usvit may depend on writes.

It runs in an environment with PyAV, whose wheels hold x264 and x265 (GPL; they are neither a dependency nor in the
result): ``python -m tests.oracles.make_video_streams``. The pixels are the formula ``luma``, so tests need no decoder
to know them.
"""

import base64
import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

TARGET = Path(__file__).with_name("video_streams.json")
HEIGHT, WIDTH = 50, 66


def luma(number: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """Return the luma of a frame, (H, W) uint8 within 16 to 235."""
    y, x = np.mgrid[:height, :width]
    return (16 + 2 * x + y + 6 * number).astype(np.uint8)


def encoded(codec: str, container: str, n_frames: int, full: bool = False, times: Any = range, **size: int) -> bytes:
    """Encode frames without loss, B-frames included."""
    import av  # not a dependency

    written = io.BytesIO()
    with av.open(written, "w", format=container) as file:
        options = {"qp": "0", "bf": "2"} if codec == "libx264" else {}
        if codec == "libx265":
            options["x265-params"] = f"lossless=1:bframes=2:range={'full' if full else 'limited'}:log-level=none"
        stream = file.add_stream(codec, rate=25, options=options)
        stream.height, stream.width = size.get("height", HEIGHT), size.get("width", WIDTH)
        stream.pix_fmt = "yuv420p"
        for number, time in enumerate(times(n_frames)):
            frame = av.VideoFrame(stream.width, stream.height, "yuv420p")
            for k, plane in enumerate(frame.planes):
                rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
                rows[:] = 128
                if k == 0:
                    rows[:, : stream.width] = luma(number, stream.height, stream.width)
            frame.pts, frame.time_base = time, Fraction(1, 25)
            frame.color_range = stream.codec_context.color_range = 2 if full else 1
            file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    return written.getvalue()


def main() -> None:
    """Write the file."""
    streams = {
        "h264.mp4": encoded("libx264", "mp4", 7),
        "h264 of full range.mp4": encoded("libx264", "mp4", 3, full=True),
        "h264 of variable rate.mp4": encoded("libx264", "mp4", 5, times=lambda n: [0, 1, 9, 10, 40][:n]),
        "h264.h264": encoded("libx264", "h264", 7),
        "h264 of another size.h264": encoded("libx264", "h264", 2, height=32, width=32),
        "h264.mkv": encoded("libx264", "matroska", 7),
        "h264.ts": encoded("libx264", "mpegts", 7),
        "hevc.mp4": encoded("libx265", "mp4", 7),
        "hevc of full range.mp4": encoded("libx265", "mp4", 3, full=True),
        "hevc.hevc": encoded("libx265", "hevc", 7),
    }
    TARGET.write_text(json.dumps({name: base64.b64encode(data).decode() for name, data in streams.items()}, indent=1))


if __name__ == "__main__":
    main()
