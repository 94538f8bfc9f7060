"""How many files an addition touches (CONTRIBUTING.md): each is made in a copy of the checkout, and works there."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.conftest import REPOSITORY

pytestmark = pytest.mark.slow

GEOMETRIC_MEAN = '''
"""Geometric mean of the sensitivities of the classes."""

import numpy as np

from usvit.metrics.basic import decide


def geometric_mean(label: np.ndarray, prob: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Compute the K-th root of the product of the K sensitivities, (B,), for (B, n) weights of the images."""
    decided, own = decide(prob), [label == k for k in range(prob.shape[1])]
    with np.errstate(invalid="ignore"):
        found = [weight[:, one] @ (decided[one] == k) / weight[:, one].sum(axis=1) for k, one in enumerate(own)]
    return np.prod(found, axis=0) ** (1 / len(own))
'''
ROW = """    _FigureRow(
        "geometric_mean",
        "geometric mean",
        "Geometric mean",
        headline=8,
        function="usvit.metrics.geometric_mean:geometric_mean",
        meaning="Geometric mean of the classes' sensitivities.",
    ),
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that runs Python in a copy of the checkout with new and edited files."""

    def mirror(source: Path, target: Path, changed: set[Path]) -> None:
        target.mkdir()
        for child in source.iterdir():
            own = {path.relative_to(child.name) for path in changed if path.parts[0] == child.name}
            if child.is_dir() and own:
                mirror(child, target / child.name, own)
            elif not own and child.is_dir():
                (target / child.name).symlink_to(child)
            elif not own:
                shutil.copy(child, target / child.name)  # usvit.resources finds its folders beside the real file

    def call(code: str, new: dict[str, str], edits: dict[str, tuple[str, str]]):
        copy = tmp_path / "copy"
        mirror(REPOSITORY, copy, {Path(name) for name in (*new, *edits)})
        for name, text in new.items():
            (copy / name).write_text(text)
        for name, (before, after) in edits.items():
            text = (REPOSITORY / name).read_text()
            assert text.count(before) == 1, name
            (copy / name).write_text(text.replace(before, after))
        head = (
            f"import sys; sys.path.insert(0, {str(copy)!r})\nimport usvit; assert usvit.__file__.startswith("
            f"{str(copy)!r})\nfrom usvit.cli import main\n"
            "def usvit_command(*words):\n    sys.argv = ['usvit', *words]\n    try:\n        main()\n"
            "    except SystemExit as stop:\n        assert stop.code in (None, 0), stop.code\n"
        )
        environment = os.environ | {"COLUMNS": "200", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, "-c", head + code], capture_output=True, text=True, cwd=tmp_path, env=environment
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call


def test_a_figure_is_its_function_and_a_row_of_the_table(run, tmp_path):
    rng = np.random.default_rng(0)
    label = np.repeat(["benign", "malignant"], 40)
    for name, skill in (("a", 0.5), ("b", 0.3)):
        score = np.clip(rng.normal(0.25 + skill * (label == "malignant"), 0.25), 0.01, 0.99)
        people = np.arange(80) // 2
        table = {
            "image_id": np.arange(80),
            "label": label,
            "prob_malignant": score,
            "patient_id": people,
            "dataset": "x",
        }
        pd.DataFrame(table | {"fold": people % 4}).to_csv(tmp_path / f"{name}.csv", index=False)
    code = """
usvit_command("evaluate", "a.csv", "--positive", "malignant", "--prob", "prob_malignant", "--out", "measured")
usvit_command("compare", "a.csv", "b.csv", "--positive", "malignant", "--prob", "prob_malignant", "--out", "compared")
import json, jsonschema
from usvit.records import CompareRecord, MetricsRecord
from usvit.records.schemas import schema_of
for model, file in ((MetricsRecord, "measured/metrics.json"), (CompareRecord, "compared/compare.json")):
    jsonschema.validate(json.load(open(file)), schema_of(model))
"""
    edits = {"usvit/figure_table.py": ("\n)\nBY_KEY", f"\n{ROW})\nBY_KEY")}
    shown = run(code, {"usvit/metrics/geometric_mean.py": GEOMETRIC_MEAN}, edits)
    metrics = json.loads((tmp_path / "measured" / "metrics.json").read_text())
    for figures in (metrics["pooled"], *metrics["folds"]):
        both = [one["value"] for one in figures["sensitivity"].values()]
        assert figures["geometric_mean"]["value"] == pytest.approx(np.sqrt(np.prod(both)))
    own, folds = metrics["headline"]["geometric_mean"], [one["geometric_mean"]["value"] for one in metrics["folds"]]
    assert own["value"] == pytest.approx(np.mean(folds)) == metrics["mean_sd"]["geometric_mean"]["mean"]
    assert own["ci95"][0] < own["value"] < own["ci95"][1]
    assert "Geometric mean" in shown.partition("Results")[2]
    assert "Geometric mean" in (tmp_path / "measured" / "report.html").read_text()
    assert "Geometric mean" in (tmp_path / "compared" / "compare.html").read_text()
    compared = json.loads((tmp_path / "compared" / "compare.json").read_text())
    assert compared["runs"][0]["geometric_mean"] == metrics["pooled"]["geometric_mean"]


def test_a_setting_is_a_field_of_its_section(run):
    code = """
import inspect
from usvit.config import RunConfig, build_config, parse_overrides
usvit_command("score", "--help")
print(inspect.signature(usvit.score).parameters["rehearsals"])
print("Number of rehearsals." in usvit.score.__doc__)
from usvit.node.config.settings import NodeModelConfig
print(NodeModelConfig.model_fields["rehearsals"].default)
"""
    field = '    """Make no decision on images that are out of distribution."""\n'
    added = '    rehearsals: Annotated[int, Field(ge=1, le=9)] = 2\n    """Number of rehearsals."""\n'
    shown = run(code, {}, {"usvit/config/scoring.py": (field, field + added)})
    assert "--rehearsals" in shown and "Number of rehearsals. [default: 2]" in " ".join(shown.replace("│", " ").split())
    assert shown.splitlines()[-3:] == ["rehearsals: int = 2", "True", "2"]


def test_a_command_is_its_settings_its_function_its_options_and_a_line_of_the_table(run):
    new = {
        "usvit/config/greeting.py": '"""Greetings."""\n\nfrom usvit.config.sections import Section\n\n\n'
        'class GreetingSettings(Section):\n    """Of a greeting."""\n\n'
        '    name: str = "world"\n    """Who is greeted."""\n',
        "usvit/reports/greeting.py": "from usvit.config.greeting import GreetingSettings\n"
        "from usvit.config.keywords import takes_settings\n\n\n@takes_settings\n"
        "def greeting(*, settings: GreetingSettings) -> str:\n"
        '    """Greet.\n\n    Args:\n        settings: who.\n    """\n    return f"hello {settings.name}"\n',
        "usvit/cli/greet.py": "from usvit.cli.settings import takes_options\n"
        "from usvit.config.greeting import GreetingSettings\n\n\n@takes_options()\n"
        'def greet(settings: GreetingSettings) -> None:\n    """Greet someone."""\n'
        "    from usvit.reports.greeting import greeting\n\n    print(greeting(settings=settings))\n",
    }
    entry = '"greet": CommandEntry("usvit.cli.greet", "greet", "Greet someone."),'
    table = ('    "Help": {\n', f'    "Help": {{\n        {entry}\n')
    code = """
usvit_command("--help")
usvit_command("greet", "--name", "Ada")
from usvit.reports.greeting import greeting
print(greeting(name="Grace"))
"""
    shown = run(code, new, {"usvit/cli/commands.py": table})
    assert "Greet someone." in shown and shown.splitlines()[-2:] == ["hello Ada", "hello Grace"]


def test_a_reader_is_its_module_a_line_of_the_table_and_a_card(run, tmp_path):
    for n in range(4):
        Image.fromarray(np.random.default_rng(n).integers(0, 255, (64, 64), np.uint8)).save(tmp_path / f"p{n}.png")
    card = """---
name: stripes
pretty_name: Stripes
license: CC0-1.0
citation: none
classes: {benign: 2, malignant: 2}
positive_class: malignant
patient_ids: "no"
host: https://example.org
reader: stripes
patient_ids_from: none are published
layout: p0.png
how_to_get: Draw them.
---
# Stripes

Four images.
"""
    reader = """
from usvit.data.datasets.readers import ImageRecord


def looks_like(root, card):
    return (root / "p0.png").is_file()


def read(root, card):
    files = sorted(root.glob("p*.png"))
    return [ImageRecord(one.stem, one.relative_to(root), list(card.classes)[k // 2]) for k, one in enumerate(files)]
"""
    code = 'usvit_command("data", "prepare", "stripes", "--data-root", ".", "--out", "stripes.parquet")'
    new = {"data_cards/stripes.md": card, "usvit/data/datasets/readers/stripes.py": reader}
    table = ("READERS = {\n", 'READERS = {\n    "stripes": "stripes",\n')
    run(code, new, {"usvit/data/datasets/readers/__init__.py": table})
    found = pd.read_parquet(tmp_path / "stripes.parquet")
    assert found.label.value_counts().to_dict() == {"benign": 2, "malignant": 2}
