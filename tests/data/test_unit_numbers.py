"""Units of images: their numbers, their labels, and the weight of each image."""

import numpy as np
import pandas as pd
import pytest

from usvit.data.unit_numbers import unit_codes, unit_targets, votes_of
from usvit.errors import UsvitError


def rows(**columns):
    n = len(next(iter(columns.values())))
    return pd.DataFrame({"dataset": ["own"] * n, "image_id": [str(k) for k in range(n)], **columns})


def test_images_with_one_patient_have_one_number_and_others_their_own():
    table = rows(patient_id=["a", None, "b", "a", None])
    assert unit_codes(table, "patient").tolist() == [0, 2, 1, 0, 3]


def test_patients_of_two_data_sets_with_one_name_are_two():
    table = rows(patient_id=["a", "a"]).assign(dataset=["one", "two"])
    assert unit_codes(table, "patient").tolist() == [0, 1]


def test_a_breast_is_a_side_of_a_patient():
    table = rows(patient_id=["a", "a", "b", "a"], side=["left", "right", "left", "left"])
    assert unit_codes(table, "breast").tolist() == [0, 1, 2, 0]


def test_each_image_is_a_unit_by_default():
    assert unit_codes(rows(patient_id=["a", "a"]), "image").tolist() == [0, 1]


@pytest.mark.parametrize("table", [rows(patient_id=[None, None]), rows(patient_id=["a", "b"])])
def test_a_unit_that_no_image_has_is_an_error(table):
    with pytest.raises(UsvitError, match="needs a column lesion_id, which no image"):
        unit_codes(table, "lesion")


def test_a_unit_is_positive_if_one_image_is_and_otherwise_of_its_first_class():
    targets, units = np.array([0, 1, 2, 0, 2, 1]), np.array([0, 0, 1, 1, 2, 3])
    assert unit_targets(targets, units, 1).tolist() == [1, 1, 0, 0, 2, 1]


def test_every_unit_has_the_same_weight():
    units = np.array([0, 0, 0, 1, 2, 2])
    votes = votes_of(units)
    assert np.bincount(units, votes).tolist() == pytest.approx([2, 2, 2])
    assert votes.mean() == pytest.approx(1)


def test_units_of_one_image_have_votes_of_exactly_one():
    assert (votes_of(np.arange(7)) == 1).all()
