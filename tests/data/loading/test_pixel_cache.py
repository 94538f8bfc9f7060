"""The cache of decoded pixels: the pixels of a fresh decoding, and no harm if a file or an entry has changed."""

import os
import stat
from dataclasses import replace

import numpy as np
import pytest

from tests.data.conftest import save
from usvit.data.datasets.identities import Identities
from usvit.data.datasets.manifest import build_manifest
from usvit.data.loading import array_cache, pixel_cache
from usvit.data.loading.array_cache import ArrayCache
from usvit.data.loading.pixel_cache import pixels_key
from usvit.data.loading.pixel_store import PixelStore
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.pseudonyms import Pseudonyms, default_key_path

pytestmark = pytest.mark.slow


def preprocessing(size=32, **settings):
    return Preprocessing(size, settings.get("resize", "squash"), (0.5,) * 3, (0.5,) * 3, settings.get("crop", "tissue"))


@pytest.fixture
def manifest(busi):
    return build_manifest("busi", {"": busi}, NoProgress())


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """The folder of the entries."""
    monkeypatch.setattr(array_cache, "cache_dir", lambda: tmp_path / "cache")
    return tmp_path / "cache" / "pixels"


class Decoded(NoProgress):
    """Says whether images were decoded."""

    def __init__(self):
        self.names = []

    def start(self, name, total, unit, done=0):
        self.names.append(name)


def build(manifest, folder, cache=True, **options):
    progress = Decoded()
    settings = {"memory_gb": 1, "folder": folder, "progress": progress, "cache": cache, **options}
    return PixelStore.build(manifest, preprocessing(), **settings), bool(progress.names)


def equal(one, other):
    return np.array_equal(one.pixels, other.pixels) and np.array_equal(one.lesions, other.lesions)


def test_a_second_run_takes_the_pixels_of_the_first_without_decoding(manifest, cached, tmp_path):
    fresh, _ = build(manifest, tmp_path, cache=None)
    assert not cached.exists(), "it was not asked for"
    first, decoded = build(manifest, tmp_path)
    second, decoded_again = build(manifest, tmp_path)
    assert decoded and not decoded_again
    assert equal(first, fresh) and equal(second, fresh)
    assert second.lesions.any()
    second.pixels[:] = 0  # a run may write into its own copy
    assert equal(build(manifest, tmp_path)[0], fresh)
    assert build(manifest, tmp_path, cache=False)[1], "the user asks for a new look at the files"

    plain, decoded = build(manifest, tmp_path, with_lesions=False)
    assert decoded and plain.lesions is None
    assert build(manifest, tmp_path, with_lesions=False)[0].lesions is None


@pytest.mark.parametrize("harm", ["pixel", "short", "text", "zip", "folder", "pipe", "link"])
def test_a_damaged_entry_is_as_good_as_none(manifest, cached, tmp_path, harm):
    fresh, _ = build(manifest, tmp_path)
    (entry,) = cached.iterdir()
    content = bytearray(entry.read_bytes())
    content[len(content) // 2] ^= 1
    if harm == "folder":
        entry.unlink()
        entry.mkdir()
    elif harm == "pipe":  # reading it would wait for ever
        entry.unlink()
        os.mkfifo(entry)
    elif harm == "link":
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    else:
        entry.write_bytes(
            {"pixel": bytes(content), "short": content[:2000], "text": b"no array", "zip": b"PK\x03\x04"}[harm]
        )
    again, decoded = build(manifest, tmp_path)
    assert decoded and equal(again, fresh)


def test_what_changes_the_pixels_changes_the_key(manifest, monkeypatch):
    def key(with_lesions=True, **settings):
        return pixels_key(manifest, preprocessing(**settings), with_lesions)

    first = manifest.usable.iloc[0]
    keys = [key(), key(size=48), key(resize="pad"), key(crop="whole"), key(with_lesions=False)]
    mask = manifest.roots["busi"] / first.mask_path
    save(np.zeros((20, 20), np.uint8), mask)
    keys.append(key())
    monkeypatch.setattr(pixel_cache, "decoder_versions", lambda: ("another",))
    keys.append(key())
    manifest.table.loc[manifest.table.image_id == first.image_id, "sha256"] = "0" * 64
    keys.append(key())
    assert None not in keys and len(set(keys)) == len(keys)
    monkeypatch.setattr(pixel_cache, "HASHED_BYTES", 1000)
    assert key() is None, "the files are too large to be read for a key"
    monkeypatch.undo()
    mask.unlink()
    assert key() is None
    os.mkfifo(mask)
    assert key() is None


def test_files_that_are_exchanged_in_place_with_their_times_are_noticed(manifest, cached, tmp_path):
    build(manifest, tmp_path)
    one, other = (manifest.image_path(manifest.usable.iloc[row]) for row in (0, 1))
    times = [(path, path.stat()) for path in (one, other)]
    first, second = one.read_bytes(), other.read_bytes()
    for path, content in ((one, second), (other, first)):
        path.write_bytes(content)  # in place: the inode stays
    for path, status in times:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(UsvitError, match="changed or replaced"):
        build(manifest, tmp_path)


@pytest.mark.parametrize("keep_ids", [False, True])
def test_pixels_of_private_images_are_never_kept(manifest, cached, tmp_path, keep_ids):
    identities = Identities(kept=True) if keep_ids else Identities(Pseudonyms.of_key(default_key_path()))
    private = replace(manifest, identities={"busi": identities})
    assert build(private, tmp_path)[1] and build(private, tmp_path)[1]
    assert not cached.exists()


def test_only_the_owner_reads_an_entry_and_those_not_used_for_longest_go(cached, monkeypatch):
    pixels = [np.full((2, 8, 8, 3), value, np.uint8) for value in range(4)]
    cache = ArrayCache("pixels")
    for number, name in enumerate("abc"):
        cache.save(name, pixels[number])
        os.utime(cached / name, (1000 + number, 1000 + number))
    assert stat.S_IMODE((cached / "a").stat().st_mode) == 0o600
    assert np.array_equal(cache.load("a", 1)[0], pixels[0])  # and now it is the last that was used
    monkeypatch.setattr(array_cache, "MAX_BYTES", 2 * (cached / "a").stat().st_size)
    cache.save("d", pixels[3])
    assert {path.name for path in cached.iterdir()} == {"a", "d"}
    monkeypatch.setattr(array_cache, "LARGEST_BYTES", 100)
    cache.save("e", pixels[0])
    assert cache.load("e", 1) is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("")
    cache = ArrayCache("pixels", tmp_path / "file" / "pixels")
    cache.save("a", np.zeros((1, 8, 8, 3), np.uint8))
    assert cache.load("a", 1) is None
