"""The zoo: names of networks in the papers, and their specifications. It does not import torch.

Each family has one file. ``common`` contains their shared code, ``listing`` the rows of ``usvit models list``, and
``counts.json`` the parameters and MACs counted by ``python -m usvit.models.complexity``.
"""

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from usvit.config import ViTShape
from usvit.errors import UsvitError, shortened, unknown
from usvit.models.spec import Family, ModelSpec, Pretrained
from usvit.models.zoo import (
    axial_resnet,
    cait,
    cnn,
    deit,
    deit3,
    foundation,
    hybrid,
    parallel,
    patchconvnet,
    resmlp,
    resmlp_ablations,
    small,
    sovit,
    vit,
)
from usvit.models.zoo.timm_family import family_of
from usvit.models.zoo.tiny import TINY

_LARGEST, _MOST_LAYERS = 100_000, 1_000
"""Upper bounds of the numbers of a shape; the widest ViT in the literature has 14,336 channels and 56 layers."""
_LAYERS = ("depth", "branches", "class_layers", "class_at")
_FAMILIES = (
    vit,
    foundation,
    hybrid,
    deit,
    deit3,
    parallel,
    sovit,
    cait,
    resmlp,
    resmlp_ablations,
    patchconvnet,
    cnn,
    axial_resnet,
    small,
)

ZOO: dict[str, ModelSpec] = {spec.name: spec for family in _FAMILIES for spec in family.MODELS}
"""Name -> specification, family by family."""

_PACKAGED = {one.timm: one for spec in ZOO.values() for one in spec.weights.values() if one.package}

PATTERNS = {
    "vit_<ti|s|m|b|l|h><depth>x<branches>": "a parallel ViT of any depth and branches, such as vit_s10x6",
    "<plain ViT>_<hmlp|hmlp_ln|conv|conv_ln|axial>": "another stem, or axial attention, such as deit_s_hmlp",
    "<plain ViT>_<linear_bn|linear_gelu|linear_bn_gelu|local>": "further stems of Three things, Table 7",
    "resmlp_<s|b><depth>[_<8|14|16|32>]": "a ResMLP of any depth, such as resmlp_s48_32",
    "cait_<xxs|xs|s|m|b><12|24|36|48>_distilled": "a CaiT with a distillation token",
    "<ResMLP>_<none|mlp|conv|dwconv|sepconv>": "another communication across patches: resmlp_s24_dwconv",
    "<ResMLP>_<ln|class_mlp>": "layer normalisation, class-MLP instead of pooling; after the above",
    "patchconvnet_<s|b|l><depth>[_multi][_bn]": "a PatchConvNet of any depth, such as patchconvnet_s30_multi",
    "patchconvnet_..._<avg|heads<n>>[_linear][_bn]": "average pooling or n heads instead of _multi; a linear stem",
    "timm:<name>": "any of timm's",
}
"""Patterns of names that are not listed one by one."""

ERRATA = {
    "r26_s16": "Table II of Gheflati & Rivaz 2022 prints 'R26+S/16', but its models are the recommended ones of "
    "Steiner et al. 2022 (Table 2), which include R26+S/32; no R26+S/16 was released: use r26_s32."
}
"""Names that a paper prints although there is no such network -> explanation."""

_SUFFIXES = {
    "hmlp": {"stem": "hmlp_bn"},
    "hmlp_ln": {"stem": "hmlp_ln"},
    "conv": {"stem": "conv_bn"},
    "conv_ln": {"stem": "conv_ln"},
    **{stem: {"stem": stem} for stem in ("linear_bn", "linear_gelu", "linear_bn_gelu", "local")},
    "axial": {"attention": "axial", "pool": "avg"},
}
_WITH_SUFFIX = re.compile(rf"(.+?)_({'|'.join(sorted(_SUFFIXES, reverse=True))})")


def find_model(name: str, vit: Mapping[str, Any] | None = None, features: Mapping[str, Any] | None = None) -> ModelSpec:
    """Find the specification of a network by its name.

    Args:
        name: Name in ``usvit models list``, of one of ``PATTERNS`` (such as ``timm:<name>``), or ``vit``, which is a
            ViT-B/16.
        vit: Parts of a ViT's shape to exchange (fields of ``ViTShape``), such as ``{"stem": "hmlp_bn"}``; the
            ``layer_scale`` ``none`` removes LayerScale.
        features: ``ModelConfig.frozen_features``, for a head on features of frozen networks; ``name`` may then join
            several by ``+``.

    Raises:
        UsvitError: If there is no such network (the message gives the nearest names), if it has no such parts, or if
            its width is not divisible by the number of heads.
    """
    if features:
        return _on_features(name, vit, features)
    spec = _named(name)
    if not vit:
        return spec
    if spec.shape is None:
        raise UsvitError(
            f"The settings model.vit.* ({', '.join(vit)}) exchange parts of a plain ViT, but {name} is not one. "
            "Remove them, or choose a ViT (usvit models list --family vit)."
        )
    scale = {"layer_scale": None} if vit.get("layer_scale") == "none" else {}
    shape = dataclasses.replace(spec.shape, **{**vit, **scale})
    _check(name, shape)
    return dataclasses.replace(
        spec, architecture="usvit_vit", options=dataclasses.asdict(shape), shape=shape, changed=dict(vit), paper=()
    )


