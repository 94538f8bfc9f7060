"""Images of bright discs with masks, and a run on them."""

import json

import numpy as np
from PIL import Image
from pycocotools.mask import encode

from usvit.config import build
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.segmentation.experiment import Segmentation

N, SHAPE = 30, (48, 64)


def scene(number):
    """An image with a bright disc (none for multiples of 10, two for those of 7), and the number of each disc."""
    rng = np.random.default_rng(number)
    labels = np.zeros(SHAPE, np.uint8)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]]
    discs = 0 if number % 10 == 0 else 2 if number % 7 == 0 else 1
    for disc in range(discs):
        centre = rng.uniform(10, 38), 12 + 36 * disc + rng.uniform(0, 4)
        labels[(y - centre[0]) ** 2 + (x - centre[1]) ** 2 < rng.uniform(4, 8) ** 2] = disc + 1
    pixels = rng.normal(60, 12, (*SHAPE, 3)) + 100 * (labels > 0)[:, :, None]
    return pixels.clip(0, 255).astype(np.uint8), labels


def write(root, folder, numbers, *, indices=False):
    for number in numbers:
        pixels, labels = scene(number)
        for kind, content in (
            ("images", pixels),
            ("annotations", labels if indices else 255 * (labels > 0).astype("u1")),
        ):
            (root / kind / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(content).save(root / kind / folder / f"{number}.png")
    return root


def as_coco(root, numbers):
    """Write the same pictures with outlines of their discs as run lengths, in the layout of COCO."""
    images, annotations = [], []
    (root / "annotations").mkdir(parents=True)
    (root / "test").mkdir()
    for number in numbers:
        pixels, labels = scene(number)
        Image.fromarray(pixels).save(root / "test" / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": SHAPE[0], "width": SHAPE[1]})
        for disc in np.unique(labels[labels > 0]).tolist():
            made = encode(np.asfortranarray((labels == disc).astype(np.uint8)))
            lengths = {"size": made["size"], "counts": made["counts"].decode()}
            annotations.append({"image_id": number, "category_id": disc, "segmentation": lengths})
    categories = [{"id": 1, "name": "disc"}, {"id": 2, "name": "other disc"}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (root / "annotations" / "instances_test.json").write_text(json.dumps(content))
    return root


SETTINGS = {
    "how": "segment",
    "data": {"dataset": "masks", "keep_ids": True, "near_duplicates": "ignore"},
    "source": {"name": "data"},
    "segment": {"width": 8, "channels": (4, 8)},
    "split": {"folds": 3},
    "model": {"name": "timm:test_resnet", "weights": "scratch", "image_size": 64},
    "optim": {"name": "adamw", "lr": 0.01},
    "train": {"steps": 4, "batch_size": 6, "eval_every": 2},
    "device": "cpu",
}


def run(root, out, **changes):
    config = build(TransferConfig, SETTINGS, changes)
    return Segmentation(config, out=out, roots={"": root}, command="usvit transfer --how segment").run()
