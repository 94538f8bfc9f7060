import numpy as np
import pytest

from usvit.metrics.bootstrap import figure_values
from usvit.metrics.intervals import clopper_pearson, wilson
from usvit.metrics.proportions import clustered_share, share


def test_independent_images_have_wilsons_interval():
    found = clustered_share([1, 1, 0, 1], ["a", "b", "c", "d"])
    assert found.ci95 == wilson(3, 4)
    assert "4 groups only" in found.warning


def test_images_of_one_kind_in_clusters_are_bounded_by_their_groups():
    found = clustered_share([True] * 6, ["a", "a", "a", "b", "b", "b"])
    assert found.ci95 == pytest.approx(clopper_pearson(2, 2))
    unequal = clustered_share([True] * 6, ["a", "a", "a", "a", "a", "b"])
    assert unequal.ci95[0] < found.ci95[0]  # they count as 36 / 26 groups
    assert clustered_share([True] * 3, ["a"] * 3).reason == "there is only one group"


def test_it_is_the_interval_that_the_figures_of_a_run_have():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(80), 3)
    hits = rng.random(240) < np.repeat(rng.beta(4, 1, 80), 3)
    prob = np.column_stack([hits, ~hits]).astype(float)
    theirs = figure_values(np.zeros(240, int), prob, group, classes=["a", "b"]).values["accuracy"]
    ours = clustered_share(hits, group)
    assert ours.value == theirs.value
    assert ours.method == theirs.method
    np.testing.assert_allclose(ours.ci95, theirs.ci95, atol=1e-12)


def test_an_interval_widens_when_every_image_is_repeated_within_its_patient():
    rng = np.random.default_rng(1)
    hits = rng.random(100) < 0.7
    once = clustered_share(hits, np.arange(100)).ci95
    again = clustered_share(np.repeat(hits, 3), np.repeat(np.arange(100), 3)).ci95
    naive = wilson(int(hits.sum()) * 3, 300)
    assert again[1] - again[0] > 1.5 * (naive[1] - naive[0])
    assert again[1] - again[0] == pytest.approx(once[1] - once[0], rel=0.1)


def test_nothing_to_share_says_what_is_missing():
    none = np.array([], dtype=bool)
    assert share(none, none, of="positive images").reason == "there are no positive images"


def test_a_missing_group_is_refused():
    with pytest.raises(ValueError, match="group at index 1 is missing"):
        clustered_share([1, 0], ["a", None])
