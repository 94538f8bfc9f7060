"""Test sets for classifiers of ImageNet-1k under other conditions: ImageNet-A, -R, -Sketch and ObjectNet.

Sources: Hendrycks et al. 2021, "Natural adversarial examples" (A); Hendrycks et al. 2021, "The many faces of
robustness" (R: renditions); Wang et al. 2019, "Learning robust global representations by penalizing local predictive
power" (Sketch); Barbu et al. 2019, "ObjectNet: a large-scale bias-controlled dataset" (ObjectNet).
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any

from PIL import Image, ImageOps

from usvit.data.datasets import UpstreamDataset, subfolders
from usvit.upstream.sources.folder import FileSource, class_folders, list_images
from usvit.upstream.sources.imagenet import of_wnids, wnids
from usvit.upstream.sources.named_set import Malformed, NamedSet, json_of, lines

_BORDER = 2
"""Width in pixels of the red border of ObjectNet's images, which must be cut off."""
_MAPPINGS = (
    "folder_to_objectnet_label.json",
    "objectnet_to_imagenet_1k.json",
    "pytorch_to_imagenet_2012_id.json",
    "imagenet_to_label_2012_v2",
)


@lru_cache(maxsize=2)
def subset_wnids(which: str) -> tuple[str, ...]:
    """Return the WordNet ids of the 200 classes of ImageNet-A (``a``) or ImageNet-R (``r``), sorted."""
    text = (package_files("timm.data") / "_info" / f"imagenet_{which}_synsets.txt").read_text(encoding="utf-8")
    return tuple(text.split())


class _ObjectNetImages(FileSource):
    """Images of ObjectNet without their red border."""

    def image(self, index: int) -> Image.Image:
        return ImageOps.crop(super().image(index), _BORDER)


def _has_classes(root: Path, which: str) -> bool:
    """Recognise a set by most of its class folders, so that a missing or unknown one is named when it is read."""
    known, found = set(subset_wnids(which)), {path.name for path in subfolders(root)}
    return 2 * len(found & known) > max(len(found), len(known))


def _sketch_folder(root: Path) -> Path:
    return root / "sketch" if (root / "sketch").is_dir() else root


def _is_sketch(root: Path) -> bool:
    """Recognise ImageNet-Sketch by the names of its images, ``n01440764/sketch_0.JPEG``."""
    first = next((path for path in subfolders(_sketch_folder(root)) if path.name in set(wnids())), None)
    return first is not None and any(Path(name).name.startswith("sketch_") for name in list_images(first))


def _read_objectnet(root: Path, split: str) -> UpstreamDataset:
    """List the images of the classes that ImageNet-1k has, too; ``left_out`` counts the others.

    ``answers`` maps each class to the ImageNet classes that count as right. The files in ``mappings`` give it: the
    folder's label, its ImageNet labels (separated by '; '), their line in the list of labels, and the output of a
    network for this line.
    """
    folder = root / "images"
    labels = _mapping(root / "mappings" / _MAPPINGS[0])
    of_label = _mapping(root / "mappings" / _MAPPINGS[1])
    line_of = {name: number for number, name in enumerate(lines(root / "mappings" / _MAPPINGS[3]))}
    output_of = {line: output for output, line in _mapping(root / "mappings" / _MAPPINGS[2]).items()}
    found = [path.name for path in subfolders(folder)]
    if others := [name for name in found if name not in labels]:
        raise Malformed(f"images/{others[0]} is not a class of {_MAPPINGS[0]}")
    answers: dict[str, tuple[str, ...]] = {}
    for name in found:
        if labels[name] in of_label:
            theirs = str(of_label[labels[name]]).split("; ")
            try:
                answers[name] = tuple(wnids()[int(output_of[line_of[one]])] for one in theirs)
            except (KeyError, ValueError, IndexError) as error:
                raise Malformed(f"mappings give no class of ImageNet-1k for '{labels[name]}' ({error})") from error
    if not answers:
        raise Malformed("images has no folder of a class that ImageNet-1k has")
    listed = class_folders("objectnet", folder, list(answers))
    source = _ObjectNetImages("objectnet", folder, listed.files, listed.classes, listed.targets)
    source.answers = answers
    source.left_out = sum(len(list_images(folder / name)) for name in found if name not in answers)
    return source


def _mapping(path: Path) -> Mapping[str, Any]:
    content = json_of(path)
    if not isinstance(content, dict):
        raise Malformed(f"mappings/{path.name} is not a mapping")
    return content


def _is_objectnet(root: Path) -> bool:
    return (root / "images").is_dir() and (root / "mappings" / _MAPPINGS[0]).is_file()


SETS = (
    NamedSet(
        name="imagenet_a",
        layout="n01498041/0.000116_digital clock _ digital clock_0.865662.jpg (200 folders)",
        get="ImageNet-A is published by its authors (natural adversarial examples).",
        splits=("test",),
        looks_like=lambda root: _has_classes(root, "a"),
        read=lambda root, split: of_wnids("imagenet_a", root, subset_wnids("a")),
    ),
    NamedSet(
        name="imagenet_r",
        layout="n01443537/art_0.jpg (200 folders)",
        get="ImageNet-R is published by its authors (renditions).",
        splits=("test",),
        looks_like=lambda root: _has_classes(root, "r"),
        read=lambda root, split: of_wnids("imagenet_r", root, subset_wnids("r")),
    ),
    NamedSet(
        name="imagenet_sketch",
        layout="sketch/n01440764/sketch_0.JPEG (1,000 folders)",
        get="ImageNet-Sketch is published by its authors (learning robust global representations).",
        splits=("test",),
        looks_like=_is_sketch,
        read=lambda root, split: of_wnids("imagenet_sketch", _sketch_folder(root), wnids()),
    ),
    NamedSet(
        name="objectnet",
        layout="images/air_freshener/<image>.png (313 folders)\n"
        f"mappings/{_MAPPINGS[0]}, {_MAPPINGS[1]},\nmappings/{_MAPPINGS[2]}, {_MAPPINGS[3]}",
        get="ObjectNet is published by its authors for testing only.",
        splits=("test",),
        looks_like=_is_objectnet,
        read=_read_objectnet,
    ),
)
