import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.records.contents import content, network
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.models.build import build_model
from usvit.models.trained_model import load_trained
from usvit.models.weights import Weights
from usvit.models.zoo import find_model

VIT = {"width": 24, "depth": 1, "mlp": 24, "heads": 2, "pool": "avg", "position": "sincos_2d", "head": "hidden"}


GOOD = {"image_size": 48, "resize": "pad", "crop": "tissue", "mean": [0.5] * 3, "std": [0.25] * 3}


def make_fold(folder, name="vit_ti16", vit=None, classes=("benign", "malignant"), image_size=48):
    """A fold's folder as a run leaves it; returns the network."""
    spec = find_model(name, vit)
    torch.manual_seed(3)
    model = build_model(spec, Weights("scratch"), n_classes=len(classes), image_size=image_size)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    folder.mkdir(parents=True)
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / "model.safetensors")
    stated = network(
        architecture=name,
        vit=vit or {},
        timm=spec.architecture,
        classes=list(classes),
        preprocessing=GOOD | {"image_size": image_size},
    )
    (folder / "model.json").write_text(json.dumps(stated))
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "vit"), [("timm:test_resnet", None), ("vit_ti16", VIT), ("timm:deit_tiny_distilled_patch16_224", None)]
)
def test_a_fold_gives_the_same_logits_again(tmp_path, name, vit):
    model = make_fold(tmp_path / "fold-0", name, vit)
    trained = load_trained(tmp_path / "fold-0")
    assert not trained.model.training
    assert trained.classes == ("benign", "malignant")
    assert trained.spec.name == name
    assert trained.preprocessing == Preprocessing(48, "pad", (0.5, 0.5, 0.5), (0.25, 0.25, 0.25))
    images = torch.randn(2, 3, 48, 48)
    with torch.no_grad():
        logits = trained.model(images)
        assert torch.equal(logits, model(images))
    assert logits.abs().min() > 0  # its own head, not a new one


def test_random_numbers_go_on_as_if_nothing_had_been_loaded(tmp_path):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    load_trained(tmp_path / "fold-0")
    assert torch.equal(torch.rand(2), expected)


def test_a_run_of_one_fold_is_its_fold_and_of_several_none(tmp_path):
    for fold in (0, 1):
        make_fold(tmp_path / f"fold-{fold}", "timm:test_resnet")
    (tmp_path / "run.json").write_text(json.dumps(content("run", folds={"n": 1})))
    assert load_trained(tmp_path).spec.name == "timm:test_resnet"
    (tmp_path / "run.json").write_text(json.dumps(content("run", folds={"n": 2})))
    with pytest.raises(UsvitError, match=r"a run of 2 folds with a network in each. Name one: .*fold-0, ..., fold-1"):
        load_trained(tmp_path)


@pytest.mark.parametrize("missing", ["classes", "positive_class", "preprocessing", "architecture", "schema_version"])
def test_a_foreign_metadata_is_told_by_what_it_lacks(tmp_path, missing):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    path = tmp_path / "fold-0" / "model.json"
    path.write_text(json.dumps({key: value for key, value in json.loads(path.read_text()).items() if key != missing}))
    with pytest.raises(UsvitError, match=rf"model\.json is damaged: key {missing}: Field required"):
        load_trained(tmp_path / "fold-0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schema_version": "2.0"}, r"another version of usvit \(schema 2\.0"),
        ({"classes": ["malignant"]}, "key classes: List should have at least 2 items"),
        ({"classes": ["malignant", "malignant"]}, "should be different classes, of which positive_class 'malignant'"),
        ({"classes": "malignant"}, r"model\.json is damaged: key classes: should be a valid list"),
        ({"positive_class": "cancer"}, "should be different classes, of which positive_class 'cancer' is one"),
        ({"architecture": "vit_b15"}, r"model\.json: Unknown model 'vit_b15'"),
        ({"architecture": "vit_ti16", "vit": {"witdh": 3}}, "witdh"),
        ({"architecture": "vit_ti16", "vit": [1]}, "is damaged"),
        ({"preprocessing": "none"}, "is damaged"),
        ({"preprocessing": GOOD | {"mean": [0.5]}}, r"key preprocessing\.mean: "),
        ({"preprocessing": GOOD | {"std": ["a"] * 3}}, "is damaged"),
        ({"preprocessing": GOOD | {"resize": "stretch"}}, r"key preprocessing\.resize: should be 'squash' or 'pad'"),
        ({"preprocessing": GOOD | {"image_size": "large"}}, r"key preprocessing\.image_size: "),
        ({"preprocessing": GOOD | {"crop": "centre"}}, r"key preprocessing\.crop: should be 'tissue' or 'whole'"),
        ({"classes": ["benign", "malignant", "normal"]}, "are not those of timm:test_resnet with 3 classes"),
        ({"architecture": "timm:resnet18"}, "are not those of timm:resnet18"),
    ],
)
def test_a_damaged_metadata_is_told_by_what_is_wrong(tmp_path, changed, says):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    path = tmp_path / "fold-0" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    with pytest.raises(UsvitError, match=says):
        load_trained(tmp_path / "fold-0")


