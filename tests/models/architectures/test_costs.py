"""Parameters and MACs against what the papers print (or what follows from it), on the meta device."""

import pytest

from .networks import cost

S = {"width": 384, "mlp": 1536, "heads": 6}
L = {"width": 1024, "depth": 24, "mlp": 4096, "heads": 16}

# Layer normalisation, softmax and activations are not in our count; they are 0.3 % of the papers'.
slow = pytest.mark.slow


@pytest.mark.parametrize(
    ("width", "depth", "size", "params", "macs"),
    [  # thesis, Table 5.1; Table 5.2 for other sizes of images and for L
        (384, 60, 224, 25.2, 4.0),
        pytest.param(384, 60, 384, 25.2, 11.8, marks=slow),
        (768, 60, 224, 99.4, 15.8),
    ],  # the deeper ones, and L: tests/models/zoo/test_listing.py, on the zoo's stored counts
)
def test_patchconvnet_costs_what_the_thesis_prints(width, depth, size, params, macs):
    ours = cost("usvit_patchconvnet", size, width=width, depth=depth)
    assert params is None or ours[0] == pytest.approx(params, abs=0.051)
    assert ours[1] == pytest.approx(macs, rel=0.011)


@pytest.mark.slow
def test_the_pooling_adds_to_resnet50_what_the_thesis_prints():
    plain, pooled = cost("resnet50"), cost("usvit_resnet50_attn")
    # "4.6B vs 4.1B", each rounded: between 0.4 and 0.6. Queries, keys, values, projection and an FFN of ratio 3, with
    # their biases; a query; three norms and two scales.
    assert 0.4 < pooled[1] - plain[1] < 0.6
    d = 2048
    assert pooled[0] - plain[0] == pytest.approx((4 * (d * d + d) + 6 * d * d + 4 * d + d + 8 * d) / 1e6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stem", "macs"),
    [
        *(("linear", 17.58), ("linear_bn", 17.58), ("linear_gelu", 17.58), ("linear_bn_gelu", 17.58)),
        *(("hmlp_bn", 17.73), ("hmlp_ln", 17.73), ("conv_bn", 19.07), ("conv_ln", 19.07), ("local", 19.12)),
    ],
)
def test_a_vit_b_with_each_stem_costs_what_three_things_prints(stem, macs):
    assert cost("usvit_vit", stem=stem)[1] == pytest.approx(macs, rel=0.002)  # Table 7


@pytest.mark.parametrize(
    ("shape", "params", "macs"),
    [
        ({"depth": 18, "branches": 2}, 256.7, 52.5),  # B18x2, Three things, Table 3
        pytest.param({"depth": 36}, 256.7, 52.5, marks=slow),  # B36x1
        ({**S, "depth": 24, "branches": 2}, 85.9, 18.3),  # S24x2
        ({**S, "depth": 16, "branches": 3}, 85.9, 18.3),  # the same blocks, so the same cost
        (L, 304.4, 61.6),
    ],
)
def test_parallel_vits_cost_what_three_things_prints(shape, params, macs):
    ours = cost("usvit_vit", **shape)
    assert ours[0] == pytest.approx(params, abs=0.08)  # L: 304.33, printed 304.4
    assert ours[1] == pytest.approx(macs, rel=0.005)


@pytest.mark.parametrize(
    ("layers", "size", "exaflops"),
    [
        ((3, 4, 6, 3), {}, 106),
        ((3, 4, 9), {}, 274),
        pytest.param((3, 4, 6, 3), L, 246, marks=slow),
        pytest.param((3, 4, 9), L, 859, marks=slow),
    ],
)
def test_hybrids_cost_what_follows_from_their_pre_training(layers, size, exaflops):
    # Dosovitskiy et al. 2021, Table 6: 7 epochs over 303 M images; a step is 3 forward passes of 2 FLOPs a MAC.
    macs = exaflops / (7 * 0.303 * 3 * 2)
    assert cost("usvit_hybrid", layers=layers, **size)[1] == pytest.approx(macs, rel=0.03)


@pytest.mark.slow
def test_an_axial_block_holds_two_blocks():
    plain, axial = cost("usvit_vit", pool="avg"), cost("usvit_vit", pool="avg", attention="axial")
    blocks = 12 * (12 * 768**2 + 13 * 768) / 1e6
    assert axial[0] - plain[0] == pytest.approx(blocks)
    # Twice the projections and MLPs; attention among 14 and 14 patches instead of 196.
    assert axial[1] - plain[1] == pytest.approx(12 * 196 * (12 * 768**2 - 2 * 768 * (196 - 28)) / 1e9)
