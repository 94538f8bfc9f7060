"""Weights of the network that knows colours, and made-up releases of ImageNet's test sets in which it is known."""

import json

import pytest

from tests.upstream.classifier_test.colours import centre, colour_weights, put, shown
from usvit.upstream.sources.imagenet import wnids

VALIDATION = {1: (65, 65), 2: (970, 971), 3: (230, 199), 4: (809, 777)}
"""Number of a validation image -> the output whose colour it shows, and its label, of ranks 1, 2, 6 and 5."""
REAL = [[65, 3], [971, 970], [], [1]]


@pytest.fixture(scope="session")
def weights(tmp_path_factory):
    return colour_weights(tmp_path_factory.mktemp("weights") / "colours.safetensors")


@pytest.fixture(scope="session")
def imagenet(tmp_path_factory):
    """A flat validation folder with the list of the Kaggle download, and reassessed labels."""
    root = tmp_path_factory.mktemp("sets") / "imagenet"
    rows = ["ImageId,PredictionString"]
    for number, (colour, label) in VALIDATION.items():
        put(root / "val" / f"ILSVRC2012_val_{number:08d}.JPEG", *shown(colour))
        rows.append(f"ILSVRC2012_val_{number:08d},{wnids()[label]} 1 2 3 4")
    (root / "LOC_val_solution.csv").write_text("\n".join(rows) + "\n")
    (root / "real.json").write_text(json.dumps(REAL))
    return root


def write_v2(root, variant, images):
    """A variant of ImageNet-V2 with images (shown output, label)."""
    folder = root / f"imagenetv2-{variant}-format-val"
    for number in range(1000):
        (folder / str(number)).mkdir(parents=True)
    for at, (colour, label) in enumerate(images):
        put(folder / str(label) / f"{at}.jpeg", *shown(colour))


def write_wnids(root, classes, images, name="{at}.jpg"):
    """Class folders with images (red and green, label)."""
    for wnid in classes:
        (root / wnid).mkdir(parents=True)
    for at, (colour, label) in enumerate(images):
        put(root / wnids()[label] / name.format(at=at), *colour)
    return root


OBJECTS = {
    "alarm_clock": ("Alarm clock", (409, 530)),
    "banana": ("Banana", (954,)),
    "still_camera": ("Still camera", (732, 759)),
}
"""Folder of ObjectNet -> its label, and the ImageNet outputs that are right."""


def write_objectnet(root, images):
    """ObjectNet with images (shown output, folder), and two images of a class that ImageNet does not have.

    The list of ImageNet's labels is in another order than the outputs, as in the release.
    """
    line_of = {output: (7 * output + 3) % 1000 for output in range(1000)}
    names = [""] * 1000
    for output, line in line_of.items():
        names[line] = f"object {output}, thing"
    mappings = root / "mappings"
    mappings.mkdir(parents=True)
    (mappings / "imagenet_to_label_2012_v2").write_text("\n".join(names) + "\n")
    (mappings / "pytorch_to_imagenet_2012_id.json").write_text(json.dumps(line_of))
    labels = {folder: label for folder, (label, _) in OBJECTS.items()} | {"air_freshener": "Air freshener"}
    (mappings / "folder_to_objectnet_label.json").write_text(json.dumps(labels))
    of_label = {
        label: "; ".join(f"object {output}, thing" for output in outputs) for label, outputs in OBJECTS.values()
    }
    (mappings / "objectnet_to_imagenet_1k.json").write_text(json.dumps(of_label))
    for at, (colour, folder) in enumerate(images):
        put(root / "images" / folder / f"{at}.png", *shown(colour), border=2)
    for at in range(2):
        put(root / "images" / "air_freshener" / f"{at}.png", *map(int, centre(0)), border=2)
    return root
