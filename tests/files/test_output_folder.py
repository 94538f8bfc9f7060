"""A folder that a command writes: what it refuses, how it is locked, and how it takes its place as a whole."""

import os
import stat
import sys
import time

import pytest

from usvit.errors import UsvitError
from usvit.files import ABANDONED_AFTER_S, OutputFolder, TakenFolder, locked, output_folder, write_text

PARTIAL = f"partial-{'0' * 32}"


def plan_in(path):
    return OutputFolder(path, "a plan", files=("plan.json", "fold-*/plan.csv", "figures"))


def run_in(path):
    return OutputFolder(path, "a run", "run.json", files=("plan.json",))


@pytest.mark.parametrize(
    "own",
    [
        "plan.json",
        f".plan.json.{PARTIAL}",
        ".lock",
        "fold-0/plan.csv",
        f"fold-11/.plan.csv.{PARTIAL}",
        "figures/any/1.png",
    ],
)
def test_its_own_files_and_what_a_killed_process_left_are_accepted(tmp_path, own):
    (tmp_path / own).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / own).touch()
    plan_in(tmp_path).refuse_other_files()
    plan_in(tmp_path / "missing").refuse_other_files()


@pytest.mark.parametrize(
    "other",
    [
        "thesis.txt",
        f".thesis.txt.{PARTIAL}",
        ".plan.json.partial-mine",
        "plan.csv",
        "fold-0/model.pt",
        "notes/plan.csv",
    ],
)
def test_other_files_are_refused_by_name_and_stay(tmp_path, other):
    (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / other).write_text("years of work")
    folder = plan_in(tmp_path)
    named = other.split("/")[0].replace(".", r"\.")
    with pytest.raises(UsvitError, match=f"is not a plan of usvit: it holds other files, such as {named}"):
        folder.refuse_other_files()
    with pytest.raises(UsvitError, match="Nothing was changed"), folder.opened():
        pytest.fail("the block must not run")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [other]


def test_a_file_in_its_place_is_refused(tmp_path):
    (tmp_path / "plan").write_text("mine")
    with pytest.raises(UsvitError, match="is a file, so it is not a plan"):
        plan_in(tmp_path / "plan").refuse_other_files()


@pytest.mark.skipif(sys.platform == "win32", reason="links need a privilege")
def test_a_link_to_a_folder_is_not_looked_into(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "again").symlink_to(tmp_path / "out")
    with pytest.raises(UsvitError, match="such as again"):
        plan_in(tmp_path / "out").refuse_other_files()


def test_beside_its_record_users_may_keep_their_files(tmp_path):
    assert not run_in(tmp_path).has_record()
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsvitError, match="is not a run"):
        run_in(tmp_path).has_record()
    (tmp_path / "run.json").touch()
    assert run_in(tmp_path).has_record()


def test_an_open_folder_is_locked_and_afterwards_only_results_are_left(tmp_path):
    folder = plan_in(tmp_path / "out")
    with folder.opened():
        with pytest.raises(UsvitError, match="Another process is working on"), folder.opened():
            pytest.fail("the block must not run")
        write_text(folder.path / "plan.json", "{}")
    assert [path.name for path in folder.path.iterdir()] == ["plan.json"]
    (folder.path / f".plan.json.{PARTIAL}").touch()
    with folder.opened():
        assert sorted(path.name for path in folder.path.iterdir()) == [".lock", "plan.json"]


def test_temporary_files_of_others_are_kept(tmp_path):
    (tmp_path / "run.json").touch()
    for name in (f".film.mp4.{PARTIAL}", f".run.json.{PARTIAL}", ".run.json.partial"):
        (tmp_path / name).touch()
    with run_in(tmp_path).opened():
        pass
    kept = [".run.json.partial", f".film.mp4.{PARTIAL}", "run.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_an_error_leaves_no_new_empty_folder_and_the_folder_of_the_user(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("new", "mine"):
        with pytest.raises(ZeroDivisionError), plan_in(tmp_path / name).opened():
            raise ZeroDivisionError
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_another_process_wrote_before_the_lock_is_refused(tmp_path, monkeypatch):
    def written_first(path, taken):
        (path.parent / "other.txt").touch()
        return locked(path, taken)

    monkeypatch.setattr(output_folder, "locked", written_first)
    with pytest.raises(UsvitError, match=r"such as other\.txt"), plan_in(tmp_path / "out").opened():
        pytest.fail("the block must not run")


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
@pytest.mark.parametrize("way", ["opened", "staged"])
def test_private_files_are_for_the_owner_alone(tmp_path, way):
    before = os.umask(0o022)
    try:
        for private, modes in ((True, (0o700, 0o600)), (False, (0o755, 0o644))):
            folder = plan_in(tmp_path / str(private))
            with getattr(folder, way)(private=private) as partial:
                write_text((partial or folder.path) / "plan.json", "{}")
            paths = (folder.path, folder.path / "plan.json")
            assert tuple(stat.S_IMODE(path.stat().st_mode) for path in paths) == modes
    finally:
        os.umask(before)


def test_a_staged_folder_appears_whole_or_not_at_all(tmp_path):
    folder = plan_in(tmp_path / "a" / "b")
    with pytest.raises(ZeroDivisionError), folder.staged() as partial:
        (partial / "half").touch()
        raise ZeroDivisionError
    assert list(folder.path.parent.iterdir()) == []
    with folder.staged() as partial:
        (partial / "plan.json").touch()
        assert not folder.path.exists()
    assert [path.name for path in (tmp_path / "a").rglob("*")] == ["b", "plan.json"]


def test_a_staged_folder_replaces_only_the_files_that_it_is_told_to(tmp_path):
    for name in ("plan.json", "mine.txt"):
        (tmp_path / name).write_text("old")
    with plan_in(tmp_path).staged(replaces=("plan.json",)) as partial:
        (partial / "plan.json").write_text("new")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"plan.json": "new", "mine.txt": "old"}


def test_of_two_processes_that_stage_the_slower_one_overwrites_nothing(tmp_path):
    folder = plan_in(tmp_path / "out")
    with (
        pytest.raises(TakenFolder, match="Another process has written"),
        folder.staged(),
        folder.staged() as faster,
    ):
        (faster / "plan.json").write_text("first")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "plan.json"]


def test_only_abandoned_staging_folders_are_removed(tmp_path):
    abandoned, busy = tmp_path / ".out.partial-old", tmp_path / ".out.partial-new"
    for path in (abandoned, busy):
        (path / "fold-0").mkdir(parents=True)
    past = time.time() - ABANDONED_AFTER_S - 60
    for path in (abandoned / "fold-0", abandoned):
        os.utime(path, (past, past))
    with plan_in(tmp_path / "out").staged():
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == [busy.name, "out"]
