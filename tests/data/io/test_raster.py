import io

import pytest
from PIL import Image

from tests.data.conftest import speckle
from usvit.data.io.bad_image import BadImage
from usvit.data.io.raster import PictureFile


def test_pages_are_read_from_bytes_in_any_order_and_a_bad_one_leaves_the_others():
    buffer = io.BytesIO()
    pages = [Image.fromarray(speckle(seed)) for seed in range(3)]
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:], compression="tiff_lzw")
    with PictureFile(buffer.getvalue()) as picture:
        assert picture.n_frames == 3
        for frame in (2, 0, 1, 1):
            assert (picture.frame(frame) == speckle(frame)[:, :, None]).all()
        with pytest.raises(BadImage, match="no frame 3"):
            picture.frame(3)
        assert (picture.frame(2) == speckle(2)[:, :, None]).all()


def test_the_previews_in_a_jpeg_are_no_frames(tmp_path):
    frames = [Image.fromarray(speckle(seed)) for seed in range(3)]
    frames[0].save(tmp_path / "a.jpg", "MPO", save_all=True, append_images=frames[1:], quality=100)
    with PictureFile(tmp_path / "a.jpg") as picture:
        assert picture.n_frames == 1
        assert abs(picture.frame().astype(int) - speckle(0)[:, :, None]).max() <= 4
