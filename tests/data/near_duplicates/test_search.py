"""Copies planted in phantoms, where the truth is known."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.data.audit.conftest import write
from tests.data.near_duplicates.planting import (
    EXPORTS,
    KINDS,
    canvas,
    combined,
    cropped,
    dual,
    jpeg,
    regained,
    screenshot,
    squeezed_dual,
)
from tests.descriptions import described
from usvit.data.io.decoding import read_image
from usvit.data.io.types import UInt8
from usvit.data.near_duplicates import (
    ENOUGH_NEAR_DUPLICATES,
    MIN_SIMILARITY,
    NearDuplicate,
    clusters,
    describe,
    find_near_duplicates,
)
from usvit.data.near_duplicates.compact import CompactDescriptions
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import PlainProgress

pytestmark = pytest.mark.slow

PATIENTS = 20


@pytest.fixture(scope="module")
def phantom(tmp_path_factory) -> pd.DataFrame:
    """40 images of 20 patients, with their pixels."""
    root = write_phantom(PhantomSpec(n=2 * PATIENTS, size=200, seed=7), tmp_path_factory.mktemp("copies") / "phantom")
    table = pd.read_csv(root / "phantom.csv", keep_default_na=False)
    table["pixels"] = [read_image(root / path) for path in table.path]
    return table


@pytest.fixture(scope="module")
def originals(phantom: pd.DataFrame) -> list[UInt8]:
    """One image of each patient."""
    return phantom.drop_duplicates("patient_id").pixels.tolist()


def copies_of(images: list[UInt8]) -> list[NearDuplicate]:
    return find_near_duplicates([described(image) for image in images], PlainProgress())


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_copy_is_found_with_its_original_and_with_no_other(originals, kind):
    rng = np.random.default_rng(0)
    found = copies_of(originals + [KINDS[kind](image, rng) for image in originals])
    assert [(copy.first, copy.second) for copy in found] == [(n, n + PATIENTS) for n in range(PATIENTS)]
    expected = "identical" if kind == "copy" else "flipped" if "flip" in kind else "same frame"
    assert {copy.kind for copy in found} == {expected}
    assert min(copy.similarity for copy in found) > MIN_SIMILARITY + 0.1


def test_images_of_different_patients_are_no_copies(phantom):
    found = copies_of(phantom.pixels.tolist())
    assert found == []


HARD = {"28 x 28": 12, "cropped by 50 %": 10, "noise, sigma 25": 18}
"""Kind -> of 20, at least so many. All the others are found. The noise is stronger than the frames' own structure,
which departs from its surroundings by 14 to 22 grey levels, and images of 200 px are not averaged down."""


@pytest.mark.parametrize("kind", EXPORTS)
def test_each_kind_of_export_is_found_with_its_original_and_with_no_other(originals, kind):
    rng = np.random.default_rng(0)
    called, plant = EXPORTS[kind]
    found = copies_of(originals + [np.ascontiguousarray(plant(image, rng)) for image in originals])
    assert all(copy.second == copy.first + PATIENTS and copy.kind == called for copy in found)
    assert len(found) >= HARD.get(kind, PATIENTS)


@pytest.mark.parametrize("join", [dual, squeezed_dual])
def test_each_half_of_a_dual_view_is_found(originals, join):
    half = PATIENTS // 2
    views = [join(one, other) for one, other in zip(originals[:half], originals[half:], strict=True)]
    found = {(copy.first, copy.second - PATIENTS) for copy in copies_of(originals + views)}
    expected = {(n, n % half) for n in range(PATIENTS)}
    assert found <= expected
    assert len(found) >= 0.9 * len(expected)


@pytest.mark.parametrize("screen", [canvas, screenshot])
def test_screens_of_one_scanner_with_different_patients_are_no_copies(originals, screen):
    """Captions, bars and rulers are the same on all of them."""
    assert copies_of([screen(image, np.random.default_rng(3)) for image in originals]) == []


@pytest.mark.parametrize("side", [0.2, 0.3])
def test_an_inset_that_patients_share_makes_no_copies(originals, side):
    """A maker's logo, or a picture of the probe: textured as tissue is, and the same on every screen."""
    images = []
    for image in originals[1:]:
        length = round(side * min(image.shape[:2]))
        inset = Image.fromarray(originals[0][40:160, 40:160]).resize((length, length))
        images.append(image.copy())
        images[-1][-length - 4 : -4, -length - 4 : -4] = np.asarray(inset)
    assert copies_of(images) == []


def landmarks_within(image: UInt8, left: int, right: int, top: int, bottom: int) -> int:
    """Landmarks of an image of 200 x 200 px, all of which is textured, in a box of its pixels."""
    description = describe(image)
    x, y = description.landmarks[: len(description.hashes) - description.n_stretched, :2].T / 256 * 200
    return int(((x > left) & (x < right) & (y > top) & (y < bottom)).sum())


