"""Reader processes, with readers that behave as the worst files make decoders behave; all processes are real."""

import itertools
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.scoring.reading import fake_readers
from tests.scoring.reading.fake_readers import SETTINGS
from usvit.errors import UsvitError
from usvit.limited import worker
from usvit.scoring.items import FAILURES, Failure, Frame, ItemFacts, ScoringItem
from usvit.scoring.reading import workers
from usvit.scoring.reading.workers import End, Readers, WorkerFailure

LIMIT = 300.0
"""Seconds for what ends by itself, on however slow a machine."""
HANGS = 30.0
"""Seconds for what never ends."""


@pytest.fixture(autouse=True)
def _time_to_end(monkeypatch):
    """A thread or process that is slow to end is not given up."""
    for module in (worker, workers):
        monkeypatch.setattr(module, "END_SECONDS", LIMIT)


def readers(*, reader=fake_readers.read, count=2, timeout=LIMIT, memory_gb=None):
    return Readers(SETTINGS, workers=count, timeout=timeout, memory_gb=memory_gb, reader=reader)


def items(*names):
    return list(enumerate(ScoringItem(name, "") for name in names))


def told(pool, *names):
    """Name -> what came of it, in short: frames' numbers, failures' codes; the order and the ends are checked."""
    story = {name: [] for name in names}
    order = []
    for number, item, message in pool.read(items(*names)):
        assert names[number] == item.name
        if isinstance(message, Frame):
            story[item.name].append(message.number)
        elif isinstance(message, Failure):
            story[item.name].append(message.code)
        elif isinstance(message, End):
            order.append(item.name)
    assert order == list(names)
    return story


def call(pool, function, *arguments):
    """The result of one call in a worker."""
    (value,) = pool.map_calls(function, [arguments])
    if isinstance(value, WorkerFailure):
        raise value
    return value


def until(happens, seconds=LIMIT):
    """Whether it happens, at last."""
    end = time.monotonic() + seconds
    while not happens():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def gone(pid, seconds=60.0):
    """Whether a process ends; one that nobody has asked how it ended has ended, too."""

    def ended():
        try:
            os.kill(pid, 0)
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except ProcessLookupError:
            return True
        except OSError:  # no /proc, or it has ended just now
            return False

    return until(ended, seconds)


@pytest.fixture
def limits(monkeypatch):
    """The seconds that the parent gave each message, one after the other."""
    given, receive = [], worker.Worker._receive

    def receive_and_tell(self, timeout):
        given.append(timeout)
        return receive(self, timeout)

    monkeypatch.setattr(worker.Worker, "_receive", receive_and_tell)
    return given


@pytest.fixture
def impatient(monkeypatch):
    """``HANGS`` passes at once in the parent; in the worker, whose own alarm comes after twice that, it does not."""
    receive = worker.Worker._receive
    monkeypatch.setattr(
        worker.Worker, "_receive", lambda self, timeout: receive(self, 0.5 if timeout == HANGS else timeout)
    )


@pytest.mark.slow
def test_messages_come_in_the_order_of_items_whoever_is_faster():
    names = [f"slow:{ms}" for ms in (200, 1, 50, 2, 90, 3)]
    with readers(count=3) as pool:
        got = [(number, type(message).__name__) for number, _, message in pool.read(items(*names))]
    assert got == [(number, kind) for number in range(6) for kind in ("ItemFacts", "Frame", "End")]


def test_pixels_arrive_as_they_were():
    with readers() as pool:
        frames = [message for *_, message in pool.read(items("frames:5")) if isinstance(message, Frame)]
    assert [frame.number for frame in frames] == list(range(5))
    for frame in frames:
        assert frame.pixels.dtype == "uint8" and frame.pixels.shape == (32, 32, 3)
        assert (frame.pixels == frame.number).all()


def test_several_processes_work_at_once(tmp_path):
    """Each of two waits until the other is there."""
    with readers(count=2) as pool:
        both = [(number, ScoringItem("meet", str(tmp_path))) for number in range(2)]
        pids = {message.device for *_, message in pool.read(both) if isinstance(message, ItemFacts)}
    assert len(pids) == 2


