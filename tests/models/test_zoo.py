import dataclasses
import itertools
import json
import os
import subprocess
import sys
from typing import get_args

import pytest
import timm
import torch

import usvit.models.architectures  # noqa: F401  registers ours
from tests.conftest import REPOSITORY
from usvit.config import ViTShape
from usvit.errors import UsvitError
from usvit.models.complexity import COUNTS, OUTSIDE_THE_ZOO, licence, sizes
from usvit.models.spec import PROTOCOLS, ZooFamily
from usvit.models.zoo import PATTERNS, ZOO, find_model
from usvit.models.zoo.common import SOURCES
from usvit.models.zoo.listing import comparisons, counted, rows

NINE = ["vit_ti16", "vit_s32", "vit_b32", "r_ti16", "r26_s32", "resnet50", "vgg16", "inception_v3", "nasnet_large"]

ASKED_FOR = [
    "vit_ti16", "vit_s16", "vit_s32", "vit_b16", "vit_b32", "vit_l16", "vit_l32", "vit_h14", "vit_g14", "r_ti16",
    "r26_s32", "r50_b16", "r50_b32", "r50_l16", "r50_l32", "resnet50", "vgg16", "inception_v3", "nasnet_large",
    "bit_r50x1", "bit_r101x1", "bit_r152x2", "regnety_16gf", "efficientnet_b0", "convnext_s", "deit_ti", "deit_s",
    "deit_b", "deit_ti_distilled", "deit_s_distilled", "deit_b_distilled", "cait_xxs24", "cait_xxs36", "cait_xs24",
    "cait_xs36", "cait_s24", "cait_s36", "cait_s48", "cait_m24", "cait_m36", "cait_m48", "resmlp_s12",
    "resmlp_s24", "resmlp_s36", "resmlp_b24", "resmlp_s12_8", "resmlp_s24_8", "resmlp_s36_8", "resmlp_b24_8",
    "patchconvnet_s60", "patchconvnet_s120", "patchconvnet_b60", "patchconvnet_b120", "patchconvnet_l60",
    "patchconvnet_l120", "patchconvnet_s60_multi", "patchconvnet_l120_multi", "resnet50_attn", "deit3_s16",
    "deit3_m16", "deit3_b16", "deit3_l16", "deit3_h14", "vit_s18x2", "vit_b18x2", "vit_h26x2", "vit_s20x3",
    "vit_s24x2", "vit_b16_hmlp", "vit_b16_hmlp_ln", "vit_b16_conv", "vit_b32_axial", "vit_b16_axial",
    "sovit_400m_14", "sovit_150m_14", "flexivit_s", "flexivit_b", "flexivit_l",
]  # fmt: skip
"""The rows of issue 4, by the names of the design, section 4."""


@pytest.mark.parametrize("name", ASKED_FOR)
def test_every_network_of_the_sources_has_its_name(name):
    assert find_model(name).name == name
    assert name in ZOO


def test_the_nine_of_the_study_begin_from_what_it_began_from():
    for name in NINE:
        assert "Gheflati" in find_model(name).source
    for name in NINE[:5]:
        assert find_model(name).recommended.timm.endswith("_224.augreg_in21k")


def test_rows_are_consistent_and_families_stand_together():
    assert list(ZOO) == [spec.name for spec in ZOO.values()]
    families = [spec.family for spec in ZOO.values()]
    assert set(families) == set(get_args(ZooFamily))
    assert sum(one != other for one, other in itertools.pairwise(families)) == len(set(families)) - 1
    for spec in ZOO.values():
        assert set(spec.source.split(", ")) <= set(SOURCES)
        for printed in spec.paper:
            assert set(printed.images_per_second) <= set(PROTOCOLS), spec.name
            assert printed.params or printed.macs or printed.images_per_second, spec.name


def test_weights_are_timm_s_have_a_licence_and_an_own_repository():
    released = set(timm.list_pretrained())
    for spec in ZOO.values():
        for upstream, weights in spec.weights.items():
            if weights.timm is None:  # a file that the user downloads: tests/models/test_foundation.py
                assert weights.foundation is not None and weights.foundation.license and weights.by
                continue
            config = timm.get_pretrained_cfg(weights.timm)
            assert weights.timm in released, (spec.name, upstream)
            assert config.hf_hub_id == f"timm/{weights.timm}"
            assert config.license
            assert weights.by


