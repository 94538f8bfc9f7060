from dataclasses import replace

import highdicom as hd
import numpy as np
import pydicom
import pytest
from pydicom.sr.codedict import codes

from tests.programs import said, tool
from tests.scoring.dicom_out.product_cases import (
    KNOWN,
    SCORER,
    cut_source,
    iod_errors,
    make,
    odd_source,
    order,
    pseudonyms,
    row,
    rows,
    scored,
)
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY
from usvit.scoring.dicom_out.products import write_products
from usvit.scoring.dicom_out.structured_report import Predecessor
from usvit.scoring.dicom_out.study_report import ReportedItem, write_study_report


def written(tmp_path, n_frames=1, table=None, **more):
    item = cut_source(tmp_path, n_frames)
    table = table or rows(pseudonyms().item(item.name), n_frames)
    out, (product,) = make(tmp_path, item, table, ["sr"], **more)
    assert product.error_code is None
    return out / product.path


def groups_of(path):
    return hd.sr.srread(path).content.get_image_measurement_groups()


def values(group):
    return {
        (one.name.meaning, one.derivation and one.derivation.meaning): one.value for one in group.get_measurements()
    }


def evaluations(group):
    found = {}
    for one in group.get_qualitative_evaluations():
        item = one[0]
        found[item.name.value] = item.value.value
    return found


def test_values_are_read_back_as_they_stood_in_the_table(tmp_path):
    table = [row("a" * 16, p=0.7351234567890123, view_weight=0.1234567890123)]
    (group,) = groups_of(written(tmp_path, table=table))
    found = values(group)
    for name in SCORER.classes:
        assert found[f"Probability of class {name}", None] == table[0][f"prob_{name}"]
    assert found["Probability of cancer", None] == 0.7351234567890123
    assert found["Threshold of the decision", None] == 0.4
    assert found["Share of the image in the result of its study or patient", None] == 0.1234567890123
    assert found["Standard deviation over the ensemble's networks", None] == 0.0625
    assert {one.unit.value for one in group.get_measurements()} == {"1"}
    assert evaluations(group) == {"decision": codes.SCT.Malignant.value, "unusual": codes.SCT.No.value}


@pytest.mark.slow
def test_the_report_refers_to_its_instance_and_frames(tmp_path):
    path = written(tmp_path, 3, keep_ids=True)
    data = hd.sr.srread(path)
    assert data.get_evidence() == [
        (
            KNOWN["StudyInstanceUID"],
            KNOWN["SeriesInstanceUID"],
            KNOWN["SOPInstanceUID"],
            "1.2.840.10008.5.1.4.1.1.3.1",
        )
    ]
    numbers = [group.source_images[0].referenced_frame_numbers for group in groups_of(path)]
    assert numbers == [None, [1], [2], [3]]  # the roll-up is of all


@pytest.mark.slow
def test_of_a_loop_the_most_suspicious_frames_are_listed_after_a_roll_up(tmp_path):
    path = written(tmp_path, 40, most=5)
    roll_up, *frames = groups_of(path)
    expected = (np.arange(40) + 0.5) / 40
    found = values(roll_up)
    assert found["Probability of cancer", "Mean"] == pytest.approx(expected.mean(), abs=1e-14)
    assert found["Probability of cancer", "Maximum"] == expected.max()
    assert found["Frames scored", None] == 40
    assert found["Frames decided positive", None] == (expected >= 0.4).sum()
    assert [group.source_images[0].referenced_frame_numbers for group in frames] == [[n] for n in range(36, 41)]
    data = pydicom.dcmread(path)
    assert (data.CompletionFlag, data.CompletionFlagDescription) == ("PARTIAL", "5 of 40 scored frames listed")
    assert data.VerificationFlag == "UNVERIFIED"


@pytest.mark.slow
def test_a_loop_whose_other_frames_were_not_asked_for_names_its_frames(tmp_path):
    table = rows("a" * 16, 10)[::5]
    path = written(tmp_path, 10, table=table)
    assert groups_of(path)[0].source_images[0].referenced_frame_numbers == [1, 6]
    assert pydicom.dcmread(path).CompletionFlag == "COMPLETE"


