"""``usvit bench`` as its user meets it; the processes that measure are exchanged for answers."""

import json

import jsonschema
import pandas as pd
import pytest

from tests.conftest import REPOSITORY
from tests.upstream.bench.conftest import models_seen, row_of, without_number  # noqa: F401 - a fixture
from usvit.upstream.bench import execution

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "bench.schema.json").read_text())


@pytest.fixture
def machine(monkeypatch, models_seen):  # noqa: F811
    """Holds 40 images; a batch takes a tenth of a second and a hundredth for each image, half of that in bf16."""
    cases = []

    def measure(case):
        cases.append(case)
        if case.batch > 40:
            return [without_number(case, "out_of_memory", f"a batch of {case.batch} does not fit")]
        seconds = (0.1 + 0.01 * case.batch) / (2 if case.hardware.precision == "bf16" else 1)
        if case.branches and "x2" in case.model["name"]:
            ways = (("sequential", seconds), ("parallel", seconds * (0.8 if case.batch < 8 else 1.1)))
            return [row_of(case, time, branches=way, peak_memory_mib=None) for way, time in ways]
        return [row_of(case, seconds)]

    defaults = {**execution.run_bench.__kwdefaults__, "measure": measure, "look": models_seen}
    monkeypatch.setattr(execution.run_bench, "__kwdefaults__", defaults)
    return cases


def test_the_table_has_a_line_for_each_model_and_mode(machine, usvit):
    answer = usvit("bench", "vit_ti16", "deit_s", "vit_ti16", "--batch", 10)
    assert answer.code == 0, answer.err
    lines = [line.split() for line in answer.out.splitlines() if line.startswith(("vit_ti16 ", "deit_s "))]
    assert [line[:2] for line in lines] == [[m, mode] for m in ("vit_ti16", "deit_s") for mode in ("train", "infer")]
    assert all(line[3:5] == ["10", "50.0"] for line in lines)  # 10 images in 0.2 s
    assert "other hardware" in answer.out and "deit_s at 224: 940" in answer.out
    assert "batch 10" in answer.err  # progress is said apart


