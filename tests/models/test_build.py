import pytest
import torch

from tests.models.conftest import write_weights
from tests.records.contents import network
from usvit.errors import UsvitError
from usvit.models.build import build_model, build_with_report, input_statistics
from usvit.models.weights import Checkpoint, LoadReport, Weights, resolve_weights
from usvit.models.zoo import ZOO, find_model
from usvit.records import ModelMetadata

HEADS = {"vit_ti16": "head", "r_ti16": "head", "resnet50": "fc", "inception_v3": "fc"}

FAMILIES = {spec.family: spec.name for spec in reversed(ZOO.values()) if spec.name != "nasnet_large"}.values()
"""One network of each family; that every one can be built is tested where they are counted."""


def scratch(name: str, n_classes: int = 3, image_size: int = 224, **options: float) -> torch.nn.Module:
    return build_model(find_model(name), Weights("scratch"), n_classes=n_classes, image_size=image_size, **options)


def loaded(name: str, path: object, n_classes: int = 3, image_size: int = 224) -> torch.nn.Module:
    spec = find_model(name)
    return build_model(spec, resolve_weights(str(path), spec), n_classes=n_classes, image_size=image_size)


def without_head(state: dict[str, torch.Tensor], head: str) -> dict[str, torch.Tensor]:
    return {key: value for key, value in state.items() if not key.startswith(f"{head}.")}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_a_model_of_every_family_takes_images_of_224_and_gives_a_logit_a_class(name):
    with torch.device("meta"):
        model = scratch(name, n_classes=5)
        assert model(torch.zeros(2, 3, 224, 224)).shape == (2, 5)
    assert model.training


