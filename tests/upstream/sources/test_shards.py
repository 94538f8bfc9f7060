"""WebDataset shards, written by the webdataset library itself."""

import io
import json
import pickle
import tarfile
import time

import numpy as np
import pytest

from benchmarks.fuzzing.servers import http_peer, serving
from tests.data.file_server import FileServer, Reply
from tests.upstream.sources.layouts import encoded, pixels
from usvit.data.io.bad_image import BadImage
from usvit.errors import UsvitError
from usvit.upstream.sources.shard_files import ShardFiles, expand, find, shown
from usvit.upstream.sources.shards import WINDOW, open_shards

webdataset = pytest.importorskip("webdataset")


def write(folder, shards=3, each=5, sample=lambda number: {"png": encoded(number), "cls": str(number % 4).encode()}):
    folder.mkdir(parents=True, exist_ok=True)
    with webdataset.ShardWriter(str(folder / "train-%04d.tar"), maxcount=each, verbose=0) as sink:
        for number in range(shards * each):
            sink.write({"__key__": f"{number:06d}", **sample(number)})
    return str(folder / f"train-{{0000..{shards - 1:04d}}}.tar")


def tar(path, *files):
    with tarfile.open(path, "w") as archive:
        for name, data in files:
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return str(path)


def test_shards_agree_with_the_library_that_wrote_them(tmp_path):
    pattern = write(tmp_path)
    source = open_shards(pattern)
    theirs = list(webdataset.WebDataset(pattern, shardshuffle=False).decode("rgb8").to_tuple("__key__", "png", "cls"))
    assert len(source) == len(theirs) == 15
    for at, (key, picture, label) in enumerate(theirs):
        assert source.image_name(at).endswith(key)
        assert np.array_equal(np.asarray(source.image(at)), picture)
        assert source.targets[at] == label
    assert source.classes == ("0", "1", "2", "3")


def test_any_image_comes_at_once_and_in_any_process(tmp_path):
    source = open_shards(write(tmp_path))
    copy = pickle.loads(pickle.dumps(source))
    for at in (14, 0, 7, 7):
        assert np.array_equal(np.asarray(copy.image(at)), pixels(at))


def test_patterns_are_braces_stars_or_lists(tmp_path):
    pattern = write(tmp_path)
    names = [str(tmp_path / f"train-{number:04d}.tar") for number in range(3)]
    assert expand(pattern) == expand(str(tmp_path / "train-*.tar")) == expand("::".join(names)) == names
    assert expand(f"file://{names[0]}") == names[:1]
    assert len(open_shards(f"file://{names[0]}")) == 5


def test_what_a_pattern_does_not_find_is_named(tmp_path):
    write(tmp_path)
    with pytest.raises(UsvitError, match=r"1 of 4 shards do not exist: .*train-0003.tar"):
        open_shards(str(tmp_path / "train-{0000..0003}.tar"))
    with pytest.raises(UsvitError, match="No shard matches"):
        open_shards(str(tmp_path / "val-*.tar"))
    with pytest.raises(UsvitError, match="braces"):
        open_shards(str(tmp_path / "train-{0000..0003.tar"))
    with pytest.raises(UsvitError, match="a shard twice"):
        open_shards(str(tmp_path / "train-{0000,0000}.tar"))
    with pytest.raises(UsvitError, match="fsspec driver"):
        open_shards("nowhere9://bucket/train.tar")


def test_labels_are_numbers_names_or_absent(tmp_path):
    by_name = write(tmp_path / "names", sample=lambda n: {"jpg": encoded(n, "JPEG"), "json": {"label": "ab"[n % 2]}})
    assert open_shards(by_name).classes == ("a", "b")
    assert open_shards(by_name).targets.tolist()[:3] == [0, 1, 0]
    numbers = write(tmp_path / "numbers", sample=lambda n: {"jpg": encoded(n, "JPEG"), "json": {"cls": n % 3}})
    assert open_shards(numbers).targets.tolist()[:4] == [0, 1, 2, 0]
    none = open_shards(write(tmp_path / "none", sample=lambda n: {"webp": encoded(n, "WEBP"), "json": {"url": "x"}}))
    assert none.classes == () and set(none.targets) == {-1} and none.image(0).size == (12, 12)


