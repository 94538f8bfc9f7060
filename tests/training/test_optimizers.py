import pytest
import timm
import torch
from pydantic import ValidationError
from timm.optim import param_groups_layer_decay
from torch import nn

from tests.oracles import authors
from usvit.config import OptimConfig
from usvit.errors import UsvitError
from usvit.models.trainable import set_trainable
from usvit.training.optimizers import learning_rate, make_optimizer, weight_decay


def test_warm_up_is_linear_and_the_cosine_ends_at_zero():
    config = OptimConfig(lr=0.001, schedule="cosine", warmup_steps=10)
    rates = [learning_rate(config, step, 250) for step in range(250)]
    assert rates[:10] == pytest.approx([0.0001 * k for k in range(1, 11)])
    assert rates[10] == pytest.approx(0.001) and rates[130] == pytest.approx(0.0005)
    assert 0 < rates[249] < 1e-7 and rates[10:] == sorted(rates[10:], reverse=True)


def test_cosine_is_torchs_own():
    """Oracle: torch's CosineAnnealingLR."""
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    reference = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    config = OptimConfig(lr=0.1, schedule="cosine")
    for step in range(50):
        assert learning_rate(config, step, 50) == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_linear_and_constant_do_what_they_say():
    assert learning_rate(OptimConfig(lr=1.0, schedule="linear"), 25, 100) == pytest.approx(0.75)
    assert learning_rate(OptimConfig(lr=1.0, schedule="constant"), 99, 100) == 1.0


def test_steps_fall_after_each_third_or_where_it_is_said():
    thirds, told = OptimConfig(lr=1.0, schedule="step"), OptimConfig(lr=1.0, schedule="step", drops=(3, 6, 9))
    assert [learning_rate(thirds, step, 9) for step in (2, 3, 6, 8)] == pytest.approx([1, 0.1, 0.01, 0.01])
    assert [learning_rate(told, step, 10) for step in (2, 3, 6, 9)] == pytest.approx([1, 0.1, 0.01, 0.001])
    with pytest.raises(ValueError, match=r"optim\.drops belongs to the schedule step, not cosine"):
        OptimConfig(drops=(3,))


def test_sgd_is_plain_momentum_and_spares_biases_from_decay():
    optimizer = make_optimizer(nn.Linear(3, 2), OptimConfig(name="sgd", momentum=0.9, weight_decay=0.1))
    assert type(optimizer) is torch.optim.SGD
    decays = {
        parameter.ndim: group["weight_decay"] for group in optimizer.param_groups for parameter in group["params"]
    }
    assert decays == {1: 0.0, 2: 0.1}
    assert all(group["momentum"] == 0.9 and not group["nesterov"] for group in optimizer.param_groups)


def test_momentum_in_bfloat16_is_rounded_after_each_step_also_when_resumed():
    """Steiner et al. 2022, section 3.5. Oracle: the rule of SGD with momentum, written out."""
    config = OptimConfig(name="sgd", lr=0.1, momentum=0.9, momentum_dtype="bfloat16")
    generator = torch.Generator().manual_seed(0)
    model = nn.Linear(5, 3, bias=False)
    gradients = torch.randn(6, 3, 5, generator=generator)
    expected, momentum = model.weight.detach().clone(), torch.zeros(3, 5)
    optimizer, exact = make_optimizer(model, config), make_optimizer(model, OptimConfig(name="sgd"))
    assert not exact._optimizer_step_post_hooks
    for number, gradient in enumerate(gradients):
        if number == 3:
            state = optimizer.state_dict()
            optimizer = make_optimizer(model, config)
            optimizer.load_state_dict(state)
        model.weight.grad = gradient.clone()
        optimizer.step()
        momentum = 0.9 * momentum + gradient
        expected = expected - 0.1 * momentum
        momentum = momentum.bfloat16().float()
        kept = optimizer.state[model.weight]["momentum_buffer"]
        assert torch.equal(kept, kept.bfloat16().float())
        torch.testing.assert_close(kept, momentum)
        torch.testing.assert_close(model.weight.detach(), expected)


@pytest.mark.parametrize("name", ["adam", "adamw", "lamb"])
def test_of_adams_moments_only_the_first_is_rounded(name):
    torch.manual_seed(0)
    model = nn.Linear(5, 3)
    optimizer = make_optimizer(model, OptimConfig(name=name, momentum_dtype="bfloat16"))
    model(torch.randn(7, 5)).square().sum().backward()
    optimizer.step()
    state = optimizer.state[model.weight]
    assert torch.equal(state["exp_avg"], state["exp_avg"].bfloat16().float())
    assert not torch.equal(state["exp_avg_sq"], state["exp_avg_sq"].bfloat16().float())


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "lamb"])
def test_every_optimiser_lowers_a_simple_loss(name):
    torch.manual_seed(0)
    model, x = nn.Linear(4, 1), torch.randn(32, 4)
    y = x @ torch.tensor([[1.0], [2.0], [-1.0], [0.5]])
    optimizer = make_optimizer(model, OptimConfig(name=name, lr=0.05))
    losses = []
    for _ in range(60):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def vit_of_three_layers(**options):
    sizes = {"embed_dim": 24, "num_heads": 2, "depth": 3, "img_size": 32, "num_classes": 3}
    return timm.create_model("vit_tiny_patch16_224", **sizes, **options)


