"""Weight decay by what a parameter is, for every network of the zoo, and beside the groups of the public codes."""

import os
import re
from collections import defaultdict

import pytest
import timm
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import usvit.models.architectures  # noqa: F401  (registers the networks)
from tests.conftest import REPOSITORY
from tests.models.authors_networks import NETWORKS, VIT, load, patchconvnet, patchconvnet_name
from tests.oracles import authors
from usvit.config import LoraConfig, OptimConfig
from usvit.models.lora import add_lora
from usvit.models.zoo import ZOO
from usvit.training.parameter_groups import decayed, parameter_groups, parameter_kinds, rate_scales
from usvit.upstream.config.pretrain import DinoConfig
from usvit.upstream.pretraining.dino_head import DinoHead

PAGE = REPOSITORY / "docs" / "explanation" / "weight-decay.md"
START, END = "<!-- the table is made by tests/training/test_parameter_groups.py -->\n", "<!-- end of the table -->\n"

SORTS = {
    "matrices": r"weight|original1",
    "biases": r"bias|q_bias|v_bias",
    "scales and shifts": r"alpha|beta",
    "LayerScale": r"gamma|gamma_[12]|ls[12]",
    "class token": r"cls_token",
    "distillation token": r"dist_token",
    "positions": r"pos_embed|table|position",
    "relative positions": r"relative|relative_position_bias_table",
    "queries": r"queries|latent",
}
"""Sort of parameter -> its names, in the order of the columns; weights and biases of normalization count as scales."""
REGISTERS = "register tokens"
"""Only networks that none of the public codes below trains have them."""
NORMS = ("Norm", "BatchNormAct", "GroupNormAct")


def one_axis_or(*names):
    """Rule of timm 0.3.2, which DeiT's main.py uses: no decay for one axis, for biases, and for what is named."""
    return lambda name, leaf, ndim: not (ndim <= 1 or leaf == "bias" or leaf in names)


CODES = {  # public code -> (rule, families of the zoo that it trains, usvit's decay_embeddings)
    "DeiT, DeiT III: `no_weight_decay` of timm 0.3.2": (
        one_axis_or("pos_embed", "cls_token"), ("deit", "deit3", "parallel"), False),
    "CaiT: `cait_models.py`": (one_axis_or("pos_embed", "cls_token"), ("cait",), False),
    "ResMLP: `resmlp_models.py`, main.py of DeiT": (one_axis_or(), ("resmlp",), False),
    "PatchConvNet: `patchconvnet_models.py`": (one_axis_or("cls_token"), ("patchconvnet",), False),
    "ViT, AugReg, SoViT: big_vision's `optax.py`, kernels only": (
        lambda name, leaf, ndim: leaf == "weight" and ndim > 1, ("vit", "hybrid", "sovit"), False),
    "DINO: `get_params_groups`": (one_axis_or(), ("vit", "deit", "resmlp"), True),
    "MAE, pre-training: `add_weight_decay` of timm 0.3.2": (one_axis_or(), ("vit",), True),
    "MAE, fine-tuning: `lr_decay.py`": (one_axis_or("pos_embed", "cls_token"), ("vit",), False),
    "BEiT: `optim_factory.py`": (one_axis_or("pos_embed", "cls_token"), ("vit", "foundation"), False),
}  # fmt: skip
AUTHORS_NAMES = {"queries": "cls_token"}
"""The class token of PatchConvNet's code is a query here."""
DIFFERENCES = {  # public code -> sorts in which usvit differs, each declared on the page
    "DeiT, DeiT III: `no_weight_decay` of timm 0.3.2": {"distillation token"},
    "CaiT: `cait_models.py`": {"distillation token"},
    "ResMLP: `resmlp_models.py`, main.py of DeiT": {"class token"},
    "BEiT: `optim_factory.py`": {"relative positions"},
}
ABSENT = {
    code: {REGISTERS}
    | ({"queries"} if code.startswith(("DINO", "MAE", "BEiT")) else set())
    | ({"relative positions"} if code.startswith(("DINO", "MAE")) else set())
    for code in CODES
}
"""Public code -> sorts that its networks do not have, though some of the same family here do."""


