"""Searches for a batch, on machines whose memory and speed are known."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.upstream.bench.conftest import row_of, without_number
from usvit.upstream.bench.case import BenchmarkCase
from usvit.upstream.bench.search import search

CASE = BenchmarkCase({"name": "a", "image_size": 32}, "infer", batch=32)


def machine(fits=10**9, seconds=lambda batch: batch / 100, one_more=0):
    """A machine that holds ``fits`` images, ``one_more`` less when it is to repeat."""
    asked = []

    def measure(case):
        asked.append(case)
        if case.batch > fits - (one_more if case.repeats > 1 else 0):
            return [without_number(case, "out_of_memory", "too large")]
        return [row_of(case, seconds(case.batch))]

    return measure, asked


def reported(rows):
    return [row for row in rows if row.reported]


@pytest.mark.slow
@given(fits=st.integers(1, 5000), start=st.integers(1, 300), most=st.integers(1, 4096))
def test_the_largest_batch_is_found_to_an_eighth_and_never_exceeds_the_bound(fits, start, most):
    measure, asked = machine(fits)
    rows = search("largest", BenchmarkCase(CASE.model, "infer", batch=start), measure, max_batch=most)
    (row,) = reported(rows)
    bound = min(fits, most)
    assert row.status == "ok" and row.repeats == 30
    assert row.batch <= bound and bound - row.batch <= max(1, row.batch // 8)
    assert max(case.batch for case in asked) <= most
    assert len(asked) < 30


def test_where_not_even_one_image_fits_the_row_says_so():
    measure, _ = machine(fits=0)
    rows = search("largest", CASE, measure, max_batch=64)
    (row,) = reported(rows)
    assert (row.batch, row.status) == (1, "out_of_memory")


def test_a_batch_that_fits_once_but_not_thirty_times_is_made_smaller():
    measure, _ = machine(fits=64, one_more=5)
    (row,) = reported(search("largest", CASE, measure, max_batch=64))
    assert row.status == "ok" and row.batch == 56


@pytest.mark.parametrize("kind", ["largest", "fastest", "batches", "none"])
def test_a_network_that_fails_is_asked_once_and_its_reason_kept(kind):
    asked = []

    def measure(case):
        asked.append(case)
        return [without_number(case, "failed", "no such thing")]

    rows = search(kind, CASE, measure, max_batch=64)
    assert len(asked) == 1
    assert [row.reason for row in reported(rows)] == ["no such thing"]


def test_a_sweep_doubles_while_it_is_faster_and_reports_the_fastest():
    measure, asked = machine(seconds=lambda batch: max(0.5, batch / 16))  # 16 images/s at most, from 8 on
    rows = search("fastest", BenchmarkCase(CASE.model, "infer", batch=1), measure, max_batch=4096)
    assert [case.batch for case in asked] == [1, 2, 4, 8, 16, 32]
    (row,) = reported(rows)
    assert row.batch == 8 and row.images_per_second == 16


def test_one_slow_moment_does_not_end_a_sweep():
    measure, _ = machine(seconds=lambda batch: 10.0 if batch == 4 else max(0.5, batch / 16))
    (row,) = reported(search("fastest", BenchmarkCase(CASE.model, "infer", batch=1), measure, max_batch=4096))
    assert row.batch == 8


def test_a_sweep_ends_at_the_memory_with_the_fastest_before_it():
    measure, _ = machine(fits=5, seconds=lambda batch: 1.0)
    rows = search("fastest", BenchmarkCase(CASE.model, "infer", batch=1), measure, max_batch=4096)
    assert [row.batch for row in reported(rows)] == [4]
    assert rows[-1].status == "out_of_memory" and not rows[-1].reported


def test_a_sweep_ends_at_its_bound():
    measure, _ = machine(seconds=lambda batch: 1.0)
    (row,) = reported(search("fastest", BenchmarkCase(CASE.model, "infer", batch=1), measure, max_batch=20))
    assert row.batch == 16


def test_latency_takes_each_batch_up_to_the_bound():
    measure, _ = machine(fits=20)
    rows = search("batches", BenchmarkCase(CASE.model, "infer", batch=1), measure, max_batch=64)
    assert [row.batch for row in rows] == [1, 2, 4, 8, 16, 32]
    assert all(row.reported for row in rows) and rows[-1].status == "out_of_memory"
