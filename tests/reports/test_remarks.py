"""Why an interval is missing or unusual, as sentences below a table."""

from types import SimpleNamespace

import pytest

from usvit.estimate import Estimate
from usvit.records import MetricsRecord
from usvit.reports.remarks import point_remarks, remarks


def value(number=0.5, ci95=None, **rest):
    return Estimate.model_construct(value=number, ci95=ci95, method="bootstrap", n_groups=60, **rest)


def test_each_reason_and_warning_is_one_sentence_with_all_its_figures():
    few = "from 12 groups with positive images only: below 50, intervals cover the true value less often than 95 %"
    said = remarks(
        [
            ("AUC", value(ci95=[0.4, 0.6], warning=few)),
            ("accuracy", value(ci95=[0.4, 0.6])),
            ("sensitivity", value(reason="undefined in 507 of 2000 resamples")),
            ("PPV", value(reason="undefined in 507 of 2000 resamples")),
            ("specificity", value(ci95=[0.4, 0.6], reason="389 of 2000 resamples were undefined and left out")),
            ("F1", value(None, reason="no image of class 'x'")),
            ("absent", None),
            ("point", value()),
        ]
    )
    assert said == [
        f"Interval of AUC: {few}.",
        "No interval for sensitivity and PPV: undefined in 507 of 2000 resamples.",
        "Interval of specificity: 389 of 2000 resamples were undefined and left out.",
        "Undefined: F1: no image of class 'x'.",
    ]


@pytest.mark.parametrize(("all_alike", "named"), [(True, "all figures at rule (procedure)"), (False, "PPV at rule")])
def test_an_operating_point_without_intervals_says_so(all_alike, named):
    missing, there = value(reason="the rule gives no figure in 507 of 2000 resamples"), value(ci95=[0.4, 0.6])
    outcome = SimpleNamespace(
        sensitivity=missing if all_alike else there,
        specificity=missing if all_alike else there,
        ppv=missing,
        npv=missing if all_alike else there,
    )
    point = SimpleNamespace(rule="rule", procedure=outcome, pooled=None)
    (said,) = point_remarks(MetricsRecord.model_construct(operating_points=[point]))
    assert said.startswith(f"No interval for {named}") and said.endswith("507 of 2000 resamples.")
