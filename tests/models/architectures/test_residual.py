import pytest
import torch

from usvit.models.architectures.residual import ShiftedLinear

from .networks import images, scramble, tiny_vit


def scales(model):
    return {name: value for name, value in model.named_parameters() if name.endswith("gamma")}


@pytest.mark.parametrize("branches", [1, 3])
def test_layer_scale_starts_each_channel_at_its_value_also_at_zero(branches):
    for value in (0.1, 0.0):
        found = scales(tiny_vit(branches=branches, layer_scale=value))
        assert len(found) == 2 * 2 * branches
        assert all(one.equal(torch.full((32,), value)) for one in found.values())
    assert not scales(tiny_vit(branches=branches))


def test_uniform_weights_are_drawn_between_zero_and_twice_the_value():
    drawn = torch.cat([*scales(tiny_vit(depth=16, residual="layer_scale_uniform", layer_scale=0.1)).values()])
    assert 0 <= drawn.min() < 0.005 and 0.195 < drawn.max() <= 0.2
    assert drawn.mean().item() == pytest.approx(0.1, abs=0.01)  # sd of the mean: 0.0018


@pytest.mark.parametrize("value", [0.0, 0.1])
def test_a_scalar_multiplies_the_whole_branch(value):
    model = scramble(tiny_vit(residual="scalar", layer_scale=value))
    assert all(one.shape == (1,) for one in scales(model).values()) and len(scales(model)) == 4
    by_channel = tiny_vit(layer_scale=0.1)
    state = model.state_dict()
    by_channel.load_state_dict(
        {key: one.expand(32).clone() if key.endswith("gamma") else one for key, one in state.items()}
    )
    assert torch.allclose(model(images()), by_channel(images()), atol=1e-6)


def test_rezero_begins_as_the_identity_and_its_scalars_learn():
    model = tiny_vit(residual="scalar", layer_scale=0.0)
    tokens = torch.randn(2, 17, 32)
    assert model.blocks(tokens).equal(tokens)
    model(images()).square().sum().backward()
    assert all(one.grad.abs().item() > 0 for one in scales(model).values())


@pytest.mark.parametrize(("branches", "n"), [(1, 8), (3, 24)])
def test_fixup_scales_the_first_layers_and_zeroes_the_second(branches, n):
    model, plain = (tiny_vit(depth=4, branches=branches, **more) for more in ({"residual": "fixup"}, {}))
    before = plain.state_dict()
    state = model.state_dict()
    first = [key for key in before if key.endswith(("qkv.weight", "fc1.weight"))]
    second = [key for key in before if key.endswith(("attn.proj.weight", "fc2.weight"))]
    assert len(first) == len(second) == n
    assert all(torch.allclose(state[key], before[key] * n**-0.5) for key in first)  # L^(-1 / (2 m - 2)), m = 2
    assert all(not state[key].any() for key in second)
    assert sum(key.endswith("shift") for key in state) == n
    assert all(one.equal(torch.ones(1)) for one in scales(model).values())
    assert {key for key in state if key not in before} == {*scales(model), *(k for k in state if k.endswith("shift"))}


def test_the_shift_is_added_before_the_layer():
    layer = torch.nn.Linear(3, 2)
    shifted, x = ShiftedLinear(layer), torch.randn(4, 3)
    assert shifted(x).equal(layer(x))
    with torch.no_grad():
        shifted.shift.fill_(0.5)
    assert torch.allclose(shifted(x), layer(x + 0.5), atol=1e-6)


def test_t_fixup_starts_by_xavier_and_scales_all_but_queries_and_keys():
    depth = 16  # width 32, MLP 48
    model = tiny_vit(depth=depth, residual="t_fixup")
    by = 0.67 * depth**-0.25
    # Xavier's uniform rule has the variance 2 / (in + out).
    expected = {"attn.proj": (2 / 64) ** 0.5 * by, "mlp.fc1": (2 / 80) ** 0.5 * by, "mlp.fc2": (2 / 80) ** 0.5 * by}
    for layer, sd in expected.items():
        drawn = torch.cat([model.get_submodule(f"blocks.{i}.{layer}").weight.flatten() for i in range(depth)])
        assert drawn.std().item() == pytest.approx(sd, rel=0.03), layer
    query, key, value = torch.stack([block.attn.qkv.weight for block in model.blocks]).chunk(3, dim=1)
    assert query.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.03)
    assert key.std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.03)
    assert value.std().item() == pytest.approx((2 / 64) ** 0.5 * by, rel=0.03)
    assert all(one.equal(torch.ones(1)) for one in scales(model).values())


@pytest.mark.parametrize("residual", ["fixup", "t_fixup"])
@pytest.mark.parametrize(
    "shape", [{"branches": 2}, {"position": "relative"}, {"attention": "axial", "pool": "avg"}], ids=str
)
def test_initialisations_reach_parallel_relative_and_axial_blocks(residual, shape):
    model = tiny_vit(residual=residual, **shape)
    branches = 8 if "branches" in shape or "attention" in shape else 4
    assert len(scales(model)) == branches
    assert sum(isinstance(module, ShiftedLinear) for module in model.modules()) == branches * (residual == "fixup")
    model(images()).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters() if parameter.requires_grad)
