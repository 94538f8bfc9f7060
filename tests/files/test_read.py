import io
import json
import os
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from usvit.errors import UsvitError
from usvit.files import (
    Unreadable,
    parse_json,
    read_array,
    read_bytes,
    read_csv,
    read_json,
    read_parquet,
    read_text,
    regular_file,
    sha256_of_file,
    sha256_of_text,
    tables,
    within,
)


def test_only_regular_files_are_opened_and_a_fifo_does_not_wait(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name, why in (
        ("fifo", "not a regular file"),
        ("folder", ""),
        ("device", "symbolic link"),
        ("link", "symbolic"),
    ):
        with pytest.raises(UsvitError, match=rf"{name}.*{why}"):
            regular_file(tmp_path / name)
    with pytest.raises(UsvitError, match="not a regular file"):
        regular_file(tmp_path / "device", follow=True)
    assert read_bytes(tmp_path / "link", 10, follow=True) == b"x"
    with pytest.raises(UsvitError, match=r"There is no manifest .*none\. Make one\."):
        regular_file(tmp_path / "none", what="manifest", hint="Make one.")


def test_a_file_is_read_without_taking_the_memory_of_its_limit(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_bytes(tmp_path / "a", 2_000_000_000) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="reading this file gives EIO on Linux")
def test_an_error_of_the_disk_has_words(tmp_path):
    (tmp_path / "a").symlink_to("/proc/self/mem")
    for read in (read_text, read_json, read_csv, lambda path, follow: sha256_of_file(path)):
        with pytest.raises(UsvitError, match=r"Cannot read .*/a: Input/output error"):
            read(tmp_path / "a", follow=True)


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="this file states no size on Linux")
def test_a_file_that_states_no_size_is_read_up_to_the_limit(tmp_path):
    whole = read_bytes(Path("/proc/self/maps"), 10_000_000)
    assert len(whole) > 1000 and whole.endswith(b"\n")
    with pytest.raises(UsvitError, match="grew to more than 100 bytes"):
        read_bytes(Path("/proc/self/maps"), 100)


def test_text_that_is_not_utf_8_or_too_long_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"a\r\nb")
    assert read_text(tmp_path / "a") == "a\nb"
    (tmp_path / "b").write_bytes(b"\xff\xfe")
    with pytest.raises(Unreadable, match=r"b: it is not text in UTF-8\.") as caught:
        read_text(tmp_path / "b")
    assert caught.value.reason == "it is not text in UTF-8"
    with pytest.raises(Unreadable, match="at most 2 are read"):
        read_text(tmp_path / "a", 2)


def test_a_file_beyond_its_limit_is_not_read(tmp_path):
    with open(tmp_path / "a.json", "wb") as file:
        file.truncate(20 * 10**9)  # sparse
    with pytest.raises(UsvitError, match=r"20,000,000,000 bytes, and at most"):
        read_json(tmp_path / "a.json")
    with pytest.raises(UsvitError, match=r"20,000,000,000 bytes"):
        read_csv(tmp_path / "a.json")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 1_000_000, "levels"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "5000 levels"),
        (b"[" + b"1," * 4_000_000 + b"1]", "4,000,001 values"),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": ' + b"7" * 5000 + b"}", "too large"),
        (b'{"a": "\\ud800"}', "surrogates"),
        (b'{"a": 1', "damaged"),
        (b"\xff\xfe{}", "utf-8"),
        (b'"' + b'\\"' * 1_000_000, "damaged"),  # linear in its length
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_json_beyond_the_bounds_is_refused(content, why):
    with pytest.raises(UsvitError, match=rf"Cannot read x\.json.*{why}"):
        parse_json(content, "x.json")


def test_json_within_the_bounds_comes_as_it_is():
    value = {"a": [1, -2.5, "[[[[{{{{" * 50, '"\\', None, True], "é": {"b": [[]]}, "max": 2**63 - 1}
    assert parse_json(json.dumps(value).encode(), "x") == value
    assert parse_json(b'"\\u00e9 \\ud83d\\ude00"', "x") == "é 😀"


