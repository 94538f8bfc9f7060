import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from tests.evaluation.conftest import CLASSES, make_study
from tests.oracles import slow
from usvit.errors import UsvitError
from usvit.evaluation.comparison import compare_tables, paired_tables
from usvit.metrics.basic import auc
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.paired_tests import corrected_t, holm, mcnemar

pytestmark = pytest.mark.slow

PROC = json.loads((Path(__file__).parents[1] / "oracles/proc.json").read_text())


def decisions(only_a, only_b, both=5, neither=2):
    """Two models' right decisions with so many discordant images."""
    a = np.repeat([True, False, True, False], [only_a, only_b, both, neither])
    b = np.repeat([False, True, True, False], [only_a, only_b, both, neither])
    return a, b


# --- McNemar


@pytest.mark.parametrize(("method", "p"), [("exact", 0.0703), ("mid-p", 0.0391), ("chi2", 0.0339)])
def test_the_example_of_fagerland_and_others(method, p):
    """Airway hyper-responsiveness of 21 children (Fagerland et al. 2013, Table 1): 1 and 7 discordant."""
    a, b = decisions(1, 7, both=1, neither=12)
    found = mcnemar(a, b, range(21), method=method)
    assert found.p == pytest.approx(p, abs=5e-5)
    assert (found.only_a, found.only_b, found.n_groups) == (1, 7, 21)
    assert found.warning is None


def test_r_gives_the_same_mcnemar():
    a, b = decisions(1, 7)
    assert mcnemar(a, b, range(15), method="chi2").p == pytest.approx(PROC["mcnemar_chi2"], rel=1e-10)
    assert mcnemar(a, b, range(15), method="exact").p == pytest.approx(PROC["mcnemar_exact"], rel=1e-10)


@given(st.integers(0, 30), st.integers(0, 30))
def test_scipy_gives_the_same_exact_p_and_mid_p_is_below_it(only_a, only_b):
    a, b = decisions(only_a, only_b)
    exact = mcnemar(a, b, range(len(a)), method="exact").p
    mid = mcnemar(a, b, range(len(a))).p
    if only_a + only_b:
        assert exact == pytest.approx(stats.binomtest(only_a, only_a + only_b).pvalue)
        assert 0 < mid < exact <= 1
    else:
        assert exact == mid == 1


def test_statsmodels_gives_the_same_mcnemar():
    tables = pytest.importorskip("statsmodels.stats.contingency_tables")
    for only_a, only_b in ((1, 7), (4, 4), (12, 30)):
        a, b = decisions(only_a, only_b)
        table = [[5, only_a], [only_b, 2]]
        exact = tables.mcnemar(table, exact=True).pvalue
        chi2 = tables.mcnemar(table, exact=False, correction=False).pvalue
        assert mcnemar(a, b, range(len(a)), method="exact").p == pytest.approx(exact)
        assert mcnemar(a, b, range(len(a)), method="chi2").p == pytest.approx(chi2)


def test_clustered_mcnemar_is_obuchowskis_from_covariances():
    """Her equations 1-6 with the two proportions' own variances and covariance, before any simplification."""
    rng = np.random.default_rng(3)
    group = np.arange(120) % 30
    a, b = rng.random(120) < 0.8, rng.random(120) < 0.65
    x, y, n = (np.bincount(group, values) for values in (a, b, np.ones(120)))
    clusters, pooled = len(n), (x.sum() + y.sum()) / (2 * n.sum())  # one p for both: the null hypothesis

    def covariance(u, v):
        return clusters / (clusters - 1) * ((u - n * pooled) * (v - n * pooled)).sum() / n.sum() ** 2

    variance = covariance(x, x) + covariance(y, y) - 2 * covariance(x, y)
    statistic = ((x.sum() - y.sum()) / n.sum()) ** 2 / variance
    found = mcnemar(a, b, group, method="clustered")
    assert found.p == pytest.approx(stats.chi2.sf(statistic, 1), rel=1e-10)
    assert "30 groups only" in found.warning


