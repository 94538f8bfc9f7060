"""Own images without a card, as a clinic has them: an Excel table with its own columns, and the order of checks."""

import json
import os
import pty
import sys

import openpyxl
import pandas as pd
import pytest

from tests.conftest import TINY
from tests.data.conftest import save, speckle, write_csv
from usvit.data.datasets import OwnTable, build_manifest
from usvit.errors import UsvitError
from usvit.evaluation import evaluate
from usvit.experiments.api import run_config
from usvit.progress import NO_PROGRESS
from usvit.records import MetricsRecord, ModelMetadata, load_record

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


@pytest.mark.parametrize(("installed", "recipe"), [(True, "usvit_imagenet"), (False, "usvit_small")])
def test_without_a_hub_the_command_that_runs_these_images_is_shown(usvit, clinic, monkeypatch, installed, recipe):
    monkeypatch.setattr("usvit.models.weights.sources.is_installed", lambda package, pin: installed)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_CACHE", str(clinic / "no-cache"))
    own = ("--data-root", clinic, "--table", "liste.xlsx", *COLUMNS, "--positive", "Krebs")
    answer = usvit("train", *own, "--model", "vit_b32")
    said = " ".join(answer.err.split())
    assert answer.code == 2
    assert (
        f"usvit train --dataset table --data-root {clinic} --table liste.xlsx --positive Krebs --path-col Datei" in said
    )
    assert said.endswith(f"--recipe {recipe}")


@pytest.fixture
def lesions(tmp_path):
    """24 images of 12 patients with a lesion in each breast, as a German clinic lists them."""
    root = tmp_path / "clinic"
    rows = [["Datei", "Befund", "Fall-Nr.", "Herd", "Seite", "Termin"]]
    for number in range(24):
        save(speckle(number), root / "bilder" / f"{number}.png")
        side = "rechts" if number % 2 else "Links"
        case = f"K{number // 2}"
        rows.append(
            [f"bilder/{number}.png", "malignant" if number < 8 else "benign", case, f"{case}-{side}", side, f"T{case}"]
        )
    write_csv(root / "liste.csv", rows)
    return root


UNITS = (*COLUMNS, "--lesion-col", "Herd", "--side-col", "Seite", "--exam-col", "Termin")


@pytest.mark.slow
def test_units_of_an_own_table_reach_the_predictions_and_the_summary(usvit, lesions, tmp_path):
    answer = usvit("data", "prepare", "table", "--data-root", lesions, *UNITS, "--out", tmp_path / "m.parquet")
    assert answer.code == 0, answer.err
    assert "24 lesions (16 benign, 8 malignant)" in answer.out and "12 exams (8 benign, 4 malignant)" in answer.out
    assert "; 24 lesions; 12 exams." in answer.err
    answer = usvit("train", "--data-root", lesions, *UNITS, *TINY, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    table = pd.read_csv(tmp_path / "run" / "predictions.csv", dtype=str)
    assert {"lesion_id", "side", "exam_id"} <= {*table}
    assert set(table["side"]) == {"left", "right"}
    assert not table["lesion_id"].str.contains("K").any(), "private ids are pseudonyms"
    assert "label_level" not in json.loads((tmp_path / "run" / "run.json").read_text())["data"]


@pytest.mark.slow
def test_run_json_states_the_level_of_the_card(usvit, lesions, tmp_path):
    (lesions / "card.md").write_text(
        "---\nname: clinic\npretty_name: Clinic\nlicense: unclear\ncitation: Own.\nhost: mine\nhow_to_get: Ask.\n"
        "layout: liste.csv\nreader: table\nlabel_level: lesion\nclasses: {benign: 16, malignant: 8}\n"
        "columns: {path: Datei, label: Befund, patient_id: Fall-Nr., lesion_id: Herd, side: Seite}\n"
        "positive_class: malignant\npatient_ids: 'yes'\npatient_ids_from: Fall-Nr.\n---\n"
    )
    answer = usvit("train", "--dataset", lesions / "card.md", "--data-root", lesions, *TINY, "--out", tmp_path / "run")
    assert answer.code == 0, answer.err
    assert json.loads((tmp_path / "run" / "run.json").read_text())["data"]["label_level"] == "lesion"
    # The unit of the figures and thresholds is that of the labels, with the patient beside it.
    metrics = load_record(tmp_path / "run" / "metrics.json", MetricsRecord)
    assert metrics.unit.unit == "lesion" and metrics.patients is not None
    model = load_record(tmp_path / "run" / "fold-0" / "model.json", ModelMetadata)
    assert model.unit_thresholds.units.unit == "lesion"
    assert "One row is one lesion" in (tmp_path / "run" / "report.html").read_text()
    assert evaluate(tmp_path / "run").headline == metrics.headline
    assert evaluate(tmp_path / "run", unit="image").unit is None


def test_a_lesion_of_two_patients_ends_with_one_paragraph(usvit, lesions):
    path = lesions / "liste.csv"
    path.write_text(path.read_text().replace("K1,K1-Links", "K1,K0-Links"))
    answer = usvit("data", "audit", "--data-root", lesions, *UNITS)
    assert answer.code == 2
    said = answer.err.split("Error: ")[1]
    assert "belong to one lesion but have two patients" in said and "usvit data link" in said
    assert "Traceback" not in answer.err and "K0" not in answer.err and "bilder" not in answer.err