def test_timm_s_code_is_used_wherever_timm_has_the_architecture():
    for spec in ZOO.values():
        assert timm.is_model(spec.architecture), spec.name
        # Whatever was released can be built as timm builds it, except where timm starts LayerScale unlike the thesis.
        assert spec.implementation == "timm" or not spec.weights or spec.name in ("resmlp_s12", "resmlp_b24_8")
    ours = {spec.architecture for spec in ZOO.values() if spec.implementation == "usvit"}
    assert ours == {
        *("usvit_vit", "usvit_hybrid", "usvit_patchconvnet", "usvit_resnet50_attn"),
        *("usvit_resmlp", "usvit_bit", "usvit_cait_distilled", "usvit_axial_resnet", "usvit_small"),
    }


@pytest.mark.slow
def test_shapes_are_those_that_timm_s_entries_build():
    # Independent of counting: the shapes that timm builds, read from its layers.
    for name in ("vit_s32", "deit_ti", "deit3_h14", "vit_s18x2", "sovit_150m_14", "flexivit_s", "vit_g14"):
        spec = ZOO[name]
        with torch.device("meta"):
            model = timm.create_model(spec.architecture, **spec.options)
        shape = spec.shape
        assert model.embed_dim == shape.width
        assert len(model.blocks) == shape.depth
        assert model.patch_embed.patch_size == (shape.patch, shape.patch)
        block = model.blocks[0]
        if shape.branches == 2:
            assert len(block.attns) == 2
            attention, mlp = block.attns[0].attn, block.ffns[0].mlp
        else:
            attention, mlp = block.attn, block.mlp
        assert attention.num_heads == shape.heads
        assert mlp.fc1.out_features == shape.mlp
        assert (model.cls_token is not None) == (shape.pool == "token")
        assert (model.attn_pool is not None) == (shape.pool == "map")
        tokens = (model.patch_embed.img_size[0] // shape.patch) ** 2
        assert model.pos_embed.shape[1] == tokens + (shape.pool == "token" and shape.class_position)
        scales = [p for n, p in model.named_parameters() if n.endswith("gamma")]
        assert bool(scales) == (shape.layer_scale is not None)


@pytest.mark.slow
def test_a_name_alone_costs_no_torch():
    code = (
        "import sys; from usvit.models.zoo import find_model; find_model('vit_s10x6_hmlp')\n"
        "assert not {'torch', 'timm', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
        "from usvit.models.zoo.listing import rows; rows()\n"
        "assert not {'torch', 'timm'} & set(sys.modules), sorted(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_a_misprint_of_the_study_is_explained():
    with pytest.raises(UsvitError, match=r"prints 'R26\+S/16'.*use r26_s32"):
        find_model("r26_s16")


@pytest.mark.parametrize(
    ("name", "near"),
    [("vit_b61", "vit_b16"), ("resnet_50", "resnet50"), ("VGG16", "vgg16"), ("vit_s0x2", "vit_s30x2"), ("", "Known")],
)
def test_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(UsvitError, match=rf"Unknown model '{name}'\. (Nearest: )?.*{near}.*usvit models list"):
        find_model(name)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("timm:vit_tiny_patch16_224", "vit"),
        ("timm:deit_tiny_distilled_patch16_224", "vit"),
        ("timm:vit_base_r50_s16_224", "hybrid"),
        ("timm:efficientnet_b0", "cnn"),
        ("timm:resnet18.a1_in1k", "cnn"),
    ],
)
def test_any_of_timm_s_is_reached_by_its_own_name(name, family):
    spec = find_model(name)
    assert spec.name == name
    assert spec.family == family
    assert spec.architecture in timm.list_models()


def test_unknown_timm_model_and_unknown_weights_of_a_known_one_suggest_the_nearest():
    with pytest.raises(UsvitError, match=r"Unknown timm model 'resnet5'. Nearest: .*resnet50"):
        find_model("timm:resnet5")
    with pytest.raises(UsvitError, match=r"'augreg_in1k'. Nearest: augreg_in21k"):
        find_model("timm:vit_tiny_patch16_224.augreg_in1k")
    with pytest.raises(UsvitError, match="There are none"):
        find_model("timm:vit_small_patch16_36x1_224.some")


def test_parts_of_a_plain_vit_are_exchanged_and_the_rest_stays():
    spec = find_model("vit_b16", {"stem": "hmlp_bn", "patch": 16})
    assert spec.name == "vit_b16"
    assert spec.architecture == "usvit_vit"
    assert spec.changed == {"stem": "hmlp_bn", "patch": 16}
    assert spec.shape == dataclasses.replace(ZOO["vit_b16"].shape, stem="hmlp_bn")
    assert spec.options == dataclasses.asdict(spec.shape)
    assert spec.weights == ZOO["vit_b16"].weights
    assert find_model("vit_b16", {}) == ZOO["vit_b16"]


