"""What a page says about the figures that it asks to quote."""

import pytest

from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin, explained
from usvit.records import TrainingShareRecord

KNOWN, UNKNOWN = (
    TrainingShareRecord(value=0.25, n_pairs=500),
    TrainingShareRecord(value=1.0, n_pairs=0, reason="no image was scored by two models"),
)


@pytest.mark.parametrize(
    ("origin", "first"),
    [
        (ONE_MODEL, "One model on its hold-out test images."),
        (PredictionOrigin(networks=3), "One ensemble of 3 networks on its hold-out test images."),
        (PredictionOrigin(external=True), "An external test: the scored model, as it is, on images of new patients."),
        (PredictionOrigin(table=True), "One table of predictions, taken as those of one model"),
    ],
)
def test_a_single_set_is_called_what_it_is(origin, first):
    said = explained(origin, 1, 1, None)
    assert said.startswith(first)
    assert ("another training" in said) == (not origin.external)
    assert "training share" not in said


def test_one_repeat_says_that_another_training_may_differ_and_what_the_usable_model_is():
    said = explained(ONE_MODEL, 5, 1, KNOWN)
    assert "the mean true figure of these 5 models" in said
    assert "another training, with another seed or split, may give a figure outside the interval" in said
    assert "The model that one would use afterwards" in said and "was not tested" in said
    assert "each of one ensemble of 2 networks" in explained(PredictionOrigin(networks=2), 5, 1, KNOWN)
    repeated = explained(ONE_MODEL, 15, 3, KNOWN)
    assert "another training" not in repeated and "The model that one would use afterwards" in repeated


def test_a_run_and_its_table_each_say_why_their_intervals_differ():
    assert "A share of 0.25" in explained(ONE_MODEL, 5, 1, KNOWN)
    assert "the same scores get longer intervals there" in explained(ONE_MODEL, 5, 1, KNOWN)
    table = explained(PredictionOrigin(table=True), 5, 1, UNKNOWN)
    assert "No image was scored by two models; so the largest" in table and "the same scores get shorter ones" in table
    assert "longer intervals there" not in explained(ONE_MODEL, 15, 3, KNOWN)  # repeats show it in any table
