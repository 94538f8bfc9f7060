"""Figures as papers print them."""

import pytest

from usvit.upstream.studies.printed import parse_printed


@pytest.mark.parametrize(
    ("text", "low", "high", "sd"),
    [
        ("86.7%", 0.867, 0.867, None),
        ("86.7 %", 0.867, 0.867, None),
        ("82%", 0.82, 0.82, None),
        ("0.917", 0.917, 0.917, None),
        ("1", 1, 1, None),
        (5.7, 5.7, 5.7, None),
        ("1,234", 1234, 1234, None),
        ("81.8% ± 0.2%", 0.818, 0.818, 0.002),
        ("81.8% +- 0.2", 0.818, 0.818, 0.002),
        ("84% to 85%", 0.84, 0.85, None),
        ("84-85%", 0.84, 0.85, None),
        ("-0.3%", -0.003, -0.003, None),
    ],
)
def test_a_printed_figure_is_read_as_the_number_that_it_is(text, low, high, sd):
    printed = parse_printed(text)
    assert (printed.low, printed.high, printed.sd) == (low, high, sd)
    assert printed.text == str(text)


@pytest.mark.parametrize("text", ["good", "", "%", "1%2", "85% to 84%", "1 2", "nan", "84% to", "± 2"])
def test_what_is_no_figure_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a number|begins with its larger end"):
        parse_printed(text)


def test_the_difference_from_a_range_is_that_from_its_nearer_end():
    printed = parse_printed("84% to 85%")
    assert [printed.difference(value) for value in (0.83, 0.84, 0.845, 0.86)] == [-0.01, 0, 0, 0.01]
    assert printed.value == pytest.approx(0.845) and printed.percent
