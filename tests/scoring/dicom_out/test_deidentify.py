import datetime

import pydicom
import pytest
from pydicom.dataset import Dataset

from tests.scoring.dicom_out.product_cases import KNOWN, cut_source, odd_source, pseudonyms, source
from usvit.scoring.dicom_out.deidentify import evidence_of, object_uid, stamp
from usvit.scoring.items import ScoringItem

STARTED = datetime.datetime(2026, 11, 21, 20, 30, 15, 987654)


def evidence(tmp_path, item, keep_ids=False):
    header = pydicom.dcmread(item.location, stop_before_pixels=True)
    return evidence_of(header, item, pseudonyms(), keep_ids=keep_ids)


def test_no_value_of_the_source_is_in_the_evidence(tmp_path):
    found = evidence(tmp_path, source(tmp_path))
    text = str(found)
    assert [value for value in KNOWN.values() if value in text] == ["F"]  # letters of other words
    assert found.PatientSex == "" and "InstitutionName" not in found


def test_without_ids_the_objects_say_how_they_were_de_identified(tmp_path):
    found = evidence(tmp_path, source(tmp_path))
    assert found.PatientIdentityRemoved == "YES"
    assert found.LongitudinalTemporalInformationModified == "REMOVED"
    assert [code.CodeValue for code in found.DeidentificationMethodCodeSequence] == ["113100", "113105"]
    for keyword in ("StudyDate", "StudyTime", "AccessionNumber", "StudyID", "ReferringPhysicianName"):
        assert found[keyword].is_empty


def test_pseudonyms_are_those_of_the_tables(tmp_path):
    names = pseudonyms()
    found = evidence(tmp_path, source(tmp_path))
    assert found.PatientID == names.patient("MRN-4711")
    assert str(found.PatientName) == f"{found.PatientID}^"
    for keyword in ("StudyInstanceUID", "SeriesInstanceUID", "SOPInstanceUID"):
        assert found[keyword].value == names.uid(KNOWN[keyword])


def test_a_tables_patient_stands_for_the_headers(tmp_path):
    item = source(tmp_path)
    item = ScoringItem(item.name, item.location, patient="P-1")
    assert evidence(tmp_path, item).PatientID == pseudonyms().patient("P-1")


def test_with_ids_everything_files_beside_its_source(tmp_path):
    found = evidence(tmp_path, source(tmp_path), keep_ids=True)
    for keyword, value in KNOWN.items():
        if keyword != "InstitutionName":  # of no use to file by
            assert str(found[keyword].value) == value
    assert "PatientIdentityRemoved" not in found


def test_what_somebody_removed_before_us_stays_removed(tmp_path):
    item = source(tmp_path, PatientIdentityRemoved="YES", DeidentificationMethod="by hand")
    found = evidence(tmp_path, item, keep_ids=True)
    assert (found.PatientIdentityRemoved, found.DeidentificationMethod) == ("YES", "by hand")


def test_people_without_an_id_are_not_one_person(tmp_path):
    names = pseudonyms()
    one, other = (evidence_of(None, ScoringItem(name, name), names, keep_ids=False) for name in ("a.png", "b.png"))
    assert one.PatientID and other.PatientID and one.PatientID != other.PatientID
    assert one.StudyInstanceUID != other.StudyInstanceUID
    assert one.SOPClassUID == one.SOPInstanceUID == ""


def test_with_ids_a_picture_is_filed_under_its_tables_patient_or_its_own_pseudonym(tmp_path):
    names = pseudonyms()
    found = [
        evidence_of(None, ScoringItem("a", "a", patient=who), names, keep_ids=True).PatientID for who in ("P-1", None)
    ]
    assert found == ["P-1", names.item("a")]


def test_missing_uids_are_made_up_the_same_each_time(tmp_path):
    item = odd_source(tmp_path, "no series")
    first, again = (evidence(tmp_path, item, keep_ids=True) for _ in range(2))
    assert first.SeriesInstanceUID == again.SeriesInstanceUID
    assert first.SeriesInstanceUID.startswith("2.25.")
    assert first.StudyInstanceUID == KNOWN["StudyInstanceUID"]


@pytest.mark.parametrize("name", ["dates that are none", "another sex"])
def test_what_is_no_date_or_sex_is_left_empty(tmp_path, name):
    found = evidence(tmp_path, odd_source(tmp_path, name), keep_ids=True)
    assert found.PatientID == "MRN-4711"
    empty = ("PatientSex",) if name == "another sex" else ("PatientBirthDate", "StudyDate", "StudyTime")
    assert all(found[keyword].value == "" for keyword in empty)


def test_names_in_other_letters_are_kept(tmp_path):
    found = evidence(tmp_path, odd_source(tmp_path, "other letters"), keep_ids=True)
    assert str(found.PatientName) == "Müller^Jörg"
    assert found.SpecificCharacterSet == "ISO_IR 192"


def test_a_class_that_is_no_image_of_ultrasound_is_not_named(tmp_path):
    item = cut_source(tmp_path, SOPClassUID="1.2.3.4711")
    assert evidence(tmp_path, item).SOPClassUID == ""


def test_values_that_cannot_be_read_are_absent(tmp_path):
    header = Dataset()
    header.add_new("NumberOfFrames", "IS", "1")
    header["NumberOfFrames"]._value = "many"
    header.Rows = 10
    found = evidence_of(header, ScoringItem("x", "x"), pseudonyms(), keep_ids=False)
    assert (found.NumberOfFrames, found.Rows, found.Columns) == (1, 10, 0)


def test_the_moment_of_writing_leaves_no_trace(tmp_path):
    data = Dataset()
    data.InstanceCreationDate, data.InstanceCreationTime = "20261121", "203100"
    data.ContributingEquipmentSequence = [Dataset()]
    stamp(data, evidence(tmp_path, source(tmp_path)), started=STARTED, structured=True)
    assert "InstanceCreationDate" not in data and "ContributingEquipmentSequence" not in data
    assert (str(data.ContentDate), str(data.ContentTime)) == ("20261121", "203015")
    assert [code.CodeValue for code in data.DeidentificationMethodCodeSequence] == ["113100", "113105", "113104"]


def test_uids_of_objects_are_stable_and_different(tmp_path):
    names = pseudonyms()
    uids = {object_uid(names, "1.2.3", kind) for kind in ("sr", "sc", "sr")}
    assert len(uids) == 2 and all(pydicom.uid.UID(uid).is_valid for uid in uids)
