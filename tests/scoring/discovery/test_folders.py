import os
import socket
import string
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from usvit.scoring.discovery.folders import FoundFile, Pattern, Walk, natural


def names(found):
    return [one.name for one in found]


def problems(found):
    return {one.name: one.problem for one in found if one.problem}


def make(folder, *files):
    for name in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return folder


def walk(folder, **options):
    return list(Walk([str(folder)], **options).below(str(folder)))


def test_order_is_natural_folder_by_folder_and_hidden_files_come_too(tmp_path):
    make(tmp_path, "IM10", "IM2", "IM02", "b/1", "b/10", "b/9", "a/.hidden", ".DS_Store", "__MACOSX/._IM2", "Z", "é")
    assert names(walk(tmp_path)) == [
        *(".DS_Store", "IM02", "IM2", "IM10", "Z", "__MACOSX/._IM2", "a/.hidden", "b/1", "b/9", "b/10", "é"),
    ]


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(st.text(string.ascii_letters + string.digits + "._- é/\udc80\n", max_size=12), max_size=6))
def test_natural_order_is_total(texts):
    keys = [natural(text) for text in texts]
    assert len({repr(key) for key in keys}) == len(set(texts))
    assert [natural(text) for text in sorted(texts, key=natural)] == sorted(keys)


def test_natural_order_of_numbers_of_any_length():
    assert natural("a" + "9" * 4000) < natural("a1" + "0" * 4000)


def test_a_link_to_a_folder_above_is_a_loop_and_is_not_followed(tmp_path):
    make(tmp_path / "export", "a/x")
    (tmp_path / "export" / "a" / "top").symlink_to(tmp_path / "export")
    (tmp_path / "export" / "a" / "here").symlink_to(".")
    (tmp_path / "export" / "above_the_input").symlink_to(tmp_path)
    (tmp_path / "export" / "self").symlink_to("self")
    found = walk(tmp_path / "export")
    assert names(found) == ["a/here", "a/top", "a/x", "above_the_input", "self"]
    assert problems(found) == dict.fromkeys(["a/here", "a/top", "above_the_input", "self"], "loop")


def test_a_loop_through_a_folder_outside_is_found(tmp_path):
    make(tmp_path, "export/x", "other/y")
    (tmp_path / "export" / "out").symlink_to(tmp_path / "other")
    (tmp_path / "other" / "back").symlink_to(tmp_path / "export")
    found = walk(tmp_path / "export")
    assert names(found) == ["out/back", "out/y", "x"]
    assert problems(found) == {"out/back": "loop"}


def test_a_link_to_a_folder_of_the_input_brings_nothing_twice(tmp_path):
    make(tmp_path, "real/x")
    (tmp_path / "a_link").symlink_to("real")
    assert names(walk(tmp_path)) == ["real/x"]


def test_a_folder_outside_comes_through_the_first_link_only(tmp_path):
    make(tmp_path, "export/x", "other/in/y")
    for name, target in (("link2", "other"), ("link10", "other"), ("link1", "other/in")):
        (tmp_path / "export" / name).symlink_to(tmp_path / target)
    assert names(walk(tmp_path / "export")) == ["link1/y", "x"]


def test_a_link_to_a_file_comes_under_its_own_name(tmp_path):
    make(tmp_path, "export/x", "elsewhere")
    (tmp_path / "export" / "near").symlink_to("x")
    (tmp_path / "export" / "far").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "export" / "gone").symlink_to("nothing")
    found = walk(tmp_path / "export")
    assert names(found) == ["far", "gone", "near", "x"]
    assert problems(found) == {"gone": "not_found"}