def test_vit_alone_is_a_b16_for_any_shape():
    assert find_model("vit").shape == ViTShape(width=768, depth=12, mlp=3072, heads=12, patch=16)
    own = find_model("vit", {"width": 96, "depth": 2, "mlp": 100, "heads": 3, "patch": 8})
    assert dataclasses.astuple(own.shape)[:5] == (96, 2, 100, 3, 8)
    assert not own.weights


@pytest.mark.parametrize("name", ["resnet50", "deit_s_distilled", "cait_s24", "timm:vit_tiny_patch16_224"])
def test_parts_of_what_is_no_plain_vit_cannot_be_exchanged(name):
    with pytest.raises(
        UsvitError, match=rf"model\.vit\.\* \(stem\) exchange parts of a plain ViT, but {name} is not one"
    ):
        find_model(name, {"stem": "hmlp_bn"})


@pytest.mark.parametrize(("heads", "width"), [(7, 768), (5, 768), (12, 100)])
def test_heads_that_do_not_divide_the_width_are_told_with_those_that_do(heads, width):
    with pytest.raises(
        UsvitError, match=f"cannot have {heads} heads: its width of {width} is not.*Set model.vit.heads to one of"
    ):
        find_model("vit_b16", {"heads": heads, "width": width})


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("vit_s10x6", {"width": 384, "depth": 10, "branches": 6, "patch": 16}),
        ("vit_h2x3", {"width": 1280, "depth": 2, "branches": 3, "patch": 14}),
        ("vit_l32_hmlp_ln", {"width": 1024, "patch": 32, "stem": "hmlp_ln"}),
        ("deit3_s16_hmlp", {"width": 384, "stem": "hmlp_bn", "class_position": False, "layer_scale": 1e-4}),
        ("vit_s18x2_conv_ln", {"branches": 2, "stem": "conv_ln"}),
        ("vit_ti16_axial", {"width": 192, "attention": "axial", "pool": "avg"}),
    ],
)
def test_patterns_name_vits_that_are_not_listed(name, parts):
    spec = find_model(name)
    assert name not in ZOO
    assert spec.architecture == "usvit_vit"
    assert {key: getattr(spec.shape, key) for key in parts} == parts
    assert not spec.weights


def test_patterns_of_ablations():
    assert find_model("resmlp_b24_14_sepconv_ln_class_mlp").options == {
        "width": 768, "depth": 24, "patch": 14, "layer_scale": find_model("resmlp_b24_14").options["layer_scale"],
        "mixing": "sepconv", "norm": "ln", "pool": "class_mlp",
    }  # fmt: skip
    assert find_model("patchconvnet_b36_heads16_linear_bn").options == {
        "width": 768, "depth": 36, "queries": "one", "norm": "bn", "pool_heads": 16, "stem": "linear",
        "layer_scale": 1e-6,
    }  # fmt: skip
    assert find_model("patchconvnet_s20_avg").options["pool"] == "avg"
    assert find_model("cait_xs36_distilled").options == {"width": 288, "depth": 36, "layer_scale": 1e-6}
    for wrong in ("resmlp_s12_avg", "patchconvnet_s60_multi_avg", "patchconvnet_s60_heads0", "cait_s25_distilled"):
        with pytest.raises(UsvitError, match="Unknown model"):
            find_model(wrong)


def test_patterns_of_other_families():
    assert find_model("patchconvnet_l30_multi_bn").options == {
        "width": 1024, "depth": 30, "queries": "class", "norm": "bn", "layer_scale": 1e-6,
    }  # fmt: skip
    assert find_model("resmlp_b36_32").options == {"width": 768, "depth": 36, "patch": 32, "layer_scale": 1e-6}
    assert find_model("resmlp_s24").architecture == "resmlp_24_224"


@pytest.mark.parametrize(
    "name", ["resnet50_hmlp", "vit_x10x2", "resmlp_s24_9", "deit_s_distilled_hmlp", "vit_b99_conv"]
)
def test_what_only_looks_like_a_pattern_is_unknown(name):
    with pytest.raises(UsvitError, match="Unknown model"):
        find_model(name)


def test_the_stored_counts_cover_the_zoo_and_licences_are_timm_s():
    stored = json.loads(COUNTS.read_text())
    again = "the zoo has changed: python -m usvit.models.complexity"
    assert list(stored["counts"]) == [*ZOO, *OUTSIDE_THE_ZOO], again
    for spec in ZOO.values():
        assert [int(size) for size in stored["counts"][spec.name]] == sizes(spec), again
    names = {one.timm for spec in ZOO.values() for one in spec.weights.values() if one.timm}
    assert stored["licenses"] == {name: licence(name) for name in sorted(names)}, again


