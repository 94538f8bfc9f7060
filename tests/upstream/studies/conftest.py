"""Studies of seconds: two networks of half a million parameters on 48 phantom images."""

import json
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from usvit.progress import NoProgress
from usvit.upstream.studies.engines import Sequential
from usvit.upstream.studies.execution import execute
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import StudyConfig

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "study.schema.json").read_text())

CONTENT = {
    "name": "tiny",
    "title": "A tiny study",
    "columns": ["accuracy", "auc_macro_ovr", "sensitivity.positive"],
    "settings": {
        "device": "cpu",
        "precision": "fp32",
        "model": {"weights": "scratch", "image_size": 32},
        "train": {"batch_size": 8, "steps": 6, "eval_every": 2},
        "split": {"folds": 2},
    },
    "steps": {"cv": {"run": "cv", "dataset": "phantom", "recipe": "demo"}},
    "rows": [
        {"name": "Tiny ResNet", "model": "timm:test_resnet"},
        {"name": "Tiny/8", "model": "timm:test_vit", "printed": {"accuracy": "35%", "auc_macro_ovr": "0.99"}},
    ],
    "paper": {"key": "nobody2020", "source": "Nobody 2020", "table": "Table 0", "protocol": "not said"},
}
"""What a study's file may hold."""

GRID = {"datasets": ["phantom"], "models": ["timm:test_resnet", "timm:test_vit"], "recipes": ["demo"]}
"""A block that has the same two runs."""

CHAIN = {
    "name": "chain",
    "title": "A chain of runs",
    "columns": {
        "params": {"figure": "params", "tolerance": "0.1"},
        "upstream": {"figure": "val_accuracy", "of": "train", "tolerance": "1%"},
        "knn": {"figure": "accuracy", "of": "knn", "title": "kNN"},
        "both": {"figure": "accuracy", "of": ["knn", "few"]},
        "few": {"figure": "accuracy.2", "of": "few"},
    },
    "settings": {"device": "cpu", "precision": "fp32"},
    "steps": {
        "knn": {"run": "transfer", "how": "knn", "source": "cifar10", "weights": "${tuned}"},
        "train": {"run": "pretrain", "recipe": "deit"},
        "tuned": {"run": "pretrain", "recipe": "deit_384", "weights": "${train}"},
        "few": {
            "run": "transfer",
            "how": "fewshot",
            "source": "cifar10",
            "weights": "${train}",
            "settings": {"shots": [2]},
        },
    },
    "rows": [
        {"name": "DeiT-Ti", "model": "deit_ti", "printed": {"params": 5.7, "upstream": "20% to 30%", "knn": "99%"}},
        {"name": "again", "model": "deit_ti", "steps": {"few": None}},
        {"name": "SGD", "model": "deit_ti", "steps": {"tuned": {"settings": {"optim.name": "sgd"}}}},
    ],
    "paper": {"key": "nobody2020", "source": "Nobody 2020", "table": "Table 1", "protocol": "not said"},
}
"""A study whose runs need one another: two rows share their training, and two all but one setting."""

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


def make_chain(out, runs=None, engine=None, **changes):
    """Run the study of a chain at the tiny scale."""
    study = StudyConfig.model_validate({**CHAIN, **changes})
    return execute(
        make_plan(study, scale="tiny"),
        engine=engine or Sequential(1),
        roots={},
        out=out,
        command="usvit study chain.yaml --scale tiny",
        progress=NoProgress(),
        runs=runs,
    )


def predictions(out: Path) -> dict[str, bytes]:
    """Run -> the bytes of its predictions."""
    return {path.parent.name: path.read_bytes() for path in out.glob("runs/*/predictions.csv")}


@pytest.fixture(scope="session")
def finished(small_phantom, tmp_path_factory):
    """A study made to its end, one run after the other; not to be written to."""
    return make(small_phantom, tmp_path_factory.mktemp("study") / "finished")
