import stat
import struct
import zipfile
from pathlib import Path

import pytest

from usvit.data.datasets import fetch as module
from usvit.data.datasets.fetch import unpack
from usvit.errors import UsvitError
from usvit.progress import NoProgress


def make_zip(path: Path, files: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, body in files.items():
            archive.writestr(name, body)
    return path


def tree(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def unpacked(tmp_path: Path, archive: Path) -> dict[str, bytes]:
    unpack(archive, tmp_path / "out", NoProgress())
    return tree(tmp_path / "out")


def test_files_and_folders_come_out_as_they_went_in(tmp_path):
    files = {"Images/a (1).png": b"a", "Images/deep/b.png": b"b" * 1000, "läuse.csv": b"c"}
    assert unpacked(tmp_path, make_zip(tmp_path / "x.zip", files)) == files


def test_single_top_folder_is_left_out_and_what_macs_add_as_well(tmp_path):
    files = {"SET/Images/a.png": b"a", "SET/list.csv": b"c", "__MACOSX/SET/._a.png": b"x", "SET/.DS_Store": b"x"}
    assert unpacked(tmp_path, make_zip(tmp_path / "x.zip", files)) == {"Images/a.png": b"a", "list.csv": b"c"}


def test_single_file_at_the_top_keeps_its_name(tmp_path):
    assert unpacked(tmp_path, make_zip(tmp_path / "x.zip", {"a.png": b"a"})) == {"a.png": b"a"}


@pytest.mark.parametrize(
    "name", ["../evil", "a/../../evil", "/etc/evil", "..\\evil", "C:\\evil", "C:evil", "\\\\host\\share\\evil"]
)
def test_name_that_leads_out_of_the_folder_is_refused_before_anything_is_written(tmp_path, name):
    archive = make_zip(tmp_path / "x.zip", {"good.png": b"a", name: b"evil"})
    with pytest.raises(UsvitError, match="leads out of the folder"):
        unpacked(tmp_path, archive)
    assert [path.name for path in tmp_path.iterdir()] == ["x.zip"]


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR], ids=["link", "pipe", "device"])
def test_link_or_device_is_refused(tmp_path, kind):
    info = zipfile.ZipInfo("escape")
    info.external_attr = (kind | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(UsvitError, match="'escape' is a link or a device"):
        unpacked(tmp_path, tmp_path / "x.zip")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_bomb_is_refused_unopened(tmp_path):
    archive = make_zip(tmp_path / "x.zip", {"zeros": bytes(50_000_000)})
    with pytest.raises(UsvitError, match=r"unpacks to \d+ times its size, more than 100"):
        unpacked(tmp_path, archive)
    assert not (tmp_path / "out").exists()


def test_tables_that_compress_well_are_no_bomb(tmp_path):
    table = "".join(f"bus_{i:04},benign,{i % 5}\n" for i in range(20_000)).encode()
    assert unpacked(tmp_path, make_zip(tmp_path / "x.zip", {"list.csv": table})) == {"list.csv": table}


def test_bomb_that_lies_about_its_size_stops_at_what_it_claimed(tmp_path):
    """The sizes in both headers are made small; the stream still unpacks to all of its bytes."""
    archive = make_zip(tmp_path / "x.zip", {"zeros": bytes(5_000_000)})
    raw = archive.read_bytes().replace(struct.pack("<I", 5_000_000), struct.pack("<I", 1_000))
    archive.write_bytes(raw)
    with pytest.raises(UsvitError, match=r"damaged|lies about"):
        unpacked(tmp_path, archive)
    assert sum(len(body) for body in tree(tmp_path / "out").values()) <= 1_000


@pytest.mark.parametrize(("bound", "said"), [("MAX_FILES", "contains 3 files"), ("MAX_BYTES", "unpacks to 30 bytes")])
def test_bounds_on_number_and_size(tmp_path, monkeypatch, bound, said):
    monkeypatch.setattr(module, bound, 2)
    with pytest.raises(UsvitError, match=f"{said}, more than 2"):
        unpacked(tmp_path, make_zip(tmp_path / "x.zip", dict.fromkeys("abc", b"0123456789")))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_name_that_stands_twice_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a", b"1")
        archive.writestr("a", b"2")
    with pytest.raises(UsvitError, match="contains 'a' twice"):
        unpacked(tmp_path, tmp_path / "x.zip")


def test_what_is_there_is_not_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_bytes(b"mine")
    with pytest.raises(UsvitError):
        unpacked(tmp_path, make_zip(tmp_path / "x.zip", {"a": b"theirs"}))
    assert tree(tmp_path / "out") == {"a": b"mine"}


def flip(raw: bytes) -> bytes:
    at = raw.index(b"PAYLOAD")
    return raw[:at] + b"X" + raw[at + 1 :]


@pytest.mark.parametrize(
    "harm",
    [lambda raw: raw[:-30], flip, lambda raw: b"no archive", lambda raw: b""],
    ids=["cut", "bit", "text", "empty"],
)
def test_damaged_archive_says_so(tmp_path, harm):
    archive = make_zip(tmp_path / "x.zip", {"a": b"PAYLOAD" * 3}, zipfile.ZIP_STORED)
    archive.write_bytes(harm(archive.read_bytes()))
    with pytest.raises(UsvitError, match=r"x\.zip is damaged"):
        unpacked(tmp_path, archive)


def test_encrypted_or_strangely_compressed_members_are_named(tmp_path):
    with pytest.raises(UsvitError, match="'a' is compressed in a way"):
        unpacked(tmp_path, make_zip(tmp_path / "x.zip", {"a": b"1" * 100}, zipfile.ZIP_LZMA))
    archive = make_zip(tmp_path / "y.zip", {"a": b"1"})
    raw = bytearray(archive.read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    archive.write_bytes(raw)
    with pytest.raises(UsvitError, match="'a' is encrypted"):
        unpacked(tmp_path, archive)
