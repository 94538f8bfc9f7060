"""Copies of downstream images planted among upstream images, where the truth is known."""

import pickle

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from tests.data.near_duplicates.planting import KINDS
from usvit.data.datasets.labelled_images import ConcatDataset, Subset
from usvit.data.datasets.manifest import build_manifest
from usvit.data.datasets.manifest_source import ManifestSource
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates import MIN_SIMILARITY, describe, find_near_duplicates
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.sources import near_duplicates
from usvit.upstream.sources.folder import open_unlabeled
from usvit.upstream.sources.fractals import FractalSource
from usvit.upstream.sources.generated import PhantomSource
from usvit.upstream.sources.near_duplicates import COLUMNS, DownstreamImages, Without, copies_of, excluded_table

pytestmark = pytest.mark.slow

FRACTALS = 40


@pytest.fixture(scope="module")
def downstream(tmp_path_factory):
    root = write_phantom(PhantomSpec(n=26, size=256, seed=7), tmp_path_factory.mktemp("downstream") / "phantom")
    return build_manifest("phantom", {"phantom": root}, NoProgress(), near_duplicates=False)


@pytest.fixture(scope="module")
def folder(downstream, tmp_path_factory):
    """Fractals, and one planted copy of each kind, named after the image that it shows."""
    root = tmp_path_factory.mktemp("upstream")
    fractals = FractalSource(classes=20, size=FRACTALS, image_size=160)
    for index in range(FRACTALS):
        fractals.image(index).save(root / f"fractal-{index}.png")
    rng = np.random.default_rng(0)
    patients = downstream.usable.drop_duplicates("patient_id")
    for (kind, planted), (_, row) in zip(KINDS.items(), patients.iterrows(), strict=False):
        pixels = planted(read_image(downstream.image_path(row)), rng)
        kind = kind.replace(" ", "_").replace("%", "")
        Image.fromarray(np.ascontiguousarray(pixels)).save(root / f"planted-{row.image_id}-{kind}.png")
    return root


@pytest.fixture(scope="module")
def source(folder):
    return open_unlabeled(folder)


@pytest.fixture(scope="module")
def found(source, downstream):
    return copies_of(source, DownstreamImages(downstream), NoProgress())


def test_every_planted_copy_is_found_with_its_original_and_nothing_else(source, found):
    planted = {index: source.image_name(index) for index in range(len(source))}
    planted = {index: name for index, name in planted.items() if name.startswith("planted")}
    assert {one.index: one.image_id for one in found} == {
        index: "-".join(name.split("-")[1:3]) for index, name in planted.items()
    }
    for one in found:
        kind = planted[one.index].split("-")[3]
        expected = "identical" if kind.startswith("copy") else "flipped" if "flip" in kind else "same frame"
        assert one.kind == expected and one.similarity > MIN_SIMILARITY and one.dataset == "phantom"


def test_it_finds_what_the_audit_finds(source, downstream, found):
    """The audit compares all images with all; the index only upstream with downstream."""
    rows = downstream.table
    images = [read_image(downstream.image_path(row)) for _, row in rows.iterrows()]
    images += [np.asarray(source.image(index)) for index in range(len(source))]
    pairs = find_near_duplicates([describe(pixels) for pixels in images], NoProgress())
    across = {
        (copy.second - len(rows), rows.image_id[copy.first], copy.kind, copy.similarity)
        for copy in pairs
        if copy.first < len(rows) <= copy.second
    }
    assert {(one.index, one.image_id, one.kind, one.similarity) for one in found} == across


def test_chunks_do_not_change_what_is_found(source, downstream, found, monkeypatch):
    monkeypatch.setattr(near_duplicates, "CHUNK", 7)
    assert copies_of(source, DownstreamImages(downstream), NoProgress()) == found


def test_two_images_of_one_downstream_frame_are_both_named(downstream, tmp_path):
    row = downstream.usable.iloc[0]
    pixels = read_image(downstream.image_path(row))
    for name in "ab":
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
    found = copies_of(open_unlabeled(tmp_path), DownstreamImages(downstream), NoProgress())
    assert [(one.index, one.image_id, one.kind) for one in found] == [
        (0, row.image_id, "identical"),
        (1, row.image_id, "identical"),
    ]


def test_the_table_names_each_pair(source, found):
    table = excluded_table(source, found)
    assert tuple(table.columns) == COLUMNS and len(table) == len(KINDS)
    assert (table.upstream_name == [source.image_name(index) for index in table.upstream_index]).all()
    assert tuple(excluded_table(source, []).columns) == COLUMNS