@pytest.mark.slow
@pytest.mark.parametrize("end", ["segfault", "exit", "sys-exit", "raise", "kill", "recurse"])
def test_a_crash_costs_its_own_item_only_and_keeps_the_frames_before_it(end):
    with readers() as pool:
        assert told(pool, "ok:1", end, "ok:2", "ok:3") == {"ok:1": [1], end: [0, "crashed"], "ok:2": [2], "ok:3": [3]}


def test_an_exception_that_knows_its_code_keeps_it():
    with readers() as pool:
        assert told(pool, "bad-image", "ok:1") == {"bad-image": [0, "truncated"], "ok:1": [1]}


def test_a_file_that_the_reader_gave_up_is_not_failed_twice():
    with readers() as pool:
        assert told(pool, "failed-then-crash", "ok:1") == {"failed-then-crash": [0, "damaged"], "ok:1": [1]}


@pytest.mark.slow
@pytest.mark.parametrize("end", ["hang", "hang-in-c"])
def test_a_file_that_hangs_costs_itself_and_its_worker(end, impatient):
    with readers(count=1) as pool:

        def found():
            for number, item in items("ok:1", end, "ok:2"):
                pool.timeout = HANGS if item.name == end else LIMIT
                yield number, item

        pids, codes = {}, []
        for _, item, message in pool.read(found()):
            if isinstance(message, ItemFacts):
                pids[item.name] = int(message.device)
            elif isinstance(message, Failure):
                codes.append((item.name, message.code))
        assert codes == [(end, "timeout")]
        assert pids["ok:1"] == pids.get(end, pids["ok:1"]) != pids["ok:2"]
        assert gone(pids["ok:1"])


@pytest.mark.slow
def test_the_time_limit_is_for_each_message_and_not_for_the_file(limits):
    with readers(count=1) as pool:
        assert told(pool, "alive:20") == {"alive:20": [20, 1]}
    assert limits == [worker.START_SECONDS, *[LIMIT] * (1 + 1 + 20 + 1 + 1)]  # facts, frame, alive, frame, end


def test_no_time_passes_while_the_consumer_is_busy(monkeypatch, limits):
    """Workers that cannot get rid of their frames are not waited for, and what comes then has the whole limit."""
    monkeypatch.setattr(workers, "LOOK_AHEAD", 4096)  # one frame and no more
    inside, receive = [], worker.Worker._receive

    def receive_inside(self, timeout):
        inside.append(self)
        try:
            return receive(self, timeout)
        finally:
            inside.remove(self)

    monkeypatch.setattr(worker.Worker, "_receive", receive_inside)
    with readers(count=2) as pool:
        kinds = []
        for *_, message in pool.read(items("frames:400", "frames:400")):  # more than the pipes hold
            if not kinds:
                assert until(lambda: len(limits) > 2 and not inside)
            kinds.append(type(message))
    assert kinds.count(Frame) == 800
    assert Failure not in kinds
    assert set(limits) == {worker.START_SECONDS, LIMIT}


@pytest.mark.slow
def test_a_long_loop_waits_in_the_worker_and_not_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "LOOK_AHEAD", 20 * 8192)
    progress = tmp_path / "progress"
    progress.touch()
    with readers(count=1) as pool:
        messages = pool.read([(0, ScoringItem("frames:10000", str(progress)))])
        next(messages)
        next(messages)
        assert until(lambda: len(progress.read_text()) >= 20)
        time.sleep(0.5)  # in which thousands would come
        assert len(progress.read_text()) < 500  # the limit, and what the pipe holds
        assert sum(isinstance(message, Frame) for *_, message in messages) == 9999


def test_items_are_taken_just_ahead_of_the_consumer():
    taken = itertools.count()
    endless = ((next(taken), ScoringItem("ok:1", "")) for _ in itertools.count())
    with readers() as pool:
        messages = pool.read(endless)
        for _ in range(30):
            next(messages)
        messages.close()
    assert next(taken) <= workers.ITEMS_AHEAD + 20


def test_items_that_discovery_gave_up_start_no_process():
    found = [(number, ScoringItem("exit", "", problem="not_found")) for number in range(3)]
    with readers() as pool:
        got = [message for *_, message in pool.read(found)]
        assert got == [Failure("not_found"), End()] * 3
        assert not pool._all


def test_nothing_to_read_gives_nothing():
    with readers() as pool:
        assert list(pool.read([])) == []


