import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.data.conftest import blob, save, speckle, write_b, write_busi
from usvit.data.datasets import examination_cache
from usvit.data.datasets import manifest as manifest_module
from usvit.data.datasets.manifest import COLUMNS, MASK_SEPARATOR, Manifest, build_manifest, mask_names
from usvit.data.datasets.preparation import prepare
from usvit.data.io.decoding import decode, read_masks
from usvit.errors import UsvitError
from usvit.progress import NoProgress


def build(datasets: str, root: Path, **options: bool) -> Manifest:
    return build_manifest(datasets, {"": root}, NoProgress(), **options)


@pytest.mark.slow
def test_one_row_an_image_with_the_columns_of_the_design(busi):
    manifest = build("busi", busi)
    assert list(manifest.table.columns) == COLUMNS
    assert len(manifest.table) == len(manifest.usable) == 26
    row = manifest.table.iloc[9]
    assert row.image_id == "benign (10)"
    assert row.path == "benign/benign (10).png"
    assert row.label == "benign"
    assert row.dataset == "busi"
    assert row.group_id == "image:busi:benign (10)"
    assert len(row.sha256) == 64
    assert len(row.phash) == 16
    assert manifest.classes == ("benign", "malignant", "normal")
    assert manifest.positive_class == "malignant"
    assert manifest.image_path(row) == busi / "benign" / "benign (10).png"


@pytest.mark.slow
def test_what_a_data_set_does_not_tell_is_empty_and_not_invented(busi):
    table = build("busi", busi).table
    assert table[["patient_id", "device", "birads", "pixel_spacing_mm", "exclude_reason"]].isna().all(axis=None)


@pytest.mark.slow
def test_several_masks_stand_in_one_row_and_can_be_joined_again(busi):
    row = build("busi", busi).table.iloc[9]
    paths = [busi / path for path in row.mask_path.split(MASK_SEPARATOR)]
    assert len(paths) == 3
    assert read_masks(paths, (40, 56)).sum() > (blob() > 0).sum()


@pytest.mark.slow
def test_union_holds_every_image_of_both_under_the_union_of_classes(tmp_path):
    write_busi(tmp_path / "busi")
    write_b(tmp_path / "b")
    both, reverse = build("busi+b", tmp_path), build("b+busi", tmp_path)
    assert both.table.dataset.value_counts().to_dict() == {"busi": 26, "b": 8}
    assert both.classes == reverse.classes == ("benign", "malignant", "normal")
    assert both.positive_class == "malignant"
    assert set(both.table[both.table.dataset == "b"].label) == {"benign", "malignant"}
    assert both.table.group_id.nunique() == 34
    last = both.table.iloc[-1]
    assert both.image_path(last) == tmp_path / "b" / "original" / "000008.png"


@pytest.mark.slow
def test_copy_of_an_image_in_another_data_set_joins_their_groups(tmp_path):
    write_busi(tmp_path / "busi")
    write_b(tmp_path / "b")
    shutil.copy(tmp_path / "busi/benign/benign (1).png", tmp_path / "b/original/000001.png")
    table = build("busi+b", tmp_path).table.set_index(["dataset", "image_id"])
    group = table.group_id["b", "000001"]
    assert group == table.group_id["busi", "benign (1)"]
    assert group.startswith("copies:")
    assert table.group_id.nunique() == 33


@pytest.mark.slow
def test_patient_is_the_group_where_it_is_known(small_phantom):
    table = build("phantom", small_phantom).table
    assert (table.group_id == "patient:phantom:" + table.patient_id).all()
    assert table.groupby("group_id").size().max() > 1


@pytest.mark.slow
def test_identical_pixels_with_two_labels_are_left_out_with_the_reason(busi):
    shutil.copy(busi / "benign/benign (3).png", busi / "malignant/malignant (8).png")
    manifest = build("busi", busi)
    assert manifest.excluded.image_id.tolist() == ["benign (3)", "malignant (8)"]
    reason = manifest.excluded.exclude_reason.iloc[0]
    assert reason == "pixel-identical to 'malignant (8)' of busi, which is labelled malignant"
    assert len(manifest.usable) == 24
    assert not set(manifest.excluded.image_id) & set(manifest.usable.image_id)
    assert manifest.usable.index.tolist() == list(range(24))


@pytest.mark.slow
def test_identical_pixels_with_two_labels_are_kept_on_request_as_one_group(busi):
    shutil.copy(busi / "benign/benign (3).png", busi / "malignant/malignant (8).png")
    usable = build("busi", busi, keep_label_conflicts=True).usable
    assert len(usable) == 26
    pair = usable[usable.image_id.isin(["benign (3)", "malignant (8)"])]
    assert pair.group_id.nunique() == 1


def damage(busi: Path, *names: str) -> None:
    for name in names:
        path = busi / name.split()[0] / f"{name}.png"
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.slow
def test_damaged_file_is_named_and_further_ones_are_counted(busi):
    damage(busi, "benign (4)")
    with pytest.raises(UsvitError) as caught:
        build("busi", busi)
    assert "benign (4).png" in str(caught.value)
    assert "more" not in str(caught.value)
    damage(busi, "malignant (2)", "normal (1)")
    with pytest.raises(UsvitError, match=r"benign \(4\).png(.|\n)*2 other files cannot be used"):
        build("busi", busi)


