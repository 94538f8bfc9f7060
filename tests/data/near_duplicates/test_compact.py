import hashlib
import struct

import numpy as np
import pandas as pd
import pytest

from tests.data.near_duplicates.planting import combined, jpeg
from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates import NearDuplicate, describe, find_near_duplicates
from usvit.data.near_duplicates.compact import CompactDescriptions, SeenNearDuplicate, find_seen_near_duplicates
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Twelve patients' frames, one of them twice as wide as high."""
    root = write_phantom(PhantomSpec(n=24, size=160, seed=5), tmp_path_factory.mktemp("compact") / "phantom")
    table = pd.read_csv(root / "phantom.csv").drop_duplicates("patient_id")
    found = [read_image(root / path) for path in table.path[:12]]
    found[3] = np.concatenate([found[3], np.zeros_like(found[3])[:, :20]], axis=1)[20:140]
    return found


@pytest.fixture(scope="module")
def compact(images):
    return CompactDescriptions.of([describe(image) for image in images])


def same(one: CompactDescriptions, other: CompactDescriptions) -> bool:
    return len(one) == len(other) and all(
        (a.sha256, a.n_stretched) == (b.sha256, b.n_stretched)
        and np.array_equal(a.landmarks, b.landmarks)
        and np.array_equal(a.hashes, b.hashes)
        for a, b in zip(one.images, other.images, strict=True)
    )


def test_bytes_give_back_what_was_written(compact):
    assert same(CompactDescriptions.from_bytes(compact.to_bytes()), compact)
    assert same(CompactDescriptions.from_bytes(compact[3].to_bytes()), compact[3])
    assert len(CompactDescriptions.from_bytes(CompactDescriptions().to_bytes())) == 0
    assert CompactDescriptions.from_bytes(compact.to_bytes()).to_bytes() == compact.to_bytes()


def test_joining_keeps_images_with_equal_pixels_once(compact):
    assert same(CompactDescriptions.join([compact, compact[2], compact]), compact)
    assert same(CompactDescriptions.join(compact[k] for k in range(len(compact))), compact)
    assert len(CompactDescriptions.join([])) == 0


@pytest.mark.parametrize("cut", [0, 5, 11, 12, 40, 500, -1])
def test_cut_bytes_are_refused(compact, cut):
    with pytest.raises(UsvitError, match="image descriptions are damaged"):
        CompactDescriptions.from_bytes(compact.to_bytes()[:cut])


def test_other_damage_is_refused_or_read_within_bounds(compact):
    good = compact.to_bytes()
    with pytest.raises(UsvitError, match="another version"):
        CompactDescriptions.from_bytes(b"usvitcd0" + good[8:])
    for bad in (good[:8] + struct.pack("<I", 2**32 - 1) + good[12:], good + b"\0", good[:44] + b"\xff\xff" + good[46:]):
        with pytest.raises(UsvitError, match="damaged"):
            CompactDescriptions.from_bytes(bad)
    rng = np.random.default_rng(0)
    for _ in range(200):
        broken = bytearray(good)
        for at in rng.integers(0, len(good), 3):
            broken[at] = int(rng.integers(256))
        try:
            found = CompactDescriptions.from_bytes(bytes(broken))
        except UsvitError:
            continue
        assert len(found) == len(compact)


def test_copies_of_what_was_seen_are_found_and_nothing_else(images, compact):
    rng = np.random.default_rng(0)
    seen, unseen = compact.images[:8], images[8:]
    tested = [jpeg(images[5]), unseen[0], combined(images[2], rng), images[7], unseen[1], 255 - images[0][::-1]]
    found = find_seen_near_duplicates(
        CompactDescriptions.of([describe(np.ascontiguousarray(image)) for image in tested]),
        CompactDescriptions.of(seen),
    )
    assert [(copy.tested, copy.seen, copy.kind) for copy in found] == [
        (0, 5, "same frame"),
        (2, 2, "same frame"),
        (3, 7, "identical"),
        (5, 0, "inverted"),
    ]
    assert found[2] == SeenNearDuplicate(3, 7, "identical", 1.0)
    assert (
        find_seen_near_duplicates(CompactDescriptions(), compact)
        == []
        == find_seen_near_duplicates(compact, CompactDescriptions())
    )


def test_one_rule_for_data_sets_scoring_and_external_tests(images, compact):
    """``find_near_duplicates`` finds the same pairs after the descriptions were written and read."""
    rng = np.random.default_rng(1)
    descriptions = [*compact.images, *(describe(combined(image, rng)) for image in images)]
    pairs = find_near_duplicates(descriptions, NoProgress())
    assert len(pairs) == len(images)
    read = CompactDescriptions.from_bytes(CompactDescriptions.of(descriptions).to_bytes())
    assert find_near_duplicates(read.images) == pairs
    seen = find_seen_near_duplicates(CompactDescriptions.of(descriptions[12:]), compact)
    assert {(one.seen, one.tested + 12) for one in seen} == {(pair.first, pair.second) for pair in pairs}
    assert isinstance(pairs[0], NearDuplicate)


def test_the_bytes_hold_no_pixels(images, compact):
    """No row of any image, whole or in grey, stands in the bytes; a hash is of 6 bytes for hundreds of pixels."""
    content = compact[0].to_bytes()
    assert hashlib.sha256(images[0].tobytes()).hexdigest() not in content.hex() or len(content) < 2048
    assert all(images[0][row, start : start + 8, 0].tobytes() not in content for row in range(160) for start in (0, 80))
