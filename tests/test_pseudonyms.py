import contextlib
import csv
import hashlib
import hmac
import os
import pickle
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydicom.uid import RE_VALID_UID

from tests.scoring.discovery.test_folders import nobody  # noqa: F401
from usvit.errors import UsvitError
from usvit.files import is_partial_of
from usvit.pseudonyms import LINK_COLUMNS, LinkTable, Pseudonyms, default_key_path, link_rows, refuse_inside
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.items import ScoringItem

KEY = bytes(range(32))
SECRET = hashlib.sha256(KEY).digest()  # what a file may hold: a key that counts up is refused
DOMAINS = ("item", "instance", "study", "patient")
FROZEN = ["fe3a79587baad8df", "bba6d2617c3a9f55", "c1aae6e50e63819a", "bae4307624411aa8"]
FROZEN_UID = "2.25.323208961630152450876443539203389659764"
FROZEN_FINGERPRINT = "c51e1f261e493762"


@pytest.fixture
def ids():
    return Pseudonyms(KEY)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "settings" / "usvit" / "pseudonym.key"


def refusal(function, *arguments, **options):
    with pytest.raises(UsvitError) as caught:
        function(*arguments, **options)
    return str(caught.value)


# Ids


def test_ids_are_hexadecimal_and_no_number_to_a_spreadsheet(ids):
    for number in range(500):
        for domain in DOMAINS:
            assert re.fullmatch("[a-f][0-9a-f]{15}", getattr(ids, domain)(f"IM{number}"))


def test_an_id_is_an_hmac_of_domain_and_text(ids):
    digest = hmac.new(KEY, b"patient\x00MRN-1", hashlib.sha256)
    assert ids.patient("MRN-1")[1:] == digest.hexdigest()[:15]


def test_ids_do_not_change_with_the_version(ids):
    """Written down: results of different years are joined by them."""
    assert [getattr(ids, domain)("1.2.3") for domain in DOMAINS] == FROZEN
    assert ids.uid("1.2.3") == FROZEN_UID
    assert ids.fingerprint == FROZEN_FINGERPRINT


def test_domains_and_keys_are_kept_apart(ids):
    other = Pseudonyms(bytes(32))
    found = {getattr(one, domain)("1.2.3") for one in (ids, other) for domain in DOMAINS}
    assert len(found | {ids.uid("1.2.3"), other.uid("1.2.3"), ids.fingerprint, other.fingerprint}) == 12


@pytest.mark.slow
@given(st.lists(st.text(max_size=9), unique=True, max_size=9))
def test_different_names_have_different_ids(names):
    assert len({Pseudonyms(KEY).item(name) for name in names}) == len(names)


def test_nothing_has_no_id(ids):
    for text in ("", " ", "\0", "  \0 "):
        assert ids.instance(text) == ids.study(text) == ids.patient(text) == ids.uid(text) == ""
    assert ids.item("") == ""


def test_padding_of_dicom_does_not_count_but_a_file_may_be_called_blank(ids):
    for text in ("MRN 1 ", " MRN 1", "MRN 1\0", "\tMRN 1 \0"):
        assert ids.patient(text) == ids.patient("MRN 1")
        assert ids.uid(text) == ids.uid("MRN 1")
    assert ids.patient("MRN1") != ids.patient("MRN 1")
    assert len({ids.item(" "), ids.item("  "), ids.item("a"), ids.item("a "), ""}) == 5


def test_names_of_any_bytes_have_ids_of_their_bytes(ids):
    name = os.fsdecode(b"M\xfcller/\xff.dcm")
    assert ids.item(name)[1:] == hmac.new(KEY, b"item\0M\xfcller/\xff.dcm", hashlib.sha256).hexdigest()[:15]
    assert ids.item("\ud800") and ids.patient("\ud800")  # what no file system gives


@given(st.text(alphabet="0123456789.", min_size=1, max_size=64))
def test_a_uid_becomes_a_valid_uid_of_a_uuid(uid):
    import uuid

    new = Pseudonyms(KEY).uid(uid)
    assert re.fullmatch(RE_VALID_UID, new) and len(new) <= 44
    made = uuid.UUID(int=int(new.removeprefix("2.25.")))
    assert made.variant == uuid.RFC_4122 and made.version == 8