@pytest.mark.slow
def test_frames_that_failed_make_the_report_partial(tmp_path):
    path = written(tmp_path, 3, table=rows("a" * 16, 3)[:2], n_failed=1)
    data = pydicom.dcmread(path)
    assert (data.CompletionFlag, data.CompletionFlagDescription) == ("PARTIAL", "1 frames not scored")
    assert values(groups_of(path)[0])["Frames that could not be scored", None] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "decision"),
    [
        ({"decision": ""}, "no_decision"),
        ({"p": 0.1}, "not_malignant"),
        ({"unusual": True, "decision": ""}, "no_decision"),
    ],
)
def test_a_decision_that_is_not_the_positive_class_has_a_code_of_ours(tmp_path, changes, decision):
    (group,) = groups_of(written(tmp_path, table=[row("a" * 16, **changes)]))
    assert evaluations(group)["decision"] == decision
    assert evaluations(group)["unusual"] == (codes.SCT.Yes if changes.get("unusual") else codes.SCT.No).value


def test_what_is_unknown_is_left_out(tmp_path):
    table = [row("a" * 16, threshold=None, novelty=float("nan"), spread_malignant="", decision="")]
    (group,) = groups_of(written(tmp_path, table=table))
    assert len(values(group)) == 4


@pytest.mark.slow
def test_every_group_says_what_it_is_for_and_by_whom(tmp_path):
    path = written(tmp_path, 2)
    for group in groups_of(path):
        text = {one.name.meaning: one.value for one in group[0].ContentSequence if one.ValueType == "TEXT"}
        assert text["Comment"] == RESEARCH_USE_ONLY
        assert text["Algorithm Version"] == SCORER.sha256
        assert "vit_b32" in text["Algorithm Name"]
    data = hd.sr.srread(path)
    assert data.ContentQualification == "RESEARCH"
    (context,) = data.content.get_observer_contexts()
    assert context.observer_identifying_attributes.manufacturer_name == "usvit"


@pytest.mark.slow
def test_the_same_job_writes_the_same_bytes_and_another_job_another_object(tmp_path):
    item = cut_source(tmp_path, 2)
    table = rows("a" * 16, 2)
    first, again = (make(tmp_path, item, table, ["sr"], out=name)[0] / f"dicom/{'a' * 16}-sr.dcm" for name in "ab")
    assert first.read_bytes() == again.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("keep_ids", [False, True], ids=["pseudonyms", "ids"])
@pytest.mark.parametrize("n_frames", [1, 3], ids=["still", "loop"])
def test_dciodvfy_finds_no_error(tmp_path, n_frames, keep_ids):
    table = rows("a" * 16, n_frames, view_weight=0.125)
    path = written(tmp_path, n_frames, table=table, keep_ids=keep_ids)
    assert iod_errors(path) == []
    total = values(groups_of(path)[0]).get(("Share of the image in the result of its study or patient", "Total"))
    assert total == (None if n_frames == 1 else 0.125 * n_frames)


@pytest.mark.slow
def test_dcmtk_reads_the_tree(tmp_path):
    path = written(tmp_path, 2, table=rows("a" * 16, 2, view_weight=0.25))
    tree = said(tool("dsrdump"), "-Er", "-Ec", "+Pl", path)
    for part in (
        "Comprehensive SR Document",
        "Probability of cancer",
        RESEARCH_USE_ONLY,
        "not_malignant",
        "=(US",
        "share of the image",
    ):
        assert part.lower() in tree.lower(), part
    assert "Share of the image in the result" in tree
    assert not [line for line in tree.splitlines() if line.startswith("E:")]
    assert "ComprehensiveSRStorage" in said(tool("dcmdump"), path)