def test_repeated_images_change_mcnemar_by_image_and_not_by_group():
    a, b = decisions(20, 8, both=40, neither=12)
    group = np.arange(80)
    once, thrice = (mcnemar(*(np.repeat(x, k) for x in (a, b, group)), method="clustered") for k in (1, 3))
    assert thrice.p == pytest.approx(once.p)
    assert thrice.warning is None
    chi2 = mcnemar(a, b, group, method="chi2")
    assert once.p == pytest.approx(stats.chi2.sf(stats.chi2.isf(chi2.p, 1) * 79 / 80, 1))
    for method in ("exact", "mid-p", "chi2"):
        by_image = mcnemar(*(np.repeat(x, 3) for x in (a, b, group)), method=method)
        assert by_image.p < 0.2 * mcnemar(a, b, group, method=method).p
        assert "treats images as independent" in by_image.warning


def test_models_that_are_right_together_do_not_differ():
    a, b = decisions(0, 0)
    for method in ("exact", "mid-p", "chi2", "clustered"):
        found = mcnemar(a, b, range(7), method=method)
        assert found.p == 1 and "same images" in found.reason
    cancelled = mcnemar([1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 2, 2], method="clustered")
    assert cancelled.p == 1
    single = mcnemar([1, 0], [0, 0], [1, 1], method="clustered")
    assert single.p is None and "one group" in single.reason
    with pytest.raises(ValueError, match="'cochran' is not one of"):
        mcnemar(a, b, range(7), method="cochran")
    with pytest.raises(ValueError, match="7 decisions of one model and 6"):
        mcnemar(a, b[:6], range(7))


# --- Nadeau and Bengio


def test_the_corrected_t_is_its_definition_and_the_papers_factor():
    d = [0.02, 0.05, -0.01, 0.03, 0.04]
    found = corrected_t(d, 1 / 4)
    t = slow.nadeau_bengio(d, 400, 100)
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), 4))
    plain = stats.ttest_1samp(d, 0)
    assert t == pytest.approx(plain.statistic * (0.2 / (0.2 + 0.25)) ** 0.5)
    assert found.value == pytest.approx(0.026)
    # The interval holds 0 exactly when p is above 0.05.
    assert (found.ci95[0] < 0 < found.ci95[1]) == (found.p > 0.05)
    assert found.p > plain.pvalue


def test_without_overlap_it_would_be_the_plain_paired_t_test():
    d = np.array([0.02, 0.05, -0.01, 0.03, 0.04])
    found, plain = corrected_t(d, 1e-12), stats.ttest_1samp(d, 0)
    assert found.p == pytest.approx(plain.pvalue)
    assert found.ci95 == pytest.approx(tuple(plain.confidence_interval()))


def test_folds_that_say_nothing_get_a_reason():
    assert corrected_t([0.1], 0.25).reason == "a variance needs at least two folds"
    same = corrected_t([0.0, 0.0, 0.0], 0.25)
    assert (same.p, same.ci95) == (1, None)
    assert corrected_t([0.25, 0.25], 0.25).p is None
    with pytest.raises(ValueError, match="index 1 is not finite"):
        corrected_t([0.1, np.nan], 0.25)
    with pytest.raises(ValueError, match="at least one fold"):
        corrected_t([], 0.25)
    with pytest.raises(ValueError, match="positive number"):
        corrected_t([0.1, 0.2], 0)


# --- Holm


def test_rs_holm():
    found = holm(dict(enumerate(PROC["holm_in"])))
    assert list(found.values()) == pytest.approx(PROC["holm_out"])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_is_its_definition_and_keeps_the_order(p):
    found = list(holm(dict(enumerate(p))).values())
    assert found == pytest.approx(slow.holm(p))
    assert all(adjusted >= one for adjusted, one in zip(found, p, strict=True))


def test_statsmodels_gives_the_same_holm():
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = [0.3, 0.011, 0.02, 0.9, 0.0001]
    assert list(holm(dict(enumerate(p))).values()) == pytest.approx(multitest.multipletests(p, method="holm")[1])


def test_a_comparison_without_p_is_not_counted():
    assert holm({"a": 0.02, "b": None, "c": 0.04}) == {"a": 0.04, "b": None, "c": 0.04}
    assert holm({}) == {}
    with pytest.raises(ValueError, match="p-value of 'b' is nan"):
        holm({"a": 0.1, "b": float("nan")})


# --- two predictions tables


@pytest.fixture
def pair():
    a, b = make_study(0), make_study(0)
    shown = b[[f"prob_{name}" for name in CLASSES]].to_numpy()
    mixed = 0.7 * shown + 0.3 * np.random.default_rng(5).dirichlet([1, 1, 1], len(b))
    for k, name in enumerate(CLASSES):
        b[f"prob_{name}"] = mixed[:, k]
    return a, b.sample(frac=1, random_state=3)


