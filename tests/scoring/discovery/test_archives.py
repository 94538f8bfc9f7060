import io
import struct
import warnings
import zipfile

import pytest

from usvit.scoring.discovery import archives
from usvit.scoring.discovery.archives import ArchiveMember, BadArchive, members


def write_zip(path, content, compression=zipfile.ZIP_DEFLATED):
    """(name, bytes) pairs as an archive."""
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", compression) as archive:
        warnings.simplefilter("ignore")  # of a name that comes twice
        for name, data in content:
            archive.writestr(name, data)
    return str(path)


def labels(path):
    return [one.label for one in members(path)]


def test_members_come_in_natural_order_and_folders_do_not(tmp_path):
    path = write_zip(tmp_path / "a", [("b/IM10", b"1"), ("b/IM2", b"2"), ("b/", b""), ("b", b"3"), ("a/x/1", b"4")])
    assert list(members(path)) == [ArchiveMember(name, name) for name in ("a/x/1", "b", "b/IM2", "b/IM10")]


def test_names_that_lead_elsewhere_are_only_names(tmp_path):
    names = ["../../x", "/etc/passwd", "C:\\x", "a\nb", "é", "-rf"]
    path = write_zip(tmp_path / "a", [(name, b"1") for name in names])
    before = sorted(tmp_path.iterdir())
    assert sorted(labels(path)) == sorted(names)
    assert sorted(tmp_path.iterdir()) == before


def test_names_in_an_odd_encoding_can_be_read_back(tmp_path):
    path = write_zip(tmp_path / "a", [("M_ller", b"1")])
    raw = (tmp_path / "a").read_bytes().replace(b"M_ller", b"M\x81ller")  # as DOS and old Windows wrote it
    (tmp_path / "a").write_bytes(raw)
    (member,) = members(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.read(member.name) == b"1"


def test_an_archive_in_an_archive_is_a_failure_whatever_its_name(tmp_path):
    inner = write_zip(tmp_path / "inner", [("x", b"1")])
    with open(inner, "rb") as file:
        path = write_zip(tmp_path / "a", [("IM1", file.read()), ("IM2", b"2")])
    assert list(members(path)) == [ArchiveMember("IM1", "IM1", "archive"), ArchiveMember("IM2", "IM2")]


def test_an_encrypted_or_damaged_member_fails_alone(tmp_path):
    path = write_zip(tmp_path / "a", [("IM1", b"1" * 50), ("IM2", b"2"), ("IM3", b"3")], zipfile.ZIP_STORED)
    raw = bytearray((tmp_path / "a").read_bytes())
    for signature, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        raw[raw.index(signature) + flags] |= 1  # says that the first is encrypted
    second = raw.index(b"PK\3\4", raw.index(b"IM1") + 1)
    raw[second] = ord("X")  # its local header is gone
    (tmp_path / "a").write_bytes(raw)
    assert list(members(path)) == [
        ArchiveMember("IM1", "IM1", "archive"),
        ArchiveMember("IM2", "IM2", "archive"),
        ArchiveMember("IM3", "IM3"),
    ]


def test_a_member_hidden_by_a_later_one_is_not_lost_without_a_word(tmp_path):
    path = write_zip(tmp_path / "a", [("x", b"old"), ("x", b"older"), ("x//1", b"odd"), ("x", b"new")])
    assert list(members(path)) == [
        ArchiveMember("x//2", "x", "archive"),
        ArchiveMember("x//3", "x", "archive"),
        ArchiveMember("x", "x"),
        ArchiveMember("x//1", "x//1"),
    ]
    assert len(set(labels(path))) == 4


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.999])
def test_a_cut_archive_is_damaged(tmp_path, cut):
    path = write_zip(tmp_path / "a", [(f"IM{number}", bytes(range(256))) for number in range(20)])
    raw = (tmp_path / "a").read_bytes()
    (tmp_path / "a").write_bytes(raw[: int(len(raw) * cut)])
    with pytest.raises(BadArchive):
        labels(path)


