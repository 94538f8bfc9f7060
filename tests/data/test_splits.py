import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from usvit.config import SplitConfig
from usvit.data.splits import (
    COLUMNS,
    PARTS,
    check_folds,
    cross_validation,
    deal,
    folds_sha256,
    hold_out,
    read_folds,
)
from usvit.errors import LeakageError, UsvitError
from usvit.files import write_csv

FIVE = SplitConfig(folds=5)


def manifest(sizes: list[int], labels: list[str], dataset: str = "d") -> pd.DataFrame:
    """Usable rows of groups of given sizes, each of one class."""
    return pd.DataFrame(
        [
            (dataset, f"{group:04}-{view}", label, f"patient:{dataset}:{group:04}")
            for group, (size, label) in enumerate(zip(sizes, labels, strict=True))
            for view in range(size)
        ],
        columns=["dataset", "image_id", "label", "group_id"],
    )


def random_manifest(seed: int, n_groups: int = 120, largest: int = 4) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    sizes = random.integers(1, largest + 1, n_groups).tolist()
    labels = random.choice(["benign", "malignant", "normal"], n_groups, p=[0.56, 0.27, 0.17]).tolist()
    return manifest(sizes, labels)


def busi_like() -> pd.DataFrame:
    """778 images that each stand alone, in BUSI's proportions."""
    return manifest([1] * 778, ["benign"] * 436 + ["malignant"] * 209 + ["normal"] * 133)


@st.composite
def manifests(draw: st.DrawFn) -> pd.DataFrame:
    """2-4 classes of 8-25 groups of 1-5 images, in any order, from one data set or two."""
    classes = draw(st.integers(2, 4))
    groups = [
        (f"class{label}", size)
        for label in range(classes)
        for size in draw(st.lists(st.integers(1, 5), min_size=8, max_size=25))
    ]
    groups = draw(st.permutations(groups))
    table = manifest([size for _, size in groups], [label for label, _ in groups])
    if draw(st.booleans()):
        second = table.group_id.str[-1].isin(["1", "4", "7"])
        table["dataset"] = np.where(second, "e", "d")
    return table


def part_counts(folds: pd.DataFrame, table: pd.DataFrame, part: str) -> pd.DataFrame:
    """(fold, class) -> images in one part."""
    joined = folds[folds.part == part].merge(table, on=["dataset", "image_id"])
    return joined.groupby(["fold", "label"]).size().unstack(fill_value=0)


@settings(max_examples=40, deadline=None)
@given(table=manifests(), n_folds=st.integers(2, 6), seed=st.integers(0, 2**31 - 1))
def test_no_group_is_ever_divided_and_each_image_is_tested_exactly_once(table, n_folds, seed):
    folds = cross_validation(table, SplitConfig(folds=n_folds), seed)
    assert list(folds.columns) == COLUMNS
    assert len(folds) == n_folds * len(table)
    assert set(folds.part) == set(PARTS)
    joined = folds.merge(table, on=["dataset", "image_id"])
    assert joined.groupby(["fold", "group_id"]).part.nunique().max() == 1
    tested = joined[joined.part == "test"]
    assert len(tested) == len(table)
    assert not tested.duplicated(["dataset", "image_id"]).any()
    assert tested.groupby("group_id").fold.nunique().max() == 1


@settings(max_examples=40, deadline=None)
@given(table=manifests(), seed=st.integers(0, 2**31 - 1))
def test_hold_out_divides_no_group_and_meets_its_fractions_as_far_as_groups_permit(table, seed):
    split = SplitConfig(test_fraction=0.2, val_fraction=0.2)
    folds = hold_out(table, split, seed)
    joined = folds.merge(table, on=["dataset", "image_id"])
    assert joined.groupby("group_id").part.nunique().max() == 1
    assert len(folds) == len(table)
    largest = table.groupby("group_id").size().max()
    for part, fraction in (("train", 0.6), ("val", 0.2), ("test", 0.2)):
        assert abs((folds.part == part).sum() - fraction * len(table)) <= 2.5 * largest


