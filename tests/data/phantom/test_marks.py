import numpy as np
import pytest

from usvit.data.phantom import render_image, sample_patient
from usvit.data.phantom.marks import INK, burn_calipers, burn_text, near_duplicate
from usvit.data.phantom.render import cut_lesion

SIZE = 128


@pytest.fixture(scope="module")
def patient():
    return sample_patient(0, 4, malignant=False)


@pytest.fixture(scope="module")
def shown(patient):
    return render_image(patient, 1, size=SIZE, with_lesion=True)


def test_text_is_bright_lies_at_the_upper_or_lower_edge_and_leaves_the_rest(shown):
    marked = burn_text(shown.image, 7.5, np.random.default_rng(0))
    changed = marked != shown.image
    assert 40 < changed.sum() < 0.1 * changed.size
    assert marked[changed].mean() > shown.image[changed].mean() + 30
    assert not changed[SIZE // 8 : -SIZE // 8].any()


def test_calipers_sit_on_the_margin_of_the_lesion(patient, shown):
    marked = burn_calipers(shown.image, cut_lesion(patient, 1))
    changed = marked != shown.image
    assert changed.any()
    assert (marked[changed] == INK).all()
    rows, columns = np.nonzero(changed)
    lesion_rows, lesion_columns = np.nonzero(shown.mask)
    for mark, lesion in ((rows, lesion_rows), (columns, lesion_columns)):
        assert abs(mark.min() - lesion.min()) <= 8
        assert abs(mark.max() - lesion.max()) <= 8


def test_calipers_do_not_ask_whether_there_is_a_lesion(patient, shown):
    plain = render_image(patient, 1, size=SIZE, with_lesion=False).image
    marks = [burn_calipers(image, cut_lesion(patient, 1)) == INK for image in (shown.image, plain)]
    natural = (shown.image == INK) | (plain == INK)
    assert np.array_equal(marks[0] & ~natural, marks[1] & ~natural)


def test_a_near_duplicate_looks_the_same_and_is_not(shown):
    for seed in range(10):
        image, mask = near_duplicate(shown.image, shown.mask, np.random.default_rng(seed))
        assert image.shape == shown.image.shape
        assert image.dtype == np.uint8
        assert (image != shown.image).mean() > 0.3
        coarse = [a.reshape(16, 8, 16, 8).mean(axis=(1, 3)).ravel() for a in (image, shown.image)]
        assert np.corrcoef(*coarse)[0, 1] > 0.9
        assert (mask & shown.mask).sum() / (mask | shown.mask).sum() > 0.7


def test_marks_leave_their_input_alone(patient, shown):
    before = shown.image.copy()
    burn_text(shown.image, 9.0, np.random.default_rng(1))
    burn_calipers(shown.image, cut_lesion(patient, 1))
    near_duplicate(shown.image, shown.mask, np.random.default_rng(1))
    assert np.array_equal(before, shown.image)