def _on_features(name: str, vit: Mapping[str, Any] | None, features: Mapping[str, Any]) -> ModelSpec:
    if vit:
        raise UsvitError("model.vit.* exchange parts of one network. Remove them, or set model.features to null.")
    backbones = [_named(one) for one in name.split("+")]
    options = {
        "networks": tuple((one.architecture, dict(one.options)) for one in backbones),
        "views": tuple(features["views"]),
        "stages": features["features"] == "stages",
        "lesion": features["lesion"],
        "lesion_crop": features.get("lesion_crop"),
        "refinements": tuple(features.get("refinements", ())),
    }
    family: Family = "cnn" if all(one.family == "cnn" for one in backbones) else "hierarchical"
    finds_lesion = features["lesion"] or features.get("lesion_crop") is not None
    parts = (*backbones, *([ZOO["usvit_small"]] if finds_lesion else []))
    source = ", ".join(dict.fromkeys(one.source for one in backbones))
    return ModelSpec(
        name, family, "usvit_frozen_features", source, options, parts=parts, features=dict(features),
        image_size=max(one.image_size for one in backbones),
    )  # fmt: skip


def _check(name: str, shape: ViTShape) -> None:
    # The metadata of a stranger's network may state any number.
    for key, value in dataclasses.asdict(shape).items():
        most = _MOST_LAYERS if key in _LAYERS else _LARGEST
        least = 1 if key in ("width", "heads", "patch") else 0
        if isinstance(value, int) and not least <= value <= most:
            shown = shortened(str(value), 30)
            raise UsvitError(f"model.vit.{key} of the model {name} is {shown}; it must be {least} to {most:,}.")
    if shape.width % shape.heads:
        fit = [heads for heads in range(1, shape.width + 1) if shape.width % heads == 0]
        near = sorted(sorted(fit, key=lambda heads: abs(heads - shape.heads))[:4])
        raise UsvitError(
            f"The model {name} cannot have {shape.heads} heads: its width of {shape.width} is not divisible by "
            f"{shape.heads}. Set model.vit.heads to one of {', '.join(map(str, near))}, or another model.vit.width."
        )


def _named(name: str) -> ModelSpec:
    if "+" in name:
        raise UsvitError(
            f"The model {shortened(name)} joins networks, whose features one head sees: set model.features."
        )
    if name in ZOO or name in TINY:
        return ZOO.get(name) or TINY[name]
    if name in ERRATA:
        raise UsvitError(f"The model '{name}' does not exist: {ERRATA[name]}")
    if name in foundation.WITHOUT_NETWORK:
        entry = foundation.WITHOUT_NETWORK[name]
        raise UsvitError(f"There is no network {name} ({entry.title}): {entry.no_network}.")
    if name.startswith("timm:"):
        return _of_timm(name)
    spec = next((found for parse in _PARSERS if (found := parse(name)) is not None), None)
    if spec is None:
        raise unknown("model", name, ZOO, "'usvit models list' shows all; timm:<name> takes any of timm's.")
    return spec


def _with_suffix(name: str) -> ModelSpec | None:
    """Parse the name of a plain ViT with another stem or attention; such a network has no released weights."""
    match = _WITH_SUFFIX.fullmatch(name)
    if not match:
        return None
    base = ZOO.get(match[1]) or parallel.parallel(match[1])
    if base is None or base.shape is None:
        return None
    shape = dataclasses.replace(base.shape, **_SUFFIXES[match[2]])  # type: ignore[arg-type]
    return ModelSpec(
        name, base.family, "usvit_vit", base.source, dataclasses.asdict(shape), shape=shape, image_size=base.image_size
    )


_PARSERS = (
    parallel.parallel,
    cait.distilled,
    resmlp.resmlp,
    resmlp_ablations.resmlp_ablation,
    patchconvnet.patchconvnet,
    _with_suffix,
)
"""Functions that parse a name of ``PATTERNS``; None if it is not theirs."""


def _of_timm(name: str) -> ModelSpec:
    import timm  # the import takes seconds, so it is done only if a name needs it

    timm_name = name.removeprefix("timm:")
    architecture, _, tag = timm_name.partition(".")
    if not timm.is_model(architecture):
        raise unknown("timm model", architecture, timm.list_models(), "The prefix 'timm:' is kept on the command line.")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise unknown(f"weights of timm's {architecture}", tag, tags)
    default = timm.get_pretrained_cfg(timm_name)
    hub = {}
    if default and default.hf_hub_id:
        known = _PACKAGED.get(f"{architecture}.{tag or default.tag}")
        by, package = (known.by, known.package) if known else (tag or "timm's default", None)
        hub = {tag or "default": Pretrained(timm_name, by, package=package)}
    image_size = default.input_size[-1] if default and default.input_size else 224
    return ModelSpec(name, family_of(architecture), architecture, "timm", weights=hub, image_size=image_size)