@pytest.mark.parametrize("kept", [0.2, 0.6, 0.9])
def test_a_shard_that_was_cut_off_is_named(tmp_path, kept):
    pattern = write(tmp_path)
    path = tmp_path / "train-0001.tar"
    data = path.read_bytes()
    ends = max(at for at in range(0, len(data), 512) if any(data[at : at + 512])) + 512  # without the zeros
    path.write_bytes(data[: int(kept * ends)])
    with pytest.raises(UsvitError, match=r"train-0001.tar ends early, after \d samples .*Fetch it again") as caught:
        open_shards(pattern)
    assert "0000.tar" not in str(caught.value)


def test_a_shard_cut_off_between_two_samples_is_named(tmp_path):
    """tarfile itself takes that for the end of the archive."""
    path = tar(tmp_path / "a.tar", ("0.png", encoded(0)), ("0.cls", b"0"), ("1.png", encoded(1)), ("1.cls", b"1"))
    with tarfile.open(path) as archive:
        second = archive.getmember("1.png").offset
    data = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(data[:second])
    with tarfile.open(path) as archive:
        assert len(archive.getmembers()) == 2
    with pytest.raises(UsvitError, match=r"ends early, after 1 samples .*no end-of-archive mark"):
        open_shards(path)
    damaged = bytearray(data)
    damaged[second : second + 512] = b"\xff" * 512
    (tmp_path / "a.tar").write_bytes(damaged)
    with pytest.raises(UsvitError, match="ends early, after 1 samples"):
        open_shards(path)


def test_a_shard_that_shrinks_while_it_is_read_is_named(tmp_path):
    source = open_shards(write(tmp_path, shards=1))
    (tmp_path / "train-0000.tar").write_bytes(b"x" * 600)
    with pytest.raises(UsvitError, match="ends early"):
        source.image(4)
    (tmp_path / "train-0000.tar").unlink()
    with pytest.raises(UsvitError, match=r"There is no shard .*train-0000\.tar"):
        source.image(4)


@pytest.mark.parametrize(
    "files, said",
    [
        ([("0.png", encoded(0)), ("0.cls", b"1"), ("1.cls", b"2")], "sample 1 of the shard .* has no image"),
        ([("0.png", encoded(0)), ("0.cls", b"1"), ("1.png", encoded(1))], r"1 of 2 samples .* have no label \(1"),
        ([("0.png", encoded(0)), ("0.cls", b"one")], "Cannot read the label 0.cls"),
        ([("0.png", encoded(0)), ("0.cls", b"-1")], "'-1'.*class number from 0"),
        ([("0.png", encoded(0)), ("0.cls", b"9" * 12)], "class number from 0 to 999999"),
        ([("0.png", encoded(0)), ("0.json", b"{")], "Cannot read the label 0.json"),
        ([("0.png", encoded(0)), ("0.json", b'{"label": true}')], "'True'"),
        ([("0.png", encoded(0)), ("0.png", encoded(1))], "0.png twice"),
        ([("readme.txt", b"hi")], "sample readme .* has no image"),
        ([], "without a sample"),
    ],
)
def test_samples_that_make_no_sense_are_named(tmp_path, files, said):
    with pytest.raises(UsvitError, match=said):
        open_shards(tar(tmp_path / "a.tar", *files))


@pytest.mark.parametrize(
    "content, said",
    [(b"", "an empty file"), (b"\x1f\x8b" + b"0" * 600, "gzip.*decompress"), (b"text" * 300, "no tar file")],
)
def test_what_is_no_tar_is_named(tmp_path, content, said):
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UsvitError, match=said):
        open_shards(str(tmp_path / "a.tar"))


def test_shards_of_two_kinds_do_not_go_together(tmp_path):
    one = tar(tmp_path / "a.tar", ("0.png", encoded(0)), ("0.cls", b"1"))
    two = tar(tmp_path / "b.tar", ("0.png", encoded(0)))
    with pytest.raises(UsvitError, match=r"b.tar has no labels, .*a.tar has class numbers"):
        open_shards(f"{one}::{two}")


