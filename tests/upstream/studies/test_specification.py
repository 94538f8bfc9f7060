"""A study's file: what it may say, and what is said where it cannot be."""

import re

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.upstream.studies.conftest import CONTENT, GRID, study_of, write_study
from usvit.errors import UsvitError
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import FigureColumn, StudyConfig, load_study


def test_one_name_may_stand_without_brackets():
    study = study_of(grid=[{"datasets": "phantom", "models": "vit_b32", "recipes": "demo"}], seeds=3)
    assert study.grid[0].models == ("vit_b32",) and study.seeds == (3,)


def test_columns_may_be_a_list_of_figures_or_a_mapping():
    assert study_of(columns=["accuracy"], rows=CONTENT["rows"][:1]).columns == {
        "accuracy": FigureColumn(figure="accuracy")
    }
    columns = study_of(
        columns={"a": "params", "b": {"figure": "accuracy", "of": "cv"}}, rows=CONTENT["rows"][:1]
    ).columns
    assert columns == {"a": FigureColumn(figure="params"), "b": FigureColumn(figure="accuracy", of=("cv",))}


def block(**changes):
    return {"grid": [{**GRID, **changes}]}


def row(**changes):
    return {"rows": [{**CONTENT["rows"][0], **changes}]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"column": ["accuracy"]}, ["column", "Nearest: columns"]),
        (block(modells=["x"]), ["modells", "of 'grid'", "Nearest: models"]),
        (row(modell="x"), ["modell", "of 'rows'", "Nearest: model"]),
        (row(steps={"cv": {"recip": "x"}}), ["recip", "of 'rows.steps.cv'", "Nearest: recipe"]),
        ({"steps": {"cv": {"run": "cv", "recip": "x"}}}, ["recip", "of 'steps.cv'", "Nearest: recipe"]),
        ({"steps": {"cv": {"recipe": "x"}}}, ["steps.cv lacks 'run'"]),
        ({"steps": {"cv": {"run": "fold"}}}, ["steps.cv.run", "'cv', 'train', 'pretrain'"]),
        ({"columns": True}, ["columns", "valid dictionary"]),
        ({"columns": ["acuracy"]}, ["acuracy", "Nearest: accuracy"]),
        ({"columns": ["sensitivity"]}, ["sensitivity.positive"]),
        ({"columns": {"a": {"figure": "params", "of": "cv"}}, **row()}, ["remove 'of'"]),
        ({"columns": {"a": {"figure": "accuracy", "tolerance": "small"}}, **row()}, ["'small'", "86.7%"]),
        (row(printed={"accuracy": "good"}), ["'good'", "86.7%"]),
        (row(printed={"acc": "0.8"}), ["'acc'", "not one of the columns (accuracy, auc_macro_ovr"]),
        (
            {"paper": None},
            ["study.yaml cannot be used: rows have printed figures, and 'paper' with their source is missing."],
        ),
        ({"paper": {**CONTENT["paper"], "source": ""}}, ["paper.source", "at least 1 character"]),
        ({"correlations": [["accuracy", "auc"]]}, ["correlations names 'auc'", "(accuracy, auc_macro_ovr"]),
        ({"correlations": [["accuracy", "accuracy"]]}, ["correlations names the column 'accuracy' twice"]),
        ({"columns": ["val_accuracy.zero"]}, ["val_accuracy.zero", "Nearest: val_accuracy"]),
        ({"seeds": [-1]}, ["seeds", "greater than or equal to 0"]),
        ({"seeds": []}, ["seeds", "at least 1"]),
        ({"rows": []}, ["neither 'rows' nor a 'grid'"]),
        ({"name": "../elsewhere"}, ["name", "../elsewhere"]),
        (block(variant="../x"), ["variant"]),
        ({"protocol": "kfold"}, ["protocol", "'cv' or 'train'"]),
    ],
)
def test_what_cannot_be_is_refused_by_name(tmp_path, changes, says):
    path = write_study(tmp_path / "study.yaml", **changes)
    with pytest.raises(UsvitError) as refused:
        load_study(str(path))
    assert all(text in str(refused.value) for text in [str(path), *says]), refused.value


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("- a list", "must be a mapping"),
        ("a: [", "is not valid YAML"),
        ("name: x", "lacks the key title"),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path, content, says):
    (tmp_path / "study.yaml").write_text(content)
    with pytest.raises(UsvitError, match=says):
        load_study(str(tmp_path / "study.yaml"))


def test_a_binary_file_or_a_folder_is_refused(tmp_path):
    (tmp_path / "study.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.yaml").mkdir()
    for name in ("study.yaml", "folder.yaml"):
        with pytest.raises(UsvitError):
            load_study(str(tmp_path / name))


def test_an_unknown_study_gets_the_nearest_name():
    with pytest.raises(UsvitError, match="Nearest: gheflati2022_table"):
        load_study("gheflati2022_tabel2")
    with pytest.raises(UsvitError, match="There is no study file"):
        load_study("nowhere.yaml")


PRINTED = {
    1: {
        "busi+b": {
            "resnet50": ("85.3%", "0.94"),
            "vgg16": ("82%", "0.92"),
            "inception_v3": ("80%", "0.92"),
            "nasnet_large": ("79%", "0.917"),
        }
    },
    2: {
        "busi+b": {
            "r_ti16": ("85.7%", "0.94"),
            "vit_s32": ("86%", "0.95"),
            "vit_b32": ("86.7%", "0.95"),
            "vit_ti16": ("85%", "0.94"),
            "r26_s32": ("86.4%", "0.95"),
        }
    },
    3: {
        "busi+b": {
            "r_ti16": ("82%", "0.92"),
            "vit_s32": ("82%", "0.92"),
            "vit_b32": ("81%", "0.91"),
            "vit_ti16": ("78%", "0.9"),
            "r26_s32": ("80%", "0.91"),
        }
    },
    4: {
        "b": {"vit_b32": ("74%", "0.8"), "resnet50": ("79%", "0.84")},
        "busi": {"vit_b32": ("82%", "0.91"), "resnet50": ("83%", "0.92")},
        "busi+b": {"vit_b32": ("86.7%", "0.95"), "resnet50": ("85.3%", "0.94")},
    },
}
"""Tables I to IV of Gheflati & Rivaz 2022: data set -> model -> Acc, AUC."""


@pytest.mark.parametrize("number", PRINTED)
def test_the_papers_tables_are_as_printed(number):
    study = load_study(f"gheflati2022_table{number}")
    found = {}
    for row in study.rows:
        dataset = (row.steps.get("cv") or study.steps["cv"]).dataset or study.steps["cv"].dataset
        found.setdefault(dataset, {})[row.model] = tuple(figure.text for figure in row.printed.values())
    assert found == PRINTED[number]


@pytest.mark.parametrize("number", [0, 1])
def test_the_files_of_the_manual_can_be_planned(number):
    text = (REPOSITORY / "docs" / "how-to" / "study.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 2
    assert make_plan(StudyConfig.model_validate(yaml.safe_load(blocks[number]))).runs