def test_pipes_sockets_and_devices_are_named_and_never_opened(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to_pipe").symlink_to("pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    monkeypatch.chdir(tmp_path)  # a socket's path is short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    assert problems(walk(tmp_path)) == dict.fromkeys(["null", "pipe", "socket", "to_pipe"], "not_an_image")


@pytest.fixture
def nobody():
    """A folder of one's own, and no rights of root."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        as_root = os.geteuid() == 0
        Path(folder).chmod(0o777)
        if as_root:
            os.seteuid(65534)
        try:
            yield Path(folder)
        finally:
            if as_root:
                os.seteuid(0)


def test_what_may_not_be_entered_is_unreadable_and_the_rest_comes(nobody):
    make(nobody, "a/x", "closed/y", "listed/folder/z", "listed/file", "b")
    (nobody / "closed").chmod(0o000)
    (nobody / "listed").chmod(0o400)
    try:
        found = walk(nobody)
        dcm = list(Walk().below(str(nobody), Pattern(["**", "*.dcm"])))
    finally:
        (nobody / "closed").chmod(0o700)
        (nobody / "listed").chmod(0o700)
    assert names(found) == ["a/x", "b", "closed", "listed/file", "listed/folder"]
    assert problems(found) == dict.fromkeys(["closed", "listed/file", "listed/folder"], "unreadable")
    assert names(dcm) == ["closed", "listed/folder"]  # what the pattern asks for may lie there


def test_a_folder_that_vanishes_meanwhile_is_not_found(tmp_path):
    make(tmp_path, "a/x", "b/y")
    found = Walk([str(tmp_path)]).below(str(tmp_path))
    first = next(found)
    (tmp_path / "b" / "y").unlink()
    (tmp_path / "b").rmdir()
    assert [first, *found] == [
        FoundFile("a/x", str(tmp_path / "a/x")),
        FoundFile("b", str(tmp_path / "b"), "not_found"),
    ]


def test_the_output_folder_is_left_out_however_it_is_reached(tmp_path):
    make(tmp_path, "export/a/x", "export/a/out/y", "export/out/z")
    (tmp_path / "export" / "to_out").symlink_to("a/out")
    (tmp_path / "elsewhere").symlink_to("export/a")
    left = tmp_path / "elsewhere" / "out"
    assert names(walk(tmp_path / "export", exclude=left)) == ["a/x", "out/z"]
    assert walk(tmp_path / "export" / "a" / "out", exclude=left) == []


def test_names_of_any_bytes(tmp_path):
    raw = [b"M\xfcller", b"two\nlines", b"-rf", b" ", b"\xff\xfe", "Ž".encode(), b"q" * 255]
    for name in raw:
        with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
            pass
    found = walk(tmp_path)
    assert {os.fsencode(one.name) for one in found} == set(raw)
    assert all(Path(one.path).exists() for one in found)


@pytest.fixture
def bottomless(tmp_path):
    """A folder 2,500 levels deep, taken away afterwards: `shutil.rmtree`, pytest's own, recurses before Python 3.13."""
    here = Path.cwd()
    try:
        os.chdir(tmp_path)
        for _ in range(2500):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.chdir(here)
    yield tmp_path
    subprocess.run(["rm", "-rf", str(tmp_path / "d")], check=True)


@pytest.mark.slow
def test_a_tree_deeper_than_the_stack_and_than_a_path_may_be(bottomless):
    (found,) = walk(bottomless)
    assert found.problem == "not_found"  # ENAMETOOLONG
    assert 1500 < found.name.count("/") < 2500


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["a.dcm", "b.png", "d/e.dcm", "d/f/g.dcm", "d/f/h", "x.dcm/i"]),
        ("*.dcm", ["a.dcm", "x.dcm/i"]),
        ("**/*.dcm", ["a.dcm", "d/e.dcm", "d/f/g.dcm", "x.dcm/i"]),
        ("**", ["a.dcm", "b.png", "d/e.dcm", "d/f/g.dcm", "d/f/h", "x.dcm/i"]),
        ("d/**", ["d/e.dcm", "d/f/g.dcm", "d/f/h"]),
        ("**/f/**/h", ["d/f/h"]),
        ("*/*", ["d/e.dcm", "d/f/g.dcm", "d/f/h", "x.dcm/i"]),
        ("[!ab].dcm", ["x.dcm/i"]),
        ("?.p?g", ["b.png"]),
        ("*.DCM", []),
    ],
)
def test_a_pattern_finds_what_it_says_and_all_in_folders_that_match(tmp_path, pattern, expected):
    make(tmp_path, "a.dcm", "b.png", "d/e.dcm", "d/f/g.dcm", "d/f/h", "x.dcm/i")
    assert names(Walk().below(str(tmp_path), Pattern(pattern.split("/")))) == expected