def test_a_repr_and_an_error_show_no_key(ids):
    assert KEY.hex()[:8] not in repr(ids) and "\\x01" not in repr(ids)
    assert ids.fingerprint in repr(ids)
    with pytest.raises(ValueError, match="31 bytes"):
        Pseudonyms(KEY[:31])


def test_a_worker_of_another_process_has_the_same_ids(ids):
    assert pickle.loads(pickle.dumps(ids)).item("x") == ids.item("x")


# The key


def test_a_key_is_made_for_its_owner_alone_and_kept(path):
    old = os.umask(0)
    try:
        first = Pseudonyms.of_key(path)
    finally:
        os.umask(old)
    content = path.read_bytes()
    assert re.fullmatch(rb"[0-9a-f]{64}\n", content)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [one.name for one in path.parent.iterdir()] == ["pseudonym.key"]
    second = Pseudonyms.of_key(path)
    assert path.read_bytes() == content
    assert second.fingerprint == first.fingerprint
    assert first.warning is second.warning is None
    assert Pseudonyms(bytes.fromhex(content.decode())).item("x") == first.item("x")


def test_two_keys_are_two(tmp_path):
    assert Pseudonyms.of_key(tmp_path / "a").fingerprint != Pseudonyms.of_key(tmp_path / "b").fingerprint


@pytest.mark.parametrize("content", [SECRET.hex().upper(), SECRET.hex() + "\r\n", SECRET.hex() + "\n\n"])
def test_a_key_that_went_through_an_editor_is_the_same_key(tmp_path, content):
    (tmp_path / "key").write_text(content, newline="")
    assert Pseudonyms.of_key(tmp_path / "key").fingerprint == Pseudonyms(SECRET).fingerprint


@pytest.mark.parametrize("key", [bytes(32), b"\xff" * 32, bytes(range(32)), bytes.fromhex("0123456789abcdef" * 4)])
def test_a_key_that_anybody_could_try_is_refused(tmp_path, key):
    (tmp_path / "key").write_text(key.hex() + "\n")
    text = refusal(Pseudonyms.of_key, tmp_path / "key")
    assert "holds no secret" in text and "Delete it" in text and key.hex() not in text


def test_random_keys_are_never_taken_for_typed_ones():
    from usvit.pseudonyms import _is_weak

    assert not any(_is_weak(hashlib.sha256(bytes([a, b])).digest()) for a in range(100) for b in range(100))


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", KEY, KEY.hex()[:63].encode(), KEY.hex().encode() + b"0", b"\xef\xbb\xbf" + KEY.hex().encode()],
)
def test_a_damaged_key_is_refused_unquoted_and_untouched(tmp_path, content):
    (tmp_path / "key").write_bytes(content)
    text = refusal(Pseudonyms.of_key, tmp_path / "key")
    assert ("is empty" if not content else "is damaged") in text and str(tmp_path / "key") in text
    assert KEY.hex()[:10] not in text
    assert (tmp_path / "key").read_bytes() == content


