"""What a call may do to its own process, and not to this one; all processes are real."""

import multiprocessing
import os
import sys

import pytest

from tests.limited import hostile
from usvit.errors import UsvitError
from usvit.limited import LimitedCalls, LimitReached


@pytest.mark.slow
def test_values_come_in_order_from_one_process_that_is_another():
    with LimitedCalls() as calls:
        assert list(calls.values(hostile.count, 5)) == [0, 1, 2, 3, 4]
        first = calls.call(hostile.process)
        assert first == calls.call(hostile.process) != os.getpid()


@pytest.mark.slow
def test_what_hangs_is_ended_and_the_next_call_gets_a_new_process():
    with LimitedCalls(seconds=1) as calls:
        with pytest.raises(LimitReached, match="longer than 1 s"):
            calls.call(hostile.hang)
        calls.seconds = 300  # on a busy machine, even a quick answer may take a second
        assert calls.call(hostile.process) != os.getpid()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux bounds a process's memory")
def test_what_takes_too_much_memory_or_crashes_is_named_so():
    with LimitedCalls(memory_gb=0.2) as calls:
        assert calls.call(hostile.fill, 0.01)
        with pytest.raises(LimitReached, match=r"more than 0\.2 GB of memory"):
            calls.call(hostile.fill, 1)
        with pytest.raises(LimitReached, match="crashed"):
            calls.call(hostile.crash)


def test_an_error_for_the_user_comes_through_and_a_consumer_may_stop_early():
    with LimitedCalls() as calls:
        with pytest.raises(UsvitError, match=r"^The list x is wrong\. Write it again\.$"):
            calls.call(hostile.refuse)
        values = calls.values(hostile.count, 1000)
        assert next(values) == 0
        values.close()
        assert list(calls.values(hostile.count, 2)) == [0, 1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_of_a_process_that_has_a_fork_server_reads_too():
    with LimitedCalls() as calls:
        assert calls.call(hostile.process) != os.getpid()
    ours, theirs = multiprocessing.Pipe()
    child = os.fork()
    if child == 0:  # the record of the server that it inherits is of its parent's child
        try:
            with LimitedCalls() as calls:
                theirs.send(calls.call(hostile.process))
        finally:
            os._exit(0)
    theirs.close()
    assert ours.poll(60)
    assert ours.recv() not in (child, os.getpid())
    os.waitpid(child, 0)


@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
def test_a_call_whose_process_the_system_killed_is_tried_once_more(tmp_path):
    """As the kernel does when the memory of the machine is full."""
    with LimitedCalls() as calls:
        assert calls.call(hostile.killed, str(tmp_path), 1) == "read"
        with pytest.raises(LimitReached, match="the system killed its reader"):
            calls.call(hostile.killed, str(tmp_path), 9)
    assert len(list(tmp_path.iterdir())) == 3, "two processes for each call; one of them served both"
