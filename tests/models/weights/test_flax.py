"""Archives of the JAX repositories, held against timm's own readers of them."""

import numpy as np
import pytest
import timm
import torch

from tests.models.conftest import SMALL_VIT, load_into, small
from tests.models.weights import flax_files as files
from usvit.errors import UsvitError
from usvit.models.weights import parse_weights
from usvit.models.weights.load import head_of


def both(path, name, image_size=32, **options):
    """The network as usvit loads it, its report, and as timm does."""
    spec = small(name, **options)
    ours, report = load_into(spec, parse_weights(path.read_bytes(), path), image_size)
    config = timm.get_pretrained_cfg(name)
    size = {"img_size": image_size} if config.fixed_input_size else {}
    theirs = timm.create_model(name, num_classes=3, **size, **options)
    with torch.no_grad():
        theirs.load_pretrained(str(path))
    return ours, report, theirs


def assert_same(ours, theirs):
    is_head = head_of(ours)
    own, oracle = ours.state_dict(), theirs.state_dict()
    assert own.keys() == oracle.keys()
    for key in own:
        assert is_head(key) or torch.equal(own[key], oracle[key]), key


@pytest.mark.parametrize("root", ["", "opt/target/"])
def test_augreg(tmp_path, root):
    arrays = {f"{root}{key}": value for key, value in files.augreg().items()}
    ours, report, theirs = both(files.write(tmp_path / "w.npz", arrays), "vit_tiny_patch16_224", **SMALL_VIT)
    assert_same(ours, theirs)
    assert (ours.head.weight == 0).all()
    assert {why for _, why in report.skipped} == {"the head is new"}
    assert report.loaded == len(ours.state_dict()) - 2


@pytest.mark.slow
@pytest.mark.parametrize("root", ["params/", "params/img/", ""])
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("map_head", [False, True])
def test_big_vision(tmp_path, root, scanned, map_head):
    name = "vit_so150m_patch16_reg4_map_256" if map_head else "vit_base_patch16_gap_224"
    options = SMALL_VIT | ({"reg_tokens": 0} if map_head else {})
    path = files.write(tmp_path / "w.npz", files.big_vision(root, map_head, scanned))
    ours, _, theirs = both(path, name, **options)
    assert_same(ours, theirs)


def test_the_last_norm_finds_its_place_behind_the_mean(tmp_path):
    arrays = files.big_vision()
    path = files.write(tmp_path / "w.npz", arrays)
    spec = small("vit_base_patch16_gap_224", **SMALL_VIT, fc_norm=True)  # timm's own reader leaves it as it began
    model, report = load_into(spec, parse_weights(path.read_bytes(), path))
    expected = torch.from_numpy(arrays["params/Transformer/encoder_norm/scale"])
    assert torch.equal(model.fc_norm.weight, expected)
    assert ("params/Transformer/encoder_norm/scale", "fc_norm.weight") in report.renamed


def test_bfloat16_arrays_are_read(tmp_path):
    arrays = files.augreg()
    halved = {key: torch.from_numpy(value).bfloat16().view(torch.int16).numpy() for key, value in arrays.items()}
    path = files.write(tmp_path / "w.npz", {key: value.view("V2") for key, value in halved.items()})
    model, _ = load_into(small("vit_tiny_patch16_224", **SMALL_VIT), parse_weights(path.read_bytes(), path))
    expected = torch.from_numpy(arrays["embedding/bias"]).bfloat16().float()
    assert torch.equal(model.patch_embed.proj.bias, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layers", "patch"), [("vit_tiny_r_s16_p8_224", (), 8), ("vit_small_r26_s32_224", (2, 2, 2, 2), 1)]
)
def test_hybrids(tmp_path, name, layers, patch):
    path = files.write(tmp_path / "w.npz", files.hybrid(layers, grid=2, patch=patch))
    ours, _, theirs = both(path, name, image_size=64, **SMALL_VIT)
    assert_same(ours, theirs)


@pytest.mark.slow
def test_bit(tmp_path):
    ours, _, theirs = both(files.write(tmp_path / "w.npz", files.bit()), "resnetv2_50x1_bit", image_size=224)
    assert_same(ours, theirs)


def test_what_stands_beside_the_network_is_reported(tmp_path):
    arrays = files.big_vision("params/img/") | {"params/txt/Embed_0/embedding": np.zeros((4, 4), np.float32)}
    path = files.write(tmp_path / "w.npz", arrays)
    _, report = load_into(small("vit_base_patch16_gap_224", **SMALL_VIT), parse_weights(path.read_bytes(), path))
    assert ("params/txt/Embed_0/embedding", "not part of the image network") in report.skipped


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.pop("Transformer/encoderblock_1/MultiHeadDotProductAttention_1/key/bias"), "attn.qkv.bias"),
        (lambda a: a.pop("cls"), r"missing there: cls_token \(1 x 1 x 24\)"),
        (lambda a: a.update(surprise=np.zeros(3, np.float32)), r"unknown here: surprise \(3\)"),
    ],
)
def test_an_archive_with_too_little_or_too_much_is_refused_by_name(tmp_path, change, says):
    arrays = files.augreg()
    change(arrays)
    path = files.write(tmp_path / "w.npz", arrays)
    with pytest.raises(UsvitError, match=says):
        load_into(small("vit_tiny_patch16_224", **SMALL_VIT), parse_weights(path.read_bytes(), path))
