import dataclasses

import numpy as np
import pytest

from usvit.data.phantom import RenderedImage, render_image, sample_patient
from usvit.data.phantom.lesion import outline
from usvit.data.phantom.render import cut_lesion

pytestmark = pytest.mark.slow

SIZE = 128
PATIENTS = 20


def render(number: int, malignant: bool, with_lesion: bool = True, **signs: float) -> RenderedImage:
    patient = sample_patient(3, number, malignant)
    if signs:
        lesion = dataclasses.replace(patient.lesion, signs=dataclasses.replace(patient.lesion.signs, **signs))
        patient = dataclasses.replace(patient, lesion=lesion)
    return render_image(patient, 1, size=SIZE, with_lesion=with_lesion)


@pytest.fixture(scope="module")
def benign() -> list[RenderedImage]:
    return [render(number, malignant=False) for number in range(PATIENTS)]


@pytest.fixture(scope="module")
def malignant() -> list[RenderedImage]:
    return [render(number, malignant=True) for number in range(PATIENTS)]


@pytest.fixture(scope="module")
def without() -> list[RenderedImage]:
    return [render(number, malignant=False, with_lesion=False) for number in range(PATIENTS)]


def box(mask: np.ndarray) -> tuple[slice, slice]:
    rows, columns = (np.flatnonzero(mask.any(axis=axis)) for axis in (1, 0))
    return slice(rows[0], rows[-1] + 1), slice(columns[0], columns[-1] + 1)


def below(mask: np.ndarray) -> tuple[slice, slice]:
    """Rows under a lesion, and the columns of its middle half."""
    rows, columns = box(mask)
    quarter = (columns.stop - columns.start) // 4
    return slice(rows.stop + 3, min(rows.stop + 28, SIZE)), slice(columns.start + quarter, columns.stop - quarter)


def posterior_contrast(shown: RenderedImage) -> float:
    """Grey value below the lesion minus that of the same depth to both sides."""
    rows, columns = below(shown.mask)
    _, whole = box(shown.mask)
    sides = np.ones(SIZE, bool)
    sides[max(0, whole.start - 5) : whole.stop + 5] = False
    return float(shown.image[rows, columns].mean() - shown.image[rows][:, sides].mean())


def test_malignant_lesions_shadow_and_benign_ones_enhance_on_average(benign, malignant):
    enhanced = [posterior_contrast(shown) for shown in benign]
    shadowed = [posterior_contrast(shown) for shown in malignant]
    assert np.mean(enhanced) > 2
    assert np.mean(shadowed) < -8
    assert max(shadowed) > min(enhanced), "the classes should overlap"


def test_shadow_comes_from_the_attenuation_and_from_nothing_else(without):
    shifts = {}
    for posterior in (-0.6, 0.0, 0.6):
        shown = [render(number, malignant=True, posterior=posterior) for number in range(8)]
        shifts[posterior] = np.mean(
            [
                s.image[below(s.mask)].mean() - plain.image[below(s.mask)].mean()
                for s, plain in zip(shown, without, strict=False)
            ]
        )
    assert shifts[0.6] < -10 < shifts[0.0] < 10 < shifts[-0.6]


def test_nearly_all_lesions_are_darker_than_the_tissue_they_replace(benign, malignant, without):
    darker = [
        shown.image[shown.mask].mean() < plain.image[shown.mask].mean()
        for shown, plain in zip(benign + malignant, without + without, strict=True)
    ]
    assert np.mean(darker) > 0.85


def test_taller_than_wide_speaks_for_malignancy_with_overlap(benign, malignant):
    def aspect(shown: RenderedImage) -> float:
        rows, columns = box(shown.mask)
        return (rows.stop - rows.start) / (columns.stop - columns.start)

    wide, tall = [aspect(shown) for shown in benign], [aspect(shown) for shown in malignant]
    assert np.mean(wide) < 0.9
    assert np.mean(tall) > np.mean(wide) + 0.15
    assert max(wide) > min(tall)


def test_masks_lie_inside_the_image_and_have_the_size_of_the_lesion(benign, malignant):
    for shown in benign + malignant:
        rows, columns = box(shown.mask)
        assert rows.start > 3
        assert columns.start > 3
        assert rows.stop < 0.85 * SIZE  # tissue is left below to shadow
        assert columns.stop < SIZE - 3
        diameter = np.sqrt(shown.mask.sum() * 4 / np.pi) / SIZE
        assert 0.14 < diameter < 0.37


def test_area_does_not_depend_on_the_signs():
    for number in range(30):
        for malignant in (False, True):
            lesion = cut_lesion(sample_patient(3, number, malignant), 1)
            area = np.pi * np.mean(outline(lesion, 40.0) ** 2)
            assert area == pytest.approx(np.pi * (lesion.diameter * 20.0) ** 2, rel=1e-6)


def test_the_lesion_changes_its_own_columns_and_no_other(benign, malignant, without):
    reach = round(5.5 / 30 * SIZE)  # halo, beam and shadow's edge, in px of the narrowest field of view
    for shown, plain in zip(benign + malignant, without + without, strict=True):
        _, columns = box(shown.mask)
        elsewhere = np.ones(SIZE, bool)
        elsewhere[max(0, columns.start - reach) : columns.stop + reach] = False
        difference = shown.image[:, elsewhere].astype(int) - plain.image[:, elsewhere]
        assert abs(difference).max(initial=0) <= 1  # rounding of the FFT


def test_without_a_lesion_the_class_leaves_no_trace():
    for number in range(3):
        images = [render(number, malignant, with_lesion=False) for malignant in (False, True)]
        assert np.array_equal(images[0].image, images[1].image)
        assert not images[0].mask.any()


def test_images_use_the_grey_scale_without_saturating(benign, malignant, without):
    for shown in benign + malignant + without:
        assert shown.image.dtype == np.uint8
        assert shown.mask.dtype == bool
        assert (shown.image == 255).mean() < 0.05
        assert 30 < shown.image.mean() < 140
        assert shown.image.std() > 15


def test_views_show_the_same_lesion_in_other_speckle():
    patient = sample_patient(3, 0, malignant=False)
    first, second = (render_image(patient, view, size=SIZE, with_lesion=True) for view in (1, 2))
    assert (first.image != second.image).mean() > 0.8
    assert 0.75 < first.mask.sum() / second.mask.sum() < 1.35
    overlap = (first.mask & second.mask).sum() / (first.mask | second.mask).sum()
    assert 0.3 < overlap < 1


@pytest.mark.parametrize("size", [64, 100, 300])
def test_every_size_shows_the_same_anatomy(size):
    patient = sample_patient(3, 1, malignant=True)
    shown = render_image(patient, 1, size=size, with_lesion=True)
    assert shown.image.shape == shown.mask.shape == (size, size)
    rows, columns = np.nonzero(shown.mask)
    lesion = cut_lesion(patient, 1)
    assert rows.mean() / size == pytest.approx(lesion.depth, abs=0.05)
    assert columns.mean() / size == pytest.approx(lesion.across, abs=0.05)
