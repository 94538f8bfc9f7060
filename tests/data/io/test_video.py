"""Videos: each container and codec, order and colours of the frames, and hostile files, which are refused."""

import multiprocessing
import socket
import sys
import threading

import numpy as np
import pytest

from tests.data.dicom_files import jpeg
from tests.data.io.videos import avi, grey_loop, shown, stream, uncompressed, written
from usvit.data.io import BadImage, PictureFile, decode, read_image, video_process
from usvit.data.io import video as video_module
from usvit.data.io.video_process import read_video

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="FFmpeg's log cannot be read")


def frames_of(content: bytes) -> np.ndarray:
    with PictureFile(content) as file:
        return np.stack([file.frame(number) for number in range(file.n_frames)])


def refusal(content: bytes, number: int = 0) -> BadImage:
    with pytest.raises(BadImage) as caught, PictureFile(content) as file:
        file.frame(number)
    return caught.value


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "n_frames"),
    [
        ("h264.mp4", 7),
        ("h264.mkv", 7),
        ("hevc.mp4", 7),
        ("h264 of variable rate.mp4", 5),
        ("h264 of full range.mp4", 3),
        ("hevc of full range.mp4", 3),
    ],
)
def test_h264_and_hevc_without_loss_show_each_frame_once_in_its_order_and_range(name, n_frames):
    """Grey of limited range is (Y - 16) 255/219, cut off to an integer; that of full range is exact."""
    seen, wanted = frames_of(stream(name)), shown(n_frames, full_range="full" in name)
    assert seen.shape == wanted.shape
    error = wanted - seen
    assert error.min() >= 0 and error.max() < (1e-9 if "full" in name else 1)
    assert (seen[..., 0] == seen[..., 1]).all() and (seen[..., 0] == seen[..., 2]).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "codec", "bound"),
    [
        ("a.avi", "FFV1", 0),
        ("a.mkv", "FFV1", 0),
        ("a.avi", "MJPG", 5),
        ("a.mov", "MJPG", 5),
        ("a.mp4", "mp4v", 8),
        ("a.avi", "XVID", 8),
        ("a.mpg", "PIM1", 8),
        ("a.mpg", "MPG2", 8),
    ],
)
def test_each_container_and_codec_gives_the_frames_that_were_written(tmp_path, file, codec, bound):
    wanted = grey_loop(5)
    seen = frames_of(written(tmp_path / file, codec, wanted))
    assert seen.shape == wanted.shape
    assert np.abs(seen.astype(int) - wanted).max() <= bound


@pytest.mark.slow
@pytest.mark.parametrize(("n_frames", "height", "width"), [(1, 48, 64), (4, 47, 61), (3, 33, 50), (2, 1, 1)])
def test_one_frame_and_odd_sizes(n_frames, height, width):
    wanted = grey_loop(n_frames, height, width)
    wanted[..., 0] //= 2
    assert (frames_of(uncompressed(wanted)) == wanted).all()
    packets = [jpeg(frame, "RGB") for frame in wanted]
    seen = frames_of(avi(packets, b"MJPG", height, width))
    assert seen.shape == wanted.shape


@pytest.mark.slow
def test_colours_are_red_green_and_blue(tmp_path):
    wanted = np.zeros((2, 48, 64, 3), np.uint8)
    wanted[..., 0], wanted[:, :, 32:, 1] = 200, 90
    assert (frames_of(written(tmp_path / "a.avi", "FFV1", wanted)) == wanted).all()


@pytest.mark.slow
def test_frames_are_the_same_in_any_order_and_in_each_process(tmp_path):
    path = tmp_path / "loop.bin"  # known by its content
    path.write_bytes(stream("h264.mp4"))
    inside = list(read_video(path, path.read_bytes(), "mov", 0))
    assert inside[0] == 7
    with PictureFile(path) as file:
        for number in (6, 0, 3, 3, 5, 1):
            assert (file.frame(number) == inside[1 + number]).all()
        with pytest.raises(BadImage, match="no frame 7"):
            file.frame(7)
    assert (decode(path, 4).pixels == inside[5]).all()
    with pytest.raises(BadImage) as caught:
        read_image(path)
    assert caught.value.code == "several_frames"
    late = [value is None for value in read_video(path, path.read_bytes(), "mov", 5)]
    assert late == [False, *[True] * 5, *[False] * 2]


@pytest.mark.slow
def test_a_video_is_decoded_in_another_process_that_ends_with_the_file(monkeypatch):
    monkeypatch.setattr(video_process, "_open", None)  # nothing is opened in this process
    before = set(multiprocessing.active_children())
    with PictureFile(stream("h264.mp4")) as file:
        assert file.frame(6).shape == (50, 66, 3)
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["HFYU", "ASV1"])
def test_another_codec_is_refused_with_the_format_to_convert_to(tmp_path, codec):
    error = refusal(written(tmp_path / "a.avi", codec, grey_loop(2)))
    assert error.code == "unsupported_codec"
    assert "H.264" in error.reason


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "codec"), [("a.avi", "FFV1"), ("a.mkv", "FFV1"), ("a.avi", "XVID"), ("a.mpg", "MPG2"), ("a.avi", "MJPG")]
)
def test_the_frames_before_the_damage_are_read_and_none_after_it(tmp_path, file, codec):
    content = written(tmp_path / file, codec, grey_loop(12, noise=40))
    good = frames_of(content)
    cut = len(content) * 2 // 3
    overwritten = content[:cut] + bytes(400) + content[cut + 400 :]
    for damaged in (content[:cut], *([overwritten] if codec in ("FFV1", "MPG2") else [])):  # others may not notice
        with PictureFile(damaged) as opened:
            outcomes = [_frame_or_code(opened, number) for number in range(opened.n_frames)]
        n_good = next((k for k, one in enumerate(outcomes) if isinstance(one, str)), len(outcomes))
        assert 3 <= n_good < 12
        assert all((one == good[k]).all() for k, one in enumerate(outcomes[:n_good]))
        assert set(outcomes[n_good:]) <= {"damaged", "truncated"}


