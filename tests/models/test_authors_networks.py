"""Networks against the outputs of their authors' public codes, with weights that are read as the authors' files are."""

import dataclasses

import pytest
import torch
from torch import nn

from tests.models.conftest import small
from tests.oracles import authors
from usvit.models.architectures.parallel import fuse_branches
from usvit.models.architectures.positions import sincos_2d
from usvit.models.build import build_with_report
from usvit.models.heads import load_head
from usvit.models.weights import Weights
from usvit.models.weights.read import Checkpoint
from usvit.models.zoo import find_model
from usvit.training.parameter_groups import decayed, rate_scales

TIMM = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
SHAPE = {"patch": 8, "width": 32, "depth": 2, "mlp": 128, "heads": 2}
BIG_VISION = SHAPE | {"mlp": 64, "class_position": False}


def zoo(name, **options):
    """A network of the zoo with other sizes."""
    return dataclasses.replace(find_model(name), options=options)


NETWORKS = {
    "deit_distilled": ("deit_distilled", zoo("deit_ti_distilled", **TIMM), 32),
    "deit3": ("deit3", zoo("deit3_ti16", **TIMM, init_values=0.1), 32),
    "deit3, usvit_vit": ("deit3", find_model("deit3_ti16", SHAPE), 32),
    "parallel_hmlp": (
        "parallel_hmlp",
        find_model(
            "vit_ti12x2",
            SHAPE | {"patch": 16, "stem": "hmlp_bn", "layer_scale": 0.1, "class_position": False},
        ),
        32,
    ),
    "cait": ("cait", zoo("cait_xxs24", **TIMM), 32),
    "resmlp": ("resmlp", zoo("resmlp_s12", width=32, depth=2, patch=8), 32),
    "mae_finetune_token": ("mae_finetune_token", find_model("vit_ti16", SHAPE), 32),
    "mae_finetune_mean": ("mae_finetune_mean", small("vit_tiny_patch16_224", **TIMM, global_pool="avg"), 32),
}
"""Name -> network of the authors, specification of ours, side of the images."""


def weights_of(name, checkpoint=None):
    return Weights("file", name=name, content=checkpoint or authors.checkpoint_of(name))


def load(name, spec, side=32, checkpoint=None):
    """Build our network with the authors' weights, head included, as a run and a teacher load them."""
    weights = weights_of(name, checkpoint)
    model, report = build_with_report(spec, weights, n_classes=5, image_size=side)
    load_head(model, weights, 5, name, "")
    return model.double().eval(), report


def assert_close(ours, theirs):
    torch.testing.assert_close(ours.detach(), torch.tensor(theirs).double(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", NETWORKS)
def test_the_logits_are_those_of_the_authors_code(case):
    name, spec, side = NETWORKS[case]
    model, _ = load(name, spec, side)
    assert_close(model(authors.images(side)), authors.network(name)["logits"])


def test_both_heads_of_a_distilled_network_answer_in_training():
    name, spec, _ = NETWORKS["deit_distilled"]
    model, _ = load(name, spec)
    model.set_distilled_training(True)
    assert_close(torch.stack(model.train()(authors.images(32))), authors.network(name)["both"])


def test_branches_at_once_give_the_authors_logits_too():
    name, spec, _ = NETWORKS["parallel_hmlp"]
    model, _ = load(name, spec)
    assert fuse_branches(model) == 2
    with torch.no_grad():
        assert_close(model(authors.images(32)), authors.network(name)["logits"])