def test_files_beside_the_images_are_left_alone(tmp_path):
    path = tar(
        tmp_path / "a.tar",
        ("__index__", b"x"),
        ("train/n01/0.seg.png", b"no image"),
        ("train/n01/0.png", encoded(5)),
        ("train/n01/0.cls", b"3\n"),
    )
    source = open_shards(path)
    assert source.image_name(0) == "a.tar/train/n01/0" and source.targets.tolist() == [3]
    assert np.array_equal(np.asarray(source.image(0)), pixels(5))


def test_a_damaged_image_in_a_shard_is_named(tmp_path):
    source = open_shards(tar(tmp_path / "a.tar", ("k7.png", encoded(0)[:100])))
    with pytest.raises(BadImage, match=r"a.tar/k7"):
        source.image(0)


@pytest.mark.slow
def test_an_epoch_reads_few_shards_at_a_time(tmp_path):
    source = open_shards(write(tmp_path, shards=30, each=20, sample=lambda n: {"png": TINY, "cls": b"0"}))
    order = source.order(np.random.default_rng(0))
    assert sorted(order) == list(range(600))
    assert not np.array_equal(order, source.order(np.random.default_rng(1)))
    assert np.array_equal(order, source.order(np.random.default_rng(0)))
    shard = order // 20
    when = {number: np.flatnonzero(shard == number) for number in range(30)}
    span = [positions[-1] - positions[0] for positions in when.values()]
    assert max(span) < (WINDOW + 1) * 20  # of 600
    assert np.mean(np.diff(shard) != 0) > 0.8  # and within the window they are mixed
    assert np.argsort([positions[0] for positions in when.values()]).tolist() != list(range(30))


TINY = encoded(0)


def test_the_headers_are_read_once(tmp_path, cache, monkeypatch):
    pattern = write(tmp_path)
    first = open_shards(pattern).record().content()
    assert len(list(cache.glob("*.index.npz"))) == 3
    monkeypatch.setattr("usvit.upstream.sources.shard_files.read_index", None)
    assert open_shards(pattern).record().content() == first
    index, other, _ = cache.glob("*.index.npz")
    for content in (b"damaged", b"PK\x03\x04" + index.read_bytes()[4:100], other.read_bytes()):
        index.write_bytes(content)
        with pytest.raises(TypeError):  # read again
            open_shards(pattern)


def test_the_index_of_a_shard_that_changed_is_not_used(tmp_path):
    path = tar(tmp_path / "a.tar", ("0.png", encoded(0)), ("0.cls", b"1"))
    assert len(open_shards(path)) == 1
    tar(tmp_path / "a.tar", ("0.png", encoded(0)), ("0.cls", b"1"), ("1.png", encoded(1)), ("1.cls", b"0"))
    assert len(open_shards(path)) == 2


