"""Words of every tone are seen before a picture is shown; the whole measurement is benchmarks/burned_in_text.py."""

import numpy as np
import pandas as pd
import pytest

from benchmarks.burned_in_text import INKS, drawn
from usvit.data.burned_in.marks import has_text
from usvit.data.burned_in.text import longest_row, may_show_words
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory):
    root = write_phantom(PhantomSpec(n=6, seed=11, size=400), tmp_path_factory.mktemp("p") / "p", workers=1)
    return [read_image(root / path) for path in pd.read_csv(root / "phantom.csv").path]


@pytest.mark.parametrize("ink", [name for name in INKS if name != "grey, 20 above"])
def test_names_of_every_tone_are_seen(phantoms, ink):
    rng = np.random.default_rng(3)
    there = [one for image in phantoms if (one := drawn(image, 16, ink, rng)) is not None]
    assert there and sum(map(may_show_words, there)) >= 0.8 * len(there)


def test_dark_words_are_what_the_audit_does_not_see(phantoms):
    rng = np.random.default_rng(4)
    there = [one for image in phantoms if (one := drawn(image, 12, "grey, 40 below", rng)) is not None]
    assert sum(map(has_text, there)) < sum(map(may_show_words, there))


def test_images_without_words_are_mostly_left_alone(phantoms):
    assert sum(map(may_show_words, phantoms)) <= len(phantoms) // 2


def test_a_row_is_of_letters_of_one_size_tone_and_line():
    row = np.array([[10 * k, 20.0, 8, 12, 90] for k in range(5)])
    assert longest_row(row) == 5
    assert longest_row(row[:0]) == 0
    for column, change in ((1, 9), (3, 30), (4, 60), (0, 500)):
        other = row.copy()
        other[2, column] += change
        assert longest_row(other) < 5
