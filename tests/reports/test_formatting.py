"""What is said of a decision curve follows its band."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.contents import content
from usvit.estimate_text import clear_of
from usvit.records import DecisionCurve
from usvit.reports.formatting import p_words, usefulness

BAND = {"difference": [0.1], "lower": [0.0], "upper": [0.2], "critical": 2.5, "n_resamples": 100, "method": "bootstrap"}


@pytest.mark.parametrize(
    ("curve", "said"),
    [
        (
            {"useful": [], "estimated_useful": [[0.1, 0.2]], "band": BAND, "band_reason": None},
            "not shown to be better than both defaults; the estimate alone lies above them at 0.10 to 0.20",
        ),
        (
            {"useful": [[0.2, 0.3]], "estimated_useful": [[0.1, 0.5]], "band": BAND, "band_reason": None},
            "better than both defaults at 0.20 to 0.30 (the estimate alone lies above them at 0.10 to 0.50)",
        ),
        ({"useful": [], "estimated_useful": [], "band": BAND, "band_reason": None}, "nowhere above both defaults"),
        (
            {"useful": [], "estimated_useful": [[0.1, 0.5]], "band": None, "band_reason": "there is only one group"},
            "no band and therefore no statement: there is only one group",
        ),
    ],
    ids=["not shown", "shown", "nowhere", "no band"],
)
def test_better_is_said_only_where_the_band_shows_it(curve, said):
    assert usefulness(DecisionCurve.model_validate(content("metrics")["decision_curve"] | curve)) == said


@given(st.integers(-99_999, 99_999), st.sampled_from([0.0, 0.05, 0.03, 0.1]))
def test_a_printed_bound_lies_on_its_side_of_the_margin(hundred_thousandths, margin):
    bound = hundred_thousandths / 100_000
    printed = float(clear_of(bound, -margin, margin, sign="+"))
    for limit in (-margin, margin):
        assert (printed > limit, printed < limit) == (bound > limit, bound < limit)
    assert abs(printed - bound) <= 0.0005


def test_a_printed_p_lies_on_its_side_of_the_level():
    assert (p_words(0.02496), p_words(0.0252), p_words(0.0498), p_words(0.05)) == (
        "0.02496",
        "0.0252",
        "0.0498",
        "0.050",
    )
    assert (p_words(0.0321), p_words(0.0004), p_words(None)) == ("0.032", "< 0.001", "–")


def test_a_number_that_no_eight_digits_tell_from_a_limit_is_rounded_as_usual():
    assert clear_of(1e-12, 0.0) == "0.000" and clear_of(0.5 + 1e-12, 0.5, digits=2) == "0.50"
