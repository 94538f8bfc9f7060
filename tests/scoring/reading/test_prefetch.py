"""The buffer between reader threads and the consumer."""

import threading

import pytest

from usvit.limited.worker_process import WorkerTask
from usvit.scoring.reading.prefetch import CLOSED, OVERHEAD, Ahead, PrefetchEntry

TASK = WorkerTask(len, ((),), False, 1.0)
KB = 1024


def entries(ahead, count):
    made = [PrefetchEntry(number, TASK) for number in range(count)]
    for entry in made:
        ahead.add(entry)
    return made


def in_thread(function, *arguments):
    thread = threading.Thread(target=function, args=arguments, daemon=True)
    thread.start()
    return thread


def stands(thread):
    """Whether it waits; one that does not may end before it is looked at, or not."""
    thread.join(0.1)
    return thread.is_alive()


def ends(thread):
    thread.join(60)
    return not thread.is_alive()


def test_messages_come_in_the_order_of_entries_whatever_is_ready_first():
    ahead = Ahead(100 * KB)
    first, second = entries(ahead, 2)
    assert (ahead.take(), ahead.take()) == (first, second)
    ahead.put(second, "c", 1)
    ahead.close(second)
    assert ahead.waits
    ahead.put(first, "a", 1)
    ahead.put(first, "b", 1)
    ahead.close(first)
    got = [ahead.get() for _ in range(5)]
    assert got == [(first, "a"), (first, "b"), (first, CLOSED), (second, "c"), (second, CLOSED)]
    assert len(ahead) == 0


@pytest.mark.slow
def test_later_entries_stop_at_the_limit_and_never_keep_the_first_from_moving():
    ahead = Ahead(10 * KB)
    first, second, third = entries(ahead, 3)
    assert ahead.put(second, "x", 7 * KB)
    blocked = in_thread(ahead.put, third, "y", 7 * KB)
    assert stands(blocked)
    assert ahead.put(first, "a", 5 * KB)
    assert ahead.get() == (first, "a")
    ahead.close(first)
    assert stands(blocked)
    assert ahead.get() == (first, CLOSED)  # the second is the first now: its bytes are no longer in the third's way
    assert ends(blocked)


def test_the_first_entry_waits_for_the_consumer_at_the_limit():
    ahead = Ahead(10 * KB)
    (first,) = entries(ahead, 1)
    ahead.put(first, 0, 4 * KB)
    blocked = in_thread(ahead.put, first, 1, 4 * KB)
    assert stands(blocked)
    ahead.get()
    assert ends(blocked)


def test_a_message_larger_than_the_limit_passes_once_it_is_alone():
    ahead = Ahead(KB)
    first, second = entries(ahead, 2)
    assert ahead.put(first, "big", 50 * KB)
    blocked = in_thread(ahead.put, second, "big, too", 50 * KB)
    ahead.close(first)
    assert ahead.get() == (first, "big")
    assert stands(blocked)
    assert ahead.get() == (first, CLOSED)
    assert ahead.get() == (second, "big, too")


def test_small_messages_are_bounded_too():
    ahead = Ahead(10 * OVERHEAD)
    _first, second = entries(ahead, 2)
    for number in range(10):
        assert ahead.put(second, number, 0)
    assert stands(in_thread(ahead.put, second, 10, 0))


@pytest.mark.slow
def test_stopping_frees_whoever_waits():
    ahead = Ahead(KB)
    first, second = entries(ahead, 2)
    ahead.take(), ahead.take()
    answers = []
    threads = [
        in_thread(lambda: answers.append(ahead.take())),
        in_thread(lambda: answers.append(ahead.put(second, "x", 9 * KB))),
    ]
    assert all(stands(thread) for thread in threads)
    ahead.stop()
    assert all(ends(thread) for thread in threads)
    assert sorted(answers, key=str) == [False, None]
    assert ahead.put(first, "x", 1) is False


def test_finished_means_that_takers_end_after_the_last_entry():
    ahead = Ahead(KB)
    (only,) = entries(ahead, 1)
    ahead.finish()
    assert ahead.take() is only
    assert ahead.take() is None


def test_the_error_of_a_thread_reaches_the_consumer():
    ahead = Ahead(KB)
    entries(ahead, 1)
    in_thread(ahead.fail, ValueError("broken"))
    with pytest.raises(ValueError, match="broken"):
        ahead.get()


def test_many_threads_lose_and_swap_nothing():
    ahead = Ahead(20 * OVERHEAD)
    counts = [number % 7 for number in range(300)]

    def work():
        while (entry := ahead.take()) is not None:
            for number in range(counts[entry.key]):
                ahead.put(entry, number, number * 1000)
            ahead.close(entry)

    threads = [in_thread(work) for _ in range(8)]
    got = []
    for start in range(0, 300, 50):
        for key in range(start, start + 50):
            ahead.add(PrefetchEntry(key, TASK))
        while len(ahead):
            entry, message = ahead.get()
            got.append((entry.key, message))
    ahead.finish()
    assert all(ends(thread) for thread in threads)
    assert got == [(key, message) for key, count in enumerate(counts) for message in [*range(count), CLOSED]]