def test_a_key_that_is_no_file_is_refused(tmp_path):
    assert "is not a file" in refusal(Pseudonyms.of_key, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "is not a file" in refusal(Pseudonyms.of_key, tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nothing")
    assert "link to nothing" in refusal(Pseudonyms.of_key, tmp_path / "link")
    (tmp_path / "file").write_text("x")
    assert "--key" in refusal(Pseudonyms.of_key, tmp_path / "file" / "key")


def test_a_key_that_may_not_be_read_or_made_is_refused(nobody):  # noqa: F811
    Pseudonyms.of_key(nobody / "key")
    (nobody / "key").chmod(0o000)
    assert "cannot be read" in refusal(Pseudonyms.of_key, nobody / "key")
    (nobody / "shut").mkdir(mode=0o500)
    assert "cannot be made" in refusal(Pseudonyms.of_key, nobody / "shut" / "key")
    assert "cannot be made" in refusal(Pseudonyms.of_key, nobody / "shut" / "deep" / "key")
    assert list((nobody / "shut").iterdir()) == []


def test_a_key_that_others_can_read_is_told(path):
    Pseudonyms.of_key(path)
    path.chmod(0o644)
    warning = Pseudonyms.of_key(path).warning
    assert str(path) in warning and "644" in warning and "\n" not in warning


def test_a_full_disk_leaves_no_half_key(small_disk):
    with open(small_disk / "fill", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    assert "cannot be made" in refusal(Pseudonyms.of_key, small_disk / "key")
    assert [one.name for one in small_disk.iterdir()] == ["fill"]


@pytest.mark.slow
def test_processes_that_make_the_key_at_once_get_one_key(tmp_path):
    code = """
import sys, pathlib
from usvit.pseudonyms import Pseudonyms
folder = pathlib.Path(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
print(*(Pseudonyms.of_key(folder / str(number) / "key").fingerprint for number in range(100)))
"""
    command = [sys.executable, "-c", code, str(tmp_path)]
    pipe = subprocess.PIPE
    several = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for one in several:
        assert one.stdout.readline() == "ready\n"
    for one in several:
        one.stdin.write("go\n")
        one.stdin.flush()
    said = [one.communicate()[0].split() for one in several]
    assert said == [said[0]] * 4
    assert len(set(said[0])) == 100
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"key"}


def test_a_file_system_without_hard_links_holds_a_key_too(path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    first = Pseudonyms.of_key(path)
    assert Pseudonyms.of_key(path).fingerprint == first.fingerprint
    assert [one.name for one in path.parent.iterdir()] == ["pseudonym.key"]


def test_a_key_made_by_another_process_meanwhile_is_taken(path, monkeypatch):
    link = os.link

    def another_is_faster(source, target):
        Path(target).write_text(SECRET.hex() + "\n")
        link(source, target)

    monkeypatch.setattr(os, "link", another_is_faster)
    assert Pseudonyms.of_key(path).fingerprint == Pseudonyms(SECRET).fingerprint


def test_the_default_key_lies_among_the_settings_unless_the_environment_says_otherwise(monkeypatch, tmp_path):
    monkeypatch.setenv("USVIT_KEY", str(tmp_path / "mine"))
    assert default_key_path() == tmp_path / "mine"
    monkeypatch.setenv("USVIT_KEY", "")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert default_key_path().name == "pseudonym.key" and default_key_path().parent.name == "usvit"
    if sys.platform == "linux":
        assert default_key_path() == tmp_path / "usvit" / "pseudonym.key"


# The table that leads back


ITEMS = [
    ScoringItem("a/Doe, Jane.dcm", "/export/a/Doe, Jane.dcm"),
    ScoringItem('=HYPERLINK("x")', '/export/=HYPERLINK("x")'),
    ScoringItem("two\nlines\r.dcm", "/export/two\nlines\r.dcm"),
    ScoringItem(os.fsdecode(b"M\xfcller"), os.fsdecode(b"/export/M\xfcller")),
    ScoringItem("a.zip!m", "/export/a.zip", member="m"),
    ScoringItem("-x", "/export/-x", problem="not_found"),
]


def read(path):
    with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
        return [tuple(row) for row in csv.reader(file)]


def write(path, out, ids, items=ITEMS):
    with LinkTable(path, ids, out=out) as table:
        for item in items:
            table.add(item)


def test_the_link_table_leads_from_ids_to_files(tmp_path, ids):
    path = tmp_path / "private" / "link.csv"
    write(path, tmp_path / "out", ids)
    header, *rows = read(path)
    assert header == LINK_COLUMNS
    assert rows == list(link_rows(ITEMS, ids))
    assert [row[0] for row in rows] == [ids.item(item.name) for item in ITEMS]
    assert [row[2] for row in rows] == [item.location for item in ITEMS]
    names = [row[1] for row in rows]
    assert [name.removeprefix("./") for name in names] == [item.name for item in ITEMS]
    assert not [name for name in names if name[0] in "=+-@"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(path.parent.iterdir()) == [path]


def test_the_link_table_of_a_real_folder(tmp_path, ids):
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "IM1").write_bytes(b"x")
    write(tmp_path / "link.csv", tmp_path / "out", ids, discover([str(tmp_path / "export")]))
    assert read(tmp_path / "link.csv")[1:] == [(ids.item("IM1"), "IM1", str(tmp_path / "export" / "IM1"))]


def test_an_error_leaves_the_old_table_and_nothing_else(tmp_path, ids):
    path = tmp_path / "link.csv"
    write(path, tmp_path / "out", ids, ITEMS[:1])
    old = path.read_bytes()
    with pytest.raises(KeyError), LinkTable(path, ids, out=tmp_path / "out") as table:
        table.add(ITEMS[1])
        raise KeyError
    assert path.read_bytes() == old and list(tmp_path.iterdir()) == [path]
    write(path, tmp_path / "out", ids, ITEMS[1:])  # a resumed job
    assert len(read(path)) == len(ITEMS)


def test_what_a_killed_job_left_behind_is_replaced_and_private(tmp_path, ids):
    left = tmp_path / f".link.csv.partial-{'0f' * 16}"
    left.write_text("half")
    left.chmod(0o666)
    write(tmp_path / "link.csv", tmp_path / "out", ids)
    assert stat.S_IMODE((tmp_path / "link.csv").stat().st_mode) == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["link.csv"]


def test_a_link_table_in_the_output_folder_is_refused(tmp_path, ids):
    (tmp_path / "out").mkdir()
    (tmp_path / "alias").symlink_to("out")
    for path in (tmp_path / "out/link.csv", tmp_path / "alias/deep/link.csv", tmp_path / "x/../out/link.csv"):
        assert "outside" in refusal(write, path, tmp_path / "out", ids)
    assert list((tmp_path / "out").iterdir()) == []
    write(tmp_path / "out2.csv", tmp_path / "out", ids)
    assert "The key" in refusal(refuse_inside, tmp_path / "out" / "key", tmp_path / "alias", "The key")


def test_a_link_in_place_of_the_growing_table_leads_nowhere(tmp_path, ids):
    """The name that it had while it grew was known beforehand; a link of that name is left as it is."""
    (tmp_path / "profile").write_text("mine")
    (tmp_path / ".link.csv.partial").symlink_to(tmp_path / "profile")
    with LinkTable(tmp_path / "link.csv", ids) as table:
        growing = [one for one in tmp_path.iterdir() if is_partial_of(one.name, tmp_path / "link.csv")]
        assert len(growing) == 1 and stat.S_IMODE(growing[0].stat().st_mode) == 0o600
        table.add(ITEMS[0])
    assert (tmp_path / "profile").read_text() == "mine" and (tmp_path / ".link.csv.partial").is_symlink()
    assert len(read(tmp_path / "link.csv")) == 2 and not growing[0].exists()


def test_a_link_table_replaces_no_other_file(tmp_path, ids):
    (tmp_path / "inputs.csv").write_text("path\nx\n")
    assert "would replace another file" in refusal(write, tmp_path / "inputs.csv", tmp_path / "out", ids)
    assert (tmp_path / "inputs.csv").read_text() == "path\nx\n"
    assert "would replace" in refusal(write, tmp_path, tmp_path / "out", ids)


def test_a_link_table_that_cannot_be_written_is_told(nobody, ids):  # noqa: F811
    (nobody / "shut").mkdir(mode=0o500)
    assert "--link" in refusal(write, nobody / "shut" / "link.csv", nobody / "out", ids)


def test_an_error_of_the_job_is_not_taken_for_one_of_the_link_table(tmp_path, ids):
    with pytest.raises(FileNotFoundError), LinkTable(tmp_path / "link.csv", ids, out=tmp_path / "out"):
        raise FileNotFoundError


@pytest.mark.slow
def test_no_torch_is_needed_to_find_and_name(tmp_path):
    code = (
        "import sys, usvit.scoring.discovery.inputs, usvit.pseudonyms; "
        "print('torch' in sys.modules, 'pydicom' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["False", "False"]
