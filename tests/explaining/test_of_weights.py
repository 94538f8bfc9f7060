"""Weights without test images are explained on the images of a folder or a source."""

import json
import shutil

import jsonschema
import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.conftest import REPOSITORY
from usvit.errors import UsvitError
from usvit.experiments import make_experiment
from usvit.explaining import explain
from usvit.explaining.attention import attention_distances
from usvit.models import Weights, build_model, find_model, resolve_networks
from usvit.upstream.config.pretrain import PretrainConfig

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs/reference/explain.schema.json").read_text())
SMALL = {
    "model": {
        "name": "vit_ti16",
        "weights": "scratch",
        "image_size": 32,
        "vit": {"width": 24, "depth": 2, "heads": 2, "mlp": 48, "patch": 8},
    },
    "views": {"test_crop": 0.8},
    "device": "cpu",
    "precision": "fp32",
}
FRACTALS = {"name": "fractals", "size": 24, "classes": 3, "image_size": 32}
TRAIN = {"steps": 2, "epochs": None, "batch_size": 8}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A pre-training with a classifier, and one without."""
    root = tmp_path_factory.mktemp("runs")
    for name, more in (("supervised", {}), ("mae", {"objective": "mae"})):
        config = PretrainConfig.model_validate({**SMALL, **more, "source": FRACTALS, "train": TRAIN})
        make_experiment("pretrain", config, out=root / name).run()
    return root


@pytest.fixture
def pretrained(runs, tmp_path):
    return shutil.copytree(runs / "supervised", tmp_path / "supervised")


@pytest.fixture
def folder(tmp_path):
    """Five pictures, wide and high, at two depths."""
    for at, name in enumerate(("a.png", "b.png", "deep/c.png", "deep/d.png", "deep/e.png")):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(at).integers(0, 255, (60, 40 + 30 * at, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "images"


def read(folder):
    content = json.loads((folder / "explain.json").read_text())
    jsonschema.validate(content, SCHEMA)
    assert content["schema_version"] == "1.0"
    return content


def prepared(path, network):
    """The image as the pre-training validated: short side 32 / 0.8 pixels, then the central 32 x 32."""
    with Image.open(path) as picture:
        width, height = picture.size
        scale = 40 / min(width, height)
        large = picture.resize((int(width * scale), int(height * scale)), Image.Resampling.BICUBIC)
    left, top = round((large.width - 32) / 2), round((large.height - 32) / 2)
    pixels = np.asarray(large.crop((left, top, left + 32, top + 32))) / 255
    view = network.view
    return torch.from_numpy((pixels - view.mean) / view.std).permute(2, 0, 1)[None].float()


def test_a_pre_training_is_explained_on_a_folder_as_it_was_validated(pretrained, folder):
    entry = explain(pretrained, method="distance", path=folder).entry
    (network,) = resolve_networks(str(pretrained))
    model = network.network().eval()
    files = sorted(folder.rglob("*.png"))
    layers = [attention_distances(model, prepared(file, network), "ViT") for file in files]
    assert entry.n_images == 5 and entry.images_of == "unlabeled:train"
    for at, layer in enumerate(entry.layers):
        wanted = torch.cat([one[at].distance for one in layers]).mean(dim=0)
        assert layer.heads == pytest.approx(wanted.tolist(), rel=1e-4)
    content = read(pretrained / "explain")
    assert content["preprocessing"]["test_crop"] == 0.8 and content["positive_class"] is None
    assert content["weights_sha256"] == {"0": network.weights.sha256} and len(content["classes"]) == 3


def test_the_prediction_is_that_of_the_network(pretrained, folder):
    explained = explain(pretrained, method="gradcam", path=folder, image_ids=["deep/c.png", "a.png"])
    (network,) = resolve_networks(str(pretrained))
    assert [image.image_id for image in explained.entry.images] == ["deep/c.png", "a.png"]
    for image in explained.entry.images:
        with torch.no_grad():
            logits = network.network().eval()(prepared(folder / image.image_id, network))
        wanted = dict(zip(network.classes, logits.double().softmax(1)[0].tolist(), strict=True))
        assert image.probabilities == pytest.approx(wanted, abs=1e-5)
        assert image.predicted == image.class_ == max(wanted, key=wanted.get) and image.label is None
    named = explain(pretrained, method="occlusion", path=folder, images=2, target=network.classes[2])
    assert {image.class_ for image in named.entry.images} == {network.classes[2]} and len(named.entry.images) == 2
    read(pretrained / "explain")


def test_images_of_others_are_hidden_and_generated_ones_are_shown(pretrained, folder):
    hidden = explain(pretrained, path=folder, images=1)
    assert hidden.method == "rollout" and hidden.hidden == ("unlabeled:train",)
    assert not hidden.entry.images[0].shows_image
    assert explain(pretrained, path=folder, images=1, include_images=True).entry.images[0].shows_image
    shown = explain(pretrained, source="fractals:val", images=3)
    assert shown.hidden == () and all(image.shows_image and image.label for image in shown.entry.images)
    assert shown.entry.images_of == "fractals:val" and shown.entry.against_masks is None


def test_several_layers_are_rows_of_one_picture(pretrained, folder):
    both = explain(pretrained, method="attention", path=folder, images=1, layers=["all"]).entry
    assert both.shown_layers == ["blocks.0", "blocks.1"] and both.layer == "blocks.1"
    with Image.open(pretrained / "explain" / both.images[0].file) as picture:  # three maps of 224 pixels in two rows
        assert picture.width == 6 + 3 * 230 and 2 * 224 < picture.height < 3 * 224
    first = explain(pretrained, method="attention", path=folder, images=1, layers=[1]).entry
    assert first.layer == "blocks.0" and first.shown_layers is None
    read(pretrained / "explain")


def test_a_network_without_a_classifier_shows_what_needs_none(runs, folder, tmp_path):
    out = tmp_path / "out"
    for method in ("rollout", "attention", "distance", "residuals"):
        explain(runs / "mae", method=method, path=folder, images=2, out=out)
    for method in ("filters", "positions"):
        explain(runs / "mae", method=method, out=out)
    content = read(out)
    assert content["classes"] == [] and len(content["methods"]) == 6
    image = content["methods"]["rollout"]["images"][0]
    assert image["predicted"] is None and image["probabilities"] == {}
    for method in ("gradcam", "occlusion"):
        with pytest.raises(UsvitError, match=r"explains the score of a class.*objective mae.*do not need a classifier"):
            explain(runs / "mae", method=method, path=folder, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_a_cross_validated_run_has_a_folder_of_its_own_for_other_images(make_run, folder):
    run = make_run()
    explained = explain(run, method="rollout", path=folder, images=2)
    assert explained.folder == run / "explain-images" and not (run / "explain").exists()
    (network, *_) = resolve_networks(str(run))
    content = read(explained.folder)
    assert content["weights_sha256"]["0"] == network.weights.sha256 and content["preprocessing"]["resize"] == "pad"
    assert "part" not in content["methods"]["rollout"] and len(explained.entry.images) == 2


def untrained(name, path, **shape):
    """A file of random weights with ImageNet's 1000 outputs."""
    torch.manual_seed(0)
    model = build_model(find_model(name), Weights("scratch"), n_classes=1000, image_size=shape.pop("image_size", 224))
    for parameter in model.parameters():
        if parameter.ndim > 1:
            torch.nn.init.trunc_normal_(parameter, std=0.1)
    save_file(model.state_dict(), path)
    return path


