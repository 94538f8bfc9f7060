"""Masks of COCO's annotation files, against pycocotools, and files that cannot be used."""

import json
import re

import numpy as np
import pytest
from pycocotools import mask as peer
from pycocotools.coco import COCO

from usvit.data.io import BadImage, coco_file, coco_name, read_image, read_indices, read_masks
from usvit.data.io.coco import CocoRunLengths, _filled

HEIGHT, WIDTH = 40, 56
CATEGORIES = [{"id": 1, "name": "benign"}, {"id": 7, "name": "malignant"}]


def run_lengths(mask, *, compressed):
    made = peer.encode(np.asfortranarray(mask.astype(np.uint8)))
    if compressed:
        return {"size": made["size"], "counts": made["counts"].decode()}
    flat = mask.T.ravel().astype(int)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat]))).tolist()
    return {"size": made["size"], "counts": np.diff([0, *edges, flat.size]).tolist()}


def objects():
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    disc = (y - 20) ** 2 + (x - 30) ** 2 < 100
    return [
        {
            "id": 1,
            "image_id": 3,
            "category_id": 1,
            "segmentation": [[2.3, 4, 20, 5.6, 12, 30.2], [30, 1, 50, 1, 50, 9]],
        },
        {"id": 2, "image_id": 3, "category_id": 7, "segmentation": run_lengths(disc, compressed=True)},
        {"id": 3, "image_id": 4, "category_id": 1, "segmentation": run_lengths(disc, compressed=False), "iscrowd": 1},
    ]


def write(path, **changes):
    images = [{"id": k, "file_name": f"{k}.png", "height": HEIGHT, "width": WIDTH} for k in (3, 4, 5)]
    content = {"images": images, "annotations": objects(), "categories": CATEGORIES} | changes
    path.write_text(json.dumps({name: one for name, one in content.items() if one is not None}))
    return path


def test_masks_are_those_of_pycocotools(tmp_path):
    path = write(tmp_path / "instances.json")
    reference = COCO(str(path))
    for image in (3, 4, 5):
        each = {one["id"]: reference.annToMask(one) > 0 for one in reference.imgToAnns[image]}
        joined = np.logical_or.reduce([np.zeros((HEIGHT, WIDTH), bool), *each.values()])
        assert (read_masks([coco_name(path, image)], (HEIGHT, WIDTH)) == joined).all()
        numbers = np.zeros((HEIGHT, WIDTH), int)
        for one in reference.imgToAnns[image]:
            numbers[each[one["id"]]] = one["category_id"]
        assert (read_indices(coco_name(path, image)) == numbers).all()
        assert set(np.unique(read_image(coco_name(path, image)))) <= {0, 255}


def test_outlines_of_any_shape_are_filled_as_by_pycocotools():
    rng = np.random.default_rng(0)
    for number in range(300):
        height, width = rng.integers(1, 60, 2).tolist()
        points = rng.uniform(-1, [width + 1, height + 1], (rng.integers(3, 12), 2))
        points = points.round() if number % 3 == 0 else points
        outline = (points if number % 5 else np.repeat(points, 2, axis=0)).ravel()
        assert (
            _filled(outline, height, width) == peer.decode(peer.frPyObjects([outline.tolist()], height, width))[..., 0]
        ).all()


def test_compressed_run_lengths_of_any_mask_are_decoded():
    rng = np.random.default_rng(1)
    for _ in range(50):
        mask = rng.random(rng.integers(1, 90, 2)) < rng.random()
        assert (CocoRunLengths(**run_lengths(mask, compressed=True)).mask() == mask).all()


def changed(number, **changes):
    return {"annotations": [one | changes if at == number else one for at, one in enumerate(objects())]}


