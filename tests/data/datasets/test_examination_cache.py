"""The cache of examined images: equal results, no pixels, no names, and no harm if it cannot be used."""

import os
import sqlite3
import stat
import time
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from usvit.data.datasets import examination_cache
from usvit.data.datasets.examination_cache import ExaminationCache, image_key
from usvit.data.io import fingerprint
from usvit.data.near_duplicates import NearDuplicate, describe


def picture(seed):
    return np.random.default_rng(seed).integers(0, 255, (96, 128, 3), dtype=np.uint8)


def found(seed):
    return fingerprint(picture(seed)), describe(picture(seed))


def equal(one, other):
    same = one[0] == other[0] and one[1].sha256 == other[1].sha256 and one[1].n_stretched == other[1].n_stretched
    return same and all(
        np.array_equal(getattr(one[1], name), getattr(other[1], name)) for name in ("landmarks", "hashes")
    )


@pytest.fixture
def cache(tmp_path):
    return ExaminationCache(tmp_path / "cache" / "examined.sqlite")


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "Jane Doe.png"
    Image.fromarray(picture(0)).save(path)
    os.utime(path, (1e9, 1e9))
    return path


@pytest.fixture
def later(monkeypatch):
    """It is a minute later: files that have just been written are old enough for the cache."""
    monkeypatch.setattr(examination_cache, "time", SimpleNamespace(time=lambda: time.time() + 60))


def test_what_was_kept_is_found_and_nothing_else(cache):
    cache.save([(b"a", found(1)), (None, found(2)), (b"c", found(3))])
    first, unknown, keyless, third = cache.load([b"a", b"b", None, b"c"])
    assert equal(first, found(1)) and equal(third, found(3))
    assert unknown is None and keyless is None


def test_pairs_are_those_of_the_same_images_in_the_same_order(cache):
    images = [found(seed)[1] for seed in range(3)]
    pairs = [NearDuplicate(0, 2, 0.917, "same frame")]
    assert cache.load_pairs(images) is None
    cache.save_pairs(images, pairs)
    assert cache.load_pairs(images) == pairs
    assert cache.load_pairs(images[::-1]) is None and cache.load_pairs(images[:2]) is None
    cache.save_pairs([], [])
    assert cache.load_pairs([]) == []


def test_the_file_names_nobody_and_only_its_owner_reads_it(cache, image, later):
    cache.save([(image_key(image, 0), found(1))])
    assert b"Jane" not in cache.path.read_bytes()
    assert stat.S_IMODE(cache.path.stat().st_mode) == 0o600


@pytest.mark.parametrize("change", ["content", "exchanged", "time", "size", "replaced", "mask", "frame", "version"])
def test_a_changed_file_has_another_key(image, tmp_path, change, monkeypatch, later):
    mask = tmp_path / "mask.png"
    Image.fromarray(picture(5)).save(mask)
    os.utime(mask, (1e9, 1e9))
    before = image_key(image, 0, [mask])
    assert before == image_key(image, 0, [mask]) is not None
    frame = 1 if change == "frame" else 0
    if change == "content":  # in place, and the time is set back by the second
        with image.open("r+b") as file:
            file.write(b"x")
        os.utime(image, ns=(0, 10**18 + 1))
    elif change == "exchanged":  # in place, with a file of the same size, and its time is set back
        before_change = image.stat()
        while image.stat().st_ctime_ns == before_change.st_ctime_ns:  # the clock of the disk ticks every few ms
            with image.open("r+b") as file:
                file.write(bytes(before_change.st_size))
            os.utime(image, (1e9, 1e9))
        after = image.stat()
        for name in ("st_size", "st_mtime_ns", "st_ino"):
            assert getattr(after, name) == getattr(before_change, name)
    elif change == "time":
        os.utime(image, (1e9, 1e9 + 1))
    elif change == "size":
        image.write_bytes(image.read_bytes() + b"x")
        os.utime(image, (1e9, 1e9))
    elif change == "replaced":  # by a file of the same size and time
        other = tmp_path / "other.png"
        other.write_bytes(image.read_bytes())
        os.utime(other, (1e9, 1e9))
        other.rename(image)
    elif change == "mask":
        os.utime(mask, (1e9, 1e9 + 1))
    elif change == "version":
        monkeypatch.setattr(examination_cache, "VERSION", examination_cache.VERSION + 1)
    assert image_key(image, frame, [mask]) not in (before, None)


def test_a_file_that_has_just_been_written_or_is_missing_has_no_key(image, tmp_path, request):
    assert image_key(image, 0) is None, "its time was set back, but not that of its status"
    assert image_key(tmp_path / "nothing.png", 0) is None
    request.getfixturevalue("later")
    assert image_key(image, 0) is not None
    os.utime(image, (time.time() + 60, time.time() + 60))
    assert image_key(image, 0) is None


@pytest.mark.parametrize("harm", ["text", "folder", "row", "table"])
def test_a_damaged_file_is_as_good_as_none(cache, harm):
    cache.save([(b"a", found(1))])
    if harm == "text":
        cache.path.write_text("this is no database, and long enough to be read as the head of one" * 9)
    elif harm == "folder":
        cache.path.unlink()
        cache.path.mkdir()
    else:
        with sqlite3.connect(cache.path) as connection:
            connection.execute("UPDATE images SET sha256 = 'x'" if harm == "row" else "DROP TABLE images")
    assert cache.load([b"a"]) == [None]
    cache.save([(b"b", found(2))])
    cache.save_pairs([], [])


def test_the_oldest_are_removed_if_there_are_too_many(cache, monkeypatch):
    monkeypatch.setattr(examination_cache, "MAX_ROWS", 2)
    for number, key in enumerate([b"a", b"b", b"c"]):
        monkeypatch.setattr(examination_cache.time, "time", lambda number=number: 1000.0 + number)
        cache.save([(key, found(number))])
    assert [one is not None for one in cache.load([b"a", b"b", b"c"])] == [False, True, True]
