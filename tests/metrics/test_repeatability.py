"""Repeatability against analyses of variance by hand, published examples, and truths that are known."""

import numpy as np
import pytest
from scipy import stats

from usvit.metrics.intervals import wilson
from usvit.metrics.repeatability import LIMIT, METHOD, _f_interval, flip_rate, paired_repeats, unordered_repeats

# Shrout & Fleiss (1979), Psychological Bulletin 86:420, table 2: six targets, four judges.
JUDGED = np.array([[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], float)
FIGURES = ("bias", "within_sd", "repeatability_coefficient", "lower_limit", "upper_limit", "icc")


def mean_squares(table):
    """Mean squares between rows, between columns, of the residual, and within rows."""
    n, k = table.shape
    grand, rows, columns = table.mean(), table.mean(axis=1), table.mean(axis=0)
    residual = table - rows[:, None] - columns + grand
    return (
        k * ((rows - grand) ** 2).sum() / (n - 1),
        n * ((columns - grand) ** 2).sum() / (k - 1),
        (residual**2).sum() / ((n - 1) * (k - 1)),
        ((table - rows[:, None]) ** 2).sum() / (n * (k - 1)),
    )


def long(table, groups=None):
    n, k = table.shape
    thing = np.repeat(np.arange(n), k)
    return table.ravel(), thing, thing if groups is None else np.repeat(groups, k)


def test_icc_1_1_is_that_of_shrout_and_fleiss():
    found = unordered_repeats(*long(JUDGED))
    between, _, _, within = mean_squares(JUDGED)
    assert found.icc.value == pytest.approx((between - within) / (between + 3 * within))
    assert round(found.icc.value, 2) == 0.17  # as printed
    assert found.within_sd.value == pytest.approx(np.sqrt(within))
    assert found.repeatability_coefficient.value == pytest.approx(1.96 * np.sqrt(2 * within), rel=1e-4)
    assert found.upper_limit == found.repeatability_coefficient and found.lower_limit.value == -found.upper_limit.value
    assert found.bias.value is None and found.icc_form == "ICC(1,1)"


@pytest.mark.parametrize("columns", [(0, 1), (0, 2), (2, 3)])
def test_icc_2_1_is_that_of_a_two_way_analysis_of_variance(columns):
    table = JUDGED[:, columns]
    rows, raters, residual, within = mean_squares(table)
    found = paired_repeats(table[:, 0], table[:, 1], np.arange(6))
    oracle = (rows - residual) / (rows + residual + 2 * (raters - residual) / 6)
    assert found.icc.value == pytest.approx(oracle) and found.icc_form == "ICC(2,1)"
    assert found.within_sd.value == pytest.approx(np.sqrt(within))


def test_bias_and_limits_are_bland_and_altmans_and_the_bias_has_the_interval_of_a_t_test():
    rng = np.random.default_rng(0)
    x = rng.normal(size=80)
    d = rng.uniform(-1, 1.5, 80)  # of low kurtosis, so that Satterthwaite's limit is not below n - 1
    found = paired_repeats(x, x + d, np.arange(80))
    assert found.bias.value == pytest.approx(d.mean())
    for limit, sign in ((found.lower_limit, -1), (found.upper_limit, 1)):
        assert limit.value == pytest.approx(d.mean() + sign * LIMIT * d.std(ddof=1))
        assert limit.ci95[0] < limit.value < limit.ci95[1]
    interval = stats.ttest_1samp(d, 0).confidence_interval()
    assert found.bias.ci95 == pytest.approx([interval.low, interval.high], rel=1e-6)


def test_the_interval_of_the_spread_is_near_the_exact_one_of_normal_scores():
    rng = np.random.default_rng(1)
    d = rng.normal(0, 2, 2000)
    found = paired_repeats(np.zeros(2000), d, np.arange(2000))
    exact = np.sqrt(1999 * d.var(ddof=1) / stats.chi2.ppf([0.975, 0.025], 1999))
    upper = [(one - found.bias.value) / LIMIT for one in found.upper_limit.ci95]
    assert upper[1] - upper[0] > exact[1] - exact[0]  # the interval of the limit adds that of the bias
    coefficient = np.array(found.repeatability_coefficient.ci95) / (LIMIT * np.sqrt(2))
    raw = np.sqrt(2000 * (d**2).mean() / stats.chi2.ppf([0.975, 0.025], 2000)) / np.sqrt(2)
    assert coefficient == pytest.approx(raw, rel=0.01)


def test_variance_components_are_recovered_with_many_images_of_a_patient():
    """The spread between 40 patients with 20 images each is not underestimated on average."""
    within, total, apart = [], [], []
    for seed in range(300):
        rng = np.random.default_rng(seed)
        patient = np.repeat(np.arange(40), 20)
        base = 2 * rng.normal(size=40)[patient] + rng.normal(size=800)
        values = base[:, None] + 0.5 * rng.normal(size=(800, 2))
        found = unordered_repeats(*long(values, patient))
        within.append(found.within_sd.value**2)
        total.append(within[-1] / (1 - found.icc.value))
        d = 0.3 + 0.4 * rng.normal(size=40)[patient] + 0.2 * rng.normal(size=800)
        pair = paired_repeats(base, base + d, patient)
        apart.append(((pair.upper_limit.value - pair.lower_limit.value) / (2 * LIMIT)) ** 2)
    assert np.mean(within) == pytest.approx(0.25, rel=0.01)
    assert np.mean(total) == pytest.approx(5.25, rel=0.03)
    assert np.mean(apart) == pytest.approx(0.20, rel=0.03)


def test_sets_of_several_sizes_weigh_by_their_degrees_of_freedom():
    value, thing = np.array([1.0, 3, 10, 11, 12, 20, 26]), np.array([0, 0, 1, 1, 1, 2, 2])
    found = unordered_repeats(value, thing, thing)
    assert found.within_sd.value**2 == pytest.approx((2 + 2 + 18) / (1 + 2 + 1))


@pytest.mark.parametrize("kind", ["unordered", "paired"])
def test_the_jackknife_is_the_one_that_computes_everything_again_without_each_patient(kind):
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 5, 60)
    patient = np.repeat(np.arange(60), sizes)
    base = rng.normal(size=60)[patient] + 0.3 * rng.normal(size=len(patient))
    values = base[:, None] + 0.4 * rng.normal(size=(len(patient), 2))

    def of(keep):
        if kind == "unordered":
            return unordered_repeats(*long(values[keep], patient[keep]))
        return paired_repeats(values[keep, 0], values[keep, 1], patient[keep])

    found = of(patient >= 0)
    without = np.array(
        [2 * np.log(of(patient != one).repeatability_coefficient.value) for one in range(60)]
    )  # of the variance
    away = without - without.mean()
    error = np.sqrt(59 / 60 * (away @ away))
    kurtosis = (away**4).mean() / (away**2).mean() ** 2
    weights = sizes.sum() ** 2 / (sizes @ sizes)
    t = stats.t.ppf(0.975, min(2 * 60 / (kurtosis - 1), weights - 1))
    middle, half = 1 - error**2 / 9, t * error / 3
    ends = found.repeatability_coefficient.value * np.array([middle + half, middle - half]) ** -1.5
    assert found.repeatability_coefficient.ci95 == pytest.approx(ends, rel=1e-9)


