"""The card ``coco``: places of images, their classes and patients, and what is refused."""

import json
import logging

import numpy as np
import pytest
from PIL import Image

from usvit.data.datasets import build_manifest, load_card
from usvit.data.datasets.cards import OwnTable
from usvit.data.datasets.locate import open_dataset
from usvit.errors import UsvitError
from usvit.progress import NO_PROGRESS

SQUARE = [[10, 10, 30, 10, 30, 30, 10, 30]]
OUTSIDE = {"id": 0, "file_name": "../x.png", "height": 9, "width": 9}
CATEGORIES = [{"id": 0, "name": "benign"}, {"id": 1, "name": "malignant"}]


def write(root, file="annotations/instances_train.json", folder="train", lesions=((0,), (1, 0), ()), **changes):
    """Write one image per tuple of categories, with a lesion of each."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    images, annotations = [], []
    for number, categories in enumerate(lesions):
        pixels = np.random.default_rng(number).integers(0, 255, (40, 56), dtype=np.uint8)
        Image.fromarray(pixels).save(root / folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": 40, "width": 56, "case": f"p{number}"})
        for category in categories:
            annotations.append({"image_id": number, "category_id": category, "segmentation": SQUARE})
    content = {"images": images, "annotations": annotations, "categories": CATEGORIES} | changes
    (root / file).write_text(json.dumps(content))
    return root


def records(root, **own):
    (card,) = OwnTable(**own).adapt([load_card("coco")])
    return open_dataset(card.model_copy(update={"public_ids": True}), {"": root}, NO_PROGRESS)[1]


@pytest.mark.parametrize(
    "file, folder",
    [
        ("annotations/instances_train.json", "train"),
        ("annotations/instances_train.json", "images/train"),
        ("annotations/instances_default.json", "images"),
        ("train/_annotations.coco.json", "train"),
    ],
)
def test_images_of_each_layout_are_found_with_class_and_mask(tmp_path, file, folder):
    found = records(write(tmp_path, file, folder))
    assert [(one.image_id, one.label) for one in found] == [
        (f"{folder}/0", "benign"),
        (f"{folder}/1", "malignant"),  # one of two lesions
        (f"{folder}/2", "normal"),
    ]
    assert [one.mask_paths[0].as_posix() for one in found] == [f"{file}#{number}" for number in range(3)]


def test_a_named_file_and_the_key_of_patients_are_read(tmp_path):
    found = records(write(tmp_path, "mine.json", "."), table="mine.json", columns={"patient_id": "case"})
    assert [one.patient_id for one in found] == ["p0", "p1", "p2"]
    with pytest.raises(UsvitError, match="no entry of 'images' has the key 'patient'"):
        records(tmp_path, table="mine.json", columns={"patient_id": "patient"})


def test_the_manifest_reads_masks_and_knows_the_positive_class(tmp_path, caplog):
    write(tmp_path, lesions=[(0,), (0, 0), ()] * 3, categories=[{"id": 0, "name": "lesion"}])
    with caplog.at_level(logging.INFO):
        manifest = build_manifest("coco", {"": tmp_path}, NO_PROGRESS, keep_ids=True, near_duplicates=False)
    assert (manifest.classes, manifest.positive_class) == (("lesion", "normal"), "lesion")
    assert manifest.table.label.value_counts().to_dict() == {"lesion": 6, "normal": 3}
    assert "lesion 6, normal 3; no patients" in caplog.text


def test_images_that_no_entry_names_are_counted(tmp_path, caplog):
    write(tmp_path)
    Image.fromarray(np.zeros((40, 56), np.uint8)).save(tmp_path / "train" / "other.png")
    assert len(records(tmp_path)) == 3
    assert "1 images in the folders of coco are in no annotation file" in caplog.text


@pytest.mark.parametrize(
    "damage, said",
    [
        (lambda root: (root / "train/1.png").unlink(), "image 1 of .*: the file '1.png' does not exist"),
        (
            lambda root: write(root, "annotations/instances_val.json", "val", lesions=[()], categories=CATEGORIES[:1]),
            "instances_train.json and instances_val.json differ in their categories",
        ),
        (lambda root: write(root, images=[OUTSIDE], annotations=[]), "the path '../x.png' leads out of the data root"),
        (lambda root: (root / "annotations/instances_train.json").write_text("{"), "cannot be used: it is damaged"),
        (lambda root: (root / "annotations/instances_train.json").unlink(), "does not have the expected layout"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_one_paragraph(tmp_path, damage, said):
    damage(write(tmp_path))
    with pytest.raises(UsvitError, match=said) as refused:
        records(tmp_path)
    assert "\n\n" not in str(refused.value)


def test_errors_of_private_data_name_no_file(tmp_path):
    (write(tmp_path / "Muster") / "train" / "1.png").unlink()
    with pytest.raises(UsvitError) as refused:
        open_dataset(load_card("coco"), {"": tmp_path / "Muster"}, NO_PROGRESS)
    assert "image 1 of the annotation file" in str(refused.value) and "1.png" not in str(refused.value)
    write(tmp_path / "Muster", categories=[])
    with pytest.raises(UsvitError, match=r"the annotation file cannot be used: .*annotation 0 cannot be used"):
        open_dataset(load_card("coco"), {"": tmp_path / "Muster"}, NO_PROGRESS)
