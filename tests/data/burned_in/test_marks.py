"""Text and calipers: found where they were put, and not where they were not."""

import io
from collections.abc import Iterator

import cv2
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.data.audit.conftest import cross, tissue, write
from usvit.data.burned_in.marks import Look, brightness, components, crosses, has_calipers, has_text, outlines
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def marked_phantom(tmp_path_factory) -> Iterator[tuple[pd.DataFrame, list[np.ndarray]]]:
    spec = PhantomSpec(n=48, seed=11, size=256, text=0.5, calipers=0.5)
    folder = write_phantom(spec, tmp_path_factory.mktemp("marked") / "phantom")
    table = pd.read_csv(folder / "phantom.csv")
    return table, [read_image(folder / path) for path in table.path]


@pytest.mark.parametrize(("column", "finds"), [("text", has_text), ("calipers", has_calipers)])
def test_marks_planted_in_a_phantom_are_found_and_no_others(marked_phantom, column, finds):
    table, images = marked_phantom
    there, found = table[column].to_numpy(bool), np.array([finds(image) for image in images])
    assert there.sum() == 24
    assert found[there].mean() >= 0.92  # measured on 240: text 1.0, calipers 0.975
    assert found[~there].mean() <= 0.03  # measured: 0


@pytest.mark.parametrize("oblique", [False, True])
@pytest.mark.parametrize("thick", [1, 2, 3])
def test_two_crosses_are_calipers_and_one_is_not(oblique, thick):
    once = cross(tissue(1), 120, 90, thick=thick, oblique=oblique)
    assert not has_calipers(once)
    assert has_calipers(cross(once, 260, 170, thick=thick, oblique=oblique))


def test_crosses_are_found_where_they_stand():
    marked = cross(cross(tissue(2), 120, 90), 260, 170)
    assert np.abs(np.sort(crosses(brightness(marked), oblique=False), axis=0) - [(120, 90), (260, 170)]).max() <= 1


def test_yellow_calipers_count_and_faint_ones_do_not():
    clean = tissue(3)
    marked = cross(cross(clean, 120, 90), 260, 170)
    yellow = np.where((marked == 230).all(axis=2, keepdims=True), np.uint8([230, 230, 0]), marked)
    assert has_calipers(yellow)
    assert not has_calipers(cross(cross(clean, 120, 90, ink=100), 260, 170, ink=100))


def test_marks_survive_jpeg_and_a_large_image():
    marked = write(cross(cross(tissue(4), 120, 90), 260, 170), "RT UOQ", (40, 250))
    buffer = io.BytesIO()
    Image.fromarray(marked).save(buffer, "JPEG", quality=80)
    again = np.asarray(Image.open(buffer))
    large = np.asarray(Image.fromarray(marked).resize((1600, 1200), Image.Resampling.BICUBIC))
    for picture in (again, large):
        assert has_calipers(picture)
        assert has_text(picture)


@pytest.mark.parametrize("words", ["LT", "RT AXILLA", "rt3", "LEFT BREAST", "11"])
@pytest.mark.parametrize("mean", [40, 90])
def test_words_are_found_on_dark_and_on_bright_tissue(words, mean):
    assert has_text(write(tissue(5, mean=mean), words, (60, 200)))


def test_neither_tissue_nor_calipers_nor_one_letter_is_text():
    for seed in range(20):
        clean = tissue(seed, mean=60 + 4 * seed)
        assert not has_text(clean)
        assert not has_calipers(clean)
        assert not has_text(cross(cross(clean, 120, 90), 260, 170))
        assert not has_text(write(clean, "X", (60, 200)))


def test_letters_side_by_side_but_not_on_one_line_are_no_word():
    assert not has_text(write(write(tissue(6), "L", (60, 200)), "T", (70, 214)))


def test_the_smallest_images_are_looked_at_too():
    for shape in ((1, 1), (1, 40), (9, 9)):
        picture = np.zeros((*shape, 3), np.uint8)
        assert not has_text(picture)
        assert not has_calipers(picture)


@pytest.mark.parametrize("share", [0.001, 0.05, 0.2, 0.4, 0.7])
def test_each_component_has_one_outline_whatever_lies_in_its_holes(share):
    for seed in range(20):
        ink = (np.random.default_rng(seed).random((50, 70)) < share).astype(np.uint8)
        labels, boxes, _ = components(ink)
        assert (labels > 0).sum() == ink.sum()
        assert sorted(cv2.boundingRect(one) for one in outlines(ink)) == sorted(map(tuple, boxes[1:, :4].tolist()))
        assert sorted(int(labels[one[0, 0, 1], one[0, 0, 0]]) for one in outlines(ink)) == [*range(1, len(boxes))]
    assert outlines(np.zeros((5, 5), np.uint8)) == []


def test_components_are_those_of_opencv_s_own_choice_of_algorithm():
    for seed in range(20):
        ink = (np.random.default_rng(seed).random((50, 70)) < 0.3).astype(np.uint8)
        ours, theirs = components(ink)[1:], cv2.connectedComponentsWithStats(ink, connectivity=8)[2:]
        for one, other in zip(ours, theirs, strict=True):
            assert sorted(map(tuple, one.tolist())) == sorted(map(tuple, other.tolist()))


def test_a_look_answers_as_the_image_itself():
    marked = write(cross(cross(tissue(2), 120, 90), 260, 170), "RT UOQ", (40, 250))
    for picture in (marked, tissue(3)):
        look = Look(picture)
        assert has_text(look) == has_text(picture)
        assert has_calipers(look) == has_calipers(picture)
        assert Look.at(look) is look
        assert (look.spread == picture.max(axis=2) - picture.min(axis=2)).all()