@pytest.mark.slow
def test_a_successor_names_its_predecessor_and_is_another_object_of_the_series(tmp_path):
    item, table = cut_source(tmp_path), [row("a" * 16)]
    out, (product,) = make(tmp_path, item, table, ["sr"], keep_ids=True)
    first = pydicom.dcmread(out / product.path)
    assert "PredecessorDocumentsSequence" not in first
    found = []
    for name in "ab":
        later = replace(order(tmp_path, tmp_path / name, ["sr"], keep_ids=True), revision=2)
        (product,) = write_products(later, item, scored(item, table), predecessors=[Predecessor.of(first)])
        found.append(tmp_path / name / product.path)
    assert found[0].read_bytes() == found[1].read_bytes()
    data = pydicom.dcmread(found[0])
    (study,) = data.PredecessorDocumentsSequence
    (series,) = study.ReferencedSeriesSequence
    (instance,) = series.ReferencedSOPSequence
    assert study.StudyInstanceUID == first.StudyInstanceUID == data.StudyInstanceUID
    assert series.SeriesInstanceUID == first.SeriesInstanceUID == data.SeriesInstanceUID
    assert (instance.ReferencedSOPClassUID, instance.ReferencedSOPInstanceUID) == (
        first.SOPClassUID,
        first.SOPInstanceUID,
    )
    assert data.SOPInstanceUID != first.SOPInstanceUID
    assert iod_errors(found[0]) == []
    assert "Predecessor" in said(tool("dcmdump"), found[0])


@pytest.mark.slow
def test_a_report_of_a_study_lists_every_image_once(tmp_path):
    stills = [cut_source(tmp_path / name, SOPInstanceUID=f"1.2.3.{name}") for name in "78"]
    loop = cut_source(tmp_path / "9", 3, SOPInstanceUID="1.2.3.9")
    tables = [[row("a" * 16)], [row("b" * 16)], rows("c" * 16, 3)]
    sources = [
        ReportedItem(item, tuple(scored(item, table))) for item, table in zip([*stills, loop], tables, strict=True)
    ]
    product = write_study_report(order(tmp_path, tmp_path / "out", ["sr"], keep_ids=True), "s" * 16, sources)
    path = tmp_path / "out" / product.path
    data = hd.sr.srread(path)
    assert {instance for _, _, instance, _ in data.get_evidence()} == {"1.2.3.7", "1.2.3.8", "1.2.3.9"}
    groups = data.content.get_image_measurement_groups()
    shown = [(group.source_images[0].referenced_sop_instance_uid) for group in groups]
    assert [shown.count(f"1.2.3.{name}") for name in "789"] == [1, 1, 4]  # the loop has a roll-up
    assert iod_errors(path) == []


def test_images_of_two_patients_get_no_common_report(tmp_path):
    stills = [cut_source(tmp_path / name, SOPInstanceUID=f"1.2.3.{name}", PatientID=name) for name in "78"]
    sources = [ReportedItem(item, tuple(scored(item, [row("a" * 16)]))) for item in stills]
    product = write_study_report(order(tmp_path, tmp_path / "out", ["sr"], keep_ids=True), "s" * 16, sources)
    assert (product.path, product.error_code) == (None, "several_patients")


def test_a_retired_class_is_referred_to_by_its_own_name(tmp_path):
    item = odd_source(tmp_path, "retired class")
    out, (product,) = make(tmp_path, item, [row("a" * 16)], ["sr"])
    found = {
        str(one.value)
        for one in pydicom.dcmread(out / product.path).iterall()
        if one.keyword == "ReferencedSOPClassUID"
    }
    assert found == {"1.2.840.10008.5.1.4.1.1.6"}


def test_a_source_that_cannot_be_named_gets_no_report(tmp_path):
    item = cut_source(tmp_path, SOPClassUID="1.2.3.4711")
    data = pydicom.dcmread(item.location)
    data.file_meta.MediaStorageSOPClassUID = "1.2.3.4711"
    data.save_as(item.location)
    _, (product,) = make(tmp_path, item, [row("a" * 16)], ["sr"])
    assert (product.path, product.error_code) == (None, "no_reference")
