"""What holds for every architecture."""

import copy

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from timm.models import group_parameters

from .networks import CLASSES, SIZE, SMALL, images, scramble, small

KINDS = sorted(SMALL)
every = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.slow
@every
def test_trains_a_step_and_reloads_bit_equal(kind, tmp_path):
    model = scramble(small(kind, drop_path_rate=0.1)).train()  # timm starts some layers at zero, so that none learn
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    loss = torch.nn.functional.cross_entropy(model(images(4)), torch.arange(4))
    loss.backward()
    optimiser.step()
    assert loss.isfinite()
    still = [
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is None or not torch.isfinite(parameter.grad).all() or parameter.equal(before[name])
    ]
    assert still == []
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    again = small(kind, seed=1)
    assert not again(images()).equal(model.eval()(images()))
    again.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    assert again(images()).equal(model(images()))


@pytest.mark.slow
@every
def test_an_image_alone_gives_what_it_gives_in_a_batch(kind):
    model = scramble(small(kind))
    with torch.no_grad():
        together = model(images(3))
        alone = torch.cat([model(image[None]) for image in images(3)])
    assert together.shape == (3, CLASSES)
    torch.testing.assert_close(alone, together, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@every
def test_features_and_head_make_the_whole(kind):
    model = scramble(small(kind))
    with torch.no_grad():
        features = model.forward_features(images())
        assert model.forward_head(features).equal(model(images()))
        inputs = []
        model.get_classifier().register_forward_hook(lambda module, args, output: inputs.append(args[0]))
        pooled = model.forward_head(features, pre_logits=True)
        model(images())
    if getattr(model, "hidden", None) is not None:
        pooled = model.hidden(pooled)
    assert inputs[0].equal(pooled)


@pytest.mark.slow
@every
def test_checkpointing_changes_no_gradient(kind):
    gradients = []
    for checkpointing in (False, True):
        model = small(kind)  # in evaluation, so that running statistics play no part
        model.set_grad_checkpointing(checkpointing)
        model(images()).square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    for name, gradient in gradients[0].items():
        torch.testing.assert_close(gradients[1][name], gradient, msg=name)


@pytest.mark.slow
@every
def test_a_new_classifier_has_its_classes_and_the_same_body(kind):
    model = small(kind)
    old = list(model.get_classifier().parameters())
    model.reset_classifier(3)
    assert model.num_classes == 3
    assert model(images()).shape == (2, 3)
    assert not {id(parameter) for parameter in old} & {id(parameter) for parameter in model.parameters()}
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in small(kind, num_classes=3).state_dict().items()
    }
    model.reset_classifier(0)
    assert model(images()).shape[-1] == model.num_features


@pytest.mark.slow
@every
def test_runs_in_bfloat16(kind):
    model = small(kind)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(images())
    with torch.no_grad():
        torch.testing.assert_close(low.float(), model(images()), rtol=0.1, atol=0.1)


@pytest.mark.slow
@every
def test_a_copy_is_independent(kind):
    model = scramble(small(kind))
    clone = copy.deepcopy(model)
    expected = model(images())
    scramble(model)
    assert not model(images()).equal(expected)
    assert clone(images()).equal(expected)


@every
def test_layers_come_in_order_for_layer_wise_rates(kind):
    model = small(kind)
    layer_of = group_parameters(model, model.group_matcher(), reverse=True)
    assert set(layer_of) == {name for name, _ in model.named_parameters()}
    last = max(layer_of.values())
    for name, layer in layer_of.items():
        if name.startswith(("patch_embed", "conv1", "cls_token", "pos_embed")) and "pos_embeds" not in name:
            assert layer == 0, name
        if name.startswith(("head.", "fc.", "hidden.")):
            assert layer == last, name
        if name.startswith("blocks."):
            assert layer == 1 + int(name.split(".")[1]), name


@every
def test_no_decay_names_parameters_that_are_there(kind):
    model = small(kind)
    names = {name for name, _ in model.named_parameters()}
    tokens = {name for name in names if "cls_token" in name or "pos_embed" in name or "queries" in name}
    tokens |= {name for name in names if name.endswith((".relative", ".latent"))}
    assert model.no_weight_decay() & names == tokens


@pytest.mark.slow
@every
def test_another_number_of_channels(kind):
    assert small(kind, in_chans=1)(images()[:, :1]).shape == (2, CLASSES)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith(("vit", "hybrid"))])
def test_takes_another_image_size_as_if_built_for_it(kind):
    model = small(kind)
    model.set_input_size(img_size=(2 * SIZE, SIZE))
    built = small(kind, seed=1, img_size=(2 * SIZE, SIZE))
    built.load_state_dict(model.state_dict())
    tall = images(height=2 * SIZE)
    assert model(tall).equal(built(tall))
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["vit-learned-layers", "vit-axial", "vit-parallel", "hybrid-16"])
def test_intermediate_features_are_the_layers_own(kind):
    model = small(kind)
    seen = []
    model.blocks[0].register_forward_hook(lambda module, args, output: seen.append(output))
    model(images())
    features = model.forward_intermediates(images(), indices=[0], output_fmt="NLC", intermediates_only=True)[0]
    torch.testing.assert_close(features, seen[0][:, model.num_prefix_tokens :])


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ["usvit_vit", "usvit_hybrid", "usvit_patchconvnet", "usvit_resnet50_attn"])
def test_timm_knows_how_to_feed_it(architecture):
    config = timm.get_pretrained_cfg(architecture)
    assert timm.is_model(architecture)
    with torch.device("meta"):
        model = timm.create_model(architecture)
    assert model.get_submodule(config.first_conv).weight.shape[1] == 3
    assert model.get_submodule(config.classifier) is model.get_classifier()
