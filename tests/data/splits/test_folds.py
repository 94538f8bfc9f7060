import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.model_selection import StratifiedGroupKFold

from usvit.config import SplitConfig
from usvit.data.splits.folds import (
    COLUMNS,
    SPLITS,
    check_folds,
    cross_validation,
    folds_sha256,
    hold_out,
    leaking_groups,
    make_folds,
    n_repeats,
    read_folds,
    repeat_of,
    rows_of_split,
)
from usvit.data.splits.groups import stratified_groups
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


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(table=manifests(), n_folds=st.integers(2, 6), seed=st.integers(0, 2**31 - 1))
def test_no_group_is_ever_divided_and_each_image_is_tested_exactly_once(table, n_folds, seed):
    folds = cross_validation(table, SplitConfig(folds=n_folds), seed)
    assert list(folds.columns) == COLUMNS
    assert len(folds) == n_folds * len(table)
    assert set(folds.part) == set(SPLITS)
    joined = folds.merge(table, on=["dataset", "image_id"])
    assert joined.groupby(["fold", "group_id"]).part.nunique().max() == 1
    tested = joined[joined.part == "test"]
    assert len(tested) == len(table)
    assert not tested.duplicated(["dataset", "image_id"]).any()
    assert tested.groupby("group_id").fold.nunique().max() == 1


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("largest", [1, 3, 8])
def test_balance_is_no_worse_than_scikit_learn_s(seed, largest):
    table = random_manifest(seed, largest=largest)
    ours = stratified_groups(table.group_id, table.label, [0.2] * 5, seed)
    oracle = StratifiedGroupKFold(5, shuffle=True, random_state=seed)
    theirs = np.zeros(len(table), dtype=int)
    for fold, (_, test) in enumerate(oracle.split(table, table.label, table.group_id)):
        theirs[test] = fold
    assert imbalance(ours, table, 5) <= imbalance(theirs, table, 5) + 1e-9


@pytest.mark.slow
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
    assert {part: part_counts(folds, table, part).to_numpy().tolist() for part in SPLITS} == {
        "train": [[420, 280]],
        "val": [[90, 60]],
        "test": [[90, 60]],
    }
    assert set(folds.fold) == {0}


@pytest.mark.slow
def test_each_data_set_of_a_union_is_spread_over_the_folds():
    table = pd.concat([busi_like(), manifest([1] * 163, ["benign"] * 109 + ["malignant"] * 54, "b")], ignore_index=True)
    folds = cross_validation(table, FIVE, 0)
    tested = folds[folds.part == "test"].merge(table, on=["dataset", "image_id"])
    counts = tested.groupby(["fold", "dataset", "label"]).size().unstack("fold")
    assert (counts.max(axis=1) - counts.min(axis=1)).max() <= 1


def test_order_of_the_rows_does_not_move_a_group():
    table = random_manifest(3)
    shuffled = table.sample(frac=1, random_state=0)
    part = dict(zip(table.image_id, stratified_groups(table.group_id, table.label, [0.2] * 5, 7), strict=True))
    again = dict(
        zip(shuffled.image_id, stratified_groups(shuffled.group_id, shuffled.label, [0.2] * 5, 7), strict=True)
    )
    assert part == again


def test_class_of_too_few_patients_says_how_many_there_are_and_what_to_do():
    table = manifest([1] * 20 + [10] * 3, ["benign"] * 20 + ["malignant"] * 3)
    with pytest.raises(UsvitError, match=r"class 'malignant' has 3 groups.*5 folds need 5\..*split.folds"):
        cross_validation(table, FIVE, 0)
    with pytest.raises(UsvitError, match="has 2 groups") as caught:
        hold_out(table[table.group_id != "patient:d:0022"], SplitConfig(), 0)
    assert "split.folds" not in str(caught.value)


def test_a_class_with_just_enough_groups_reaches_every_part():
    table = manifest([1] * 30 + [1] * 3, ["benign"] * 30 + ["malignant"] * 3)
    folds = cross_validation(table, SplitConfig(folds=3, val_fraction=0.05), 0)
    for part in SPLITS:
        assert part_counts(folds, table, part).malignant.tolist() == [1, 1, 1]


@pytest.mark.slow
def test_a_stratum_too_small_for_the_folds_costs_no_part_its_class():
    """Found by CI: two data sets whose strata have fewer groups than folds, while each class has enough."""
    labels = [f"class{number}" for number in "000010001222111121022122"]
    table = manifest([1] * 24, labels)
    table["dataset"] = np.where(table.group_id.str[-1].isin(["1", "4", "7"]), "e", "d")
    for seed in range(50):
        cross_validation(table, FIVE, seed)