def _frame_or_code(file: PictureFile, number: int) -> np.ndarray | str:
    try:
        return file.frame(number)
    except BadImage as error:
        return error.code


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h264.mp4", "hevc.mp4", "h264.mkv"])
@pytest.mark.parametrize("kept", [12, 40, 200, 0.5])
def test_a_truncated_header_is_refused(name, kept):
    content = stream(name)
    assert refusal(content[: int(kept * len(content)) if kept < 1 else kept]).code in ("damaged", "truncated")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h264.mp4", "h264.mkv"])
def test_a_number_of_frames_that_the_header_claims_is_not_believed(name):
    content = bytearray(stream(name))
    if name.endswith("mp4"):
        place = content.index(b"stsz") + 12
        content[place : place + 4] = (10**9).to_bytes(4, "big")
        content[(place := content.index(b"mvhd") + 20) : place + 4] = b"\x7f\xff\xff\xff"
    error = None
    try:
        with PictureFile(bytes(content)) as file:
            assert file.n_frames == 7
    except BadImage as caught:
        error = caught
    assert error is None or error.code in ("damaged", "truncated", "crashed", "too_large")


@pytest.mark.slow
def test_a_size_that_changes_is_refused(tmp_path):
    both = stream("h264.h264") + stream("h264 of another size.h264")
    *_, last = read_video(tmp_path / "a", both, "h264", 0)
    assert isinstance(last, BadImage) and "changes" in last.reason
    packets = [jpeg(grey_loop(1, side, side)[0], "RGB") for side in (64, 64, 32)]
    error = refusal(avi(packets, b"MJPG", 64, 64))
    assert error.code == "damaged" and "changes" in error.reason


@pytest.mark.slow
def test_too_many_pixels_bytes_or_frames_are_refused(tmp_path, monkeypatch):
    assert refusal(avi([b"x"], b"FFV1", 50_000, 50_000)).code == "too_large"
    (tmp_path / "a").touch()
    many = avi([b""] * 300, b"MJPG", 64, 64)
    monkeypatch.setattr(video_process, "_MOST_FRAMES", 200)
    *_, last = read_video(tmp_path / "a", many, "avi", 0)
    assert last.code in ("too_large", "truncated")
    monkeypatch.setattr(video_module, "MOST_BYTES", 1000)
    assert refusal(stream("h264.mp4")).code == "too_large"


@pytest.mark.parametrize(
    "content",
    [
        b"#EXTM3U\n#EXT-X-VERSION:3\n#EXTINF:10,\n{url}\n",
        b"ffconcat version 1.0\nfile '{path}'\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n",
        b"<MPD><BaseURL>{url}</BaseURL></MPD>",
        b"RTSPtext\r\n{url}",
    ],
)
def test_a_playlist_is_no_video(tmp_path, content):
    for name in ("a.mp4", "a.avi"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadImage) as caught:
            read_image(tmp_path / name, 0)
        assert caught.value.code == "not_an_image"


@pytest.mark.slow
def test_nothing_inside_a_video_opens_another_file_or_an_address(tmp_path):
    """Even a playlist that is given to the decoder directly, with each demuxer, and an MP4 that refers to a file."""
    (tmp_path / "secret.mp4").write_bytes(stream("h264.mp4"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        called = threading.Event()

        def serve() -> None:
            try:
                server.accept()[0].close()
            except OSError:
                return
            called.set()

        threading.Thread(target=serve, daemon=True).start()
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.mp4"
        for target in (address, f"file:{tmp_path}/secret.mp4", f"subfile,,start,0,end,0,,:{tmp_path}/secret.mp4"):
            playlist = f"#EXTM3U\n#EXTINF:10,\n{target}\n#EXT-X-ENDLIST\n"
            for text in (playlist, f"ffconcat version 1.0\nfile '{target}'\n"):
                for demuxer in ("mov", "avi", "matroska", "mpeg", "mpegvideo", "mpegts", "h264", "hevc"):
                    *_, last = read_video(tmp_path / "a", text.encode(), demuxer, 0)
                    assert isinstance(last, BadImage)
        content = stream("h264.mp4")
        place = content.index(b"url \0\0\0\1")
        referring = content[:place] + b"url \0\0\0\0" + content[place + 8 :]
        for value in read_video(tmp_path / "a", referring, "mov", 0):
            assert value is not None
        assert not called.wait(0.2)