@pytest.mark.parametrize(
    ("stated", "crop"), [({}, "tissue"), ({"crop": "tissue"}, "tissue"), ({"crop": "whole"}, "whole")]
)
def test_the_crop_is_the_metadata_s_and_an_old_one_means_tissue(tmp_path, stated, crop):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    path = tmp_path / "fold-0" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"preprocessing": GOOD | stated}))
    assert load_trained(tmp_path / "fold-0").preprocessing.crop == crop


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        ({"depth": 10**6}, r"vit\.depth of the model vit_ti16 is 1000000; it must be 0 to 1,000"),
        ({"width": 10**9}, r"vit\.width of the model vit_ti16 is 1000000000; it must be"),
        ({"depth": 1000, "width": 10**5, "heads": 8}, "the file holds only .* numbers, which are too few"),
        ({"width": 10**5, "heads": 8}, "the file holds only .* numbers, which are too few"),
    ],
)
def test_a_network_far_larger_than_its_weights_is_refused_before_it_is_built(tmp_path, parts, says):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    path = tmp_path / "fold-0" / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architecture": "vit_ti16", "vit": parts}))
    with pytest.raises(UsvitError, match=says):
        load_trained(tmp_path / "fold-0")


def test_damaged_or_missing_files_are_named(tmp_path):
    with pytest.raises(UsvitError, match="is not a run of usvit"):
        load_trained(tmp_path / "nowhere")
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    file = tmp_path / "fold-0" / "model.safetensors"
    whole = {key: value.clone() for key, value in load_file(file).items()}  # the file is mapped, and cut below
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(UsvitError, match=r"model.safetensors are damaged"):
        load_trained(tmp_path / "fold-0")
    del whole["fc.bias"]
    save_file(whole, file)
    with pytest.raises(UsvitError, match=r"are not those of .*fc.bias"):
        load_trained(tmp_path / "fold-0")
    (tmp_path / "fold-0" / "model.json").unlink()
    with pytest.raises(UsvitError, match=r"has no model.json, the metadata"):
        load_trained(tmp_path / "fold-0")


@pytest.mark.parametrize("size", [2 * 10**12, 20 * 10**9])
def test_weights_of_many_gigabytes_that_take_no_room_are_refused_before_they_are_hashed(tmp_path, size):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    with open(tmp_path / "fold-0" / "model.safetensors", "r+b") as file:
        file.truncate(size)
    with pytest.raises(UsvitError, match=r"model\.safetensors"):
        load_trained(tmp_path / "fold-0")


def test_weights_that_are_a_fifo_do_not_wait(tmp_path):
    make_fold(tmp_path / "fold-0", "timm:test_resnet")
    (tmp_path / "fold-0" / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "fold-0" / "model.safetensors")
    with pytest.raises(UsvitError):
        load_trained(tmp_path / "fold-0")