@settings(max_examples=15, deadline=None)
@given(table=manifests(), seed=st.integers(0, 1000))
def test_same_seed_gives_the_same_folds_and_another_seed_others(table, seed):
    one, same, other = (cross_validation(table, FIVE, s) for s in (seed, seed, seed + 1))
    pd.testing.assert_frame_equal(one, same)
    assert folds_sha256(one) == folds_sha256(same)
    assert folds_sha256(one) != folds_sha256(other)


def imbalance(part: np.ndarray, table: pd.DataFrame, n_folds: int) -> float:
    """Largest difference of a class's images in a fold from its even share."""
    counts = pd.crosstab(part, table.label).reindex(range(n_folds), fill_value=0)
    return float((counts - counts.sum() / n_folds).abs().to_numpy().max())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("largest", [1, 3, 8])
def test_balance_is_no_worse_than_scikit_learn_s(seed, largest):
    table = random_manifest(seed, largest=largest)
    ours = deal(table.group_id, table.label, [0.2] * 5, seed)
    oracle = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    theirs = np.zeros(len(table), dtype=int)
    for fold, (_, test) in enumerate(oracle.split(table, table.label, table.group_id)):
        theirs[test] = fold
    assert imbalance(ours, table, 5) <= imbalance(theirs, table, 5) + 1e-9


def test_images_that_stand_alone_are_dealt_evenly_to_within_one_of_each_class():
    table = busi_like()
    folds = cross_validation(table, FIVE, 0)
    for part in ("test", "val"):
        counts = part_counts(folds, table, part)
        assert (counts.max() - counts.min()).max() <= 1
    sizes = folds[folds.part == "test"].groupby("fold").size()
    assert sizes.max() - sizes.min() <= len(table.label.unique())


def test_validation_keeps_its_proportion_to_training_in_cross_validation():
    folds = cross_validation(busi_like(), FIVE, 0)
    sizes = folds.groupby(["fold", "part"]).size().unstack()
    shares = sizes.val / (sizes.val + sizes.train)
    assert shares.tolist() == pytest.approx([0.15 / 0.85] * 5, abs=0.005)


def test_hold_out_of_many_single_images_is_70_15_15_in_every_class():
    table = manifest([1] * 1000, ["benign"] * 600 + ["malignant"] * 400)
    folds = hold_out(table, SplitConfig(), 0)
    assert folds.part.value_counts().to_dict() == {"train": 700, "val": 150, "test": 150}
    assert {part: part_counts(folds, table, part).to_numpy().tolist() for part in PARTS} == {
        "train": [[420, 280]],
        "val": [[90, 60]],
        "test": [[90, 60]],
    }
    assert set(folds.fold) == {0}


def test_each_data_set_of_a_union_is_spread_over_the_folds():
    table = pd.concat([busi_like(), manifest([1] * 163, ["benign"] * 109 + ["malignant"] * 54, "b")], ignore_index=True)
    folds = cross_validation(table, FIVE, 0)
    tested = folds[folds.part == "test"].merge(table, on=["dataset", "image_id"])
    counts = tested.groupby(["fold", "dataset", "label"]).size().unstack("fold")
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_order_of_the_rows_does_not_move_a_group():
    table = random_manifest(3)
    shuffled = table.sample(frac=1, random_state=0)
    part = dict(zip(table.image_id, deal(table.group_id, table.label, [0.2] * 5, 7), strict=True))
    again = dict(zip(shuffled.image_id, deal(shuffled.group_id, shuffled.label, [0.2] * 5, 7), strict=True))
    assert part == again


def test_class_of_too_few_patients_says_how_many_there_are_and_what_to_do():
    table = manifest([1] * 20 + [10] * 3, ["benign"] * 20 + ["malignant"] * 3)
    with pytest.raises(UsvitError, match=r"class 'malignant' has 3 groups.*5 folds: 5 are needed.*split.folds"):
        cross_validation(table, FIVE, 0)
    with pytest.raises(UsvitError, match="has 2 groups") as caught:
        hold_out(table[table.group_id != "patient:d:0022"], SplitConfig(), 0)
    assert "split.folds" not in str(caught.value)