@pytest.mark.slow
def test_files_and_json_agree_and_follow_the_schema(machine, usvit, tmp_path):
    answer = usvit("bench", "vit_ti16", "--precision", "both", "--max-batch", 128, "--protocol", "sweep", "--json")
    printed = json.loads(answer.out)
    answer = usvit("bench", "vit_ti16", "--precision", "both", "--protocol", "sweep", "--out", tmp_path / "a")
    assert answer.code == 0, answer.err
    written = json.loads((tmp_path / "a" / "bench.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(written)
    jsonschema.Draft202012Validator(SCHEMA).validate(printed)
    assert [row["images_per_second"] for row in written["results"]] == [
        row["images_per_second"] for row in printed["results"]
    ]
    table = pd.read_csv(tmp_path / "a" / "bench.csv")
    assert list(table.columns) == list(written["results"][0])
    for (_, line), row in zip(table.iterrows(), written["results"], strict=True):
        assert (line.batch, line.status, line.reported) == (row["batch"], row["status"], row["reported"])
        if row["images_per_second"] is not None:
            assert line.images_per_second == pytest.approx(row["images_per_second"])
    best = table[table.reported]
    assert list(best.batch) == [32, 32] and list(best.precision) == ["fp32", "bf16"]
    assert (tmp_path / "a" / "bench.svg").read_text().startswith("<?xml")

    again = usvit("bench", "vit_ti16", "--out", tmp_path / "a")
    assert again.code == 2 and "already exists" in again.err
    assert json.loads((tmp_path / "a" / "bench.json").read_text()) == written


def test_the_papers_speed_stands_beside_its_own_protocol_alone(machine, usvit):
    assert "paper*" not in usvit("bench", "deit_s", "--mode", "infer").out
    out = usvit("bench", "deit_s", "--protocol", "deit", "--mode", "both").out
    lines = {line.split()[1]: line.split()[-1] for line in out.splitlines() if line.startswith("deit_s ")}
    assert lines["train"] == "-" and float(lines["infer"]) == pytest.approx(940, abs=1)


def test_deit3_is_batch_256_in_mixed_precision_and_what_does_not_fit_is_told(machine, usvit):
    answer = usvit("bench", "vit_ti16", "--protocol", "deit3")
    assert answer.code == 3
    assert [(case.batch, case.hardware.precision, case.mode) for case in machine] == [(256, "bf16", "infer")]
    assert "out of memory: a batch of 256 does not fit" in answer.out


def test_deit_finds_the_largest_batch(machine, usvit):
    printed = json.loads(usvit("bench", "vit_ti16", "--protocol", "deit", "--json").out)
    (row,) = [row for row in printed["results"] if row["reported"]]
    assert 36 <= row["batch"] <= 40 and row["repeats"] == 30


def test_latency_shows_both_ways_and_the_gain_beside_the_papers(machine, usvit):
    answer = usvit("bench", "vit_s18x2", "vit_ti16", "--protocol", "latency", "--max-batch", 8)
    assert answer.code == 0, answer.err
    tables = answer.out.split("vit_ti16, infer")
    lines = {line.split()[0]: line.split() for line in tables[0].splitlines() if line.strip()[:1].isdigit()}
    assert lines["1"] == ["1", "9.09", "11.4", "11.4", "25%", "44", "61", "38%"]
    assert lines["8"][1:5] == ["44.4", "40.4", "44.4", "0%"]
    assert "par" not in tables[1].split("\n\n")[0]
    smaller = usvit("bench", "vit_s18x2", "--protocol", "latency", "--max-batch", 2, "--image-size", 160).out
    assert "25%" in smaller and "38%" not in smaller  # the papers' images were 224 x 224


def test_settings_reach_the_network_and_its_size_is_its_own(machine, usvit):
    arguments = ("--set", "vit.stem=hmlp_bn", "--set", "model.tune=attn", "--batch", 2, "--threads", 1, "--compile")
    assert usvit("bench", "vit_b16", *arguments).code == 0
    assert machine[0].model["vit"]["stem"] == "hmlp_bn" and machine[0].model["tune"] == "attn"
    assert machine[0].hardware.compile and machine[0].hardware.threads == 1
    usvit("bench", "inception_v3", "--batch", 2)
    assert machine[-1].model["image_size"] == 299
    usvit("bench", "inception_v3", "--batch", 2, "--image-size", 160)
    assert machine[-1].model["image_size"] == 160


def test_a_busy_machine_and_missing_repeats_are_told(machine, usvit, monkeypatch):
    def measure(case):
        return [row_of(case, 1.0, repeats=3, load=7.5)]

    monkeypatch.setitem(execution.run_bench.__kwdefaults__, "measure", measure)
    out = usvit("bench", "vit_ti16", "--mode", "infer").out
    assert "load up to 7.5 on 2 cores" in out and "1 of 1 measurements were cut short of 30 repeats" in out


BAD = [
    (["vit_b31"], "vit_b32"),
    (["timm:resnet51"], "Nearest: resnet51q, resnet50"),
    (["vit_b32", "--protocol", "diet"], "Nearest: deit"),
    (["vit_b32", "--mode", "training"], "Nearest: train"),
    (["vit_b32", "--precision", "fp16"], "Nearest: bf16"),
    (["vit_b32", "--device", "tpu"], "device 'tpu'"),
    (["vit_b32", "--batch", "0"], "--batch"),
    (["vit_b32", "--max-batch", "64"], "pass --batch"),
    (["vit_b32", "--protocol", "sweep", "--batch", "64", "--max-batch", "32"], "larger than --max-batch"),
    (["vit_b32", "--set", "vit.stemm=linear"], "Nearest: model.vit.stem"),
    (["vit_b32", "--set", "name=vit_b16"], "does not accept --set"),
    (["resnet50", "--set", "vit.depth=3"], "resnet50"),
    (["vit_b32", "--image-size", "5"], "model.image_size"),
    ([], "MODEL"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD, ids=lambda value: " ".join(value)[:40])
def test_a_mistake_is_told_before_anything_is_measured(arguments, said, machine, usvit):
    answer = usvit("bench", *arguments)
    assert answer.code == 2 and said.lower() in answer.err.lower(), answer.err
    assert "Traceback" not in answer.err and not machine


@pytest.mark.slow
def test_the_whole_of_it(usvit, tmp_path):
    answer = usvit(
        *("bench", "vit_ti16", "--set", "vit.depth=1", "--image-size", 32, "--batch", 2, "--mode", "infer"),
        *("--repeats", 3, "--threads", 1, "--device", "cpu", "--precision", "fp32", "--out", tmp_path),
    )
    assert answer.code == 0, answer.err
    result = json.loads((tmp_path / "bench.json").read_text())
    jsonschema.Draft202012Validator(SCHEMA).validate(result)
    (row,) = result["results"]
    assert row["images_per_second"] == pytest.approx(2 / row["seconds_median"])
    assert result["models"][0]["vit"] == {"depth": 1} and result["models"][0]["paper"] == []