def test_one_class_is_nothing_to_classify():
    with pytest.raises(UsvitError, match="All images are of the class 'benign'"):
        make_folds("cv", one := manifest([1] * 10, ["benign"] * 10), FIVE, 0)
    assert len(make_folds("cv", one, FIVE, 0, labelled=False)) == 50


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
    with pytest.raises(UsvitError, match="images that are not in the data, such as 'ghost' of 'd'"):
        check_folds(renamed, table)
    with pytest.raises(UsvitError, match=f"miss 1 images in fold 0, such as '{folds.image_id[3]}' of 'd'"):
        check_folds(folds.drop(index=3), table)
    with pytest.raises(UsvitError, match=f"list the image '{folds.image_id[4]}' twice in fold 0"):
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


def official(table: pd.DataFrame, n_folds: int = 5) -> pd.DataFrame:
    """The table with folds that its authors drew by patient, in no order that dealing would give."""
    fold = table.group_id.str[-4:].astype(int) * 7 % n_folds
    return table.assign(official_folds=[f"{n_folds}:{number}" for number in fold], fold=fold)


def fold_testing(folds: pd.DataFrame, table: pd.DataFrame) -> list[int]:
    """The fold that tests each image of the table."""
    tested = folds[folds.part == "test"].set_index(["dataset", "image_id"]).fold
    return tested.loc[list(zip(table.dataset, table.image_id, strict=True))].tolist()


def test_official_folds_are_used_and_not_redrawn(table):
    table = official(table)
    assert fold_testing(make_folds("cv", table, FIVE, 0), table) == table.fold.tolist()
    assert fold_testing(make_folds("cv", table, SplitConfig(scheme="drawn"), 0), table) != table.fold.tolist()
    assert fold_testing(make_folds("cv", table, SplitConfig(folds=4), 0), table) != table.fold.tolist()


def test_in_a_union_official_folds_stay_and_the_others_are_dealt_around_them(table):
    ours, theirs = manifest([1] * 100, ["benign", "malignant"] * 50, "e"), official(table)
    theirs = theirs[theirs.label != "normal"]
    both = pd.concat([theirs, ours], ignore_index=True)
    folds = make_folds("cv", both, FIVE, 0)
    assert fold_testing(folds, theirs) == theirs.fold.tolist()
    assert np.bincount(fold_testing(folds, ours)).tolist() == [20] * 5


def test_official_folds_that_part_a_cluster_of_copies_are_refused_and_the_way_out_told(table):
    table = official(table)
    crossing = table.index[table.fold != table.fold[0]][0]
    table.loc[[0, crossing], "group_id"] = "copies:abc"
    with pytest.raises(LeakageError, match=r"1 groups would .* official 5 folds: copies:abc. .*split.scheme=drawn"):
        make_folds("cv", table, FIVE, 0)
    make_folds("cv", table, SplitConfig(scheme="drawn"), 0)


def test_official_folds_that_are_not_there_say_which_are(table):
    with pytest.raises(UsvitError, match="No official 5 folds come with these images: they have none"):
        make_folds("cv", table, SplitConfig(scheme="official"), 0)
    with pytest.raises(UsvitError, match="No official 4 folds come with these images: they have 5"):
        make_folds("cv", official(table), SplitConfig(scheme="official", folds=4), 0)


def test_official_folds_that_lack_a_class_are_named(table):
    table = official(table)
    table.loc[table.label == "normal", "official_folds"] = "5:2"
    with pytest.raises(UsvitError, match=r"Fold 0 would have no image of the class 'normal' in its test split"):
        make_folds("cv", table, FIVE, 0)


@pytest.mark.parametrize("column", ["dataset", "device"])
def test_each_data_set_or_device_is_the_test_of_one_fold(table, column):
    table[column] = np.array(["x", "y", "z"])[table.group_id.str[-4:].astype(int) % 3]
    folds = make_folds("cv", table, SplitConfig(scheme=f"by_{column}"), 0)
    joined = folds.merge(table, on=["dataset", "image_id"])
    assert joined[joined.part == "test"].groupby("fold")[column].unique().map(list).tolist() == [["x"], ["y"], ["z"]]
    assert joined.groupby(["fold", "group_id"]).part.nunique().max() == 1
    assert set(folds.part) == set(SPLITS)


def test_a_data_set_without_a_class_is_tested_on_what_it_has_but_each_training_needs_all(table):
    two_classes = manifest([1] * 30, ["benign", "malignant"] * 15, "b")
    other = table.assign(dataset="c", group_id=table.group_id.str.replace("d", "c"))
    folds = make_folds("cv", pd.concat([table, other, two_classes]), SplitConfig(scheme="by_dataset"), 0)
    assert part_counts(folds, two_classes, "test").shape == (1, 2)
    with pytest.raises(UsvitError, match=r"no image of the class 'normal' in its train split.*data\.classes"):
        make_folds("cv", pd.concat([table, two_classes]), SplitConfig(scheme="by_dataset"), 0)


