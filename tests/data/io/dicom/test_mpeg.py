"""Videos encapsulated in DICOM: the transfer syntaxes of MPEG-2, H.264 and HEVC."""

import numpy as np
import pytest
from pydicom import uid

from tests.data.io.videos import encapsulated, grey_loop, shown, stream, written
from usvit.data.io import BadImage, DicomFile
from usvit.data.io.dicom import mpeg


def frames_of(content: bytes) -> np.ndarray:
    with DicomFile(content) as file:
        return np.stack([file.frame(number) for number in range(file.facts.frames)])


def refusal(content: bytes) -> BadImage:
    with pytest.raises(BadImage) as caught:
        frames_of(content)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "syntax"),
    [
        ("h264.mp4", uid.MPEG4HP41),
        ("h264.h264", uid.MPEG4HP41BD),
        ("h264.ts", uid.MPEG4HP422D),
        ("h264.h264", uid.MPEG4HP42STEREOF),
        ("hevc.hevc", uid.HEVCMP51),
        ("hevc.mp4", uid.HEVCM10P51),
    ],
)
@pytest.mark.parametrize("parts", [1, 3])
def test_a_video_shows_its_frames_whatever_container_and_fragments_it_has(name, syntax, parts):
    error = shown(7) - frames_of(encapsulated(stream(name), syntax, 7, parts=parts))
    assert error.min() >= 0 and error.max() < 1


@pytest.mark.slow
@pytest.mark.parametrize("syntax", [uid.MPEG2MPML, uid.MPEG2MPMLF, uid.MPEG2MPHL])
def test_mpeg_2_as_a_program_stream(tmp_path, syntax):
    wanted = grey_loop(5)
    seen = frames_of(encapsulated(written(tmp_path / "a.mpg", "MPG2", wanted), syntax, 5, (48, 64)))
    assert np.abs(seen.astype(int) - wanted).max() <= 8


@pytest.mark.slow
def test_claims_that_the_video_does_not_keep_are_refused(monkeypatch):
    video = stream("h264.mp4")
    few = refusal(encapsulated(video, uid.MPEG4HP41, 8))
    assert few.code == "damaged" and "7 frames, but claims 8" in few.reason
    assert refusal(encapsulated(video, uid.MPEG4HP41, 2_000_000_000)).code == "damaged"
    assert "another size" in refusal(encapsulated(video, uid.MPEG4HP41, 7, (66, 50))).reason
    assert refusal(encapsulated(video[: len(video) // 2], uid.MPEG4HP41, 7)).code in ("damaged", "truncated")
    for text in (b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1/a\n", b"ffconcat version 1.0\n", b"\0" * 500):
        assert "not a video" in refusal(encapsulated(text, uid.MPEG4HP41, 1)).reason
    assert len(frames_of(encapsulated(video, uid.MPEG4HP41, 3))) == 3
    monkeypatch.setattr(mpeg, "MOST_BYTES", 1000)
    assert refusal(encapsulated(video, uid.MPEG4HP41, 7)).code == "too_large"