def sort_of(module, leaf):
    if any(part in type(module).__name__ for part in NORMS):
        return "scales and shifts"
    return next(sort for sort, names in {**SORTS, REGISTERS: "reg_token"}.items() if re.fullmatch(names, leaf))


def build(spec):
    """Build a network with two blocks, which have all kinds of parameters, or whole where that is not possible."""
    for shorter in ({"depth": 2}, {"num_blocks": 2}, {}):
        try:
            with torch.device("meta"):
                return timm.create_model(spec.architecture, num_classes=3, **{**spec.options, **shorter})
        except (TypeError, ValueError, AssertionError):
            continue
    raise AssertionError(f"{spec.name} cannot be built")


@pytest.fixture(scope="module")
def zoo():
    """Family -> rows (name of the network, of a parameter, its sort, number of axes in the authors' code, module)."""
    rows, built = defaultdict(list), {}
    for spec in ZOO.values():
        key = (spec.architecture, str(spec.options))
        if key not in built:
            built[key] = build(spec)
        rows[spec.family].append((spec.name, built[key]))
    return rows


def parameters(network):
    for prefix, module in network.named_modules():
        for leaf, parameter in module.named_parameters(recurse=False):
            yield f"{prefix}.{leaf}".lstrip("."), module, leaf, parameter


@pytest.mark.slow
def test_every_parameter_of_the_zoo_is_decayed_if_it_is_a_matrix_of_a_layer(zoo):
    """Oracle: the sort of each parameter by its class and name; an unknown name stops the test."""
    n_networks = 0
    for family, networks in zoo.items():
        for name, network in networks:
            n_networks += 1
            drawn, kinds = decayed(network), parameter_kinds(network)
            for key, module, leaf, parameter in parameters(network):
                sort = sort_of(module, leaf)
                assert (key in drawn) == (sort == "matrices"), f"{family}/{name}: {key} is one of the {sort}"
                assert parameter.ndim > 1 or kinds[key] in ("bias", "scale", "embedding"), key
    assert n_networks == len(ZOO)


def table(zoo) -> str:
    lines = ["| public code | " + " | ".join(SORTS) + " |", "|---" * (len(SORTS) + 1) + "|"]
    for code, (rule, families, embeddings) in CODES.items():
        cells = defaultdict(set)
        for family in families:
            for _, network in zoo[family]:
                drawn = decayed(network, embeddings=embeddings)
                for key, module, leaf, parameter in parameters(network):
                    # The scales of ResMLP's code have one axis; timm's have three.
                    ndim = 1 if leaf in ("alpha", "beta") else parameter.ndim
                    authors = rule(key, AUTHORS_NAMES.get(leaf, leaf) if family == "patchconvnet" else leaf, ndim)
                    if (sort := sort_of(module, leaf)) not in ABSENT[code]:
                        cells[sort].add((authors, key in drawn))
        row, differ = [], set()
        for sort in SORTS:
            assert len(cells[sort]) <= 1, (code, sort, cells[sort])
            if not cells[sort]:
                row.append("")
                continue
            ((authors, ours),) = cells[sort]
            if authors != ours:
                differ.add(sort)
            words = {True: "yes", False: "no"}
            row.append(words[authors] if authors == ours else f"**{words[authors]}**, usvit {words[ours]}")
        assert differ == DIFFERENCES.get(code, set()), code
        lines.append(f"| {code} | " + " | ".join(row) + " |")
    return "\n".join(lines) + "\n"