def test_a_class_with_just_enough_groups_reaches_every_part():
    table = manifest([1] * 30 + [1] * 3, ["benign"] * 30 + ["malignant"] * 3)
    folds = cross_validation(table, SplitConfig(folds=3, val_fraction=0.05), 0)
    for part in PARTS:
        assert part_counts(folds, table, part).malignant.tolist() == [1, 1, 1]


def test_a_stratum_too_small_for_the_folds_costs_no_part_its_class():
    """Found by CI: two data sets whose strata have fewer groups than folds, while each class has enough."""
    labels = [f"class{number}" for number in "000010001222111121022122"]
    table = manifest([1] * 24, labels)
    table["dataset"] = np.where(table.group_id.str[-1].isin(["1", "4", "7"]), "e", "d")
    for seed in range(50):
        cross_validation(table, FIVE, seed)


def test_one_class_is_nothing_to_classify():
    with pytest.raises(UsvitError, match="All images are of the class 'benign'"):
        cross_validation(manifest([1] * 10, ["benign"] * 10), FIVE, 0)


def test_as_many_groups_as_folds_are_enough():
    table = manifest([1] * 20 + [1] * 5, ["benign"] * 20 + ["malignant"] * 5)
    counts = part_counts(cross_validation(table, FIVE, 0), table, "test")
    assert counts.malignant.tolist() == [1] * 5


@pytest.fixture
def table() -> pd.DataFrame:
    return random_manifest(0)


def test_folds_that_were_dealt_pass_the_check(table):
    check_folds(cross_validation(table, FIVE, 0), table)


def test_group_moved_into_two_parts_is_a_leak_and_is_named(table):
    folds = cross_validation(table, FIVE, 0)
    group = table.group_id[table.group_id.duplicated()].iloc[0]
    image_id = table.image_id[table.group_id == group].iloc[0]
    at = folds.index[(folds.fold == 2) & (folds.image_id == image_id)]
    folds.loc[at, "part"] = "val" if folds.part[at[0]] != "val" else "train"
    with pytest.raises(LeakageError, match=rf"1 groups .* fold 2: {group}\."):
        check_folds(folds, table)


def test_many_leaks_are_counted_and_five_named(table):
    folds = cross_validation(table, FIVE, 0)
    random = np.random.default_rng(0)
    folds["part"] = random.permutation(folds.part.to_numpy())
    with pytest.raises(LeakageError) as caught:
        check_folds(folds, table)
    assert str(caught.value).count("patient:d:") == 5


def test_unknown_missing_and_double_images_are_refused(table):
    folds = cross_validation(table, FIVE, 0)
    renamed = folds.assign(image_id=folds.image_id.where(folds.index != 3, "ghost"))
    with pytest.raises(UsvitError, match="unknown image: 'ghost'"):
        check_folds(renamed, table)
    with pytest.raises(UsvitError, match="Fold 0 lists"):
        check_folds(folds.drop(index=3), table)
    with pytest.raises(UsvitError, match="Fold 0 lists"):
        check_folds(folds.assign(image_id=folds.image_id.where(folds.index != 3, folds.image_id[4])), table)


def test_csv_keeps_ids_that_look_like_numbers_or_like_nothing(tmp_path):
    table = manifest([1] * 40, ["benign", "malignant"] * 20)
    odd = ["000001", "1e5", "NA", "nan", "null", "", " x", "a,b", 'say "ah"', "TRUE"]
    table["image_id"] = odd + table.image_id.tolist()[len(odd) :]
    table["dataset"] = "NA"
    folds = cross_validation(table, FIVE, 0)
    write_csv(tmp_path / "folds.csv", folds)
    back = read_folds(tmp_path / "folds.csv")
    assert back.image_id.tolist() == folds.image_id.tolist()
    assert folds_sha256(back) == folds_sha256(folds)
    check_folds(back, table)