def test_a_shift_changes_nothing_and_a_scale_all_but_the_icc():
    rng = np.random.default_rng(3)
    x, patient = rng.normal(size=(60, 2)), np.repeat(np.arange(20), 3)
    plain, moved = (paired_repeats(one[:, 0], one[:, 1], patient) for one in (x, 1e6 + 10 * x))
    for name in FIGURES:
        factor = 1 if name == "icc" else 10
        assert getattr(moved, name).ci95 == pytest.approx(
            np.array(getattr(plain, name).ci95) * factor, rel=1e-5, abs=1e-5
        )


def test_equal_scores_and_few_groups_have_no_interval_but_a_reason():
    same = unordered_repeats([0.1, 0.1, 0.7, 0.7, 0.3, 0.3], [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2])
    assert (
        same.repeatability_coefficient.value == 0
        and same.repeatability_coefficient.ci95 is None
        and same.icc.value == 1
    )
    assert "differ in one group at most" in same.repeatability_coefficient.reason
    one = unordered_repeats([0.1, 0.1, 0.7, 0.7, 0.3, 0.4], [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2])
    assert one.repeatability_coefficient.value > 0 and one.repeatability_coefficient.ci95 is None
    two = unordered_repeats([0.1, 0.2, 0.7, 0.6], [0, 0, 1, 1], [0, 0, 1, 1])
    assert two.repeatability_coefficient.ci95 is None and "three groups" in two.repeatability_coefficient.reason
    assert "below 50" in unordered_repeats(*long(JUDGED)).icc.warning