def test_an_unwritable_cache_does_not_stop_local_shards(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("USVIT_CACHE", str(tmp_path / "file"))
    assert len(open_shards(write(tmp_path / "data"))) == 15


@pytest.mark.slow
def test_remote_shards_come_whole_into_a_bounded_cache(tmp_path, cache):
    write(tmp_path / "there")
    size = (tmp_path / "there" / "train-0000.tar").stat().st_size
    with FileServer() as server:
        for number in range(3):
            name = f"/train-{number:04d}.tar"
            server.serve(name, Reply((tmp_path / "there" / name[1:]).read_bytes(), etag=f'"{number}"'))
        files = ShardFiles(limit_gb=2.5 * size / 1e9)
        source = open_shards(server.url("/train-{0000..0002}.tar"), files)
        assert [int(target) for target in source.targets] == [number % 4 for number in range(15)]
        for at in (0, 5, 14, 1, 6):
            assert np.array_equal(np.asarray(source.image(at)), pixels(at))
            assert len(list(cache.glob("*.tar"))) <= 2
        asked = len(server.asked)
        assert np.array_equal(np.asarray(source.image(7)), pixels(7))
        assert len(server.asked) == asked  # it is here


@pytest.mark.slow
def test_a_remote_shard_that_does_not_come_whole_is_named(tmp_path, monkeypatch, cache):
    write(tmp_path / "there", shards=1)
    data = (tmp_path / "there" / "train-0000.tar").read_bytes()
    with FileServer() as server:
        server.serve("/cut.tar", Reply(data, announce=len(data), breaks_after=1000))
        with pytest.raises(UsvitError, match=r"/cut.tar could not be fetched in 3 attempts: "):
            open_shards(server.url("/cut.tar"))
        with pytest.raises(UsvitError, match="There is no shard"):
            open_shards(server.url("/none.tar"))
    assert list(cache.glob("*.tar")) == []
    with pytest.raises(UsvitError, match=r"There is no shard|cannot be reached"):
        open_shards("http://127.0.0.1:9/a.tar")


def test_a_remote_shard_that_changed_is_another(tmp_path):
    write(tmp_path / "there", shards=1)
    write(tmp_path / "new", shards=1, each=3)
    with FileServer() as server:
        url = server.serve("/a.tar", Reply((tmp_path / "there" / "train-0000.tar").read_bytes(), etag='"1"'))
        source = open_shards(url)
        server.serve("/a.tar", Reply((tmp_path / "new" / "train-0000.tar").read_bytes(), etag='"2"'))
        assert source.image(4).size == (12, 12)  # what is here stays what it was
        for path in (tmp_path / "cache" / "shards").glob("*.tar"):
            path.unlink()
        with pytest.raises(UsvitError, match="has changed since the training began"):
            source.image(4)
        assert len(open_shards(url)) == 3


def test_secrets_of_an_address_are_not_shown(tmp_path):
    assert shown("https://user:word@host/a/b.tar?X-Signature=abc#f") == "https://host/a/b.tar"
    assert find(tar(tmp_path / "a.tar", ("0.png", TINY))).remote is False


def test_a_foolish_limit_of_the_cache_is_named(monkeypatch):
    monkeypatch.setenv("USVIT_SHARD_CACHE_GB", "lots")
    with pytest.raises(UsvitError, match="USVIT_SHARD_CACHE_GB is 'lots'"):
        ShardFiles()


def test_json_labels_beside_other_facts(tmp_path):
    facts = json.dumps({"label": 2, "w": 1}).encode()
    path = tar(tmp_path / "a.tar", ("0.jpeg", encoded(0, "JPEG")), ("0.json", facts))
    assert open_shards(path).targets.tolist() == [2]


def test_shards_by_http_do_not_lead_to_another_server(cache):
    with FileServer() as server, FileServer() as other:
        server.serve("/a.tar", Reply(b"", status=302, location=other.serve("/a.tar", Reply(b"x"))))
        with pytest.raises(UsvitError, match=r"leads to another one"):
            open_shards(server.url("/a.tar"))
        assert other.asked == []


@pytest.mark.parametrize("kind", ["endless", "endless_header", "drip", "drip_header", "lies", "silent"])
def test_shards_by_http_that_never_end_are_left(cache, monkeypatch, kind):
    monkeypatch.setattr("usvit.upstream.sources.shard_files.TIMEOUT", 0.4)
    monkeypatch.setattr("usvit.upstream.sources.shard_files.MOST_BYTES", 300_000)
    start = time.monotonic()
    with serving(http_peer(kind)) as port, pytest.raises(UsvitError, match="shard http"):
        open_shards(f"http://127.0.0.1:{port}/a.tar")
    assert time.monotonic() - start < 8
    assert list(cache.glob("*.tar")) == []


def test_a_password_in_the_address_of_a_shard_is_sent_and_not_shown(cache):
    with FileServer() as server:
        server.serve("/a.tar", Reply(b"", status=403))
        with pytest.raises(UsvitError) as caught:
            open_shards(server.url("/a.tar").replace("://", "://user:w%2Ford@"))
        assert "user" not in str(caught.value)
        assert server.asked[0][1]["Authorization"] == "Basic dXNlcjp3L29yZA=="