def test_an_error_while_finding_items_reaches_the_consumer():
    def found():
        yield 0, ScoringItem("ok:1", "")
        raise UsvitError("The disk is gone.")

    with readers() as pool, pytest.raises(UsvitError, match="disk is gone"):
        list(pool.read(found()))


def test_workers_serve_one_reading_after_the_other():
    with readers(count=1) as pool:
        pids = {
            message.device
            for _ in range(3)
            for *_, message in pool.read(items("ok:1", "ok:2"))
            if isinstance(message, ItemFacts)
        }
    assert len(pids) == 1


def test_no_process_outlives_its_readers_nor_an_error_in_the_consumer(tmp_path):
    with pytest.raises(KeyError), readers(count=2) as pool:
        for _ in pool.read((number, ScoringItem("meet-and-hang", str(tmp_path))) for number in range(2)):
            raise KeyError
    pids = {int(path.name) for path in tmp_path.iterdir()}
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_a_reading_given_up_half_way_leaves_the_readers_in_order():
    with readers(count=2) as pool:
        for _, item, message in pool.read(items("ok:1", "hang", "hang")):
            if item.name == "hang" and isinstance(message, ItemFacts):
                pid = int(message.device)
                break
        assert told(pool, "ok:1", "ok:2") == {"ok:1": [1], "ok:2": [2]}
        assert gone(pid)  # long before the time limit


def test_a_worker_that_dies_while_it_is_idle_costs_nothing():
    with readers(count=1) as pool:
        pid = call(pool, fake_readers.describe_process)["pid"]
        os.kill(pid, signal.SIGKILL)
        (dead,) = pool._all
        assert until(lambda: not dead.alive)
        assert told(pool, "ok:1") == {"ok:1": [1]}


def test_a_closed_pool_says_so():
    pool = readers()
    pool.close()
    with pytest.raises(RuntimeError, match="closed"):
        list(pool.read(items("ok:1")))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits a process's data")
def test_memory_is_limited_for_each_worker():
    with readers(count=1, memory_gb=0.2) as pool:
        story = told(pool, "ok:1", "allocate", "ok:2")
    assert story == {"ok:1": [1], "allocate": [0, "crashed"], "ok:2": [2]}


@pytest.mark.slow
def test_a_message_that_would_fill_the_parents_memory_is_refused():
    with readers(count=1) as pool:
        assert len(call(pool, fake_readers.megabytes, 10)) == 10 * 1024**2
        with pytest.raises(WorkerFailure) as caught:
            call(pool, fake_readers.megabytes, 257)
    assert caught.value.code == "too_large"


@pytest.mark.slow
def test_calls_have_the_same_protection(impatient):
    with readers(count=1, timeout=HANGS) as pool:
        with pytest.raises(WorkerFailure) as caught:
            call(pool, fake_readers.hang)
        assert caught.value.code == "timeout"
        pool.timeout = LIMIT
        with pytest.raises(WorkerFailure) as caught:
            call(pool, fake_readers.double, 3)
        assert caught.value.code == "crashed"
        assert call(pool, fake_readers.double, 4) == 8
        assert call(pool, fake_readers.chatter) is None


@pytest.mark.slow
def test_calls_go_on_while_items_are_read():
    with readers(count=1) as pool:
        for number, *_ in pool.read(items(*["ok:1"] * 20)):
            assert call(pool, fake_readers.double, number + 10) == 2 * (number + 10)


def test_many_calls_come_in_order_and_fail_one_by_one():
    with readers(count=3) as pool:
        results = list(pool.map_calls(fake_readers.double, ((number,) for number in range(8))))
    assert isinstance(results[3], WorkerFailure) and results[3].code == "crashed"
    assert [result for k, result in enumerate(results) if k != 3] == [0, 2, 4, 8, 10, 12, 14]


def test_failures_quote_no_file():
    with readers(count=1) as pool:
        failure = next(m for *_, m in pool.read(items("raise")) if isinstance(m, Failure))
        with pytest.raises(WorkerFailure) as caught:
            call(pool, fake_readers._raise)
    assert "Doe" in failure.detail  # for --keep-ids
    assert caught.value.code in FAILURES
    for text in (repr(failure), repr(caught.value), str(caught.value), str(caught.getrepr())):
        assert "Doe" not in text.replace("_raise", "")