def test_what_is_made_on_the_fly_is_passed_over(source, downstream, found):
    class Never(FractalSource):
        def image(self, index):
            raise AssertionError("it was looked at")

    fractals = Never(classes=2, size=10, image_size=64)
    assert copies_of(fractals, DownstreamImages(downstream), NoProgress()) == []
    joined = ConcatDataset("both", [fractals, source], labelled=False)
    assert [one.index - 10 for one in copies_of(joined, DownstreamImages(downstream), NoProgress())] == [
        one.index for one in found
    ]
    assert copies_of(Subset(joined, np.arange(10)), DownstreamImages(downstream), NoProgress()) == []
    assert copies_of(PhantomSource(size=10, image_size=64), DownstreamImages(downstream), NoProgress()) == []


def test_downstream_images_themselves_are_copies(downstream):
    found = copies_of(ManifestSource(downstream, np.array([3, 5])), DownstreamImages(downstream), NoProgress())
    assert [one.image_id for one in found] == downstream.usable.image_id[[3, 5]].tolist()


def test_a_source_without_its_copies_has_all_other_images(source, downstream, found):
    left = Without(source, [one.index for one in found] * 2)
    names = [left.image_name(index) for index in range(len(left))]
    assert len(left) == FRACTALS and all(name.startswith("fractal") for name in names)
    assert left.record().content()["excluded"] == len(found) and left.record().content()["images"] == FRACTALS
    assert copies_of(left, DownstreamImages(downstream), NoProgress()) == []
    assert sorted(left.order(np.random.default_rng(0))) == list(range(FRACTALS))
    again = pickle.loads(pickle.dumps(left))
    assert np.array_equal(again.image(5), left.image(5)) and again.hashes(NoProgress()) == left.hashes(NoProgress())


def test_it_is_an_error_when_nothing_is_left(source):
    with pytest.raises(UsvitError, match=r"All \d+ images of the source unlabeled .* no training images are left"):
        Without(source, range(len(source)))


def test_a_damaged_upstream_image_is_named(downstream, tmp_path):
    (tmp_path / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n then nothing")
    with pytest.raises(BadImage, match=r"bad\.png"):
        copies_of(open_unlabeled(tmp_path), DownstreamImages(downstream), NoProgress())


def photographs():
    """30 tiles of the two photographs that scikit-learn has, at 224 pixels."""
    tiles = [
        Image.fromarray(picture[y : y + 107, x : x + 107])
        for picture in load_sample_images().images
        for y in range(0, 260, 107)
        for x in range(0, 480, 107)
    ]
    return [tile.resize((224, 224), Image.Resampling.BICUBIC) for tile in tiles]


def saved(folder, pictures, kind="png", size=224):
    folder.mkdir(parents=True)
    for number, picture in enumerate(pictures):
        picture.resize((size, size), Image.Resampling.BICUBIC).save(folder / f"{number:02d}.{kind}", quality=80)
    return open_unlabeled(folder)


def test_copies_of_photographs_of_a_named_set_are_found_without_a_false_pair(tmp_path):
    """The counts stand in docs/explanation/pretraining.md: changed copies of photographs are found less often."""
    tested = DownstreamImages(None, {"photos:test": saved(tmp_path / "test", photographs())})
    assert tested.names == ("photos:test",) and set(tested.record().content()) == {"datasets", "listing_sha256"}
    counts = {}
    for kind, size in (("png", 224), ("jpg", 224), ("png", 112)):
        found = copies_of(saved(tmp_path / f"{kind}{size}", photographs(), kind, size), tested, NoProgress())
        assert all(one.dataset == "photos:test" and one.image_id.endswith(f"{one.index:02d}.png") for one in found)
        counts[kind, size] = len({one.index for one in found})
    assert counts["png", 224] == 30 and counts["jpg", 224] == 21 and counts["png", 112] == 18


def test_cards_and_named_sets_are_left_out_together(downstream, tmp_path):
    pictures = photographs()[:4]
    tested = DownstreamImages(downstream, {"a:test": saved(tmp_path / "a", pictures[:1]),
                                       "b:val": saved(tmp_path / "b", pictures[1:2])})  # fmt: skip
    assert tested.names == ("phantom", "a:test", "b:val") and len(tested) == len(downstream.table) + 2
    row = downstream.table.iloc[3]
    Image.fromarray(read_image(downstream.image_path(row))).save(tmp_path / "phantom.png")
    source = saved(tmp_path / "source", [*pictures, Image.open(tmp_path / "phantom.png")], size=224)
    found = {(one.index, one.dataset) for one in copies_of(source, tested, NoProgress())}
    assert found == {(0, "a:test"), (1, "b:val"), (4, "phantom")}