def test_any_damage_gives_members_or_a_bad_archive(tmp_path):
    import random

    whole = io.BytesIO()
    write_zip(whole, [(f"IM{number}", bytes([number]) * 300) for number in range(5)])
    draw = random.Random(0)
    outcomes = set()
    for _ in range(400):
        raw = bytearray(whole.getvalue())
        for _ in range(draw.choice([1, 3, 20])):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        (tmp_path / "a").write_bytes(raw)
        try:
            outcomes |= {member.problem for member in members(str(tmp_path / "a"))}
        except BadArchive:
            outcomes.add("bad")
    assert outcomes == {None, "archive", "bad"}


def test_too_many_members_are_refused_before_they_are_listed(tmp_path, monkeypatch):
    path = write_zip(tmp_path / "a", [(f"IM{number}", b"1") for number in range(20)])
    monkeypatch.setattr(archives, "MAX_MEMBERS", 20)
    assert len(labels(path)) == 20
    monkeypatch.setattr(archives, "MAX_MEMBERS", 19)
    # One that lies about their number in its end record is counted all the same.
    raw = bytearray((tmp_path / "a").read_bytes())
    end = raw.rindex(b"PK\5\6")
    raw[end + 8 : end + 12] = struct.pack("<HH", 1, 1)
    (tmp_path / "a").write_bytes(raw)
    monkeypatch.setattr(zipfile.ZipFile, "_RealGetContents", lambda self: pytest.fail("it was listed"))
    with pytest.raises(BadArchive):
        labels(path)


def test_an_archive_that_unpacks_to_far_more_than_images_do_is_refused(tmp_path, monkeypatch):
    zeros = write_zip(tmp_path / "zeros", [(f"IM{number}", bytes(1_000_000)) for number in range(3)])
    assert len(labels(zeros)) == 3  # small: a blank frame is no bomb
    monkeypatch.setattr(archives, "MAX_UNPACKED", 2_000_000)
    with pytest.raises(BadArchive):
        labels(zeros)
    stored = write_zip(tmp_path / "stored", [(f"IM{n}", bytes(1_000_000)) for n in range(3)], zipfile.ZIP_STORED)
    assert len(labels(stored)) == 3


def test_members_that_share_their_bytes_are_a_bomb(tmp_path):
    path = write_zip(
        tmp_path / "a", [("IM1", bytes(range(256)) * 20), ("IM2", b"2"), ("IM3", b"3")], zipfile.ZIP_STORED
    )
    raw = bytearray((tmp_path / "a").read_bytes())
    first = raw.index(b"PK\1\2")
    for number in (1, 2):  # all entries claim the first one's size and place
        entry = [place for place in range(len(raw)) if raw.startswith(b"PK\1\2", place)][number]
        raw[entry + 16 : entry + 28] = raw[first + 16 : first + 28]
        raw[entry + 42 : entry + 46] = raw[first + 42 : first + 46]
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(BadArchive):
        labels(path)


@pytest.mark.parametrize(
    "content",
    [
        [("word/document.xml", b"<w>"), ("[Content_Types].xml", b"<t>"), ("word/media/image1.png", b"p")],
        [("mimetype", b"application/epub+zip"), ("x.png", b"p")],
        [("META-INF/MANIFEST.MF", b"m"), ("A.class", b"c")],
        [],
        [("folder/", b"")],
    ],
)
def test_a_document_or_an_archive_without_files_has_no_members(tmp_path, content):
    assert labels(write_zip(tmp_path / "a", content)) == []


def test_members_of_one_name_take_linear_time(tmp_path, monkeypatch):
    """Counted, not timed: how often a label is looked up."""
    looked_up = 0

    class Counting(dict):
        def __contains__(self, key):
            nonlocal looked_up
            looked_up += 1
            return super().__contains__(key)

    path = write_zip(tmp_path / "a", [("IM1", b"x")] * 2000, zipfile.ZIP_STORED)
    opened = zipfile.ZipFile.__init__

    def counted(self, *arguments, **options):
        opened(self, *arguments, **options)
        self.NameToInfo = Counting(self.NameToInfo)

    monkeypatch.setattr(zipfile.ZipFile, "__init__", counted)
    found = labels(path)
    assert sorted(found) == sorted(["IM1", *(f"IM1//{k}" for k in range(1, 2000))])
    assert looked_up < 4 * 2000
