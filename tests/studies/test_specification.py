"""A study's file: what it may say, and what is said where it cannot be."""

import pytest
import yaml

from tests.studies.conftest import CONTENT, study_of, write_study
from usvit.errors import UsvitError
from usvit.studies.specification import fraction, load_study, study_names


@pytest.mark.parametrize(
    ("printed", "value"), [("86.7%", 0.867), ("86.7 %", 0.867), ("82%", 0.82), ("0.917", 0.917), ("0.9", 0.9), ("1", 1)]
)
def test_a_printed_figure_is_read_as_the_number_that_it_is(printed, value):
    assert fraction(printed) == value


def test_one_name_may_stand_without_brackets():
    study = study_of(grid=[{"datasets": "phantom", "models": "vit_b32", "recipes": "demo"}], seeds=3)
    assert study.grid[0].models == ("vit_b32",) and study.seeds == (3,)


def block(**changes):
    return {"grid": [{**CONTENT["grid"][0], **changes}]}


def paper(**changes):
    return {"paper": {**CONTENT["paper"], "rows": [{**CONTENT["paper"]["rows"][0], **changes}]}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"figurs": ["accuracy"]}, ["figurs", "Nearest: figures"]),
        (block(modells=["x"]), ["modells", "of 'grid'", "Nearest: models"]),
        (paper(printd_as="x"), ["printd_as", "of 'paper.rows'", "Nearest: printed_as"]),
        ({"figures": ["acuracy"]}, ["acuracy", "Nearest: accuracy"]),
        ({"figures": ["sensitivity"]}, ["sensitivity.positive"]),
        ({"figures": ["accuracy.benign"]}, ["over all classes"]),
        (paper(figures={"accuracy": "good"}), ["'good'", "86.7%"]),
        (paper(figures={"acc": "0.8"}), ["Unknown figure 'acc'"]),
        ({"seeds": [-1]}, ["seeds", "greater than or equal to 0"]),
        ({"seeds": []}, ["seeds", "at least 1"]),
        ({"grid": []}, ["grid", "at least 1"]),
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
        ("name: x\ntitle: y", "lacks the key grid"),
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
    rows = load_study(f"gheflati2022_table{number}").paper.rows
    found = {}
    for row in rows:
        found.setdefault(row.dataset, {})[row.model] = (row.figures["accuracy"], row.figures["auc_macro_ovr"])
    assert found == PRINTED[number]


def test_every_shipped_study_is_named_as_its_file_and_tells_its_command():
    from usvit.resources import configs_dir

    assert len(study_names()) >= 4
    for name in study_names():
        text = (configs_dir() / "studies" / f"{name}.yaml").read_text()
        assert load_study(name).name == name == yaml.safe_load(text)["name"]
        assert f"#   usvit study {name}" in text
