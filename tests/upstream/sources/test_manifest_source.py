"""The downstream images as upstream images: read as the main job reads them."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from usvit.data.datasets import manifest as module
from usvit.data.datasets.manifest import build_manifest
from usvit.data.datasets.manifest_source import ManifestSource
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import NoProgress

ROWS = np.array([4, 0, 2])


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    root = write_phantom(PhantomSpec(n=6, size=256, seed=3), tmp_path_factory.mktemp("manifest") / "phantom")
    return build_manifest("phantom", {"phantom": root}, NoProgress())


@pytest.mark.slow
def test_the_rows_asked_for_come_in_their_order_with_their_hashes(manifest):
    source = ManifestSource(manifest, ROWS)
    rows = manifest.usable.iloc[ROWS]
    assert source.hashes(NoProgress()) == rows.sha256.tolist()
    assert source.hashes(NoProgress(), np.array([2])) == [rows.sha256.iloc[2]]
    for index, (_, row) in enumerate(rows.iterrows()):
        assert np.array_equal(source.image(index), read_image(manifest.image_path(row)))
        assert source.image_name(index) == f"phantom/{row.image_id}"
    assert sorted(source.order(np.random.default_rng(0))) == [0, 1, 2]


def test_rows_count_usable_images_alone(manifest):
    table = manifest.table.copy()
    table.loc[0, "exclude_reason"] = "for the test"
    source = ManifestSource(replace(manifest, table=table), np.array([0]))
    assert source.hashes(NoProgress()) == [manifest.table.sha256[1]]


def test_labels_are_given_where_they_are_asked_for(manifest):
    assert ManifestSource(manifest, ROWS).targets.tolist() == [-1, -1, -1]
    assert ManifestSource(manifest, ROWS).classes == ()
    source = ManifestSource(manifest, ROWS, labelled=True)
    assert [source.classes[target] for target in source.targets] == manifest.usable.label[ROWS].tolist()
    assert source.classes == manifest.classes


def test_the_tissue_is_cut_out_as_in_the_main_job(manifest, monkeypatch):
    whole = module.decode
    monkeypatch.setattr(module, "decode", lambda *at: whole(*at)._replace(tissue=(10, 20, 200, 220)))
    assert ManifestSource(manifest, ROWS, crop="tissue").image(0).size == (190, 200)
    assert ManifestSource(manifest, ROWS, crop="whole").image(0).size == (256, 256)


@pytest.mark.parametrize(("memory_gb", "decoded"), [(0.0, 6), (1.0, 3), (256 * 256 * 3 * 2 / 1e9, 4)])
def test_images_are_kept_up_to_the_bound(manifest, monkeypatch, memory_gb, decoded):
    calls = []
    whole = module.decode
    monkeypatch.setattr(module, "decode", lambda *at: calls.append(at) or whole(*at))
    source = ManifestSource(manifest, ROWS, memory_gb=memory_gb)
    first = [np.asarray(source.image(index)) for index in range(3)]
    second = [np.asarray(source.image(index)) for index in range(3)]
    assert np.array_equal(first, second) and len(calls) == decoded


def test_a_copy_for_a_worker_carries_no_pixels(manifest):
    source = ManifestSource(manifest, ROWS)
    small = len(pickle.dumps(source))
    expected = source.image(1)
    assert len(pickle.dumps(source)) == small < 256 * 256
    assert np.array_equal(pickle.loads(pickle.dumps(source)).image(1), expected)


@pytest.mark.slow
def test_an_exchanged_file_is_named(tmp_path):
    root = write_phantom(PhantomSpec(n=3, size=64), tmp_path / "phantom")
    manifest = build_manifest("phantom", {"phantom": root}, NoProgress())
    path = manifest.image_path(manifest.usable.iloc[1])
    Image.new("RGB", (64, 64)).save(path)
    with pytest.raises(BadImage, match=path.name) as error:
        ManifestSource(manifest, np.array([1])).image(0)
    assert "changed or replaced" in str(error.value)


def test_the_record_tells_other_images_and_other_crops(manifest):
    one, two = ManifestSource(manifest, ROWS), ManifestSource(manifest, ROWS[::-1])
    whole = ManifestSource(manifest, ROWS, crop="whole")
    assert len({source.record().content()["listing_sha256"] for source in (one, two, whole)}) == 3
    assert one.record().content()["images"] == 3 and one.name == "phantom"