@pytest.mark.parametrize("ink", [(255, 255, 255), (255, 230, 0)])
def test_a_name_written_on_tissue_is_not_described_and_its_copy_is_found_all_the_same(originals, ink):
    kept, without_name = 0, 0
    for image in originals:
        written = write(image, "NOVAK 1957", (50, 90), ink=ink, size=16)
        changed = np.flatnonzero((written != image).any(axis=(0, 2)))
        kept += landmarks_within(written, changed[0], changed[-1], 90, 106)
        without_name += landmarks_within(image, changed[0], changed[-1], 90, 106)
        assert [(copy.first, copy.second) for copy in copies_of([image, written])] == [(0, 1)]
    assert kept <= 2
    assert without_name > 20  # there is texture to be described there


def test_a_copy_keeps_its_kind_and_is_listed_once_when_the_frame_is_its_own_mirror_image(originals):
    symmetric = np.concatenate([originals[0], originals[0][:, ::-1]], axis=1)
    found = copies_of([symmetric, jpeg(symmetric)])
    assert [(copy.first, copy.second) for copy in found] == [(0, 1)]


def test_a_large_set_of_copies_is_one_cluster(originals):
    rng = np.random.default_rng(1)
    many = [jpeg(regained(cropped(originals[3], 0.05, rng), rng)) for _ in range(60)]
    images = originals + many + [many[0]] * 30
    found = copies_of(images)
    number = clusters(len(images), found)
    assert len(found) < len(many) * (ENOUGH_NEAR_DUPLICATES + 1) + 30
    assert len(np.unique(number)) == PATIENTS
    assert set(number[PATIENTS:]) == {3}


def test_clusters_are_transitive_and_numbered_in_order_of_appearance():
    found = clusters(6, [NearDuplicate(1, 3, 0.9, "same frame"), NearDuplicate(3, 4, 0.9, "flipped")])
    assert found.tolist() == [0, 1, 2, 1, 1, 3]
    assert clusters(3, []).tolist() == [0, 1, 2]


def test_flat_and_nearly_empty_images_are_copies_only_where_their_pixels_are_equal(originals):
    black, grey = np.zeros((80, 90, 3), np.uint8), np.full((80, 90, 3), 90, np.uint8)
    dot, line = black.copy(), black.copy()
    dot[40:44, 40:44] = 200
    line[:, 60] = 255
    found = copies_of([black, grey, dot, line, black, np.zeros((40, 45, 3), np.uint8), originals[0]])
    assert [(copy.first, copy.second, copy.kind) for copy in found] == [(0, 4, "identical")]


def test_a_common_frame_of_black_does_not_make_copies(originals):
    boxed = []
    for image in originals:
        height, width = image.shape[:2]
        box = np.zeros((height, 2 * width, 3), np.uint8)
        box[:, width // 2 : width // 2 + width] = image
        boxed.append(box)
    assert copies_of(boxed) == []


@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (300, 2), (33, 40)])
def test_images_of_any_size_are_described(shape):
    image = np.random.default_rng(0).integers(0, 256, (*shape, 3), dtype=np.uint8)
    assert copies_of([image, image])[0].kind == "identical"


def test_a_description_is_small_has_no_pixels_and_is_always_the_same(originals):
    wide = np.concatenate([originals[0], originals[1]], axis=1)
    description, again = describe(wide), describe(wide.copy())
    assert description.n_stretched > 0
    assert len(CompactDescriptions.of([description]).to_bytes()) <= 2600
    assert CompactDescriptions.of([description]).to_bytes() == CompactDescriptions.of([again]).to_bytes()


def test_the_same_images_give_the_same_copies(originals):
    rng = np.random.default_rng(2)
    images = originals + [combined(image, rng) for image in originals]
    assert copies_of(images) == copies_of(images)


def test_no_images_have_no_copies():
    assert find_near_duplicates([], PlainProgress()) == []


@pytest.mark.slow
def test_busi_has_its_known_copies(real_data: Path):
    paths = sorted(path for path in (real_data / "Dataset_BUSI_with_GT").glob("*/*.png") if "_mask" not in path.name)
    images = [read_image(path) for path in paths]
    thumbnails = [
        np.asarray(Image.fromarray(image).convert("L").resize((32, 32), Image.Resampling.BILINEAR), dtype=float)
        for image in images
    ]
    correlation = np.corrcoef(np.reshape(thumbnails, (len(images), -1)))
    alike = {(i, j) for i, j in np.argwhere(np.triu(correlation > 0.999, 1)).tolist()}
    copies = copies_of(images)
    assert len(alike) == 19
    assert alike <= {(copy.first, copy.second) for copy in copies}
    sizes = np.bincount(clusters(len(images), copies))
    # A published audit by SSIM has 149 groups of 330 images (Aumente-Maestro et al. 2025, CMPB 108540).
    assert 140 <= (sizes > 1).sum() <= 160
    assert 320 <= sizes[sizes > 1].sum() <= 350
    assert sizes.max() <= 8
