import errno
import json
import subprocess
import sys
from datetime import timedelta

import filelock
import pytest

from tests.records.contents import content
from usvit.errors import UsvitError
from usvit.scoring.job_directory import open_folder

IDENTITY = {"key": "k", "model": "abc", "frames": "all"}


def test_the_same_job_resumes_and_keeps_its_date(tmp_path):
    out = tmp_path / "scores"
    with open_folder(out, IDENTITY) as first:
        assert not first.finished
    with open_folder(out, IDENTITY) as again:
        assert again.started == first.started
        (out / "journal.sqlite").write_bytes(b"")
        again.finish()
    assert sorted(path.name for path in out.iterdir()) == ["job.json"]
    with open_folder(out, IDENTITY) as done:
        assert done.finished


def test_a_clock_that_was_set_back_gives_no_negative_seconds(tmp_path):
    with open_folder(tmp_path / "scores", IDENTITY) as job:
        assert job.seconds_until(job.started + timedelta(seconds=7.26)) == 7.3
        assert job.seconds_until(job.started - timedelta(hours=1)) == 0.0


def test_another_job_is_refused_and_what_differs_is_named(tmp_path):
    with open_folder(tmp_path / "scores", IDENTITY):
        pass
    before = (tmp_path / "scores" / "job.json").read_bytes()
    with (
        pytest.raises(UsvitError, match=r"another job, which differs in: frames"),
        open_folder(tmp_path / "scores", {**IDENTITY, "frames": "middle"}),
    ):
        pass
    assert (tmp_path / "scores" / "job.json").read_bytes() == before


def test_a_folder_with_other_files_and_a_file_are_refused(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    for out in (tmp_path, tmp_path / "thesis.txt"):
        with (
            pytest.raises(UsvitError, match=r"Pass a folder|Choose another folder|choose another"),
            open_folder(out, IDENTITY),
        ):
            pass
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize("text", ["{", "[]", json.dumps(content("job", state="ended"))])
def test_a_damaged_record_is_told(tmp_path, text):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(UsvitError, match=r"job\.json"), open_folder(tmp_path, IDENTITY):
        pass


@pytest.mark.slow
def test_two_processes_do_not_work_on_one_folder(tmp_path):
    program = (
        "import sys; from pathlib import Path; from usvit.scoring.job_directory import open_folder\n"
        f"with open_folder(Path(sys.argv[1]), {IDENTITY!r}): pass"
    )
    with open_folder(tmp_path / "scores", IDENTITY):
        other = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "scores")], capture_output=True, text=True
        )
    assert "Another process is using" in other.stderr


def test_a_full_disk_is_told(small_disk):
    (small_disk / "filler").write_bytes(bytes(1_040_000))
    with (
        pytest.raises(UsvitError, match="No space left"),
        open_folder(small_disk / "scores", {"key": "k", "x": "y" * 20_000}),
    ):
        pass


def test_a_process_killed_before_its_record_was_there_is_no_other_job(tmp_path):
    out = tmp_path / "scores"
    out.mkdir()
    (out / ".lock").touch()
    (out / ".job.json.partial-0123").write_text("{")
    with open_folder(out, IDENTITY) as again:
        assert not again.finished


def test_what_another_process_wrote_meanwhile_is_seen(tmp_path, monkeypatch):
    out, take = tmp_path / "scores", filelock.FileLock.acquire

    def while_another_ends(lock, **options):
        monkeypatch.setattr(filelock.FileLock, "acquire", take)
        with open_folder(out, IDENTITY) as other:
            other.finish()
        return take(lock, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", while_another_ends)
    with open_folder(out, IDENTITY) as late:
        assert late.finished


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    (tmp_path / "scores").mkdir()

    def refused(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(type(tmp_path), "iterdir", refused)
    with pytest.raises(UsvitError, match="Cannot write"), open_folder(tmp_path / "scores", IDENTITY):
        pass


@pytest.mark.parametrize("started", ["garbage", "", "2026-99-99", "9" * 5000])
def test_a_date_that_is_none_is_damage(tmp_path, started):
    with open_folder(tmp_path / "scores", IDENTITY):
        pass
    job = tmp_path / "scores" / "job.json"
    job.write_text(json.dumps({**json.loads(job.read_text()), "started": started}))
    with pytest.raises(UsvitError, match=r"job\.json"), open_folder(tmp_path / "scores", IDENTITY):
        pass