@pytest.mark.parametrize(
    "changes, said",
    [
        (changed(1, image_id=9), "annotation 2 cannot be used: 'images' has no image with its image_id 9"),
        (changed(0, category_id=2), "annotation 1 cannot be used: 'categories' has no entry with its category_id 2"),
        (
            changed(0, segmentation=[[2, 2, 60, 2, 2, 9]]),
            "annotation 1 .* its outline leaves the image 3, which is 56 x 40",
        ),
        (changed(0, segmentation=[[2, 2, 9, 2, 2, 9, 5]]), "a coordinate without its pair"),
        (changed(0, segmentation=[]), "neither an outline nor run lengths"),
        (changed(0, segmentation=[[2, 2, 9, 2]]), r"annotations\.0\.segmentation.*at least 6 items"),
        (changed(0, segmentation=[[2, 2, "nan", 2, 2, 9]]), "annotations.0.segmentation.*finite number"),
        (changed(0, bbox=["inf", 3, 10, 5]), "annotations.0.bbox.*finite number"),
        (changed(0, bbox=[50, 3, 10, 5]), "annotation 1 .* its box leaves the image 3"),
        (
            changed(1, segmentation={"size": [56, 40], "counts": "0"}),
            "its mask is 40 x 56 pixels, but the image 3 is 56 x 40",
        ),
        ({"categories": None}, "it is no annotation file of COCO: categories: Field required"),
        ({"categories": [*CATEGORIES, CATEGORIES[0]]}, "'categories' has the id 1 twice"),
    ],
)
def test_files_that_contradict_themselves_are_refused(tmp_path, changes, said):
    with pytest.raises(BadImage, match=said):
        coco_file(write(tmp_path / "instances.json", **changes))


@pytest.mark.parametrize(
    "counts, said",
    [
        ([5, 5], "run lengths have 10 pixels, but the image is 56 x 40"),
        ("zzzzzzzzzzzzzzzzz", "compressed run lengths are damaged"),
        ("4é", "compressed run lengths are damaged"),
        ("o", "compressed run lengths are damaged"),
    ],
)
def test_damaged_run_lengths_are_refused_when_they_are_drawn(tmp_path, counts, said):
    size = {"size": [HEIGHT, WIDTH], "counts": counts}
    path = write(tmp_path / "instances.json", **changed(2, segmentation=size))
    with pytest.raises(BadImage, match=f"annotation 3 of the image 4: its {said}"):
        read_masks([coco_name(path, 4)], (HEIGHT, WIDTH))


@pytest.mark.parametrize(
    "content, said",
    [
        (b'{"images": [', "it is damaged"),
        (b"[]", "expected a JSON object"),
        (b'{"images": ' + b"[" * 100 + b"]" * 100 + b"}", "at most 40 levels"),
        (None, "at most 64,000,000 are read"),
    ],
    ids=["broken", "list", "deep", "huge"],
)
def test_broken_and_huge_files_are_refused(tmp_path, content, said):
    path = tmp_path / "instances.json"
    if content is None:
        with path.open("wb") as file:
            file.truncate(64_000_001)
    else:
        path.write_bytes(content)
    with pytest.raises(BadImage, match=f"^Cannot use the image {re.escape(str(path))}: .*{said}"):
        coco_file(path)


def test_a_file_that_has_changed_is_read_again_and_absent_images_are_refused(tmp_path):
    path = write(tmp_path / "instances.json")
    assert read_masks([coco_name(path, 4)], (HEIGHT, WIDTH)).any()
    write(path, annotations=[])
    assert not read_masks([coco_name(path, 4)], (HEIGHT, WIDTH)).any()
    with pytest.raises(BadImage, match="no image with the id 6"):
        read_image(coco_name(path, 6))
    with pytest.raises(BadImage, match="56 x 40 pixels but its image is 5 x 5"):
        read_masks([coco_name(path, 4)], (5, 5))
    beyond = [{"id": 300, "name": "benign"}]
    write(path, categories=beyond, annotations=[one | {"category_id": 300} for one in objects()])
    with pytest.raises(BadImage, match="ids of categories are from 1 to 255"):
        read_indices(coco_name(path, 3))
