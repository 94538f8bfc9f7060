"""Repeats in a predictions table: what counts as one, what is left out, and what is measured."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from tests.records.contents import content
from usvit.errors import UsvitError
from usvit.evaluation import Predictions, change_section, decided_of, most_flips, repeats_section
from usvit.metrics.repeatability import unordered_repeats
from usvit.records import RepeatabilityRecord

CLASSES = ["benign", "malignant"]


def predictions(odds, groups, *, folds=0, **more):
    """Predictions with these log-odds of malignant; the label is malignant above 0."""
    odds = np.asarray(odds, float)
    prob = 1 / (1 + np.exp(-odds))
    table = pd.DataFrame(
        {
            "image_id": [f"im{k:03d}" for k in range(len(odds))],
            "group_id": groups,
            "patient_id": None,
            "dataset": "demo",
            "fold": folds,
            "part": "test",
            "label": np.where(odds > 0, "malignant", "benign"),
            "logit_benign": 0.0,
            "logit_malignant": odds,
            "prob_benign": 1 - prob,
            "prob_malignant": prob,
            **more,
        }
    )
    return Predictions("demo.csv", table, CLASSES, "malignant")


@pytest.fixture
def copies():
    """60 groups: 40 pairs, 10 triples, 10 single images."""
    rng = np.random.default_rng(0)
    sizes = [2] * 40 + [3] * 10 + [1] * 10
    thing = np.repeat(np.arange(60), sizes)
    odds = 2 * rng.normal(size=60)[thing] + 0.5 * rng.normal(size=len(thing))
    names = [f"copies:{k:03d}" if sizes[k] > 1 else f"image:demo:{k}" for k in thing]
    return predictions(odds, names, folds=thing % 5)


def test_copies_are_the_sets_and_all_their_pairs_are_compared(copies):
    section, pairs = repeats_section(copies)
    assert (section.n_sets, section.n_images, section.n_pairs) == (50, 110, 40 + 10 * 3)
    assert (section.n_groups, section.largest_set, section.left_out) == (50, 3, [])
    assert section.only_copies and section.n_patients is None and section.n_identical is None
    used = copies.table[copies.table.group_id.str.startswith("copies:")]
    oracle = unordered_repeats(used.logit_malignant, used.group_id, used.group_id)
    assert section.scales.logit.icc.value == pytest.approx(oracle.icc.value)
    by_hand = [
        (a >= 0) != (b >= 0) for _, one in used.groupby("group_id") for a, b in combinations(one.logit_malignant, 2)
    ]
    flips = {flip.rule: flip for flip in section.flips}["most probable class"]
    assert (flips.n_flips, flips.n_pairs) == (sum(by_hand), len(by_hand)) and flips.n_flips > 0
    assert flips.rate.n_groups == 50 and len(pairs.first) == 70


def test_decisions_are_those_of_the_operating_points_of_each_fold(copies):
    section, _ = repeats_section(copies)
    decided = decided_of(copies.table, "malignant", CLASSES)
    table = copies.table.sort_values(["dataset", "image_id"]).reset_index(drop=True)
    for flip in section.flips:
        called = pd.Series(decided.called[flip.rule])
        several = [called[one.index] for _, one in table.groupby("group_id") if len(one) > 1]
        assert flip.n_flips == sum(a != b for one in several for a, b in combinations(one, 2))


def test_pairs_of_different_networks_are_left_out_with_their_number(copies):
    moved = copies.table.copy()
    moved.loc[0, "fold"] = (moved.loc[0, "fold"] + 1) % 5  # one of a pair
    section, _ = repeats_section(Predictions("demo.csv", moved, CLASSES, "malignant"))
    assert section.n_sets == 49
    (left,) = section.left_out
    assert left.n == 1 and "different folds" in left.reason and left.example == "demo/im000"


def test_a_copy_without_its_partner_is_counted_and_named(copies):
    table = copies.table.drop(index=[3]).reset_index(drop=True)
    section, _ = repeats_section(Predictions("demo.csv", table, CLASSES, "malignant"))
    assert [(one.n, one.example) for one in section.left_out] == [(1, "demo/im002")]
    assert "partner is not in the table" in section.left_out[0].reason


def test_too_few_sets_are_refused_with_what_there_is():
    found = predictions([1, 2, 3, 4], ["copies:a", "copies:b", "image:demo:2", "image:demo:3"])
    with pytest.raises(
        UsvitError, match=r"0 groups .* 2 images whose partner .* such as demo/im000.*--repeats"
    ) as raised:
        repeats_section(found)
    assert "\n" not in str(raised.value)
    with pytest.raises(UsvitError, match="2 groups with several test images"):
        repeats_section(predictions([1, 2, 3, 4], ["copies:a", "copies:a", "copies:b", "copies:b"]))


def test_a_column_of_the_table_or_the_manifest_names_the_repeats():
    odds = np.random.default_rng(0).normal(size=40)
    lesion = [f"L{k // 2}" for k in range(40)]
    lesion[38:] = [None, ""]  # not known
    patients = [f"patient:demo:{k // 4}" for k in range(40)]
    section, _ = repeats_section(predictions(odds, patients, lesion=lesion), "lesion")
    assert (section.n_sets, section.n_groups, section.column) == (19, 10, "lesion")
    beside = predictions(odds, patients)
    manifest = beside.table[["dataset", "image_id"]].assign(lesion=lesion, sha256=[f"{k // 4}" for k in range(40)])
    with_manifest = Predictions("demo.csv", beside.table, CLASSES, "malignant", columns=manifest)
    again, _ = repeats_section(with_manifest, "lesion")
    assert again.scales == section.scales and again.n_identical == 19
    with pytest.raises(UsvitError, match=r"Unknown column 'lesson'\. Nearest: lesion"):
        repeats_section(with_manifest, "lesson")


def test_ids_count_within_their_data_set():
    datasets = ["a", "b"] * 10
    found = predictions(np.arange(20.0), [f"g{k}" for k in range(20)], lesion=["1"] * 20, dataset=datasets)
    with pytest.raises(UsvitError, match="2 groups"):  # one lesion in each data set, whose groups are joined
        repeats_section(found, "lesion")


def test_change_figures_have_the_direction_of_the_flips():
    rng = np.random.default_rng(1)
    odds, groups = rng.normal(size=60), [f"g{k // 2}" for k in range(60)]
    before = decided_of(predictions(odds, groups).table, "malignant", CLASSES)
    after = decided_of(predictions(odds + 0.5, groups).table, "malignant", CLASSES)
    section = change_section(before, after, change="gain", strength="+3 dB", left_out=[])
    flip = next(one for one in section.flips if one.rule == "most probable class")
    assert flip.n_to_positive == ((odds < 0) & (odds > -0.5)).sum() and flip.n_to_negative == 0
    logit = section.scales.logit
    assert logit.bias.value == pytest.approx(0.5)
    assert logit.lower_limit.value == pytest.approx(0.5, abs=1e-6)
    worst = most_flips([section])
    assert worst["most probable class"] == f"gain +3 dB: {flip.n_flips} of 60 images"


def test_the_section_keeps_to_its_record(copies):
    section, _ = repeats_section(copies)
    whole = content("repeatability") | {"repeats": section.content(), "changes": None}
    record = RepeatabilityRecord.model_validate(whole)
    assert record.repeats.n_pairs == 70
    with pytest.raises(ValidationError, match="either repeats or changes"):
        RepeatabilityRecord.model_validate(whole | {"repeats": None})
