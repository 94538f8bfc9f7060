"""Control charts: the rate of false alarms, detection, and what is degenerate."""

import numpy as np
import pytest
import statsmodels.formula.api as smf
import statsmodels.stats.api as sms

from usvit.metrics.clustered_mean import clustered_mean
from usvit.metrics.control_charts import PatientSums, control_chart

UP, STEADY = (False, True), (np.nan, 1.0)


def month(rng, n_patients, shift=0.0, rare=0.02):
    group = np.repeat(np.arange(n_patients), rng.integers(1, 8, n_patients))
    level = rng.normal(size=n_patients)[group] + rng.normal(size=len(group)) + shift
    return PatientSums.of(np.column_stack([level, rng.random(len(group)) < rare]), group)


def chart(baseline, months, rate=0.1, **changed):
    return control_chart(baseline, months, [rate] * len(months), **{"upward": UP, "steady": STEADY} | changed)


@pytest.mark.slow
def test_alarms_in_control_are_as_rare_as_stated():
    alarms = []
    for k in range(30):
        rng = np.random.default_rng(k)
        months = [month(rng, int(rng.choice([3, 20, 60]))) for _ in range(10)]
        alarms += [one.alarm for one in chart(month(rng, 100), months, rate=0.2)]
    assert 0.10 < np.mean(alarms) < 0.26  # 300 months; the standard error is 0.023


def test_a_jump_and_a_drift_are_found_and_a_fall_of_an_upward_quantity_is_not():
    rng = np.random.default_rng(1)
    baseline = month(rng, 200, rare=0.2)
    (jump,) = chart(baseline, [month(rng, 60, shift=2.0, rare=0.2)])
    assert jump.jumps.tolist() == [True, False] and jump.deviation[0] > 5
    months = [month(rng, 60, shift=0.3, rare=0.2) for _ in range(12)]
    assert any(one.drifts[0] for one in chart(baseline, months, rate=0.02))
    (fall,) = chart(baseline, [month(rng, 60, rare=0.0)])
    assert not fall.jumps[1] and fall.deviation[1] < -2


def test_the_first_hit_of_a_share_of_zero_is_no_alarm_but_many_are():
    rng = np.random.default_rng(2)
    baseline, once = month(rng, 100, rare=0.0), month(rng, 50, rare=0.0)
    once.total[0, 1] = once.squares[0, 1] = 1.0
    assert not chart(baseline, [once])[0].alarm
    assert chart(baseline, [month(rng, 50, rare=0.5)])[0].jumps[1]


def test_absent_quantities_and_single_patients_give_no_error():
    rng = np.random.default_rng(3)
    lone = PatientSums.of(np.array([[0.1, np.nan]]), np.array([0]))
    (found,) = chart(month(rng, 50), [lone])
    assert np.isnan(found.deviation[1]) and np.isfinite(found.deviation[0]) and not found.alarm
    constant = PatientSums.of(np.ones((40, 2)), np.arange(40))
    assert not chart(constant, [PatientSums.of(np.ones((5, 2)), np.arange(5))])[0].alarm
    assert chart(constant, [PatientSums.of(np.full((5, 2), [2.0, 1.0]), np.arange(5))])[0].jumps[0]


def test_the_same_seed_gives_the_same_limits_and_bad_arguments_are_refused():
    rng = np.random.default_rng(4)
    baseline, months = month(rng, 50), [month(rng, 20)]
    assert np.array_equal(chart(baseline, months)[0].jump_limits, chart(baseline, months)[0].jump_limits)
    with pytest.raises(ValueError, match="2 or more"):
        chart(months[0].__class__.of(np.ones((1, 2)), [0]), months)
    with pytest.raises(ValueError, match="rate"):
        chart(baseline, months, rate=1.0)


def test_a_clustered_mean_has_the_cluster_robust_error_of_statsmodels():
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(30), rng.integers(1, 9, 30))
    values = rng.normal(size=30)[group] + rng.normal(size=len(group))
    found = clustered_mean(values, group)
    model = smf.ols("y ~ 1", {"y": values}).fit(cov_type="cluster", cov_kwds={"groups": group, "use_correction": False})
    error = float(model.bse.iloc[0]) * np.sqrt(30 / 29)
    assert found.value == pytest.approx(float(model.params.iloc[0]))
    half = (found.ci95[1] - found.ci95[0]) / 2
    assert 2.0 < half / error < 2.4  # Student's quantile with fewer degrees of freedom than 29
    alone = clustered_mean(values, np.arange(len(values)))
    assert alone.ci95 == pytest.approx(sms.DescrStatsW(values).tconfint_mean(), rel=0.02)
    assert clustered_mean([1.0, 2.0], [0, 0]).reason and clustered_mean([], []).value is None
