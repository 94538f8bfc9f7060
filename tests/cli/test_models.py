"""``usvit models list`` and ``usvit models info`` as their user meets them."""

import json
import re

import jsonschema
import pytest

from tests.conftest import REPOSITORY
from usvit.models.zoo import ZOO

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "models-info.schema.json").read_text())


def test_the_list_shows_every_network_within_120_columns(usvit):
    lines = usvit("models", "list").out.splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[0].split() == ["name", "family", "source", "params/M", "MACs/G", "px", "weights", "licence"]
    assert [line.split()[0] for line in lines[1 : len(ZOO) + 1]] == list(ZOO)
    row = next(line for line in lines if line.startswith("vit_b16 "))
    assert row.split()[-6:] == ["86.57", "17.56", "224", "in21k", "+10", "apache-2.0"]


def test_on_a_terminal_the_list_is_a_rich_table(usvit, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    out = usvit("models", "list", "--family", "sovit").out
    assert "sovit_400m_14" in out
    assert "428.83" in out


def test_filters_narrow_the_list_and_the_json_holds_the_same(usvit):
    rows = json.loads(usvit("models", "list", "--family", "vit", "--max-params", "30", "--json").out)
    assert {row["family"] for row in rows} == {"vit"}
    assert max(row["params"] for row in rows) <= 30e6
    tiny = next(row for row in rows if row["name"] == "vit_ti16")
    assert tiny == {
        "name": "vit_ti16",
        "family": "vit",
        "source": "Steiner 2022, Gheflati 2022",
        "implementation": "timm",
        "params": 5717416,
        "macs": 1253683200,
        "input_size": 224,
        "weights": ["in21k", "in21k_ft_in1k", "in21k_ft_in1k_384"],
        "license": "apache-2.0",
        "sources": [{"choice": "hub", "here": False}],
    }
    assert json.loads(usvit("models", "list", "--search", "no such network", "--json").out) == []
    assert "vit_s18x2" in usvit("models", "list", "--source", "three things").out


def test_the_papers_table_ends_with_the_largest_deviation_and_gives_reasons(usvit):
    out = usvit("models", "list", "--paper").out
    table, reasons = out.split("\n\n")
    lines = table.splitlines()
    assert max(map(len, lines)) <= 120
    assert lines[-1].split()[0] == "deit_ti"
    assert lines[-1].endswith("+14.3")
    assert "deit_ti (Thesis, Table 3.5)" in reasons
    assert "whole millions" in reasons
    compared = json.loads(usvit("models", "list", "--paper", "--json", "--family", "parallel").out)
    row = next(row for row in compared if row["name"] == "vit_b18x2")
    assert row["printed"] == {"params_millions": 256.7, "macs_billions": 52.5}
    assert abs(row["deviation"]["macs"]) < 0.002


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("vit_b32",),
        ("vit_ti16", "--classes", "3", "--image-size", "96"),
        ("vit_ti16", "--set", "vit.stem=hmlp_bn", "--set", "model.vit.depth=2"),
        ("vit_s18x2", "--image-size", "32"),
        ("r_ti16",),
        ("timm:test_resnet", "--image-size", "64"),
    ],
)
def test_info_keeps_its_contract(usvit, arguments):
    facts = json.loads(usvit("models", "info", *arguments, "--json").out)
    jsonschema.validate(facts, SCHEMA)
    assert facts["name"] == arguments[0]
    if "--set" in arguments:
        assert facts["changed"] == {"stem": "hmlp_bn", "depth": 2}
        assert facts["architecture"] == "usvit_vit"
    if "--classes" in arguments:
        assert (facts["classes"], facts["input_size"]) == (3, 96)


@pytest.mark.slow
def test_info_for_people_names_cost_weights_licence_and_paper(usvit):
    out = usvit("models", "info", "vit_ti16").out
    assert "5,717,416 (5.72 M), 1,000 classes" in out
    assert "timm/vit_tiny_patch16_224.augreg_in21k" in out
    assert "licence apache-2.0" in out
    assert "Steiner, Table 3: 384 px, 610 im/s (v100_best_batch)" in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("vit_b61",), "Unknown model 'vit_b61'. Nearest: .*vit_b16"),
        (("r26_s16",), "use r26_s32"),
        (("vit_b16", "--image-size", "100"), "not a multiple of its patch size 16"),
        (("vit_b16", "--set", "vit.steem=x"), "Unknown setting 'model.vit.steem'. Nearest: model.vit.stem"),
        (("vit_b16", "--set", "vit.stem=mlp"), "model.vit.stem cannot be used: .*hmlp_bn"),
        (("vit_b16", "--set", "vit.heads=7"), "cannot have 7 heads: its width of 768"),
        (("resnet50", "--set", "vit.stem=hmlp_bn"), "resnet50 is not one"),
        (("timm:resnet5",), "Unknown timm model 'resnet5'"),
    ],
)
def test_mistakes_are_told_without_a_traceback(usvit, arguments, says):
    answer = usvit("models", "info", *arguments)
    assert answer.code == 2
    assert re.search(says, answer.err), answer.err
    assert "Traceback" not in answer.err


def test_an_unknown_family_or_source_names_the_known(usvit):
    assert "Unknown family 'resnet'" in usvit("models", "list", "--family", "resnet").err
    assert usvit("models", "list", "--source", "nobody").code == 2