def test_the_list_is_filtered():
    assert len(rows()) == len(ZOO)
    assert {row.family for row in rows(family="cait")} == {"cait"}
    assert set(NINE) <= {row.name for row in rows(source="gheflati")}
    assert {row.name for row in rows(search="NASNET")} == {"nasnet_large"}
    assert {row.name for row in rows(search="mae")} == {"vit_b16", "vit_l16", "vit_h14", "usf_mae"}
    small = rows(max_params=6)
    assert {"vit_ti16", "deit_ti", "efficientnet_b0"} <= {row.name for row in small}
    assert max(row.params for row in small) <= 6e6
    assert rows(family="cnn", search="no such") == []
    with pytest.raises(UsvitError, match=r"Unknown family 'vits'\. Nearest: .*vit"):
        rows(family="vits")
    with pytest.raises(UsvitError, match="Unknown source 'nobody'"):
        rows(source="nobody")


def page() -> str:
    """The reference page, from the zoo."""
    lines = [
        "# Networks",
        "",
        "All networks of usvit. This page is made from the zoo (`usvit/models/zoo/`) by",
        "`USVIT_RENEW=1 python -m pytest tests/models/test_zoo.py -k page`; `usvit models list` shows the same, and",
        "`usvit models info NAME` one network, counted again, with its licences (`--json`:",
        "[models-info.schema.json](models-info.schema.json)).",
        "",
        "Parameters (millions) and multiply-accumulate operations (MACs, billions, one image of the side given in",
        "pixels) are counted with a head of 1,000 classes, on timm's code or ours. Upstreams are what",
        "`--weights hub:UPSTREAM` takes; `--weights hub` takes the first. `--weights package` takes the same weights",
        "from an installed Python package, and `--weights phantom` those that ship with usvit",
        "([weights](../how-to/weights.md)).",
    ]
    for family in dict.fromkeys(spec.family for spec in ZOO.values()):
        lines += [
            *("", f"## {family}", ""),
            "| name | code | parameters | MACs | px | upstreams | from |",
            "|---|---|--:|--:|--:|---|---|",
        ]
        for row in rows(family=family):
            sources = ", ".join(
                f"`--weights {one.choice}`" for one in row.sources if one.choice in ("package", "phantom")
            )
            upstreams = ", ".join(filter(None, (*row.weights, sources))) or "from scratch only"
            lines.append(
                f"| `{row.name}` | {row.implementation} | {row.params / 1e6:.2f} | {row.macs / 1e9:.2f} "
                f"| {row.input_size} | {upstreams} | {row.source} |"
            )
    lines += ["", "## Names that are not listed", "", "| pattern | what |", "|---|---|"]
    lines += [f"| `{pattern.replace('|', chr(92) + '|')}` | {meaning} |" for pattern, meaning in PATTERNS.items()]
    lines += ["", "## Against the papers", ""]
    lines += [
        "Every count that the papers print of these networks, the largest deviation last (`usvit models list --paper`)."
    ]
    lines += [
        "",
        "| name | table | px | parameters | ours | MACs | ours | deviation | why |",
        "|---|---|--:|--:|--:|--:|--:|--:|---|",
    ]
    for line in comparisons():
        printed = line.figures
        params = (str(printed.params), f"{line.params / 1e6:.2f}") if printed.params is not None else ("", "")
        macs = (str(printed.macs), f"{line.macs / 1e9:.2f}") if printed.macs is not None else ("", "")
        lines.append(
            f"| `{line.name}` | {printed.table} | {printed.image_size} | {' | '.join((*params, *macs))} "
            f"| {line.largest:.1%} | {printed.note} |"
        )
    lines += ["", "## Sources", ""]
    lines += [f"- **{short}**: {reference}" for short, reference in SOURCES.items()]
    return "\n".join(lines) + "\n"


def test_page_of_the_documentation_shows_the_zoo():
    path = REPOSITORY / "docs" / "reference" / "models.md"
    if os.environ.get("USVIT_RENEW"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), (
        "the zoo has changed: USVIT_RENEW=1 python -m pytest tests/models/test_zoo.py -k page"
    )


def test_counted_is_for_the_sizes_of_the_papers():
    assert counted("vit_b16", 384) > counted("vit_b16", 224)
    with pytest.raises(KeyError):
        counted("vit_b16", 100)


@pytest.mark.parametrize("vit", [{"width": 10**9}, {"width": 10**300}, {"depth": 10**9}, {"heads": 0}, {"mlp": -1}])
def test_a_strangers_number_is_refused_before_anything_counts_to_it(vit):
    with pytest.raises(UsvitError, match=rf"model\.vit\.{next(iter(vit))} of the model vit_b16 is .*must be"):
        find_model("vit_b16", vit)