@pytest.mark.slow
def test_page_compares_the_groups_with_the_public_codes(zoo):
    page = PAGE.read_text(encoding="utf-8")
    head, _, rest = page.partition(START)
    made = head + START + "\n" + table(zoo) + "\n" + END + rest.partition(END)[2]
    if os.environ.get("USVIT_RENEW"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made, (
        "the groups have changed: USVIT_RENEW=1 python -m pytest tests/training/test_parameter_groups.py"
    )


@pytest.mark.parametrize("name", [*NETWORKS, "dino_vit"])
def test_the_same_parameters_are_decayed_as_by_the_authors_own_function(name):
    """Oracles: get_params_groups of DINO, param_groups_lrd of MAE, and timm's function, which DeiT's main.py calls.

    The list of DeiT's distilled network is of a timm that names the distillation token, which version 0.3.2 does not.
    """
    model, report = load(name, NETWORKS.get(name, VIT))
    renamed = dict(report.renamed)
    theirs = {renamed.get(key, key) for key in authors.network(name)["decayed"]}
    ours = decayed(model, embeddings=name == "dino_vit")
    assert ours - ({"head.weight"} if name == "dino_vit" else set()) == theirs


def test_the_parameters_of_a_patchconvnet_are_decayed_as_by_the_authors_own_function():
    theirs = {patchconvnet_name(key) for key in authors.network("patchconvnet")["decayed"]}
    assert decayed(patchconvnet("patchconvnet")) == theirs


def test_of_dino_s_head_only_the_lengths_of_the_rows_are_decayed_otherwise():
    """docs/explanation/weight-decay.md; the lengths train only with ``dino.norm_last_layer=false``."""
    ours = decayed(DinoHead(32, DinoConfig(hidden=24, bottleneck=16, outputs=12, norm_last_layer=False)))
    last = {"last_layer.weight_v": "last.parametrizations.weight.original1"}
    theirs = {last.get(key, key) for key in authors.network("dino_head")["decayed"]}
    assert theirs - ours == {"last_layer.weight_g"} and not ours - theirs


@pytest.mark.parametrize("name", ["mae_finetune_token", "mae_finetune_mean"])
def test_the_rates_by_layer_are_those_of_mae_s_own_function(name):
    """Oracle: param_groups_lrd of util/lr_decay.py, with a layer decay of 0.75."""
    model, _ = load(name, NETWORKS[name])
    assert rate_scales(model, 0.75) == pytest.approx(authors.network(name)["rates"])


class Odd(nn.Module):
    """Parameters of other networks, whose kind the number of axes does not show."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.norm = nn.LayerNorm((4, 3, 3))
        self.scale = nn.Parameter(torch.ones(4, 1, 1))
        self.temperature = nn.Parameter(torch.ones(()))
        self.mixing = nn.Parameter(torch.ones(4, 4))
        self.attention_biases = nn.Parameter(torch.ones(2, 9))
        self.one = nn.Linear(4, 1)
        self.long = weight_norm(nn.Linear(4, 3))
        self.attention = nn.MultiheadAttention(4, 2)


def test_the_number_of_axes_does_not_decide():
    assert decayed(Odd()) == {
        "mixing", "one.weight", "long.parametrizations.weight.original1", "attention.in_proj_weight",
        "attention.out_proj.weight",
    }  # fmt: skip
    assert decayed(Odd(), embeddings=True) - decayed(Odd()) == {"table.weight", "attention_biases"}


def test_the_scales_of_a_resmlp_are_not_decayed_and_every_parameter_has_one_group():
    model = timm.create_model("usvit_resmlp", img_size=32, width=16, depth=1, num_classes=2)
    for config in (OptimConfig(weight_decay=0.2), OptimConfig(weight_decay=0.2, layer_decay=0.5)):
        groups = parameter_groups(model, config, set())
        decay = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
        assert sum(len(group["params"]) for group in groups) == len(decay) == len(list(model.parameters()))
        affine = [value for key, value in model.named_parameters() if key.endswith(("alpha", "beta"))]
        assert affine and {decay[id(value)] for value in affine} == {0.0}
        assert decay[id(model.head.weight)] == 0.2


def test_adapters_of_rank_one_are_matrices():
    model = timm.create_model("vit_tiny_patch16_224", embed_dim=24, num_heads=2, depth=1, img_size=32, num_classes=3)
    add_lora(model, LoraConfig(rank=1), 32)
    kinds = {kind for name, kind in parameter_kinds(model).items() if "lora_" in name}
    assert kinds == {"matrix"}
