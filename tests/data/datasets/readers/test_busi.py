import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import BUSI_COUNTS, blob, save, speckle, write_b_by_class
from usvit.data.datasets.cards import load_card
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.readers import busi as reader
from usvit.data.io.decoding import read_mask, read_masks
from usvit.errors import UsvitError
from usvit.progress import NoProgress

CARD = load_card("busi")


def test_every_image_comes_once_with_its_class_by_class_and_number(busi):
    records = reader.read(busi, CARD)
    expected = [f"{label} ({number})" for label, count in BUSI_COUNTS.items() for number in range(1, count + 1)]
    assert [record.image_id for record in records] == expected
    assert all(record.label == record.image_id.split()[0] for record in records)
    assert all(record.path == Path(record.label) / f"{record.image_id}.png" for record in records)


def test_no_patient_is_invented(busi):
    assert {record.patient_id for record in reader.read(busi, CARD)} == {None}


def test_masks_of_several_lesions_belong_to_their_image_and_to_no_other(busi):
    masks = {record.image_id: [path.name for path in record.mask_paths] for record in reader.read(busi, CARD)}
    assert masks["benign (10)"] == ["benign (10)_mask.png", "benign (10)_mask_1.png", "benign (10)_mask_2.png"]
    assert masks["benign (1)"] == ["benign (1)_mask.png"]
    assert sum(map(len, masks.values())) == 28


def test_what_operating_systems_leave_behind_is_no_image(busi):
    assert len(reader.read(busi, CARD)) == 26
    (busi / "__MACOSX").mkdir()
    save(speckle(9), busi / "__MACOSX" / "benign (1).png")
    assert len(reader.read(busi, CARD)) == 26


def test_an_image_without_a_mask_is_an_image(busi):
    (busi / "benign" / "benign (2)_mask.png").unlink()
    assert next(record for record in reader.read(busi, CARD) if record.image_id == "benign (2)").mask_paths == ()


@pytest.mark.parametrize("missing", BUSI_COUNTS)
def test_missing_class_folder_is_explained_with_what_is_there_and_what_should_be(busi, missing):
    shutil.rmtree(busi / missing)
    with pytest.raises(UsvitError) as caught:
        open_dataset(CARD, {"busi": busi}, NoProgress())
    text = str(caught.value)
    assert f"no folder '{missing}'" in text
    assert f"Found: {', '.join(label for label in BUSI_COUNTS if label != missing)}" in text
    assert "benign/benign (1).png" in text
    assert "benign (1)_mask.png" in text
    assert "--data-root" in text
    assert str(busi) in text


def test_mask_without_an_image_is_named(busi):
    (busi / "malignant" / "malignant (2).png").unlink()
    with pytest.raises(UsvitError, match=r"'malignant \(2\)_mask.png' in 'malignant' has no image"):
        reader.read(busi, CARD)


@pytest.mark.parametrize("place", [".", "unsorted"])
def test_image_outside_the_class_folders_has_no_class(busi, place):
    save(speckle(50), busi / place / "found.png")
    with pytest.raises(UsvitError, match=r"no class is known for .*found\.png"):
        reader.read(busi, CARD)


def test_many_images_without_a_class_are_counted_and_three_named(busi):
    for number in range(5):
        save(speckle(number), busi / "unsorted" / f"{number}.png")
    with pytest.raises(UsvitError, match=r"unsorted/0.png, unsorted/1.png, unsorted/2.png and 2 more"):
        reader.read(busi, CARD)


def test_name_and_folder_that_disagree_are_refused(busi):
    shutil.move(busi / "benign" / "benign (1).png", busi / "malignant")
    (busi / "benign" / "benign (1)_mask.png").unlink()
    with pytest.raises(UsvitError, match=r"'benign \(1\).png' is in the folder 'malignant'"):
        reader.read(busi, CARD)


def test_dataset_b_sorted_by_class_and_a_phantom_are_not_taken_for_busi(tmp_path, busi, small_phantom):
    assert reader.looks_like(busi, CARD)
    assert not reader.looks_like(write_b_by_class(tmp_path / "A_dataset_b"), CARD)
    assert not reader.looks_like(small_phantom, CARD)
    root, _ = open_dataset(CARD, {"": tmp_path}, NoProgress())
    assert root == busi


@pytest.mark.slow
def test_the_real_release_holds_what_its_card_says(real_data):
    root, records = open_dataset(CARD, {"": real_data}, NoProgress())
    labels = [record.label for record in records]
    assert len(records) == 780
    assert [labels.count(label) for label in ("benign", "malignant", "normal")] == [437, 210, 133]
    assert sum(len(record.mask_paths) for record in records) == 798
    assert sum(len(record.mask_paths) > 1 for record in records) == 17
    assert records[9].image_id == "benign (10)"
    assert len({record.image_id for record in records}) == 780
    normals = [record for record in records if record.label == "normal"]
    assert all(len(record.mask_paths) == 1 for record in normals)
    assert not any(read_mask(root / record.mask_paths[0]).any() for record in normals)


def test_joined_mask_of_a_real_image_with_three_covers_each_of_them(real_data):
    root, records = open_dataset(CARD, {"": real_data}, NoProgress())
    record = max(records, key=lambda record: len(record.mask_paths))
    paths = [root / path for path in record.mask_paths]
    masks = [read_mask(path) for path in paths]
    assert len(masks) == 3
    joined = read_masks(paths, masks[0].shape)
    assert (joined == np.logical_or.reduce(masks)).all()
    assert joined.sum() > max(mask.sum() for mask in masks)


def test_a_mask_of_another_lesion_does_not_shadow_an_image_of_a_like_name(busi):
    save(blob(), busi / "benign" / "benign (1)_mask_1.png")
    masks = {record.image_id: len(record.mask_paths) for record in reader.read(busi, CARD)}
    assert masks["benign (1)"] == 2
    assert masks["benign (11)"] == 1