@pytest.mark.slow
def test_damaged_files_are_left_out_and_listed_on_request(busi):
    damage(busi, "benign (4)", "malignant (2)_mask")
    save(blob(20, 20), busi / "normal" / "normal (3)_mask.png")
    manifest = build("busi", busi, skip_bad=True)
    assert sorted(bad.path.name for bad in manifest.skipped) == [
        "benign (4).png",
        "malignant (2)_mask.png",
        "normal (3)_mask.png",
    ]
    assert len(manifest.table) == 23
    assert not {"benign (4)", "malignant (2)", "normal (3)"} & set(manifest.table.image_id)


@pytest.mark.slow
def test_class_that_has_no_readable_image_left_is_an_error(busi):
    damage(busi, *(f"normal ({number})" for number in range(1, 7)))
    with pytest.raises(UsvitError, match="busi has no readable image of the class 'normal'"):
        build("busi", busi, skip_bad=True)


def test_nothing_readable_at_all_is_an_error(busi):
    for path in busi.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(UsvitError, match="has no readable image"):
        build("busi", busi, skip_bad=True)


@pytest.mark.slow
def test_hash_is_the_same_wherever_the_files_lie_and_however_they_are_compressed(tmp_path, busi):
    moved = shutil.copytree(busi, tmp_path / "other" / "place")
    save(speckle(1), moved / "benign" / "benign (1).png", compress_level=0)
    assert build("busi", busi).sha256() == build("busi", moved).sha256()


@pytest.mark.slow
def test_hash_changes_with_a_label_a_pixel_and_an_image(busi):
    before = build("busi", busi)
    assert Manifest(before.table.assign(label="benign"), {}, (), "", {}).sha256() != before.sha256()
    altered = speckle(1)
    altered[0, 0] ^= 1
    save(altered, busi / "benign" / "benign (1).png")
    changed = build("busi", busi)
    assert changed.sha256() != before.sha256()
    save(speckle(99), busi / "benign" / "benign (13).png")
    assert build("busi", busi).sha256() != changed.sha256()


@pytest.mark.slow
def test_two_files_with_one_id_are_refused_by_name(busi):
    save(speckle(60), busi / "benign" / "benign (1).bmp")
    with pytest.raises(UsvitError, match=r"one id, 'benign \(1\)': .*benign \(1\).bmp and .*benign \(1\).png"):
        build("busi", busi)


def test_unknown_data_set_suggests_the_nearest_and_a_double_one_is_refused(tmp_path):
    with pytest.raises(UsvitError, match=r"Unknown data set 'bussi'. Nearest: busi"):
        build("bussi", tmp_path)
    with pytest.raises(UsvitError, match="Unknown data set ''"):
        build("busi+", tmp_path)
    with pytest.raises(UsvitError, match="contains 'busi' twice"):
        build("busi+busi", tmp_path)


@pytest.mark.slow
def test_table_survives_parquet(tmp_path, busi):
    table = build("busi", busi).table
    table.to_parquet(tmp_path / "manifest.parquet", index=False)
    back = pd.read_parquet(tmp_path / "manifest.parquet")
    assert Manifest(back, {}, (), "", {}).sha256() == Manifest(table, {}, (), "", {}).sha256()


@pytest.mark.slow
def test_the_real_busi_leaves_out_its_conflicting_pair_and_nothing_else(real_data):
    manifest = build("busi", real_data)
    assert len(manifest.table) == 780
    assert sum(len(mask_names(text)) for text in manifest.table.mask_path) == 798
    assert sorted(manifest.excluded.image_id) == ["benign (433)", "malignant (145)"]
    assert len(manifest.usable) == 778
    # Copies of one frame are one group; a published audit by SSIM comes to 599 groups (Aumente-Maestro et al. 2025).
    assert 580 <= manifest.usable.group_id.nunique() <= 640
    assert not manifest.skipped
    row = manifest.table.iloc[0]
    assert np.isin(["benign (1)", "busi"], row.to_numpy()).all()


@pytest.fixture
def cached(tmp_path, monkeypatch):
    """A small BUSI whose files are old enough for the cache, a cache of its own, and a list of the decoded files."""
    root = write_busi(tmp_path / "busi")
    monkeypatch.setattr(examination_cache, "RECENT_SECONDS", 0.0)
    monkeypatch.setattr(examination_cache, "cache_dir", lambda: tmp_path / "cache")
    decoded = []
    monkeypatch.setattr(
        manifest_module, "decode", lambda path, frame: [decoded.append(path.name), decode(path, frame)][1]
    )
    return root, decoded


@pytest.mark.slow
def test_unchanged_files_are_examined_once(cached):
    root, decoded = cached
    first = build("busi", root)
    assert len(decoded) == len(first.table)
    decoded.clear()
    again = build("busi", root)
    assert decoded == []
    assert again.sha256() == first.sha256() and again.copies == first.copies
    assert {key: one.to_bytes() for key, one in again.descriptions.items()} == {
        key: one.to_bytes() for key, one in first.descriptions.items()
    }
    assert build("busi", root, cache=False).sha256() == first.sha256() and len(decoded) == len(first.table)


@pytest.mark.slow
def test_a_changed_file_is_examined_again(cached):
    root, decoded = cached
    first = build("busi", root)
    decoded.clear()
    path = first.image_path(first.table.iloc[9])
    save(speckle(9999), path)
    again = build("busi", root)
    assert decoded == [path.name]
    assert again.table.sha256[9] != first.table.sha256[9]


@pytest.mark.slow
def test_preparing_a_data_set_examines_its_files_whatever_the_cache_says(cached, tmp_path):
    """A disk may damage a file without changing its size or time."""
    root, decoded = cached
    build("busi", root)
    decoded.clear()
    prepare("busi", roots={"": root}, out=tmp_path / "busi.parquet", accept_counts=True)
    assert len(decoded) == 26