PART = st.sampled_from(["**", "*", "?", "a*", "[ab]", "*.dcm", "ab", "**"])


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(PART, min_size=1, max_size=4), st.lists(st.sampled_from(["a", "b", "ab", "x.dcm", "c"]), max_size=5))
@example(["**", "a*", "**", "b"], ["a", "ab", "a", "b"])
def test_a_pattern_agrees_with_its_own_definition(parts, path):
    """Written as the definition of a glob: recursion over parts and names."""
    from fnmatch import fnmatchcase

    def means(parts, path):
        if not parts:
            return True  # and all below
        if parts[0] == "**":
            return means(parts[1:], path) or (bool(path) and means(parts, path[1:]))
        return bool(path) and fnmatchcase(path[0], parts[0]) and means(parts[1:], path[1:])

    pattern = Pattern(parts)
    state = pattern.start
    for name in path:
        state = pattern.after(state, name)
    assert pattern.matches(state) == means(parts, path)


def test_a_pattern_does_not_look_where_nothing_can_match(tmp_path, monkeypatch):
    make(tmp_path, "a/deep/x.dcm", "b/y.dcm")
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    assert names(Walk().below(str(tmp_path), Pattern(["b*", "*.dcm"]))) == ["b/y.dcm"]
    assert listed == [str(tmp_path), str(tmp_path / "b")]


WORD = st.sampled_from(["a", "b", "c10", "c9"])
PATH = st.lists(WORD, min_size=1, max_size=3).map("/".join)
TREE = st.tuples(
    st.lists(PATH, max_size=5),
    st.lists(PATH, max_size=5),
    st.lists(st.tuples(PATH, st.sampled_from(["in/", "out/", "in", "out", "."]), PATH), max_size=5),
)


def plant(top, folders, files, links):
    for base in ("in", "out"):
        (top / base).mkdir()
        for name in folders:
            (top / base / name).mkdir(parents=True, exist_ok=True)
        for name in files:
            path = top / base / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x")
            except OSError:
                continue  # a folder of this name, or a file above
    for number, (name, to, rest) in enumerate(links):
        path = top / ("in", "out")[number % 2] / name
        try:
            path.symlink_to(top / (to + rest if to.endswith("/") else to))
        except OSError:
            continue


def files_by_os_walk(folder):
    """The real files that the standard library reaches; no link is followed to a folder in which it lies itself."""
    found, seen = set(), set()

    def is_new(path):
        real, place = path.resolve(), path.parent.resolve()
        return real not in seen and real not in (place, *place.parents)

    for here, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if is_new(Path(here, name))]
        seen |= {Path(here, name).resolve() for name in folders}
        found |= {Path(here, name).resolve() for name in files if Path(here, name).is_file()}
    return found


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(TREE)
def test_every_file_that_os_walk_reaches_comes_under_names_of_its_own(tree):
    folders, files, links = tree
    with tempfile.TemporaryDirectory() as made:
        top = Path(os.path.realpath(made))
        plant(top, folders, files, links)
        found = walk(top / "in")
        assert len({one.name for one in found}) == len(found)
        assert all(one.path == str(top / "in" / one.name) for one in found)
        assert {Path(one.path).resolve() for one in found if one.problem is None} == files_by_os_walk(top / "in")
        assert found == walk(top / "in")


def test_a_name_longer_than_any_path_is_sorted_as_text():
    long = "a1" * 30_000
    assert natural(long) == ([long], long)
    assert sorted([long + "2", long + "10", "a2"], key=natural) == ["a2", long + "10", long + "2"]