def test_a_network_with_a_query_for_each_class_shows_the_three_most_probable(folder, tmp_path):
    """Thesis, Fig. 5.6."""
    weights = untrained("patchconvnet_s1_multi", tmp_path / "w.safetensors")
    explained = explain(
        model="patchconvnet_s1_multi", weights=weights, path=folder, images=1, out=tmp_path / "out", include_images=True
    )
    (image,) = explained.entry.images
    assert explained.method == "attention" and image.class_ == image.predicted and len(image.probabilities) == 5
    with Image.open(tmp_path / "out" / image.file) as picture:  # the image and three maps
        assert picture.width == 6 + 4 * 230
    named = explain(
        f"patchconvnet_s1_multi={weights}", path=folder, images=1, out=tmp_path / "out", target="n01440764"
    ).entry
    assert named.images[0].class_ == "n01440764"
    read(tmp_path / "out")


def test_a_resmlp_shows_its_map_over_patches_without_images(tmp_path):
    weights = untrained("resmlp_s1", tmp_path / "w.safetensors")
    explained = explain(model="resmlp_s1", weights=weights, method="mixing", out=tmp_path / "out")
    (layer,) = explained.entry.mixing
    assert (tmp_path / "out" / layer.file).is_file() and (tmp_path / "out" / explained.entry.file).is_file()
    assert 0 < layer.sparsity < 0.2 and explained.entry.grid == [14, 14]  # few values of a normal are that small
    read(tmp_path / "out")
    with pytest.raises(UsvitError, match="Leave out --images"):
        explain(model="resmlp_s1", weights=weights, method="mixing", images=3, out=tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, r"come without test images.*--path DIR.*--source"),
        ({"source": "data"}, "explained by a run of usvit cv or train"),
        ({"source": "fractals", "errors": 2}, "--errors needs the predictions"),
        ({"source": "fractals", "target": "n0"}, "does not explain a class"),
        ({"source": "fractals", "method": "gradcam", "target": "n0"}, "Unknown class 'n0'"),
        ({"source": "fractal"}, "Unknown source 'fractal'"),
        ({"source": "fractals", "image_ids": ["x"]}, "Unknown image 'x'"),
        ({"source": "imagenet:val"}, "The folder of imagenet is not known"),
        ({"path": "nowhere"}, "There is no folder nowhere"),
        ({"model": "vit_ti16"}, "Name one network"),
        ({"method": "mixing"}, "has no linear map over its patches"),
    ],
)
def test_mistakes_are_said_before_anything_is_written(runs, tmp_path, options, said, monkeypatch):
    monkeypatch.delenv("USVIT_DATA", raising=False)
    with pytest.raises(UsvitError, match=said):
        explain(runs / "supervised", out=tmp_path / "out", **options)
    assert not (tmp_path / "out" / "explain.json").exists()