@pytest.mark.slow
def test_a_table_of_gigabytes_in_a_small_file_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "TABLE_BYTES", 10_000_000)
    cells = pa.array(["x" * 1000 + str(i % 7) for i in range(20_000)])
    pq.write_table(pa.table({"a": cells}), tmp_path / "a.parquet", compression="zstd")
    assert (tmp_path / "a.parquet").stat().st_size < 100_000
    with pytest.raises(UsvitError, match="more than 10,000,000 bytes once decoded"):
        read_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr(tables, "TABLE_CELLS", 1000)
    with pytest.raises(UsvitError, match="1,000 cells"):
        read_parquet(tmp_path / "a.parquet")


def test_tables_come_as_pandas_reads_them(tmp_path):
    table = pd.DataFrame({"image_id": ["007", "NA", None], "n": [1, 2, 3], "p": [0.5, np.nan, 1 / 3]})
    table.to_parquet(tmp_path / "a.parquet", index=False)
    table.to_csv(tmp_path / "a.csv", index=False)
    pd.testing.assert_frame_equal(read_parquet(tmp_path / "a.parquet"), pd.read_parquet(tmp_path / "a.parquet"))
    assert read_csv(tmp_path / "a.csv").values.tolist()[:2] == [["007", "1", "0.5"], ["NA", "2", ""]]
    typed = read_csv(tmp_path / "a.csv", text=("image_id",))
    assert typed["image_id"].tolist() == ["007", "NA", ""] and typed["n"].tolist() == [1, 2, 3]
    with pytest.raises(UsvitError, match=r"a\.csv: no column label"):
        read_csv(tmp_path / "a.csv", needed=("image_id", "label"))


def test_rows_that_are_longer_than_the_header_are_refused(tmp_path):
    """A decimal comma; pandas would shift the columns."""
    (tmp_path / "table.csv").write_text("width,loss\n64,0,5\n128,0,4\n")
    with pytest.raises(UsvitError, match="more cells than its header"):
        read_csv(tmp_path / "table.csv")


def test_a_line_of_a_million_columns_and_an_open_quote_are_refused(tmp_path):
    (tmp_path / "wide.csv").write_bytes(b"a," * 1_000_000)
    (tmp_path / "quote.csv").write_bytes(b'"a,b\n1,2\n')
    (tmp_path / "nothing.csv").write_bytes(b"")
    for name, why in (("wide", "2,000 columns"), ("quote", "CSV table"), ("nothing", "CSV table")):
        with pytest.raises(UsvitError, match=why):
            read_csv(tmp_path / f"{name}.csv")


def test_recorded_paths_stay_below_their_root(tmp_path):
    root, outside = tmp_path / "data", tmp_path / "outside"
    (root / "benign").mkdir(parents=True)
    outside.mkdir()
    (outside / "a.png").write_text("x")
    (root / "link.png").symlink_to(outside / "a.png")
    (root / "folder").symlink_to(outside)
    (tmp_path / "named").symlink_to(root)
    assert within(root, "benign/a.png") == root / "benign" / "a.png"
    assert within(tmp_path / "named", "benign/a.png") == tmp_path / "named" / "benign" / "a.png"
    for name in (
        f"{outside}/a.png",
        "../outside/a.png",
        "benign/../../outside/a.png",
        "link.png",
        "folder/a.png",
        "a\0",
    ):
        with pytest.raises(UsvitError, match="does not lie below"):
            within(root, name)


def test_the_hash_of_what_never_ends_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert sha256_of_file(tmp_path / "link") == sha256_of_text("abc")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("fifo", "zero"):
        with pytest.raises(UsvitError, match="not a regular file"):
            sha256_of_file(tmp_path / name)
    with pytest.raises(UsvitError, match="There is no"):
        sha256_of_file(tmp_path / "absent")


@pytest.mark.parametrize("shape", ["(3,)", "(10**30,)", f"({10**30},)", f"({10**14},)", "(-1,)"])
@pytest.mark.parametrize("start", [b"", b"PK\x03\x04"])
def test_an_array_that_is_cut_or_claims_too_much_is_refused(shape, start):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    content = start + b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(8)
    with pytest.raises(ValueError):
        read_array(io.BytesIO(content))


def test_arrays_are_read_one_after_the_other():
    file = io.BytesIO()
    for value in (1.5, 2.5):
        np.save(file, np.full(3, value))
    file.seek(0)
    assert [read_array(file).tolist() for _ in range(2)] == [[1.5] * 3, [2.5] * 3]
    with pytest.raises(ValueError):
        read_array(file)
