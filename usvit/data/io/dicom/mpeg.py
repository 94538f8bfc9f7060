"""Open the video that the pixel data of an MPEG transfer syntax hold (PS3.5 8.2.5 to 8.2.13 and A.4.5 to A.4.11)."""

import re

from pydicom import uid

from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom.fragments import find_frames, read_frame
from usvit.data.io.dicom.header import Header, PixelElement
from usvit.data.io.dicom.layout import Layout
from usvit.data.io.video import MOST_BYTES, VideoFrames

_HEVC = (uid.HEVCMP51, uid.HEVCM10P51)
_CONTAINERS = {
    "mov": rb".{4}ftyp",
    "mpeg": rb"\0\0\x01\xba",
    "mpegvideo": rb"\0\0\x01\xb3",
    "mpegts": rb"\x47.{187}\x47",
}
"""FFmpeg's demuxer -> first bytes of the stream."""
_BARE = re.compile(rb"\0{2,3}\x01[\0-\x7f]")
"""Start code of a NAL unit: a stream of H.264 or HEVC without a container."""


def open_video(header: Header, pixels: PixelElement, layout: Layout) -> VideoFrames:
    """Open the video of a file; all fragments together are one stream.

    Raises:
        BadImage: The stream is ``truncated``, ``damaged`` or ``too_large``, or holds fewer frames than the header
            claims.
    """
    (fragments,) = find_frames(header, pixels, 1)
    if sum(fragment.length for fragment in fragments) > MOST_BYTES:
        raise BadImage(header.path, f"it has more than {MOST_BYTES:,} bytes of video", "too_large")
    content = read_frame(header.source, fragments)
    demuxer = next((name for name, head in _CONTAINERS.items() if re.match(head, content, re.DOTALL)), None)
    if demuxer is None and _BARE.match(content):
        demuxer = "hevc" if header.syntax in _HEVC else "h264"
    if demuxer is None:
        raise BadImage(header.path, "its pixels are not a video of its transfer syntax")
    video = VideoFrames(header.path, content, demuxer)
    if video.n_frames < layout.frames:
        video.close()
        raise BadImage(header.path, f"it has pixels for {video.n_frames} frames, but claims {layout.frames}")
    return video
