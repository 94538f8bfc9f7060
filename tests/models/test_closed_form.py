"""The closed formulas of a plain ViT agree with the counts of the network that is built."""

import pytest

from usvit.models import count, count_plain, find_model


@pytest.mark.parametrize(
    ("model", "vit", "side"),
    [
        ("vit_ti16", {}, 224),
        ("vit_ti16", {"pool": "avg"}, 64),
        ("vit_ti16", {"pool": "map", "class_position": False, "width": 96, "mlp": 200, "depth": 3, "heads": 2}, 48),
        ("vit", {"width": 48, "depth": 2, "mlp": 100, "heads": 3, "patch": 8}, 32),
        ("vit", {"width": 48, "depth": 2, "mlp": 100, "heads": 3, "branches": 2, "class_position": False}, 32),
        ("sovit_150m_14", {}, 224),
    ],
)
def test_the_formulas_give_the_counts_of_the_network(model, vit, side):
    spec = find_model(model, vit)
    assert spec.shape is not None
    for classes in (10, 1000):
        assert count_plain(spec.shape, side, classes) == count(spec, side, classes)


def test_without_a_head_nothing_of_it_is_counted():
    spec = find_model("vit_ti16")
    with_head, without = count_plain(spec.shape, 224, 1000), count_plain(spec.shape, 224)
    assert with_head.macs - without.macs == 192 * 1000
    assert with_head.params - without.params == 193 * 1000


@pytest.mark.parametrize("change", [{"stem": "conv_bn"}, {"attention": "talking"}, {"layer_scale": 1e-5}])
def test_there_is_no_formula_for_other_parts(change):
    assert count_plain(find_model("vit_ti16", change).shape) is None