def test_workers_know_no_torch_and_use_one_thread_and_ignore_ctrl_c():
    with readers(count=1, memory_gb=4) as pool:
        state = call(pool, fake_readers.describe_process)
    assert state == state | {"torch": False, "main": None, "cv2_threads": 1, "omp": "1", "interrupt": True}


def test_a_function_of_the_running_script_is_refused(monkeypatch):
    def local():
        pass

    monkeypatch.setattr(local, "__module__", "__main__")
    with pytest.raises(ValueError, match="running script"), readers() as pool:
        call(pool, local)


def test_an_installation_that_cannot_read_is_an_error_and_no_endless_loop(tmp_path, monkeypatch):
    starts = tmp_path / "starts"
    (tmp_path / "broken_reader.py").write_text(
        textwrap.dedent(f"""
        import multiprocessing
        if multiprocessing.parent_process() is not None:
            with open({str(starts)!r}, "a") as file:
                file.write("x")
            raise ImportError("libopenjp2.so.7: cannot open shared object file")
        def read(item, settings):
            yield
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    import broken_reader

    with readers() as pool:
        call(pool, fake_readers.double, 1)  # the fork server is there, and has not imported the broken one
    with readers(reader=broken_reader.read, count=1) as pool, pytest.raises(UsvitError, match="libopenjp2") as caught:
        list(pool.read(items("ok:1")))
    assert starts.read_text() == "xxx"
    assert "do not start" in str(caught.value)


SCRIPT = """
import sys, os, signal, time
# What a shell runs in the background ignores it, and so would this.
signal.signal(signal.SIGINT, signal.default_int_handler)
{imports}
from tests.scoring.reading import fake_readers
from usvit.scoring.items import ItemFacts, ScoringItem
from usvit.scoring.reading.workers import Readers

pool = Readers(fake_readers.SETTINGS, workers=2, timeout=300, memory_gb=None, reader=fake_readers.read)
{body}
"""

PRINT_AND_HANG = """
with pool:
    found = [(k, ScoringItem("frames:2" if k < 2 else "{end}", "")) for k in range(4)]
    for _, item, message in pool.read(found):
        if isinstance(message, ItemFacts):
            print(message.device, flush=True)
"""


def start_script(tmp_path, body, imports=""):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(imports=imports, body=body))
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, str(script)], env=environment, **pipes)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_the_job_however_it_ends(tmp_path, how):
    process = start_script(tmp_path, PRINT_AND_HANG.format(end="hang"))
    pids = {int(process.stdout.readline()) for _ in range(3)}
    time.sleep(0.3)
    process.send_signal(how)
    process.wait(LIMIT)
    assert all(gone(pid) for pid in pids)
    assert process.stderr.read().count("Traceback") == (how == signal.SIGINT)  # the parent's own


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_worker_that_hangs_in_c_follows_its_parent_too(tmp_path):
    """The system ends it when its time limit, of ten minutes here, has passed twice: its alarm is put forward."""
    process = start_script(tmp_path, PRINT_AND_HANG.format(end="hang-in-c-soon-over"))
    pids = {int(process.stdout.readline()) for _ in range(3)}
    process.kill()
    process.wait(LIMIT)
    assert all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_a_script_without_a_guard_is_not_run_again_and_its_workers_print_nothing(tmp_path):
    body = """
print("once")
state, _ = (*pool.map_calls(fake_readers.describe_process, [()]), *pool.map_calls(fake_readers.chatter, [()]))
print(state["xmlrpc"])
"""
    process = start_script(tmp_path, body, imports="import xmlrpc")
    out, err = process.communicate(timeout=LIMIT)
    assert (out, err, process.returncode) == ("once\nFalse\n", "", 0)


def test_a_file_whose_reader_the_system_killed_is_read_once_more_and_no_frame_twice(tmp_path):
    """As the kernel does when the memory of the machine is full."""
    given = [(0, ScoringItem("killed:6", str(tmp_path / "mark"))), (1, ScoringItem("frames:1", ""))]
    with readers(count=1) as pool:
        messages = [(number, one) for number, _, one in pool.read(given)]
    assert [one.number for number, one in messages if number == 0 and isinstance(one, Frame)] == list(range(6))
    assert sum(isinstance(one, ItemFacts) for number, one in messages if number == 0) == 1
    assert not [one for _, one in messages if isinstance(one, Failure)] and (tmp_path / "mark").exists()