def test_a_comparison_says_what_its_parts_say(pair):
    a, b = pair
    found = compare_tables(a, b, positive="malignant")
    json.dumps(found.content(), allow_nan=False)
    b = b.sort_index()
    positive, group = a["label"] == "malignant", a["group_id"]
    pooled = clustered_difference(positive, a["prob_malignant"], b["prob_malignant"], group)
    assert found.auc.value == pytest.approx(pooled.value) != 0
    assert (found.auc.p, found.auc.ci95) == (pytest.approx(pooled.p), pytest.approx(pooled.ci95))
    assert found.mcnemar.method == "McNemar, clustered"
    folds = found.auc_over_folds
    d = []
    for k in range(5):
        rows = a["fold"] == k
        d.append(auc(positive[rows], a["prob_malignant"][rows]) - auc(positive[rows], b["prob_malignant"][rows]))
    assert folds.value == pytest.approx(np.mean(d))
    assert folds.p == pytest.approx(corrected_t(d, 1 / 4).p)
    assert (folds.n_folds, folds.n_skipped) == (5, 0)


def test_swapping_the_models_turns_every_sign(pair):
    one, other = compare_tables(*pair, positive="malignant"), compare_tables(*pair[::-1], positive="malignant")
    for name in ("auc", "auc_macro_ovr", "auc_over_folds"):
        assert getattr(other, name).value == pytest.approx(-getattr(one, name).value)
        assert getattr(other, name).p == pytest.approx(getattr(one, name).p)
        assert getattr(other, name).ci95 == pytest.approx([-getattr(one, name).ci95[1], -getattr(one, name).ci95[0]])
    assert other.mcnemar.only_a == one.mcnemar.only_b


def test_the_order_of_the_class_columns_does_not_matter(pair):
    a, b = pair
    turned = b[[*(c for c in b if not c.startswith(("prob_", "logit_"))), *(f"prob_{name}" for name in CLASSES[::-1])]]
    assert compare_tables(a, turned, positive="malignant") == compare_tables(a, b, positive="malignant")


def test_a_model_compared_with_itself_does_not_differ(pair):
    found = compare_tables(pair[0], pair[0], positive="malignant")
    for name in ("auc", "auc_macro_ovr", "auc_over_folds"):
        assert (getattr(found, name).value, getattr(found, name).p, getattr(found, name).ci95) == (0, 1, None)
    assert found.mcnemar.p is None and found.mcnemar.only_a == found.mcnemar.only_b == 0


def test_one_fold_has_no_test_over_folds(pair):
    found = compare_tables(*(table.assign(fold=0) for table in pair), positive="malignant")
    assert found.auc_over_folds.value is None
    assert found.auc_over_folds.reason == "there is only one fold"


def test_runs_that_are_no_pair_are_refused(pair):
    a, b = pair
    names = ("runs/one", "runs/two")
    with pytest.raises(UsvitError, match=r"runs/one and runs/two .* 1 images were tested in one of them only, .*busi/"):
        compare_tables(a, b.iloc[1:], positive="malignant", names=names)
    with pytest.raises(UsvitError, match=r"their folds differ in \d+ images, such as busi/.*same folds file"):
        compare_tables(a, b.assign(fold=(b["fold"] + 1) % 5), positive="malignant")
    with pytest.raises(UsvitError, match="their groups differ"):
        compare_tables(a, b.assign(group_id=b["image_id"]), positive="malignant")
    swapped = b["label"].map({"benign": "malignant", "malignant": "benign", "normal": "normal"})
    with pytest.raises(UsvitError, match="their labels differ"):
        compare_tables(a, b.assign(label=swapped), positive="malignant")
    with pytest.raises(UsvitError, match="their classes are"):
        other = b.drop(columns=[c for c in b if c.startswith("logit_")]).rename(columns={"prob_normal": "prob_cyst"})
        compare_tables(a, other.replace({"label": {"normal": "cyst"}}), positive="malignant")
    with pytest.raises(UsvitError, match="no row of part test"):
        compare_tables(a, b.assign(part="val"), positive="malignant")
    with pytest.raises(UsvitError, match=r"Unknown positive class 'malign'.*Nearest: malignant"):
        compare_tables(a, b, positive="malign")
    with pytest.raises(UsvitError, match="not finite"):
        paired_tables(a, b.assign(prob_benign=np.nan))
