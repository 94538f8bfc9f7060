"""A model beside readers: against counting by hand, scikit-learn and statsmodels, and where something is missing."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score
from statsmodels.stats.contingency_tables import mcnemar

from tests.cli.runs import make_run
from usvit.errors import UsvitError
from usvit.evaluation import compare_with_readers, open_predictions, read_readers
from usvit.evaluation.evaluate_predictions import Predictions
from usvit.evaluation.readers_comparison import MEAN
from usvit.evaluation.readers_decisions import INNER, ITSELF, OTHERS
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.proportions import clustered_share

pytestmark = pytest.mark.slow

CATEGORIES = np.array(["2", "3", "4a", "4b", "4c", "5"], object)


def predictions(seed=0, n=240, folds=3, repeats=1, inner=True, per_patient=2):
    """Patients with equal numbers of images; the model of each fold has another scale."""
    rng = np.random.default_rng(seed)
    patient = np.arange(n) // per_patient
    cancer = patient * 3 % 5 < 2
    tables = []
    for repeat in range(repeats):
        fold_of = (patient * (7 + 2 * repeat)) % folds
        for fold in range(folds):
            for part, at in (("test", fold_of == fold), ("val", fold_of == (fold + 1) % folds)):
                if part == "val" and (not inner or folds == 1):
                    continue
                prob = 1 / (1 + np.exp(-(1.5 * cancer[at] - 0.7 + rng.normal(size=at.sum()) + 0.3 * fold)))
                table = pd.DataFrame(
                    {"image_id": np.flatnonzero(at).astype(str), "group_id": patient[at].astype(str), "dataset": "d"}
                ).assign(patient_id=None, fold=repeat * folds + fold, part=part, prob_benign=1 - prob)
                table["label"] = np.where(cancer[at], "malignant", "benign")
                tables.append(table.assign(prob_malignant=prob, **({"repeat": repeat} if repeats > 1 else {})))
    return Predictions("run", pd.concat(tables, ignore_index=True), ["benign", "malignant"], "malignant")


def read(found, seed=0, skill=1.5):
    """One category for each image, the same in all rows of the image."""
    rng = np.random.default_rng(seed)
    images = sorted(found.table.image_id.unique(), key=int)
    cancer = found.table.drop_duplicates("image_id").set_index("image_id").label.loc[images] == "malignant"
    of = dict(
        zip(
            images,
            CATEGORIES[np.digitize(rng.normal(size=len(images)) + skill * cancer, [-0.5, 0.3, 0.9, 1.5, 2])],
            strict=True,
        )
    )
    return found.table.image_id.map(of)


def test_areas_points_and_counts_are_those_of_the_images():
    found = predictions()
    readers = pd.DataFrame({"A": read(found)})
    record = compare_with_readers(found, readers)
    at = (found.table.part == "test").to_numpy()
    test, level = found.table[at], readers.A[at].map({name: k for k, name in enumerate(CATEGORIES)}).to_numpy()
    cancer = (test.label == "malignant").to_numpy()
    (areas,) = record.readers
    assert areas.auc.value == pytest.approx(roc_auc_score(cancer, level))
    expected = clustered_difference(cancer, test.prob_malignant, level, test.group_id)
    assert (areas.pooled.value, areas.pooled.p) == pytest.approx((expected.value, expected.p))
    by_fold = [
        roc_auc_score(cancer[own], test.prob_malignant[own]) - roc_auc_score(cancer[own], level[own])
        for own in (test.fold.to_numpy() == k for k in range(3))
    ]
    assert areas.within_folds.value == pytest.approx(np.mean(by_fold))
    assert areas.within_folds.p == areas.within_folds.p_holm  # one reader
    assert [one.cut for one in record.points] == [">= 3", ">= 4a", ">= 4b", ">= 4c", "5"]
    for one, cut in zip(record.points, range(1, 6), strict=True):
        wanted = clustered_share((level >= cut)[cancer], test.group_id[cancer].to_numpy())
        assert one.outcome.sensitivity.ci95 == pytest.approx(wanted.ci95)
        assert one.outcome.false_positive == int((level[~cancer] >= cut).sum())
    called = (test.prob_malignant > test.prob_benign).to_numpy()
    rows = [one for one in record.categories if one.decision == "most probable class"]
    assert [one.category for one in rows] == list(record.scale)
    for one in rows:
        own = test.assign(r=readers.A[at]).r.to_numpy() == one.category
        assert one.positive_not_called == int((own & cancer & ~called).sum())
        assert one.negative_called == int((own & ~cancer & called).sum())
    rule = next(one for one in record.rules if (one.decision, one.rule) == ("most probable class", "both"))
    alone, doubtful, followed = level >= 2, np.isin(level, [1, 2, 3]), np.isin(level, [0, 1])
    after = (alone & ~(doubtful & ~called)) | (followed & called)
    assert (rule.n_biopsies_alone, rule.n_biopsies) == (int(alone.sum()), int(after.sum()))
    assert rule.missed.n == int((alone & ~after & cancer).sum())
    assert rule.found.per_1000.value == pytest.approx(1000 * (after & ~alone & cancer).mean())
    assert rule.ppv.value == pytest.approx(cancer[after].mean())
    shares = [
        after[cancer & own].mean() - alone[cancer & own].mean() for own in (test.fold.to_numpy() == k for k in range(3))
    ]
    assert rule.sensitivity.value == pytest.approx(np.mean(shares))
    assert (record.downgraded, record.upgraded, record.biopsied_from) == (["3", "4a", "4b"], ["2", "3"], "4a")


def test_one_fold_of_single_images_has_mcnemars_test():
    found = predictions(folds=1, per_patient=1, n=300)
    record = compare_with_readers(found, pd.DataFrame({"A": read(found)}))
    test = found.table
    level = read(found).map({name: k for k, name in enumerate(CATEGORIES)}).to_numpy()
    cancer, called = (test.label == "malignant").to_numpy(), (test.prob_malignant > 0.5).to_numpy()
    alone = level >= 2
    after = alone & ~(np.isin(level, [1, 2, 3]) & ~called)
    rule = next(one for one in record.rules if (one.decision, one.rule) == ("most probable class", "downgrade"))
    lost = int((alone & ~after & ~cancer).sum())
    assert rule.given.specificity == rule.specificity.without("p_holm")
    oracle = mcnemar([[0, lost], [0, 0]], exact=True).pvalue
    # mid-p: the exact p less the probability of the observed table
    assert rule.specificity.p == pytest.approx(oracle - 0.5**lost, abs=1e-9)
    assert record.thresholds_from == ITSELF and "looks better" in record.thresholds_from
    assert record.readers[0].within_folds.value == pytest.approx(record.readers[0].pooled.value)


def test_matched_thresholds_come_from_inner_images_and_match_there():
    found = predictions(n=600)
    readers = pd.DataFrame({"A": read(found)})
    record = compare_with_readers(found, readers)
    assert record.thresholds_from == INNER
    point = next(one for one in record.matched if (one.cut, one.matched) == (">= 4a", "specificity"))
    table = found.table.assign(positive=np.isin(readers.A, CATEGORIES[2:]))
    called = 0
    for fold in range(3):
        inner = table[(table.part == "val") & (table.fold == fold) & (table.label == "benign")]
        target = (~inner.positive).mean()
        scores = np.sort(inner.prob_malignant)
        below = int(np.ceil(target * len(scores) - 1e-9))
        low, high = scores[below - 1], scores[below]
        own = table[(table.part == "test") & (table.fold == fold) & (table.label == "malignant")]
        least, most = int((own.prob_malignant > high).sum()), int((own.prob_malignant > low).sum())
        called += (least + most) / 2
        assert most - least <= 6
    assert point.model.true_positive == pytest.approx(called, abs=9)
    assert abs(point.specificity.value) < 0.1  # the match holds on the tested images
    others = compare_with_readers(predictions(inner=False), pd.DataFrame({"A": read(predictions(inner=False))}))
    assert others.thresholds_from == OTHERS


def test_several_readers_and_their_mean_and_repeats():
    found = predictions(repeats=2)
    readers = pd.DataFrame({"A": read(found, 1), "B": read(found, 2, skill=0.5)})
    record = compare_with_readers(found, readers)
    assert [one.reader for one in record.readers] == ["A", "B", MEAN]
    assert record.n_repeats == 2
    a, b, mean = record.readers
    assert mean.auc.value == pytest.approx((a.auc.value + b.auc.value) / 2)
    assert mean.within_folds.value == pytest.approx((a.within_folds.value + b.within_folds.value) / 2)
    assert mean.within_folds.n_repeats == 2
    assert mean.auc.ci95[1] - mean.auc.ci95[0] < b.auc.ci95[1] - b.auc.ci95[0]
    points = {(one.reader, one.cut): one.outcome for one in record.points}
    for cut in (">= 3", "5"):
        each = [points[name, cut].sensitivity.value for name in ("A", "B")]
        assert points[MEAN, cut].sensitivity.value == pytest.approx(np.mean(each))
    assert all(one.within_folds.p_holm >= one.within_folds.p for one in record.readers)
    assert any("other readers" in one for one in record.warnings)


def test_missing_readings_0_and_6_are_left_out_and_counted():
    found = predictions()
    column = read(found)
    column[found.table.image_id.astype(int) < 30] = ""
    column[found.table.image_id.astype(int).between(30, 34)] = "0"
    column[found.table.image_id == "35"] = "6"
    (areas,) = compare_with_readers(found, pd.DataFrame({"A": column})).readers
    assert areas.n_images == 240 - 36
    assert (areas.left_out.missing, areas.left_out.category_0, areas.left_out.category_6) == (30, 5, 1)
    with pytest.raises(UsvitError, match="No tested image has a category from 1 to 5 of the reader 'A'"):
        compare_with_readers(found, pd.DataFrame({"A": column.where(column == "6", "")}))


def test_degenerate_readers_have_reasons_instead_of_figures():
    found = predictions()
    record = compare_with_readers(found, pd.DataFrame({"A": ["4b"] * len(found.table)}))  # no category 3, all tied
    assert record.readers[0].auc.value == 0.5 and record.readers[0].auc.ci95 is None
    first = record.matched[0]
    assert first.model is None and "specificity is 0" in first.reason
    one_class = found.table[found.table.label == "benign"].reset_index(drop=True)
    benign = Predictions("run", one_class, found.classes, found.positive)
    record = compare_with_readers(benign, pd.DataFrame({"A": read(found)[found.table.label == "benign"].to_numpy()}))
    assert record.readers[0].auc.value is None and record.readers[0].within_folds.value is None
    assert all(one.sensitivity.value is None for one in record.rules)


def test_an_undivided_4_is_one_category_of_the_scale():
    found = predictions()
    column = read(found).replace({"4a": "4", "4b": "4"})
    record = compare_with_readers(found, pd.DataFrame({"A": column}))
    assert record.scale == ["1", "2", "3", "4", "5"] and record.downgraded == ["3", "4"]
    assert [one.cut for one in record.points] == [">= 3", ">= 4", "5"]
    assert any("not divided" in one for one in record.warnings)


def test_a_union_of_data_sets_of_which_one_has_no_categories():
    found = predictions()
    other = found.table.assign(dataset="e", group_id="e" + found.table.group_id)
    both = Predictions("run", pd.concat([found.table, other], ignore_index=True), found.classes, found.positive)
    record = compare_with_readers(both, pd.DataFrame({"A": [*read(found), *[""] * len(other)]}))
    assert (record.n_images, record.readers[0].n_images, record.readers[0].left_out.missing) == (480, 240, 240)


def test_a_table_of_the_user_is_joined_by_the_names_of_images(tmp_path):
    run = make_run(tmp_path / "run", seed=1)
    found = open_predictions(run)
    names = sorted(found.table.image_id.unique())
    own = pd.DataFrame(
        {"file": [f"images/{one}.png" for one in names], "reader 1": ["4A", "BI-RADS 3", "5"] * (len(names) // 3)}
    )
    own.iloc[1:].to_excel(tmp_path / "own.xlsx", index=False)
    readers = read_readers(found, ["reader 1"], tmp_path / "own.xlsx")
    at = found.table.image_id == names[3]
    assert set(readers["reader 1"][at]) == {"4a"} and set(readers["reader 1"][found.table.image_id == names[0]]) == {""}
    own.assign(**{"reader 1": "?"}).to_csv(tmp_path / "bad.csv", index=False)
    with pytest.raises(UsvitError, match="are no BI-RADS category"):
        read_readers(found, ["reader 1"], tmp_path / "bad.csv")
    pd.concat([own, own.iloc[:1]]).to_csv(tmp_path / "twice.csv", index=False)
    with pytest.raises(UsvitError, match=re.escape(f"several rows for the image '{names[0]}'")):
        read_readers(found, ["reader 1"], tmp_path / "twice.csv")
    own.assign(file=[f"x{k}" for k in range(len(own))]).to_csv(tmp_path / "other.csv", index=False)
    with pytest.raises(UsvitError, match=r"No column of .* holds names of the images"):
        read_readers(found, ["reader 1"], tmp_path / "other.csv")
    with pytest.raises(UsvitError, match="Unknown column of a reader 'birds'"):
        read_readers(found, ["birds"])
    with pytest.raises(UsvitError, match="has no BI-RADS category"):
        read_readers(found, ["birads"])
