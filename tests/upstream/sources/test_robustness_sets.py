"""ImageNet-A, -R, -Sketch and ObjectNet in the layouts of their releases."""

import json

import numpy as np
import pytest

from tests.upstream.classifier_test.colours import shown
from tests.upstream.classifier_test.conftest import OBJECTS, write_objectnet, write_wnids
from tests.upstream.sources import layouts
from usvit.errors import UsvitError
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.imagenet import wnids
from usvit.upstream.sources.open import open_source
from usvit.upstream.sources.robustness_sets import subset_wnids


def opened(name, root):
    return open_source(SourceConfig(name=name), {name: root}, split="test", seed=0)


@pytest.mark.parametrize(("which", "some"), [("a", ("n01498041", "n12267677")), ("r", ("n01443537", "n12267677"))])
def test_the_subsets_have_200_classes_of_imagenet(which, some):
    found = subset_wnids(which)
    assert len(set(found)) == 200 and set(found) < set(wnids()) and list(found) == sorted(found)
    assert set(some) <= set(found)


@pytest.mark.parametrize("which", ["a", "r"])
def test_a_subset_is_read_with_its_own_classes_and_a_wrong_folder_is_named(tmp_path, which):
    classes = subset_wnids(which)
    label = wnids().index(classes[7])
    root = write_wnids(tmp_path / f"imagenet-{which}", classes, [((1, 2), label)])
    source = opened(f"imagenet_{which}", tmp_path)
    assert source.classes == classes and source.targets.tolist() == [7]
    (root / "README.txt").write_text("no class")
    assert len(opened(f"imagenet_{which}", root)) == 1
    (root / "n99999999").mkdir()
    with pytest.raises(UsvitError, match="contains folders that are not classes: n99999999"):
        opened(f"imagenet_{which}", root)
    (root / "n99999999").rmdir()
    (root / classes[0]).rmdir()
    with pytest.raises(UsvitError, match=rf"lacks 1 of 200 class folders \({classes[0]}"):
        opened(f"imagenet_{which}", root)


def test_a_and_r_are_not_taken_for_each_other(tmp_path):
    write_wnids(tmp_path / "imagenet-r", subset_wnids("r"), [])
    with pytest.raises(UsvitError, match="it does not have the expected layout"):
        opened("imagenet_a", tmp_path)


@pytest.mark.slow
def test_sketch_is_recognised_by_the_names_of_its_images(tmp_path):
    write_wnids(tmp_path / "sketch", wnids(), [((1, 2), 999)], name="sketch_{at}.JPEG")
    with pytest.raises(UsvitError, match="expected layout"):  # the first folder holds no image of Sketch
        opened("imagenet_sketch", tmp_path)
    layouts.put(tmp_path / "sketch" / wnids()[0] / "sketch_0.JPEG", 0, "JPEG")
    source = opened("imagenet_sketch", tmp_path)
    assert source.classes == wnids() and source.targets.tolist() == [0, 999]


def test_objectnet_maps_its_classes_through_the_published_files_and_cuts_the_border_off(tmp_path):
    write_objectnet(tmp_path / "objectnet-1.0", [(409, "alarm_clock"), (954, "banana"), (1, "still_camera")])
    source = opened("objectnet", tmp_path)
    assert source.classes == ("alarm_clock", "banana", "still_camera")
    assert source.answers == {
        folder: tuple(wnids()[output] for output in outputs) for folder, (_, outputs) in OBJECTS.items()
    }
    assert source.left_out == 2 and len(source) == 3
    picture = np.asarray(source.image(0))
    assert picture.shape == (12, 12, 3) and (picture == (*shown(409), 0)).all()


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("folder_to_objectnet_label.json", {"banana": "Banana"}, "air_freshener is not a class of folder_to_objectnet"),
        ("objectnet_to_imagenet_1k.json", {"Banana": "fruit"}, r"no class of ImageNet-1k for 'Banana' \('fruit'\)"),
        ("objectnet_to_imagenet_1k.json", {}, "no folder of a class that ImageNet-1k has"),
        ("pytorch_to_imagenet_2012_id.json", [], "pytorch_to_imagenet_2012_id.json is not a mapping"),
    ],
)
def test_mappings_that_do_not_fit_are_named(tmp_path, file, content, message):
    root = write_objectnet(tmp_path / "objectnet", [(954, "banana")])
    (root / "mappings" / file).write_text(json.dumps(content))
    with pytest.raises(UsvitError, match=message):
        opened("objectnet", tmp_path)
    (root / "mappings" / file).unlink()
    if file != "folder_to_objectnet_label.json":  # by which the folder is recognised
        with pytest.raises(UsvitError, match=rf"(?s){file} cannot be read: it does not exist.*Expected layout"):
            opened("objectnet", tmp_path)
