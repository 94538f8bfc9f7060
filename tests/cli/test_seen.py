"""First weights that have seen copies of the test images: refused by the command, and told by the report."""

import re
import shutil

import pytest
from PIL import Image

from tests.conftest import TINY
from tests.data.near_duplicates.planting import jpeg
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom

QUESTION = "Were the initial weights trained on one of the test images, or on a near-duplicate of one?"


@pytest.fixture(scope="module")
def phantom(tmp_path_factory):
    return write_phantom(PhantomSpec(n=36, size=192, seed=3), tmp_path_factory.mktemp("data") / "phantom", workers=1)


def answered(run):
    """The report's row on the first weights, as text."""
    page = (run / "report.html").read_text()
    return " ".join(re.sub(r"<[^>]*>", " ", page[page.index(QUESTION) :][:1500]).split())


@pytest.mark.slow
def test_weights_that_saw_jpeg_copies_of_the_test_images_are_refused_and_others_are_reported(usvit, phantom, tmp_path):
    first, again = tmp_path / "first", shutil.copytree(phantom, tmp_path / "again")
    for path in (path for path in again.rglob("*.png") if "mask" not in path.name):
        Image.fromarray(jpeg(read_image(path), 95)).save(path)
    train = ("train", "--dataset", "phantom", *TINY, "--data-root")
    answer = usvit(*train, phantom, "--out", first)
    assert answer.code == 0, answer.err

    answer = usvit(*train, again, "--weights", first / "fold-0", "--seed", 5, "--out", tmp_path / "second")
    assert answer.code == 2 and not (tmp_path / "second" / "fold-0").exists()
    said = " ".join(answer.err.split())
    assert "has seen images of" in said and "are near-duplicates with other pixels) that would be its test" in said

    answer = usvit(*train, again, "--weights", first / "fold-0", "--out", tmp_path / "clean")  # the same split
    assert answer.code == 0, answer.err
    assert "passed" in answered(tmp_path / "clean") and "No near-duplicate found: " in answered(tmp_path / "clean")

    bare = shutil.copy(first / "fold-0" / "model.safetensors", tmp_path / "bare.safetensors")
    answer = usvit(*train, phantom, "--weights", bare, "--out", tmp_path / "on-bare")
    assert answer.code == 0, answer.err
    assert "not known" in answered(tmp_path / "on-bare")
    assert "passed" not in answered(tmp_path / "on-bare").split("Was each test image")[0]
