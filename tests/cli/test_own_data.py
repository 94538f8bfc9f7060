"""Own images without a card, as a clinic has them: an Excel table with its own columns, and the order of checks."""

import json
import os
import pty
import sys

import openpyxl
import pytest

from tests.conftest import TINY
from tests.data.conftest import save, speckle
from usvit.data.datasets import OwnTable, build_manifest
from usvit.errors import UsvitError
from usvit.experiments.api import run_config
from usvit.progress import NO_PROGRESS

COLUMNS = ("--path-col", "Datei", "--label-col", "Befund", "--patient-col", "Fall-Nr.")


@pytest.fixture(scope="module")
def clinic(tmp_path_factory):
    """24 images of 12 patients in an Excel table, beside a table of something else."""
    root = tmp_path_factory.mktemp("clinic")
    book = openpyxl.Workbook()
    book.active.append(["Datei", "Befund", "Fall-Nr."])
    for number in range(24):
        save(speckle(number), root / "bilder" / f"{number}.png")
        book.active.append([f"bilder/{number}.png", "Krebs" if number < 12 else "gutartig", f"K{number // 2}"])
    book.save(root / "liste.xlsx")
    (root / "other.csv").write_text("a,b\n1,2\n")
    return root


def test_all_missing_columns_are_named_at_once_with_their_options(usvit, clinic):
    answer = usvit("data", "audit", "--data-root", clinic, "--table", "liste.xlsx")
    said = " ".join(answer.err.split())
    assert answer.code == 2
    assert "no column 'path' and no column 'label'" in said
    assert "--path-col COL --label-col COL" in said
    assert "Fall-Nr." not in said  # a log may be read by others


def test_columns_are_shown_on_the_users_own_terminal(clinic, monkeypatch):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, os.fdopen(ours, "rb"):
        monkeypatch.setattr(sys, "stderr", terminal)
        with pytest.raises(UsvitError, match=r"It has: Datei, Befund, Fall-Nr\.\."):
            build_manifest("table", {"": clinic}, NO_PROGRESS, own=OwnTable("liste.xlsx"))


@pytest.mark.slow
def test_an_excel_table_with_other_names_is_trained_audited_and_reported(usvit, clinic, tmp_path):
    own = ("--data-root", clinic, "--table", clinic / "liste.xlsx", *COLUMNS, "--positive", "Krebs")
    out = tmp_path / "run"
    answer = usvit("train", *own, *TINY, "--out", out)
    assert answer.code == 0, answer.err
    assert "gutartig 12, Krebs 12" in answer.err or "Krebs 12, gutartig 12" in answer.err
    assert "12 patients, by the table" in answer.err
    record = json.loads((out / "run.json").read_text())
    assert record["data"]["positive_class"] == "Krebs"
    assert record["data"]["grouping"]["patient"] == 24
    assert usvit("report", out, "--data-root", clinic, "--include-images").code == 0
    assert "data:image/jpeg" in (out / "report.html").read_text()  # the table is found again
    assert usvit("data", "audit", *own, "--out", tmp_path / "audit").code == 0
    answer = usvit("data", "audit", *own[:-1], "Kerbs", "--out", tmp_path / "audit2")
    assert (answer.code, "positive class" in answer.err) == (2, True)


def test_a_table_is_refused_for_a_data_set_that_has_none(usvit, clinic):
    answer = usvit("cv", "--dataset", "busi", "--data-root", clinic, "--path-col", "Datei")
    assert (answer.code, "read from a table" in answer.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"dataset": "bsui", "model": "vit_ti16"}, "Unknown data set 'bsui'. Nearest: busi"),
        ({"model": "timm:no_such", "overrides": {"train.stpes": 3}}, "Unknown setting 'train.stpes'"),
        ({"model": "timm:no_such", "sections": {"trian__steps": 3}}, "Unknown setting 'trian'"),
    ],
)
def test_a_data_set_and_settings_are_checked_before_networks_are_looked_up(arguments, says):
    with pytest.raises(UsvitError, match=says):
        run_config(**arguments)


def test_without_a_hub_the_command_that_runs_these_images_is_shown(usvit, clinic, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(clinic / "no-cache"))
    own = ("--data-root", clinic, "--table", "liste.xlsx", *COLUMNS, "--positive", "Krebs")
    answer = usvit("train", *own, "--model", "vit_b32")
    said = " ".join(answer.err.split())
    assert answer.code == 2
    assert (
        f"usvit train --dataset table --data-root {clinic} --table liste.xlsx --positive Krebs --path-col Datei" in said
    )
    assert said.endswith("--recipe usvit_small")
