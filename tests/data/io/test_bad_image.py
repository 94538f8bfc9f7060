import errno
import pickle
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import save
from tests.data.io.pictures import GREY, packed, png_header, refused
from usvit.data.io.bad_image import BadImage, refusing
from usvit.data.io.decoding import read_image
from usvit.files import DiskError, disk_errors


@pytest.mark.parametrize(
    ("name", "content", "code"),
    [
        ("cut.png", packed("PNG")[:2000], "truncated"),
        ("cut.jpg", packed("JPEG")[:1000], "truncated"),
        ("begun.png", packed("PNG")[:12], "damaged"),
        ("bomb.png", png_header(30_000, 30_000), "too_large"),
        ("text.png", b"no image", "not_an_image"),
        ("minutes.bmp", b"BMI of the patients", "not_an_image"),
    ],
)
def test_a_bad_image_has_a_code(tmp_path, name, content, code):
    (tmp_path / name).write_bytes(content)
    assert refused(tmp_path / name).code == code


def test_a_full_disk_is_not_called_a_damaged_image(tmp_path):
    """As if a result was written while its image was open."""
    with (
        pytest.raises(DiskError, match=r"^No space left on the disk while writing .*out"),
        refusing(tmp_path / "image.png"),
        disk_errors(tmp_path / "out"),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_what_cannot_be_opened_has_a_code(tmp_path):
    assert refused(tmp_path / "gone").code == "not_found"
    (tmp_path / "folder.png").mkdir()
    assert refused(tmp_path / "folder.png").code == "unreadable"
    with pytest.raises(BadImage) as caught:
        read_image(save(GREY, tmp_path / "still.png"), 4)
    assert caught.value.code == "no_such_frame"
    assert refused(save(GREY.astype(np.int32) - 99, tmp_path / "raw.tif")).code == "unknown_range"


def test_a_bad_image_survives_the_way_from_another_process():
    again = pickle.loads(pickle.dumps(BadImage(Path("a.png"), "it is gone", "not_found")))
    assert (again.path, again.reason, again.code) == (Path("a.png"), "it is gone", "not_found")
    assert "a.png: it is gone." in str(again)