def test_leaving_one_out_needs_two_knows_each_and_parts_no_group(table):
    with pytest.raises(UsvitError, match="two data sets or more, but there is only 'd'"):
        make_folds("cv", table, SplitConfig(scheme="by_dataset"), 0)
    with pytest.raises(UsvitError, match=r"needs the device of every image; \d+ have none, such as '0000-0'"):
        make_folds("cv", table.assign(device=None), SplitConfig(scheme="by_device"), 0)
    table["device"] = np.where(table.index == 1, "y", "x")
    with pytest.raises(
        LeakageError, match=f"leaving one device out: {table.group_id[1]}. Leave out the near-duplicates"
    ):
        make_folds("cv", table, SplitConfig(scheme="by_device"), 0)
    with pytest.raises(UsvitError, match=r"split\.scheme=by_device needs several folds: use 'usvit cv'"):
        make_folds("train", table, SplitConfig(scheme="by_device"), 0)


def test_by_image_parts_groups_and_they_can_be_counted(table):
    folds = make_folds("cv", table, SplitConfig(unit="image"), 0)
    leaking = leaking_groups(folds, table)
    several = table.groupby("group_id").size()
    assert len(leaking) > 0.7 * (several > 1).sum()
    assert set(leaking) <= set(several[several > 1].index)
    assert leaking_groups(make_folds("cv", table, FIVE, 0), table) == []


def test_frozen_folds_are_used_as_they_are(tmp_path, table):
    drawn = make_folds("cv", table, FIVE, 3)
    write_csv(tmp_path / "folds.csv", drawn)
    again = make_folds("cv", table, SplitConfig(file=str(tmp_path / "folds.csv")), 99)
    pd.testing.assert_frame_equal(again, drawn)
    assert folds_sha256(again) == folds_sha256(drawn)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda folds: folds.drop(index=3), r"The folds of .*folds.csv miss 1 images in fold 0"),
        (lambda folds: folds.replace("0000-0", "ghost"), "1 images that are not in the data, such as 'ghost'"),
        (lambda folds: folds[folds.fold == 1], "do not test every image exactly once"),
        (lambda folds: folds.replace("val", "tune"), "hold the split 'tune'; it must be one of train, val, test"),
        (lambda folds: folds.drop(columns="part"), "have no column 'part'"),
        (lambda folds: folds.assign(fold="first"), "whole numbers in the column 'fold'"),
        (lambda folds: folds.replace("val", "train"), "leave the val split of fold 0 empty"),
    ],
)
def test_frozen_folds_that_do_not_fit_are_refused(tmp_path, table, change, error):
    write_csv(tmp_path / "folds.csv", change(make_folds("cv", table, FIVE, 3)))
    with pytest.raises(UsvitError, match=error):
        make_folds("cv", table, SplitConfig(file=str(tmp_path / "folds.csv")), 0)


def test_frozen_folds_that_leak_are_refused(tmp_path, table):
    write_csv(tmp_path / "folds.csv", make_folds("cv", table, SplitConfig(unit="image"), 0))
    with pytest.raises(LeakageError, match=r"folds.csv leak: \d+ groups are in two splits of fold 0"):
        make_folds("cv", table, SplitConfig(file=str(tmp_path / "folds.csv")), 0)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_rows_of_a_part_are_those_that_the_folds_list(table, part):
    table = table.sample(frac=1, random_state=1)  # in no order, under labels that are no positions
    folds = make_folds("cv", table, FIVE, 0)
    listed = {(row.dataset, row.image_id) for row in folds.itertuples() if row.fold == 3 and row.part == part}
    keys = list(zip(table.dataset, table.image_id, strict=True))
    assert rows_of_split(folds, table, part, 3).tolist() == [at for at, key in enumerate(keys) if key in listed]


def test_frozen_folds_count_from_nought_without_a_gap(tmp_path, table):
    """Else a fold that is asked for by its number would have no images."""
    folds = make_folds("cv", table, FIVE, 0)
    for fold in (folds.fold + 1, folds.fold.replace(2, 7)):
        write_csv(tmp_path / "folds.csv", folds.assign(fold=fold))
        with pytest.raises(UsvitError, match=r"folds.csv are numbered (1, 2, 3, 4, 5|0, 1, 3, 4, 7): number them 0, 1"):
            make_folds("cv", table, SplitConfig(file=str(tmp_path / "folds.csv")), 0)


