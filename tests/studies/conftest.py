"""Studies of seconds: two networks of half a million parameters on 48 phantom images."""

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from usvit.progress import NoProgress
from usvit.studies.engines import Sequential
from usvit.studies.execution import execute
from usvit.studies.plan import make_plan
from usvit.studies.specification import StudyConfig

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "study.schema.json").read_text())

CONTENT = {
    "name": "tiny",
    "title": "A tiny study",
    "figures": ["accuracy", "auc_macro_ovr", "sensitivity.positive"],
    "settings": {
        "device": "cpu",
        "precision": "fp32",
        "model": {"weights": "scratch", "image_size": 32},
        "train": {"batch_size": 8, "steps": 6, "eval_every": 2},
        "split": {"folds": 2},
    },
    "grid": [{"datasets": ["phantom"], "models": ["timm:test_resnet", "timm:test_vit"], "recipes": ["demo"]}],
    "paper": {
        "source": "Nobody 2020",
        "table": "Table 0",
        "protocol": "not said",
        "rows": [
            {
                "dataset": "phantom",
                "model": "timm:test_vit",
                "printed_as": "Tiny/8",
                "figures": {"accuracy": "35%", "auc_macro_ovr": "0.99"},
            }
        ],
    },
}
"""What a study's file may hold."""

RESNET, VIT = (f"phantom-timm-{name}-demo-seed0" for name in ("test_resnet", "test_vit"))
"""Names of its two runs."""


def study_of(**changes) -> StudyConfig:
    return StudyConfig.model_validate({**CONTENT, **changes})


def write_study(path: Path, **changes) -> Path:
    path.write_text(yaml.safe_dump({**CONTENT, **changes}))
    return path


def make(root, out, *, engine=None, plan=None, **changes):
    """Run a study in this process, with one thread, without a word."""
    return execute(
        plan or make_plan(study_of(**changes)),
        engine=engine or Sequential(1),
        roots={"": root},
        out=out,
        command="usvit study tiny.yaml",
        progress=NoProgress(),
    )


def predictions(out: Path) -> dict[str, bytes]:
    """Run -> the bytes of its predictions."""
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/predictions.csv")}


@pytest.fixture(scope="session")
def finished(small_phantom, tmp_path_factory):
    """A study made to its end, one run after the other; not to be written to."""
    return make(small_phantom, tmp_path_factory.mktemp("study") / "finished")
