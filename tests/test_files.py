import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from usvit.errors import UsvitError
from usvit.files import (
    csv_text,
    disk_errors,
    sha256_of_file,
    sha256_of_text,
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

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise KeyError("a bug of the writer")

    with pytest.raises(KeyError, match="a bug of the writer"):
        write_atomic(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_interruption_leaves_the_old_file_and_nothing_else(tmp_path):
    def interrupted(temporary: Path) -> None:
        temporary.write_text("ne")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomic(tmp_path / "a.txt", interrupted)
    assert list(tmp_path.iterdir()) == []


def test_file_has_its_name_only_when_it_is_complete(tmp_path):
    path = tmp_path / "a.parquet"
    seen = []

    def write(temporary: Path) -> None:
        temporary.write_text("x")
        seen.append((path.exists(), temporary.parent == path.parent, temporary.suffix))

    write_atomic(path, write)
    assert seen == [(False, True, ".parquet")]
    assert path.exists()


def test_what_a_killed_writer_left_is_written_over(tmp_path):
    partial = []
    write_atomic(tmp_path / "a.txt", lambda temporary: (partial.append(temporary), temporary.write_text("x")))
    partial[0].write_text("half of an older one")
    write_text(tmp_path / "a.txt", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


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


BIG = torch.zeros(1_000_000)  # 4 MB on a disk of 1 MB


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("a.txt", lambda path: path.write_text("x" * 3_000_000)),
        ("a.safetensors", lambda path: save_file({"a": BIG}, path)),
        ("a.parquet", lambda path: pd.DataFrame({"a": np.random.default_rng(0).random(500_000)}).to_parquet(path)),
    ],
    ids=["text", "safetensors", "parquet"],
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
    assert "ulimit -f" in done.stdout and "give the same command again" in done.stdout, done.stderr
    assert list(tmp_path.iterdir()) == []