def test_hold_out_takes_one_frozen_fold(tmp_path, table):
    write_csv(tmp_path / "one.csv", make_folds("train", table, SplitConfig(), 0))
    make_folds("train", table, SplitConfig(file=str(tmp_path / "one.csv")), 0)
    write_csv(tmp_path / "five.csv", make_folds("cv", table, FIVE, 0))
    with pytest.raises(UsvitError, match="holds 5 folds; 'usvit train' takes one"):
        make_folds("train", table, SplitConfig(file=str(tmp_path / "five.csv")), 0)


@pytest.mark.slow
@settings(max_examples=40)
@given(table=manifests(), seed=st.integers(0, 2**31 - 1), n_folds=st.integers(2, 6))
def test_each_class_is_spread_to_within_its_largest_group_and_one_more(table, seed, n_folds):
    """No split can promise less than the size of the largest group; the greedy one may miss it by one more."""
    table = table.assign(dataset="d")
    part = stratified_groups(table.group_id, table.label, [1 / n_folds] * n_folds, seed)
    counts = pd.crosstab(part, table.label).reindex(range(n_folds), fill_value=0)
    largest = table.groupby(["label", "group_id"]).size().groupby("label").max()
    assert ((counts.max() - counts.min()) <= largest).all()


@pytest.mark.slow
def test_repeats_are_whole_cross_validations_of_their_own_and_the_first_is_the_unrepeated_one(table):
    folds = make_folds("cv", table, SplitConfig(repeats=3), 7)
    assert list(folds.columns) == [*COLUMNS, "repeat"]
    assert folds.groupby("fold")["repeat"].first().tolist() == [0] * 5 + [1] * 5 + [2] * 5
    check_folds(folds, table)
    tested = folds[folds.part == "test"]
    assert (tested.groupby(["repeat", "dataset", "image_id"]).size() == 1).all()
    assert len(tested) == 3 * len(table)
    first = folds[folds["repeat"] == 0].drop(columns="repeat")
    pd.testing.assert_frame_equal(first, make_folds("cv", table, FIVE, 7))
    fold_in = tested.pivot(index="image_id", columns="repeat", values="fold") % 5
    assert all((fold_in[a] != fold_in[b]).mean() > 0.6 for a, b in ((0, 1), (0, 2), (1, 2)))
    assert n_repeats(folds) == 3 and repeat_of(folds, 9) == 1
    assert n_repeats(first) == 1 and repeat_of(first, 4) == 0


@pytest.mark.slow
def test_more_repeats_begin_with_the_fewer_ones(table):
    two, three = (make_folds("cv", table, SplitConfig(repeats=repeats), 7) for repeats in (2, 3))
    pd.testing.assert_frame_equal(three[three["repeat"] < 2], two)


@pytest.mark.slow
def test_frozen_repeats_are_used_as_they_are_and_frozen_folds_are_repeated_as_they_are(tmp_path, table):
    file = SplitConfig(file=str(tmp_path / "folds.csv"))
    drawn = make_folds("cv", table, SplitConfig(repeats=2), 3)
    write_csv(tmp_path / "folds.csv", drawn)
    for repeats in (1, 2):
        again = make_folds("cv", table, file.model_copy(update={"repeats": repeats}), 99)
        pd.testing.assert_frame_equal(again, drawn)
    with pytest.raises(UsvitError, match=r"holds 2 repeats, and split.repeats is 3"):
        make_folds("cv", table, file.model_copy(update={"repeats": 3}), 99)

    once = make_folds("cv", table, FIVE, 3)
    write_csv(tmp_path / "folds.csv", once)
    thrice = make_folds("cv", table, file.model_copy(update={"repeats": 3}), 99)
    assert n_repeats(thrice) == 3 and thrice.fold.nunique() == 15
    for repeat in range(3):
        mine = thrice[thrice["repeat"] == repeat]
        assert (mine.fold - 5 * repeat).tolist() == once.fold.tolist() and mine.part.tolist() == once.part.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda folds: folds.assign(repeat=folds.fold % 2), "do not test every image exactly once"),
        (lambda folds: folds.assign(repeat=folds.index % 2), "one repeat for each fold"),
        (lambda folds: folds.assign(repeat=folds["repeat"] * 2), "repeats of .* are numbered 0, 2: number them 0, 1"),
        (lambda folds: folds.assign(repeat="first"), "whole numbers in the column 'repeat'"),
    ],
)
def test_frozen_repeats_that_do_not_fit_are_refused(tmp_path, table, change, error):
    write_csv(tmp_path / "folds.csv", change(make_folds("cv", table, SplitConfig(repeats=2), 3)))
    with pytest.raises(UsvitError, match=error):
        make_folds("cv", table, SplitConfig(file=str(tmp_path / "folds.csv")), 0)


def test_a_hold_out_is_not_repeated(table):
    with pytest.raises(UsvitError, match=r"split.repeats=2 repeats a cross-validation: use 'usvit cv'"):
        make_folds("train", table, SplitConfig(repeats=2), 0)
