import pytest
import torch

from tests.models.zoo.test_listing import vit_counts
from usvit.errors import UsvitError
from usvit.models.complexity import OUTSIDE_THE_ZOO, Complexity, count
from usvit.models.info import describe_model
from usvit.models.zoo import ZOO, find_model
from usvit.models.zoo.listing import counted


@pytest.mark.slow
def test_a_vit_has_the_counts_of_the_formula_at_any_size_and_number_of_classes():
    for size, classes in ((224, 1000), (96, 3), (384, 2)):
        assert count(find_model("vit_ti16"), size, classes) == Complexity(
            *vit_counts(192, 16, 12, size, classes=classes)
        )


def test_attention_is_counted_whatever_kernel_computes_it():
    """T^2 products for the scores and T^2 for their sums: nothing else grows so with the image."""
    small, large = (
        count(find_model("vit", {"width": 64, "mlp": 64, "heads": 4, "depth": 1}), size) for size in (64, 128)
    )
    t, u = 17, 65
    linear = 6 * 64**2
    embed = 3 * 16**2 * 64
    assert large.macs - small.macs == embed * 48 + linear * 48 + 2 * 64 * (u**2 - t**2)


@pytest.mark.slow
def test_counting_takes_no_memory_and_leaves_the_device_as_it_was():
    count(find_model("vit_g14"))  # 4 GB of numbers
    assert torch.zeros(1).device.type == "cpu"


def test_grouped_and_strided_convolutions_are_counted_as_they_compute():
    # RegNetY's groups: a count without them would be some ten times as large.
    assert counted("regnety_16gf", 224)[1] / 1e9 == pytest.approx(16.0, rel=0.01)
    assert counted("bit_r50x1", 224)[1] == pytest.approx(4.09e9, rel=0.001)  # He et al. 2016: 4.1 billion


@pytest.mark.parametrize(
    ("name", "size", "says"),
    [
        ("vit_b16", 100, "not a multiple of its patch size 16"),
        ("resmlp_s24_8", 100, "not a multiple of its patch size 8"),
    ],
)
def test_impossible_sizes_are_told(name, size, says):
    with pytest.raises(UsvitError, match=f"{name} cannot take images of 100 x 100 pixels.*{says}"):
        count(find_model(name), size)


@pytest.mark.slow
@pytest.mark.parametrize("family", dict.fromkeys(spec.family for spec in ZOO.values()))
def test_stored_counts_are_those_of_today_s_code(family):
    """``counts.json`` against the smaller half of each family, built again; the others are only wider and deeper.

    ``zoo/test_listing.py`` compares the counts of all networks with those of the papers.
    """
    of_family = [spec for spec in ZOO.values() if spec.family == family]
    of_family.sort(key=lambda spec: counted(spec.name, spec.image_size))
    for spec in of_family[: (len(of_family) + 1) // 2]:
        now = count(spec, spec.image_size)
        assert (now.params, now.macs) == counted(spec.name, spec.image_size), (
            f"{spec.name}: python -m usvit.models.complexity"
        )


@pytest.mark.slow
def test_stored_counts_of_networks_outside_the_zoo_are_those_of_today_s_code():
    """The smallest of each implementation; those of a study are looked up as those of the zoo are."""
    for name in ("timm:resnet18", "patchconvnet_s20_bn"):
        assert name in OUTSIDE_THE_ZOO
        now = count(find_model(name))
        assert (now.params, now.macs) == counted(name, 224), f"{name}: python -m usvit.models.complexity"


@pytest.mark.slow
def test_description_counts_live_and_marks_the_recommended_weights():
    facts = describe_model(find_model("deit_ti"), image_size=32, n_classes=5)
    assert (facts.params, facts.macs) == vit_counts(192, 16, 12, 32, classes=5)
    assert [one.recommended for one in facts.weights] == [True]
    assert facts.weights[0].license == "apache-2.0"
    licences = {one.upstream: one.license for one in describe_model(find_model("vit_b16"), 32).weights}
    assert licences["mae"] == "cc-by-nc-4.0"
    assert describe_model(find_model("timm:resnet10t"), 32).family == "cnn"