def test_same_seed_gives_the_same_network_and_trying_it_out_takes_no_random_number():
    torch.manual_seed(3)
    one = scratch("vit_ti16", image_size=32).state_dict()
    after = torch.rand(1)
    torch.manual_seed(3)
    other = scratch("vit_ti16", image_size=32).state_dict()
    assert all(torch.equal(one[key], other[key]) for key in one)
    assert torch.equal(after, torch.rand(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_ti16", "r_ti16", "timm:deit_tiny_distilled_patch16_224"])
def test_vits_begin_at_equal_probabilities(name):
    model = scratch(name, image_size=32).eval()
    assert (model(torch.randn(2, 3, 32, 32)) == 0).all()


def test_head_of_a_cnn_is_random():
    model = scratch("resnet50", image_size=32)
    assert model.get_classifier().weight.std() > 0


@pytest.mark.parametrize(
    ("name", "n_classes", "zero"),
    [("timm:test_efficientnet", 3, True), ("timm:test_efficientnet", 1000, False), ("timm:test_resnet", 3, False)],
)
def test_a_head_whose_weights_would_be_large_starts_at_zero_on_given_weights(tmp_path, name, n_classes, zero):
    random = scratch(name, n_classes, 64)
    assert random.get_classifier().weight.std() > 0  # as its authors start from scratch
    write_weights(tmp_path / "given.safetensors", name, n_classes)
    model = loaded(name, tmp_path / "given.safetensors", n_classes, 64)
    assert (model.get_classifier().weight.abs().max() == 0) == zero
    if zero:
        assert (model.eval()(torch.randn(2, 3, 64, 64)) == 0).all()


def test_batch_statistics_are_not_moved_by_trying_it_out():
    model = scratch("resnet50", image_size=32)
    assert (model.bn1.running_mean == 0).all()
    assert model.bn1.num_batches_tracked == 0


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("name", ["vit_ti16", "r_ti16", "resnet50"])
def test_file_gives_every_tensor_but_the_head_bit_by_bit(tmp_path, name, suffix):
    path = tmp_path / f"weights{suffix}"
    state = write_weights(path, name, n_classes=7)
    model = loaded(name, path)
    own = model.state_dict()
    kept = without_head(state, HEADS[name])
    assert set(without_head(own, HEADS[name])) == set(kept)
    assert all(torch.equal(own[key], kept[key]) for key in kept)
    head = model.get_classifier()
    assert head.weight.shape[0] == 3
    assert (head.weight == 0).all() == (name != "resnet50")


@pytest.mark.slow
def test_head_is_new_even_where_the_file_has_as_many_classes(tmp_path):
    state = write_weights(tmp_path / "w.pth", "resnet50", n_classes=3)
    assert not torch.equal(loaded("resnet50", tmp_path / "w.pth").fc.weight, state["fc.weight"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_ti16", "resnet50"])
def test_file_without_a_head_is_enough(tmp_path, name):
    state = write_weights(tmp_path / "w.safetensors", name, n_classes=0)
    assert not any(key.startswith(HEADS[name]) for key in state)
    own = loaded(name, tmp_path / "w.safetensors").state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items())


@pytest.mark.slow
def test_checkpoint_with_the_model_inside_is_unwrapped(tmp_path):
    state = write_weights(tmp_path / "checkpoint.pth", "vit_ti16", n_classes=7, nested=True)
    own = loaded("vit_ti16", tmp_path / "checkpoint.pth").state_dict()
    assert torch.equal(own["blocks.3.attn.qkv.weight"], state["blocks.3.attn.qkv.weight"])


@pytest.mark.slow
def test_position_embeddings_are_resized_for_another_image_size(tmp_path):
    state = write_weights(tmp_path / "w.safetensors", "vit_ti16", n_classes=7)
    model = loaded("vit_ti16", tmp_path / "w.safetensors", image_size=96)
    own = model.state_dict()
    assert own["pos_embed"].shape == (1, 6 * 6 + 1, 192)
    assert torch.equal(own["pos_embed"][:, 0], state["pos_embed"][:, 0])  # the class token's has no place to move
    grid = state["pos_embed"][:, 1:].reshape(1, 14, 14, 192).permute(0, 3, 1, 2)
    expected = torch.nn.functional.interpolate(grid, (6, 6), mode="bicubic", antialias=True, align_corners=False)
    resized = own["pos_embed"][:, 1:].reshape(1, 6, 6, 192).permute(0, 3, 1, 2)
    torch.testing.assert_close(resized, expected, rtol=1e-4, atol=1e-5)
    assert model.eval()(torch.zeros(1, 3, 96, 96)).shape == (1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vit_s32", "r_ti16", "resnet50", "inception_v3"])
def test_weights_of_another_network_are_refused_by_name(tmp_path, name):
    path = tmp_path / "tiny.safetensors"
    write_weights(path, "vit_ti16", n_classes=7)
    with pytest.raises(UsvitError, match=rf"{path} do not fit the model {name}\. Name the model that they were.*there"):
        loaded(name, path, image_size=299 if name == "inception_v3" else 224)


@pytest.mark.slow
def test_inception_takes_its_own_file_with_and_without_the_second_head(tmp_path):
    for aux in (False, True):
        path = tmp_path / f"{aux}.safetensors"
        state = write_weights(path, "inception_v3", n_classes=7, aux_logits=aux)
        assert any(key.startswith("AuxLogits") for key in state) == aux
        own = loaded("inception_v3", path, image_size=96).state_dict()
        assert torch.equal(own["Mixed_7c.branch1x1.conv.weight"], state["Mixed_7c.branch1x1.conv.weight"])
        assert not any(key.startswith("AuxLogits") for key in own)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "why"),
    [
        ("vit_b32", 100, "not a multiple of its patch size 32"),
        ("vit_ti16", 225, "not a multiple of its patch size 16"),
        ("r_ti16", 48, "model.image_size"),
        ("inception_v3", 32, "Kernel size"),
        ("timm:eva02_tiny_patch14_224", 256, "patch size 14"),
    ],
)
def test_impossible_size_is_told_before_any_work(name, size, why):
    with pytest.raises(UsvitError, match=f"{name} cannot take images of {size} x {size} pixels.*{why}"):
        scratch(name, image_size=size)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["timm:swin_tiny_patch4_window7_224", "timm:beit_base_patch16_224", "r26_s32"])
def test_networks_with_a_built_in_size_are_built_for_another(name):
    with torch.device("meta"):
        assert scratch(name, image_size=256)(torch.zeros(1, 3, 256, 256)).shape == (1, 3)


def test_stochastic_depth_reaches_the_blocks_and_is_refused_where_there_is_none():
    rates = [block.drop_path1.drop_prob for block in scratch("vit_ti16", image_size=32, drop_path=0.2).blocks[1:]]
    assert rates[-1] == pytest.approx(0.2)
    assert rates == sorted(rates)
    with pytest.raises(UsvitError, match=r"vgg16 has no stochastic depth: set model.drop_path to 0"):
        scratch("vgg16", drop_path=0.2)


def test_input_statistics_are_those_that_the_weights_were_trained_with():
    assert input_statistics(find_model("vit_b32")) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    assert input_statistics(find_model("resnet50")) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    assert input_statistics(find_model("timm:vit_small_patch16_36x1_224"))[0] == (0.5, 0.5, 0.5)


def test_statistics_of_weights_that_usvit_trained_are_those_of_their_metadata():
    metadata = network()
    metadata["preprocessing"] |= {"mean": [0.1, 0.2, 0.3], "std": [1, 2, 3]}
    weights = Weights("file", metadata=ModelMetadata.model_validate(metadata))
    assert input_statistics(find_model("resnet50"), weights) == ((0.1, 0.2, 0.3), (1, 2, 3))


SMALL = {"width": 24, "depth": 1, "mlp": 24, "heads": 2}


@pytest.mark.parametrize(
    ("vit", "says"),
    [
        ({"attention": "axial"}, r"model\.vit\.attention=axial.*set pool to avg or map"),
        ({"patch": 24}, r"model\.vit\.patch=24.*32 pixels is not a multiple of the patch size 24"),
        ({"stem": "conv_bn", "patch": 32}, "the conv stem makes patches of 16"),
    ],
)
def test_impossible_parts_are_told_by_the_settings_that_made_them(vit, says):
    with pytest.raises(UsvitError, match=says):
        build_model(find_model("vit_ti16", SMALL | vit), Weights("scratch"), n_classes=2, image_size=32)


def test_hidden_layer_of_a_head_is_part_of_the_head():
    spec = find_model("vit_ti16", {**SMALL, "head": "hidden"})
    trained, _ = build_with_report(spec, Weights("scratch"), n_classes=5, image_size=32)
    weights = Weights("file", name="w", content=Checkpoint(trained.state_dict()))
    model, report = build_with_report(spec, weights, n_classes=2, image_size=32)
    assert {"hidden.fc.weight", "head.weight"} <= set(report.new)
    assert not torch.equal(model.hidden.fc.weight, trained.hidden.fc.weight)
    assert (model.head.weight == 0).all()
    linear = find_model("vit_ti16", SMALL)  # Dosovitskiy et al. 2021: pre-trained with the layer, fine-tuned without
    _, report = build_with_report(linear, weights, n_classes=2, image_size=32)
    assert dict(report.skipped)["hidden.fc.weight"] == "the head is new"


def test_report_of_a_network_from_scratch_is_empty():
    _, report = build_with_report(find_model("vit_ti16", SMALL), Weights("scratch"), n_classes=2, image_size=32)
    assert report == LoadReport()


def test_the_plain_vit_of_timm_s_weights_goes_into_ours(tmp_path):
    state = write_weights(tmp_path / "w.safetensors", "vit_ti16", n_classes=7)
    spec = find_model("vit_ti16", {"patch": 32})
    assert spec.architecture == "usvit_vit"
    weights = resolve_weights(str(tmp_path / "w.safetensors"), spec)
    model, report = build_with_report(spec, weights, n_classes=3, image_size=224)
    assert [key for key, _, _ in report.resized] == ["patch_embed.proj.weight", "pos_embed"]
    assert torch.equal(model.blocks[5].mlp.fc1.weight, state["blocks.5.mlp.fc1.weight"])
