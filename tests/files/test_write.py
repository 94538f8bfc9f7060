import json
import math
import os
import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from usvit.errors import UsvitError
from usvit.files import (
    alone_in,
    append_text,
    atomic,
    clear_partials,
    csv_text,
    disk_errors,
    locked,
    refuse_linked_folders,
    sha256_of_file,
    sha256_of_text,
    write,
    write_atomic,
    write_csv,
    write_json,
    write_text,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1


def test_folders_are_made_and_the_text_arrives(tmp_path):
    write_text(tmp_path / "a" / "b" / "c.txt", "Größe\n")
    assert (tmp_path / "a/b/c.txt").read_bytes() == "Größe\n".encode()


def test_an_existing_file_is_replaced_as_a_whole(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "a long first text")
    write_text(path, "short")
    assert path.read_text() == "short"


def test_writer_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def half(file) -> None:
        file.write(b"ne")
        raise KeyError("a bug of the writer")

    with pytest.raises(KeyError, match="a bug of the writer"):
        write_atomic(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_interruption_leaves_the_old_file_and_nothing_else(tmp_path):
    def interrupted(file) -> None:
        file.write(b"ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a.txt", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_file_has_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.parquet"
    seen = []

    def write(file) -> None:
        file.write(b"x")
        seen.append((path.exists(), [one.name for one in tmp_path.iterdir()]))

    write_atomic(path, write)
    [(there, [name])] = seen
    assert not there and re.fullmatch(r"\.a\.parquet\.partial-[0-9a-f]{32}", name)
    assert path.exists()


def test_what_killed_writers_left_can_be_cleared(tmp_path):
    (tmp_path / ".a.txt.partial-0123").write_text("half")
    (tmp_path / ".model.safetensors.partial-0123").write_text("half")
    write_text(tmp_path / "a.txt", "new")
    clear_partials(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.fixture
def canary(tmp_path):
    """A file and a folder of the user's that nothing may touch, and a folder that a stranger has made."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "profile").write_text("the user's own")
    (tmp_path / "run").mkdir()
    yield tmp_path / "run"
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["profile"]
    assert (tmp_path / "home" / "profile").read_text() == "the user's own"


@pytest.mark.parametrize("name", ["report.html", ".report.partial.html"])
def test_a_link_in_place_of_the_file_or_of_its_partial_is_not_followed(canary, name):
    (canary / name).symlink_to(canary.parent / "home" / "profile")
    write_text(canary / "report.html", "new")
    assert (canary / "report.html").read_text() == "new" and not (canary / "report.html").is_symlink()


def test_a_hard_link_in_place_of_the_file_is_replaced(canary):
    os.link(canary.parent / "home" / "profile", canary / "report.html")
    write_text(canary / "report.html", "new")


def test_a_linked_folder_below_the_root_is_refused_and_one_that_the_user_named_is_not(canary, tmp_path):
    (canary / "figures").symlink_to(tmp_path / "home")
    with pytest.raises(UsvitError, match=r"run/figures is a link"):
        write_text(canary / "figures" / "deeper" / "roc.svg", "x", root=canary)
    with pytest.raises(UsvitError, match=r"run/figures is a link"):
        refuse_linked_folders(canary)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    write_text(tmp_path / "out" / "figures" / "roc.svg", "x", root=tmp_path / "out")
    assert (tmp_path / "disk" / "figures" / "roc.svg").read_text() == "x"
    refuse_linked_folders(tmp_path / "out")
    with pytest.raises(ValueError, match="not below"):
        write_text(canary / ".." / "home" / "profile", "x", root=canary)


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="folders have no handles here")
def test_a_folder_that_is_exchanged_while_its_file_is_written_gets_nothing(canary, tmp_path):
    with atomic(canary / "a.txt") as file:
        file.write(b"x")
        canary.rename(tmp_path / "moved")
        canary.symlink_to(tmp_path / "home")
    assert (tmp_path / "moved" / "a.txt").read_text() == "x"


def test_nothing_is_added_to_what_a_link_leads_to(canary, tmp_path):
    append_text(canary / "a.csv", "1\n")
    append_text(canary / "a.csv", "2\n")
    assert (canary / "a.csv").read_text() == "1\n2\n"
    (canary / "b.csv").symlink_to(tmp_path / "home" / "profile")
    os.link(tmp_path / "home" / "profile", canary / "c.csv")
    for name in ("b.csv", "c.csv"):
        with pytest.raises(UsvitError, match="is a link"):
            append_text(canary / name, "x")


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_refused_before_it_empties_the_file(canary, tmp_path, link):
    link(tmp_path / "home" / "profile", canary / ".lock")
    with pytest.raises(UsvitError, match="is a link"), locked(canary / ".lock", "taken"):
        pass


def test_a_lock_is_held_by_one(tmp_path):
    lock = tmp_path / ".lock"
    with locked(lock, "taken"), pytest.raises(UsvitError, match="taken"), locked(lock, "taken"):
        pass


def test_permissions_are_as_asked_less_the_umask(tmp_path):
    before = os.umask(0o022)
    try:
        write_text(tmp_path / "open", "x")
        write_text(tmp_path / "own", "x", mode=0o600)
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in ("open", "own")] == [0o644, 0o600]


def test_without_handles_of_folders_the_rules_are_the_same(canary, tmp_path, monkeypatch):
    monkeypatch.setattr(write, "_BY_HANDLE", False)
    (canary / "a.txt").symlink_to(tmp_path / "home" / "profile")
    write_text(canary / "a.txt", "new")
    assert (canary / "a.txt").read_text() == "new"
    (canary / "figures").symlink_to(tmp_path / "home")
    with pytest.raises(UsvitError, match=r"run/figures is a link"):
        write_text(canary / "figures" / "roc.svg", "x", root=canary)
    write_text(canary / "more" / "roc.svg", "x", root=canary)
    assert sorted(path.name for path in canary.iterdir()) == ["a.txt", "figures", "more"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_json_that_other_readers_could_not_read_is_refused_and_the_old_stays(tmp_path, value):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        write_json(path, {"x": [value]})
    assert json.loads(path.read_text()) == {"x": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_json_is_readable_by_people(tmp_path):
    write_json(tmp_path / "a.json", {"b": "Größe", "a": None})
    assert (tmp_path / "a.json").read_text() == '{\n  "b": "Größe",\n  "a": null\n}\n'


def test_csv_has_the_same_bytes_everywhere_and_numbers_come_back_exactly(tmp_path):
    table = pd.DataFrame({"id": ["000001", "a,b"], "p": [1 / 3, np.nan]})
    write_csv(tmp_path / "a.csv", table)
    assert (tmp_path / "a.csv").read_bytes() == b'id,p\n000001,0.3333333333333333\n"a,b",\n'
    assert pd.read_csv(tmp_path / "a.csv").p[0] == 1 / 3
    assert csv_text(table).encode() == (tmp_path / "a.csv").read_bytes()


def test_hashes_are_sha256(tmp_path):
    write_text(tmp_path / "a", "abc")
    assert sha256_of_text("abc") == sha256_of_file(tmp_path / "a") == ABC


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.txt", lambda file: file.write(b"x" * 3_000_000)),
        ("a.parquet", lambda file: pd.DataFrame({"a": np.random.default_rng(0).random(500_000)}).to_parquet(file)),
    ],
    ids=["text", "parquet"],
)
def test_full_disk_is_explained_and_leaves_the_old_file(small_disk, name, write):
    path = small_disk / name
    path.write_text("old")
    with pytest.raises(UsvitError, match=rf"No space left on the disk while writing {path}(.|\n)*resume"):
        write_atomic(path, write)
    assert path.read_text() == "old"
    assert list(small_disk.iterdir()) == [path]


def test_file_where_a_folder_should_be_is_explained(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a.txt", tmp_path / "file" / "deeper" / "a.txt"):
        with pytest.raises(UsvitError, match=rf"Cannot write {path}: .*--out"):
            write_text(path, "x")


def test_folder_where_the_file_should_be_is_explained_and_stays(tmp_path):
    (tmp_path / "a.txt").mkdir()
    with pytest.raises(UsvitError, match=r"Cannot write .*a.txt: Is a directory"):
        write_text(tmp_path / "a.txt", "x")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to a read-only folder")
def test_read_only_folder_is_explained(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsvitError, match=r"Cannot write .*Permission denied.*--out"):
        write_text(tmp_path / "a.txt", "x")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ValueError("x"), UsvitError("said already")])
def test_other_errors_pass_through_as_they_are(tmp_path, error):
    with pytest.raises(type(error)) as caught, disk_errors(tmp_path):
        raise error
    assert caught.value is error


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="the system has no such limit")
def test_a_limit_of_file_sizes_is_named_and_leaves_nothing(tmp_path):
    program = (
        "import resource, sys; from pathlib import Path; from usvit.errors import UsvitError\n"
        "from usvit.files import write_bytes\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))\n"
        "try:\n    write_bytes(Path(sys.argv[1]), bytes(50_000))\n"
        "except UsvitError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, tmp_path / "a"], capture_output=True, text=True)
    assert "ulimit -f" in done.stdout and "run the same command again" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_written_by_one_process_and_keeps_no_lock(tmp_path):
    out = tmp_path / "out"
    with alone_in(out):
        with pytest.raises(UsvitError, match=f"Another process is working on {out}"), alone_in(out):
            pass
        assert out.is_dir()
    assert not out.exists(), "nothing was written"
    with alone_in(out):
        write_text(out / "a", "x")
    assert [path.name for path in out.iterdir()] == ["a"]
    with pytest.raises(KeyError), alone_in(tmp_path / "other"):
        raise KeyError
    assert not (tmp_path / "other").exists()


def test_a_name_that_is_not_utf_8_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(UsvitError, match=r"not valid UTF-8\. Rename it"):
        write_text(tmp_path / "a.html", "<p>" + os.fsdecode(b"\xff"))
    assert not list(tmp_path.iterdir())
