"""``usvit compare RUN --readers`` on runs, with the categories of the manifest and of a table."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest

from tests.cli.runs import make_run
from tests.conftest import REPOSITORY
from tests.data.conftest import write_bus_bra

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs/reference/readers.schema.json").read_text())
HOSTILE = "<img src=x onerror=alert(1)>&_"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run whose manifest has two readers in one column, a missing reading and an incomplete one."""
    run = make_run(tmp_path_factory.mktemp("runs") / "run", seed=1, n=180)
    manifest = pd.read_parquet(run / "manifest.parquet")
    rng, words = np.random.default_rng(0), np.array(["2", "3", "4a", "4b", "4c", "5"])
    both = [
        words[np.digitize(rng.normal(size=180) + 1.5 * (manifest.label == "malignant"), [-1, 0, 1, 1.5, 2])]
        for _ in range(2)
    ]
    manifest["birads"] = [f"{a}/{b}" for a, b in zip(*both, strict=True)]
    manifest.loc[0, "birads"], manifest.loc[1, "birads"] = None, "0/4a"
    manifest.to_parquet(run / "manifest.parquet", index=False)
    return run


def test_the_command_writes_four_files_with_the_same_numbers(usvit, run, tmp_path):
    answer = usvit("compare", run, "--readers", "birads", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    record = json.loads((tmp_path / "out" / "readers.json").read_text())
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    assert [one["reader"] for one in record["readers"]] == [
        "birads, reader 1",
        "birads, reader 2",
        "mean of the readers",
    ]
    assert record["readers"][0]["left_out"] == {"missing": 1, "category_0": 1, "category_6": 0}
    number = f"{record['readers'][0]['auc']['value']:.3f}"
    for name in ("html", "md", "tex"):
        assert number in (tmp_path / "out" / f"readers.{name}").read_text()
    assert number in answer.out
    page = (tmp_path / "out" / "readers.html").read_text()
    assert "<script" not in page and "plot-readers" in page
    again = usvit("compare", run, "--readers", "birads", "--out", tmp_path / "out", "--json")
    assert json.loads(again.out) == record


def test_names_of_columns_are_never_markup(usvit, run, tmp_path):
    manifest = pd.read_parquet(run / "manifest.parquet")
    table = manifest[["image_id"]].assign(**{HOSTILE: "4a"})
    table.loc[::3, HOSTILE] = "IVb"
    table.to_csv(tmp_path / "own.csv", index=False)
    answer = usvit("compare", run, "--readers", HOSTILE, "--manifest", tmp_path / "own.csv", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "<img" not in (tmp_path / "out" / "readers.html").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--readers", "nobody"], "Unknown column of a reader 'nobody'"),
        (["--readers", "device"], "are no BI-RADS category"),
        (["--readers", "birads", "--margin", "0.05"], "leave out --name, --margin"),
        (["--readers", "birads", "--readers", "birads"], "names a column twice"),
        (["--manifest", "own.csv"], "Name the column of at least one reader with --readers"),
        ([], "Name at least two runs"),
    ],
)
def test_a_mistake_is_one_paragraph_and_writes_nothing(usvit, run, tmp_path, options, said):
    answer = usvit("compare", run, *options, "--out", tmp_path / "out")
    assert answer.code == 2
    assert said in " ".join(answer.err.split())
    assert not (tmp_path / "out").exists()


def test_bus_bra_from_its_files_to_the_page(usvit, tmp_path):
    root = write_bus_bra(tmp_path / "BUS-BRA", patients=24)
    trained = usvit(
        *("cv", "--dataset", "bus_bra", "--data-root", root, "--model", "timm:test_vit", "--recipe", "demo"),
        *("--weights", "scratch", "--set", "model.image_size=32", "--set", "split.folds=2", "--set", "train.steps=1"),
        *("--device", "cpu", "--out", tmp_path / "run"),
    )
    assert trained.code == 0, trained.err
    answer = usvit("compare", tmp_path / "run", "--readers", "birads", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    record = json.loads((tmp_path / "out" / "readers.json").read_text())
    assert record["scale"] == ["1", "2", "3", "4", "5"]
    assert record["n_images"] == 36 and record["n_groups"] <= 24
    assert record["readers"][0]["left_out"]["missing"] == 0
