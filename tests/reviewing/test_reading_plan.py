"""The order of readings: random, balanced over readers, with every case as often as the design says."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from usvit.reviewing.reading_plan import plan_readings
from usvit.reviewing.settings import ReviewSettings


def study(**settings):
    return ReviewSettings.model_validate({"source": {"run": "x"}, "design": "sequential", **settings})


@given(
    n=st.integers(1, 40),
    design=st.sampled_from(["independent", "sequential", "crossover"]),
    training=st.integers(0, 5),
    repeats=st.integers(0, 5),
    reader=st.integers(0, 6),
    seed=st.integers(0, 1000),
)
def test_each_case_is_read_once_in_each_stage(n, design, training, repeats, reader, seed):
    repeats = min(repeats, n)
    settings = study(design=design, training=training, repeats=repeats, seed=seed)
    plan = plan_readings(settings, reader, n + training)
    once = [one for one in plan if not one.training and not one.repeat]
    stages = ("unaided",) if design == "independent" else ("unaided", "aided")
    expected = {(case, stage): 1 for case in range(training, n + training) for stage in stages}
    assert Counter((one.case, one.stage) for one in once) == expected
    again = {one.case for one in plan if one.repeat}
    assert len(again) == repeats
    first = {(one.case, one.stage, one.session) for one in once}
    assert all((one.case, one.stage, one.session) in first for one in plan if one.repeat)
    assert [one.training for one in plan] == sorted((one.training for one in plan), reverse=True)
    assert [one.session for one in plan] == sorted(one.session for one in plan)


def test_two_readers_have_opposite_orders_and_others_another():
    orders = [[one.case for one in plan_readings(study(design="independent"), k, 30)] for k in range(4)]
    assert orders[0] == orders[1][::-1] and orders[2] == orders[3][::-1]
    assert len({tuple(one) for one in orders}) == 4


def test_a_case_is_in_the_middle_on_average_over_pairs_of_readers():
    places = Counter()
    for reader in range(4):
        for at, one in enumerate(plan_readings(study(design="independent"), reader, 11)):
            places[one.case] += at
    assert set(places.values()) == {4 * 5}


def test_readers_of_a_crossover_begin_with_the_model_on_opposite_halves():
    aided = [
        {
            one.case
            for one in plan_readings(study(design="crossover"), k, 20)
            if one.session == 1 and one.stage == "aided"
        }
        for k in range(2)
    ]
    assert len(aided[0]) == 10 and aided[0] | aided[1] == set(range(20)) and not aided[0] & aided[1]


def test_no_case_is_read_twice_in_a_session_of_a_crossover():
    plan = plan_readings(study(design="crossover"), 0, 21)
    for session in (1, 2):
        assert max(Counter(one.case for one in plan if one.session == session).values()) == 1


def test_the_seed_gives_another_order_and_the_same_seed_the_same():
    assert plan_readings(study(seed=1), 0, 30) == plan_readings(study(seed=1), 0, 30)
    assert plan_readings(study(seed=1), 0, 30) != plan_readings(study(seed=2), 0, 30)


def test_fewer_cases_than_training_cases_are_refused():
    with pytest.raises(ValueError, match="fewer than the 3 training cases"):
        plan_readings(study(training=3), 0, 2)