def scale_of_each(model, config):
    scales = {
        id(parameter): group["lr_scale"]
        for group in make_optimizer(model, config).param_groups
        for parameter in group["params"]
    }
    return {name: scales.get(id(parameter)) for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("options", [{}, {"global_pool": "avg"}])
def test_the_rate_decays_by_layer_from_the_head_down(options):
    """Oracle: the rule of BEiT's and MAE's codes written out. The patches are layer 0, block i is layer i + 1, and the
    last normalization and the head are layer n_blocks + 1, whose factor is 1."""
    scales = scale_of_each(vit_of_three_layers(**options), OptimConfig(layer_decay=0.5, weight_decay=0.1))
    for name, scale in scales.items():
        layer = 4 if name.startswith(("head", "norm", "fc_norm")) else 0
        if name.startswith("blocks."):
            layer = int(name.split(".")[1]) + 1
        assert scale == 0.5 ** (4 - layer), name


@pytest.mark.parametrize("name", ["tf_efficientnet_lite0", "resnet10t", "convnext_atto"])
def test_the_rate_of_a_cnn_decays_by_the_layers_that_timm_assigns(name):
    """Oracle: timm's own groups. Those of EfficientNet are the stem, each block, the last convolution and the head."""
    model = timm.create_model(name, num_classes=3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    groups = param_groups_layer_decay(model, weight_decay=0.1, layer_decay=0.5)
    expected = {names[id(one)]: group["lr_scale"] for group in groups for one in group["params"]}
    assert scale_of_each(model, OptimConfig(layer_decay=0.5, weight_decay=0.1)) == expected
    assert len(set(expected.values())) > 5


def test_what_is_frozen_has_no_rate_and_no_place_in_the_optimiser():
    model = vit_of_three_layers()
    set_trainable(model, "attn")
    scales = scale_of_each(model, OptimConfig(layer_decay=0.5))
    assert {name: scale is not None for name, scale in scales.items()} == {
        name: parameter.requires_grad for name, parameter in model.named_parameters()
    }
    assert scales["blocks.2.attn.qkv.weight"] == 0.5 and scales["pos_embed"] == 0.0625


def test_a_network_that_does_not_name_its_layers_is_refused_a_decay_by_layer():
    with pytest.raises(UsvitError, match=r"Set optim\.layer_decay to null"):
        make_optimizer(nn.Linear(3, 2), OptimConfig(layer_decay=0.7))


def test_weight_decay_goes_by_a_half_cosine_from_the_first_step_to_the_end():
    """Oracle: utils.py of DINO's public code, cosine_scheduler without warm-up, 0.04 to 0.4 in 20 steps."""
    config = OptimConfig(weight_decay=0.04, weight_decay_end=0.4, warmup_steps=5)
    got = [weight_decay(config, step, 20) for step in range(20)]
    assert got == pytest.approx(authors.values("dino_weight_decay"), rel=1e-6)
    assert weight_decay(OptimConfig(weight_decay=0.04), 50, 100) is None


def test_the_rate_is_mae_s_and_dino_s_but_for_the_steps_of_the_warm_up():
    """docs/reference/recipes.md: step k of W has (k + 1) / W here, k / W in MAE's code, k / (W - 1) in DINO's."""
    for code, warmup, steps in (("mae", 10, 30), ("dino", 5, 20)):
        config = OptimConfig(lr=0.0005, min_lr=1e-6, schedule="cosine", warmup_steps=warmup)
        ours = [learning_rate(config, step, steps) for step in range(steps)]
        theirs = authors.values(f"{code}_learning_rate")
        assert ours[warmup:] == pytest.approx(theirs[warmup:], rel=1e-6)
        if code == "mae":
            assert ours[: warmup - 1] == pytest.approx(theirs[1:warmup], rel=1e-6)
        else:
            assert theirs[:warmup] == pytest.approx([0.0005 * k / 4 for k in range(5)], rel=1e-6)


@pytest.mark.parametrize(
    ("settings", "says"),
    [({"weight_decay_end": 0.4}, "optim.weight_decay above 0"), ({"clip_each": True}, "needs optim.clip_norm")],
)
def test_settings_that_change_nothing_are_refused(settings, says):
    with pytest.raises(ValidationError, match=says):
        OptimConfig(**settings)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_the_fused_kernels_do_what_the_others_do(name):
    weights = []
    for fused in (True, False):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
        optimizer = make_optimizer(model, OptimConfig(name=name, lr=0.05, weight_decay=0.1))
        assert all(group["fused"] for group in optimizer.param_groups)
        for group in optimizer.param_groups:
            group["fused"] = fused
        for step in range(4):
            optimizer.param_groups[0]["lr"] = 0.05 / (step + 1)
            optimizer.zero_grad()
            model(torch.arange(10.0).view(2, 5)).square().sum().backward()
            optimizer.step()
        weights.append(nn.utils.parameters_to_vector(model.parameters()).detach())
    assert torch.allclose(weights[0], weights[1], rtol=1e-4, atol=1e-6)
    torch.manual_seed(0)
    fresh = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.Linear(4, 2))
    assert (weights[0] - nn.utils.parameters_to_vector(fresh.parameters())).abs().max() > 0.01
