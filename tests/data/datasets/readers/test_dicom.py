import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import save, speckle, write_csv, write_dicom
from usvit.data.datasets.cards import DataCard, load_card
from usvit.data.datasets.identities import Identities
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.manifest import build_manifest
from usvit.data.io.decoding import read_image
from usvit.errors import UsvitError
from usvit.files import csv_text
from usvit.progress import NoProgress
from usvit.pseudonyms import Pseudonyms, default_key_path

CARD = load_card("dicom")


def mapped(**columns: str) -> DataCard:
    return DataCard.model_validate({**CARD.model_dump(), "columns": columns})


def opened(root: Path, card: DataCard = CARD):
    """What the reader finds and says, ids as they are."""
    return open_dataset(card, {"": root}, NoProgress(), Identities(kept=True))[1]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three studies of two patients: four stills and a loop of five frames."""
    root = tmp_path / "export"
    studies = [("A", "MRN-1", "1.2.1"), ("B", "MRN-1", "1.2.2"), ("C", "MRN-2", "1.2.3")]
    for number, (study, patient, uid) in enumerate(studies):
        tags = {"PatientID": patient, "StudyInstanceUID": uid, "AccessionNumber": f"ACC{study}"}
        write_dicom(root / study / f"IM{number}", speckle(number), **tags)
        write_dicom(root / study / f"IM{number}0.dcm", speckle(10 + number), **tags)
    loop = np.stack([speckle(20 + frame) for frame in range(5)])
    write_dicom(root / "C" / "IM20.dcm", loop, PatientID="MRN-2", StudyInstanceUID="1.2.3", AccessionNumber="ACCC")
    rows = [["A/IM0", "benign"], ["A/IM00.dcm", "benign"], ["B/IM1", "benign"], ["B/IM10.dcm", "malignant"]]
    write_csv(root / "labels.csv", [["path", "label"], *rows, ["C/IM2", "malignant"], ["C/IM20.dcm", "malignant"]])
    (root / "A" / "notes.txt").write_text("what was exported")
    (root / ".DS_Store").write_bytes(b"\0")
    return root


@pytest.mark.slow
def test_rows_matched_by_path_give_a_manifest_without_any_patient_id(root):
    manifest = build_manifest("dicom", {"": root}, NoProgress())
    table = manifest.table
    ids = Pseudonyms.of_key(default_key_path())
    names = ["A/IM0", "A/IM00.dcm", "B/IM1", "B/IM10.dcm", "C/IM2", "C/IM20.dcm"]
    assert list(table.image_id) == [*map(ids.item, names[:5]), f"{ids.item(names[5])}-2"]
    assert list(table.path) == names and list(manifest.shown.path) == [*map(ids.item, names)]
    assert list(table.label) == ["benign"] * 3 + ["malignant"] * 3
    assert set(table.patient_id) == {ids.patient("MRN-1"), ids.patient("MRN-2")}  # as usvit score calls them
    assert table.groupby("group_id").ngroups == 2
    assert set(table.device) == {"LOGIQ E9"}
    assert "MRN" not in csv_text(table)


def test_a_loop_gives_its_middle_frame_or_the_table_s(root):
    assert [record.frame for record in opened(root)] == [0, 0, 0, 0, 0, 2]
    assert (read_image(root / "C" / "IM20.dcm", 2) == speckle(22)[:, :, None]).all()
    text = (root / "labels.csv").read_text().replace("label\n", "label,frame\n").replace("nant\n", "nant,\n")
    text = text.replace("benign\n", "benign,\n").replace("C/IM20.dcm,malignant,", "C/IM20.dcm,malignant,4")
    (root / "labels.csv").write_text(text + "C/IM20.dcm,malignant,0\n")
    loop = opened(root)[-2:]
    assert [(record.image_id, record.frame) for record in loop] == [("C/IM20#4", 4), ("C/IM20#0", 0)]
    (root / "labels.csv").write_text(text.replace("malignant,4", "malignant,5"))
    with pytest.raises(
        UsvitError, match=r"row 7 of labels.csv: C/IM20.dcm has no frame 5; it has 5 frames, counted from 0"
    ):
        opened(root)


@pytest.mark.parametrize(
    ("column", "rows"),
    [
        ("study_instance_uid", [["1.2.1", "benign"], ["1.2.2", "benign"], ["1.2.3", "malignant"]]),
        ("accession_number", [["ACCA", "benign"], ["ACCB", "benign"], ["ACCC", "malignant"]]),
        ("patient_id", [["MRN-1", "benign"], ["MRN-2", "malignant"]]),
    ],
)
def test_a_row_may_speak_of_a_study_an_accession_or_a_patient(root, column, rows):
    write_csv(root / "labels.csv", [["key", "dx"], *rows])
    manifest_rows = opened(root, mapped(**{column: "key", "label": "dx"}))
    assert {record.path.as_posix(): record.label for record in manifest_rows} == {
        **dict.fromkeys(("A/IM0", "A/IM00.dcm", "B/IM1", "B/IM10.dcm"), "benign"),
        **dict.fromkeys(("C/IM2", "C/IM20.dcm"), "malignant"),
    }
    assert {record.patient_id for record in manifest_rows} == {"MRN-1", "MRN-2"}
    write_csv(root / "labels.csv", [["key", "dx"], *rows, rows[0]])
    with pytest.raises(UsvitError, match=f"is the second one with the {column} ") as caught:
        open_dataset(mapped(**{column: "key", "label": "dx"}), {"": root}, NoProgress())
    assert rows[0][0] not in str(caught.value), "an examination's number may tell who the patient is"


def test_a_row_may_name_the_instance(root):
    import pydicom

    rows = [[pydicom.dcmread(path).SOPInstanceUID, "benign"] for path in sorted(root.rglob("IM*"))]
    write_csv(root / "labels.csv", [["sop_instance_uid", "label"], *rows])
    assert len(opened(root, mapped())) == 6


def test_a_patient_of_the_table_goes_before_that_of_the_file(root):
    rows = [["A/IM0", "benign", "P1"], ["A/IM00.dcm", "benign", "P1"], ["B/IM1", "benign", ""]]
    rows += [["B/IM10.dcm", "malignant", "MRN-1"], ["C/IM2", "malignant", "P2"], ["C/IM20.dcm", "malignant", "P2"]]
    write_csv(root / "labels.csv", [["path", "label", "patient_id"], *rows])
    assert [record.patient_id for record in opened(root)] == ["P1", "P1", "MRN-1", "MRN-1", "P2", "P2"]


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda root: (root / "B/IM1").unlink(), r"row 4 of labels.csv: the file 'B/IM1' does not exist"),
        (lambda root: write_dicom(root / "D/IM9", speckle(9)), r"the DICOM file D/IM9 has no row in the table"),
        (lambda root: write_dicom(root / "D/SR1", None), r"the DICOM file D/SR1 has no pixels; move it out"),
        (lambda root: save(speckle(9), root / "A/shot.png"), r"A/shot.png is not a DICOM file; move it out"),
        (lambda root: (root / "A/raw").write_bytes(b"\1" * 500), r"A/raw is not a DICOM file; move it out"),
        (lambda root: (root / "A/bad.dcm").write_bytes(b"\1" * 500), r"A/bad.dcm cannot be used: it is not a DICOM f"),
        (lambda root: (root / "labels.csv").write_text("path,label\n,benign\n"), r"row 2 of labels.csv has no path"),
        (lambda root: (root / "labels.csv").write_text("file,label\na,b\n"), r"no column that identifies the file"),
        (lambda root: (root / "labels.csv").write_text("path,label\n../x,b\n"), r"'../x' leads out of the data root"),
        (lambda root: (root / "labels.csv").write_text("path,label\nA/notes.txt,b\n"), r"no DICOM file has the path"),
        (
            lambda root: (root / "labels.csv").write_text((root / "labels.csv").read_text() + "A/IM0,malignant\n"),
            r"row 2 of labels.csv and row 8 of labels.csv both have the id 'A/IM0'",
        ),
    ],
)
def test_each_file_needs_a_row_and_each_row_a_file(root, break_it, says):
    break_it(root)
    with pytest.raises(UsvitError, match=says):
        opened(root)


def test_no_column_that_tells_the_file_is_explained(root):
    write_csv(root / "labels.csv", [["dx"], ["benign"]])
    with pytest.raises(UsvitError, match=r"no column that identifies the file of a row.* path, sop_instance_uid"):
        opened(root, mapped(label="dx"))


@pytest.mark.slow
def test_pixels_that_cannot_be_decoded_are_named_before_any_work(root):
    path = root / "B" / "IM1"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(UsvitError, match=r"B/IM1: it ends before its pixels do"):
        build_manifest("dicom", {"": root}, NoProgress(), keep_ids=True)
    skipped = build_manifest("dicom", {"": root}, NoProgress(), skip_bad=True)
    assert len(skipped.table) == 5


def test_real_files_beside_a_table(tmp_path, real_data):
    root = shutil.copytree(real_data / "us_dicom", tmp_path / "us")
    names = sorted(path.name for path in root.iterdir())
    write_csv(root / "labels.csv", [["path", "label"], *([name, "ab"[i % 2]] for i, name in enumerate(names))])
    records = opened(root)
    assert {record.path.name: record.frame for record in records}["examples_ybr_color.dcm"] == 15
    assert {record.device for record in records} >= {"LOGIQ 700", "SSD-4000"}


def test_exam_and_side_come_from_the_header_unless_the_table_has_them(root):
    write_dicom(root / "A/IM0", speckle(0), PatientID="MRN-1", StudyInstanceUID="1.2.1", ImageLaterality="L")
    write_dicom(root / "A/IM00.dcm", speckle(1), PatientID="MRN-1", StudyInstanceUID="1.2.1", Laterality="R")
    names = ["A/IM0", "A/IM00.dcm", "B/IM1", "B/IM10.dcm", "C/IM2", "C/IM20.dcm"]
    rows = [[name, "benign", "rechts" if name == "B/IM1" else ""] for name in names]
    write_csv(root / "labels.csv", [["path", "label", "side"], *rows])
    records = opened(root)
    assert [record.side for record in records] == ["left", "right", "right", None, None, None]
    assert [record.exam_id for record in records] == ["1.2.1", "1.2.1", "1.2.2", "1.2.2", "1.2.3", "1.2.3"]
    rows = [[*row[:2], f"E{number}"] for number, row in enumerate(rows)]
    write_csv(root / "labels.csv", [["path", "label", "exam_id"], *rows])
    assert [record.exam_id for record in opened(root)] == [f"E{number}" for number in range(6)]


@pytest.mark.slow
def test_no_study_uid_is_written_where_pseudonyms_are_used(root):
    manifest = build_manifest("dicom", {"": root}, NoProgress())
    ids = Pseudonyms.of_key(default_key_path())
    assert set(manifest.table.exam_id) == {ids.study(uid) for uid in ("1.2.1", "1.2.2", "1.2.3")}
    assert "1.2.1" not in csv_text(manifest.shown)
    kept = build_manifest("dicom", {"": root}, NoProgress(), keep_ids=True)
    assert set(kept.table.exam_id) == {"1.2.1", "1.2.2", "1.2.3"}


def test_a_study_of_two_patients_says_how_to_name_exams(root):
    write_dicom(root / "A/IM00.dcm", speckle(10), PatientID="MRN-2", StudyInstanceUID="1.2.1")
    with pytest.raises(UsvitError, match=r"A/IM0 and A/IM00.dcm .* one exam but have two patients: .* column exam_id"):
        opened(root)
