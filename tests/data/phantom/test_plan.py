from collections import Counter

import numpy as np
import pytest
from scipy.stats import mannwhitneyu

from usvit.data.phantom import PhantomSpec
from usvit.data.phantom.plan import draw_patient, plan_patients
from usvit.data.phantom.spec import CLASS_SHARE


@pytest.mark.parametrize("n", [3, 4, 5, 7, 24, 25, 240, 2001])
def test_exactly_n_images_of_patients_with_one_to_three_views_and_one_class(n):
    patients = plan_patients(PhantomSpec(n=n))
    assert sum(map(len, patients)) == n
    for views in patients:
        assert [planned.view for planned in views] == list(range(1, len(views) + 1))
        assert len(views) <= 3
        assert len({planned.label for planned in views}) == 1
    assert {views[0].label for views in patients} == set(CLASS_SHARE)
    assert len({planned.image_id for views in patients for planned in views}) == n


@pytest.mark.parametrize("seed", range(5))
def test_class_shares_hold_to_within_a_patient(seed):
    patients = plan_patients(PhantomSpec(n=240, seed=seed))
    counts = Counter(views[0].label for views in patients)
    for label, share in CLASS_SHARE.items():
        assert abs(counts[label] - share * len(patients)) <= 1
        assert counts[label] >= 5 * 4, "five folds want several patients of each class"


def test_number_of_views_and_order_do_not_tell_the_class():
    patients = plan_patients(PhantomSpec(n=2000, seed=1))
    label = np.array([views[0].label for views in patients])
    for other in ("malignant", "normal"):
        for value in (np.array([len(views) for views in patients]), np.arange(len(patients))):
            assert mannwhitneyu(value[label == "benign"], value[label == other]).pvalue > 0.01


def test_ids_do_not_reveal_the_label():
    planned = [view for views in plan_patients(PhantomSpec()) for view in views]
    assert planned[0].image_id == "p001-v1"
    assert not any(label in view.image_id for view in planned for label in CLASS_SHARE)


def test_more_than_a_thousand_patients_keep_ids_that_sort():
    ids = [views[0].patient_id for views in plan_patients(PhantomSpec(n=2400))]
    assert ids == sorted(ids)


@pytest.mark.parametrize(("fraction", "copies"), [(0.0, 0), (0.1, 24), (0.5, 120), (1.0, 120)])
def test_near_duplicates_copy_another_view_of_the_same_patient(fraction, copies):
    planned = [view for views in plan_patients(PhantomSpec(near_duplicates=fraction)) for view in views]
    copied = [view for view in planned if view.duplicate_of]
    assert len(copied) == copies
    originals = {view.image_id: view for view in planned if not view.duplicate_of}
    for view in copied:
        assert originals[view.duplicate_of].patient_id == view.patient_id
        assert view.duplicate_of != view.image_id


def test_marks_are_as_many_as_asked_for_and_do_not_move_anything_else():
    plain = [view for views in plan_patients(PhantomSpec()) for view in views]
    marked = [view for views in plan_patients(PhantomSpec(text=0.25, calipers=0.5)) for view in views]
    assert sum(view.text for view in marked) == 60
    assert sum(view.calipers for view in marked) == 120
    assert [(v.image_id, v.label) for v in plain] == [(v.image_id, v.label) for v in marked]


def test_marks_do_not_tell_the_class():
    planned = [v for vs in plan_patients(PhantomSpec(n=2000, text=0.3, calipers=0.3, near_duplicates=0.2)) for v in vs]
    benign = np.array([view.label == "benign" for view in planned])
    for mark in ("text", "calipers", "duplicate_of"):
        has = np.array([bool(getattr(view, mark)) for view in planned])
        assert abs(has[benign].mean() - has[~benign].mean()) < 0.07


def test_a_chosen_scanner_fixes_its_settings_and_nothing_else():
    drawn = draw_patient(PhantomSpec(), 5, "benign")
    fixed = draw_patient(PhantomSpec(scanner="depth_mm=50,looks=1,gain_db=-6"), 5, "benign")
    assert (fixed.device.depth_mm, fixed.device.looks, fixed.device.gain_db) == (50, 1, -6)
    assert fixed.device.frequency_mhz == drawn.device.frequency_mhz
    assert fixed.device.focus_mm / 50 == pytest.approx(drawn.device.focus_mm / drawn.device.depth_mm)
    assert (fixed.tissue, fixed.lesion) == (drawn.tissue, drawn.lesion)
