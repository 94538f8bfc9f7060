"""The FHIR of a file is valid by the models of fhir.resources, and says what scores.csv says."""

import importlib
import json

import pytest

from tests.scoring.dicom_out.product_cases import KNOWN, cut_source, make, row, rows
from usvit.scoring.items import ScoringItem

pytest.importorskip("fhir.resources")
ID = "a" * 16


def written(tmp_path, item, table, **more):
    out, products = make(tmp_path, item, table, ["fhir"], **more)
    assert [(one.kind, one.error_code) for one in products] == [("fhir", None)]
    return (out / products[0].path).read_text()


def valid(text, version):
    package = ".R4B" if version == "R4B" else ""
    return importlib.import_module(f"fhir.resources{package}.bundle").Bundle.model_validate_json(text)


@pytest.mark.parametrize("version", ["R4B", "R5"])
def test_fhir_resources_takes_it_and_its_values_are_those_of_the_table(tmp_path, version):
    bundle = valid(written(tmp_path, cut_source(tmp_path, 3), rows(ID, 3)), version)
    report, *observations = [entry.resource for entry in bundle.entry]
    assert (
        report.status == "preliminary"
        and "RESEARCH USE ONLY" in report.conclusion
        and "0.833 (frame 3)" in report.conclusion
    )
    assert [one.reference for one in report.result] == [entry.fullUrl for entry in bundle.entry[1:]]
    assert [float(one.valueQuantity.value) for one in observations] == [0.5 / 3, 1.5 / 3, 2.5 / 3]
    assert [one.interpretation[0].coding[0].code for one in observations] == ["NEG", "POS", "POS"]
    numbers = {one.code.coding[0].code: one.valueQuantity for one in observations[0].component}
    assert float(numbers["prob_benign"].value) == 0.9 * (1 - 0.5 / 3) and float(numbers["threshold"].value) == 0.4
    assert {"prob_malignant", "prob_normal", "spread_malignant", "novelty", "unusual"} <= set(numbers)
    assert report.subject.identifier.value == observations[0].subject.identifier.value
    assert observations[0].derivedFrom[0].identifier.value.startswith("urn:oid:")


def test_it_names_nobody_unless_ids_are_kept(tmp_path):
    item = cut_source(tmp_path)
    text = written(tmp_path, item, [row(ID)])
    assert not [value for value in KNOWN.values() if value in text and value != "F"]
    kept = written(tmp_path, item, [row(ID)], out="kept", keep_ids=True)
    assert KNOWN["PatientID"] in kept and KNOWN["StudyInstanceUID"] in kept and KNOWN["PatientName"] not in kept


def test_without_a_decision_it_is_indeterminate_and_says_why(tmp_path):
    table = [row(ID, decision="", abstained="unusual", threshold=None, threshold_origin="", novelty=None)]
    bundle = json.loads(written(tmp_path, cut_source(tmp_path), table, n_failed=2))
    report, observation = (entry["resource"] for entry in bundle["entry"])
    (found,) = observation["interpretation"]
    assert found["coding"][0]["code"] == "IND" and found["text"] == "no decision: the image is unusual"
    codes = {one["code"]["coding"][0]["code"] for one in observation["component"]}
    assert not {"threshold", "novelty"} & codes and "2 frames could not be scored" in report["conclusion"]
    assert valid(json.dumps(bundle), "R5")


def test_a_picture_has_no_imaging_study_but_is_valid(tmp_path):
    from PIL import Image

    Image.new("L", (64, 64), 90).save(tmp_path / "scan.png")
    text = written(tmp_path, ScoringItem("scan.png", str(tmp_path / "scan.png")), [row(ID, kind="picture")])
    assert valid(text, "R5") and valid(text, "R4B")


def test_of_a_long_loop_the_most_suspicious_frames_are_listed(tmp_path):
    bundle = json.loads(written(tmp_path, cut_source(tmp_path, 20), rows(ID, 20)))
    assert len(bundle["entry"]) == 1 + 16
    assert "The 16 most suspicious are listed" in bundle["entry"][0]["resource"]["conclusion"]
