"""The audit log: two lines around the work, appended, for their owner alone, without a patient."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from usvit.errors import UsvitError
from usvit.scoring.audit_log import audited

NAMED = {"job": "a0123456789abcde", "model": "0" * 64, "key": "b0123456789abcde"}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def work(path, out, error=None, **known):
    with audited(path, out=out, **NAMED) as attempt:
        for name, value in known.items():
            setattr(attempt, name, value)
        if error is not None:
            raise error


def test_a_job_leaves_a_line_at_its_start_and_one_at_its_end(tmp_path):
    log = tmp_path / "log.jsonl"
    work(log, tmp_path / "out", counts={"frames_scored": 7}, partly=True)
    started, ended = lines(log)
    assert (started["event"], ended["event"]) == ("started", "ended")
    assert started["attempt"] == ended["attempt"] and started["job"] == ended["job"] == NAMED["job"]
    assert (started["model_sha256"], started["key_fingerprint"]) == (NAMED["model"], NAMED["key"])
    assert started["uid"] == os.getuid() and started["time"] <= ended["time"]
    assert ended["exit"] == 3 and ended["counts"] == {"frames_scored": 7} and ended["seconds"] >= 0
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("error", "code"), [(UsvitError("/home/x/Mrs Smith.dcm is bad"), 2), (KeyboardInterrupt(), 130), (KeyError("x"), 1)]
)
def test_a_job_that_fails_says_how_and_quotes_nothing(tmp_path, error, code):
    log = tmp_path / "log"
    with pytest.raises(type(error)):
        work(log, tmp_path / "out", error)
    ended = lines(log)[1]
    assert ended["exit"] == code and ended["error"] == type(error).__name__
    assert "Smith" not in log.read_text()


def test_earlier_lines_stay_and_jobs_do_not_mix(tmp_path):
    log = tmp_path / "log"
    for _ in range(3):
        work(log, tmp_path / "out")
    assert [one["event"] for one in lines(log)] == ["started", "ended"] * 3
    assert len({one["attempt"] for one in lines(log)}) == 3 and len({one["job"] for one in lines(log)}) == 1


def test_a_killed_process_leaves_its_first_line(tmp_path):
    program = (
        "import os, signal, sys; from pathlib import Path; from usvit.scoring.audit_log import audited\n"
        "with audited(Path(sys.argv[1]), out=Path('out'), job='j', model='m', key='k'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path / "log"], cwd=REPOSITORY)
    work(tmp_path / "log", tmp_path / "out")
    assert [one["event"] for one in lines(tmp_path / "log")] == ["started", "started", "ended"]


def test_links_pipes_and_what_others_may_read_are_refused_and_untouched(tmp_path):
    target = tmp_path / "target"
    target.write_text("a file of the user\n")
    target.chmod(0o600)
    (tmp_path / "link").symlink_to(target)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "shared").write_text("")
    (tmp_path / "shared").chmod(0o644)
    for name, says in (("link", "it is a link"), ("pipe", "pipe"), ("shared", "mode 644.*chmod 600")):
        with pytest.raises(UsvitError, match=says):
            work(tmp_path / name, tmp_path / "out")
    with pytest.raises(UsvitError, match="its folder must exist"):
        work(tmp_path / "nowhere" / "log", tmp_path / "out")
    with pytest.raises(UsvitError, match="in the output folder"):
        work(tmp_path / "out" / "log", tmp_path / "out")
    assert target.read_text() == "a file of the user\n" and (tmp_path / "shared").read_text() == ""


def test_without_a_log_nothing_is_written(tmp_path):
    work(None, tmp_path / "out")
    assert list(Path(tmp_path).iterdir()) == []