def test_a_flip_rate_has_wilsons_interval_which_is_longer_if_few_patients_have_all_flips():
    alone = flip_rate(np.arange(200) < 20, np.arange(200))
    assert alone.value == 0.1 and alone.ci95 == pytest.approx(wilson(20, 200), abs=1e-3)
    patient = np.repeat(np.arange(40), 10)
    spread, gathered = flip_rate(np.arange(400) % 10 == 0, patient), flip_rate(np.arange(400) < 40, patient)
    assert spread.value == gathered.value == 0.1
    assert np.diff(gathered.ci95) > 2 * np.diff(spread.ci95)
    assert flip_rate(np.zeros(400, bool), patient).ci95[0] == 0


def test_one_flip_does_not_show_whether_flips_gather():
    patient = np.arange(778) % 590
    low, high = flip_rate(np.arange(778) < 1, patient).ci95
    independent = wilson(1, 778)
    assert low < independent[0] and high > independent[1]


def test_what_cannot_be_a_repeat_is_refused():
    with pytest.raises(ValueError, match="index 2 was measured once"):
        unordered_repeats([1, 2, 3], [0, 0, 1], [0, 0, 1])
    with pytest.raises(ValueError, match="two groups"):
        unordered_repeats([1, 2], [0, 0], [0, 1])
    with pytest.raises(ValueError, match="index 1 is nan"):
        paired_repeats([1, 2], [1, np.nan], [0, 1])


def test_intervals_cover_the_truth_with_38_patients_of_18_images():
    """A cheap look; The tables 'repeats' and 'changes' of benchmarks.coverage are the full ones."""
    held = {"bias": 0, "repeatability_coefficient": 0, "lower_limit": 0, "upper_limit": 0, "flips": 0}
    spread = 0.5
    truth = {"bias": 0.2, "repeatability_coefficient": LIMIT * np.hypot(0.2, spread)}
    truth |= {"lower_limit": 0.2 - LIMIT * spread, "upper_limit": 0.2 + LIMIT * spread, "flips": 0.1}
    patient = np.repeat(np.arange(38), 18)
    for seed in range(200):
        rng = np.random.default_rng(seed)
        own, x = rng.normal(size=38)[patient], rng.normal(size=684)
        d = 0.2 + spread * (np.sqrt(0.5) * own + np.sqrt(0.5) * rng.normal(size=684))
        found = paired_repeats(x, x + d, patient)
        ends = {
            name: getattr(found, name).ci95
            for name in ("bias", "repeatability_coefficient", "lower_limit", "upper_limit")
        }
        flipped = np.sqrt(0.5) * own + np.sqrt(0.5) * rng.normal(size=684) > stats.norm.ppf(0.9)
        ends["flips"] = flip_rate(flipped, patient).ci95
        for name, (low, high) in ends.items():
            held[name] += low <= truth[name] <= high
    assert min(held.values()) / 200 > 0.90, held


SHROUT_FLEISS = [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]]
"""Six targets and four judges: Shrout & Fleiss (1979), table 2."""


def test_the_f_interval_is_that_of_the_published_example():
    thing = np.repeat(np.arange(6), 4)
    found = unordered_repeats(np.ravel(SHROUT_FLEISS), thing, thing).icc
    assert found.value == pytest.approx(0.17, abs=0.005)
    # As psych::ICC and irr::icc print it for this table.
    assert _f_interval(found.value, 4, 6) == pytest.approx((-0.133, 0.723), abs=5e-4)


@pytest.mark.parametrize(("n", "k"), [(5, 2), (12, 2), (8, 3)])
def test_no_icc_reaches_below_its_least_value_and_independent_scores_are_covered(n, k):
    held, from_f, thing = 0, 0, np.repeat(np.arange(n), k)
    for seed in range(100):
        x = np.random.default_rng(seed).normal(size=(n, k))
        pair = paired_repeats(x[:, 0], x[:, 1], np.arange(n)).icc
        assert pair.ci95 is None or pair.ci95[0] >= -1
        icc = unordered_repeats(x.ravel(), thing, thing).icc
        assert icc.ci95[0] >= -1 / (k - 1) and icc.ci95[1] <= 1
        held += icc.ci95[0] <= 0 <= icc.ci95[1]
        if icc.method != METHOD:
            from_f += 1
            assert f"would reach below {-1 / (k - 1):.3g}, the least possible value" in icc.reason
    assert held >= 88 and from_f > 50
