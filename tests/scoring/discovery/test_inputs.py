import os
import shutil
import subprocess
import tracemalloc
import zipfile
from pathlib import Path

import openpyxl
import pytest
from pydicom.data import get_testdata_file
from pydicom.fileset import FileSet

from tests.data.conftest import speckle, write_dicom
from tests.scoring.discovery.test_archives import write_zip
from tests.scoring.discovery.test_folders import make, nobody  # noqa: F401
from usvit.errors import UsvitError
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.items import FAILURES, ScoringItem


def found(*inputs, exclude=None):
    return list(discover([str(one) for one in inputs], exclude))


def names(*inputs, **options):
    return [item.name for item in found(*inputs, **options)]


def problems(*inputs):
    return {item.name: item.problem for item in found(*inputs) if item.problem}


def refusal(*inputs, **options):
    with pytest.raises(UsvitError) as caught:
        found(*inputs, **options)
    return str(caught.value)


# Names


def test_names_are_below_the_one_input(tmp_path):
    make(tmp_path / "export", "b/IM10", "b/IM2", "a")
    assert names(tmp_path / "export") == names(f"{tmp_path}/export/") == ["a", "b/IM2", "b/IM10"]
    assert names(tmp_path / "export" / "a") == ["a"]


def test_a_glob_gives_a_file_the_name_that_its_folder_gives(tmp_path):
    make(tmp_path / "export", "b/IM1.dcm", "b/c/IM2.dcm", "b/d.png", "x.dcm")
    assert names(tmp_path / "export/**/*.dcm") == ["b/IM1.dcm", "b/c/IM2.dcm", "x.dcm"]
    assert names(tmp_path / "export/**") == names(tmp_path / "export")
    assert names(tmp_path / "export/b/*.dcm") == ["IM1.dcm"]


def test_names_do_not_depend_on_where_one_stands(tmp_path, monkeypatch):
    make(tmp_path / "export", "b/IM1", "x")
    monkeypatch.chdir(tmp_path / "export")
    for text in (".", "*", "**", "../export", "./b/.."):
        assert names(text) == ["b/IM1", "x"]
    assert all(Path(item.location).is_absolute() for item in found("."))


def test_with_several_inputs_the_base_name_comes_first(tmp_path, monkeypatch):
    make(tmp_path, "one/x", "two/in/x", "three.dcm", "four/y.png", "four/y.dcm")
    monkeypatch.chdir(tmp_path)
    assert names("two/", "one", "three.dcm", "four/*.dcm") == ["two/in/x", "one/x", "three.dcm", "four/y.dcm"]
    monkeypatch.chdir(tmp_path / "one")
    assert names(".", "../two") == ["one/x", "two/in/x"]


def test_two_inputs_of_one_name_are_refused(tmp_path):
    make(tmp_path, "a/export/x", "b/export/y", "a/z.dcm", "b/z.dcm")
    text = refusal(tmp_path / "a" / "export", tmp_path / "b" / "export")
    assert str(tmp_path / "a" / "export") in text and "the folder that holds both" in text
    assert "the same name" in refusal(tmp_path / "a" / "z.dcm", tmp_path / "b" / "z.dcm")
    assert "the same name" in refusal(tmp_path / "a/export/*", tmp_path / "b" / "export")
    assert names(tmp_path / "a" / "*.dcm", tmp_path / "a" / "**/x") == ["a/z.dcm", "a/export/x"]


def test_an_input_given_twice_is_one_input(tmp_path):
    make(tmp_path / "export", "x")
    assert names(tmp_path / "export", tmp_path / "export") == ["x"]


def test_a_name_that_looks_like_a_member_clashes_with_none(tmp_path):
    make(tmp_path, "e/a.zip!b/x", "e/c/y", "e/a.zip!", "e/a!")
    write_zip(tmp_path / "e" / "a.zip", [("b/x", b"1")])
    write_zip(tmp_path / "e" / "a", [("!", b"1"), ("z", b"1")])
    write_zip(tmp_path / "e" / "c" / "q.zip", [("b/x", b"1")])
    got = names(tmp_path / "e")
    assert len(set(got)) == len(got) == 8
    assert {"a.zip!//b/x", "a.zip!b/x", "c/q.zip!b/x", "a!//!"} <= set(got)


def test_a_name_is_hidden_in_a_repr(tmp_path):
    make(tmp_path, "Doe^Jane.dcm")
    assert "Jane" not in repr(found(tmp_path))


# What comes


def test_one_file_through_several_inputs_comes_once(tmp_path):
    make(tmp_path, "export/a/x", "export/b/y", "z", "outside/o")
    (tmp_path / "export" / "link").symlink_to(tmp_path / "z")
    (tmp_path / "export" / "far").symlink_to(tmp_path / "outside")
    os.link(tmp_path / "z", tmp_path / "export" / "second_name_of_z")
    export = tmp_path / "export"
    assert names(export / "b", export, tmp_path / "z", tmp_path / "outside") == [
        *("b/y", "export/a/x", "export/link", "export/second_name_of_z", "outside/o"),
    ]
    assert names(export / "**/y", export / "b" / "y", export) == [
        *("export/b/y", "export/a/x", "export/far/o", "export/link", "export/second_name_of_z"),
    ]


def test_every_code_of_a_problem_has_a_sentence(tmp_path):
    make(tmp_path, "x")
    (tmp_path / "gone").symlink_to("nothing")
    (tmp_path / "loop").symlink_to(".")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bad.zip").write_bytes(b"PK\3\4 and no more")
    assert problems(tmp_path) == {"bad.zip": "archive", "gone": "not_found", "loop": "loop", "pipe": "not_an_image"}
    assert set(problems(tmp_path).values()) <= set(FAILURES)


def test_a_pipe_given_itself_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert problems(tmp_path / "pipe") == {"pipe": "not_an_image"}


def test_files_that_may_not_be_read_are_items(nobody):  # noqa: F811
    make(nobody, "a", "b")
    (nobody / "a").chmod(0o000)
    assert problems(nobody) == problems(nobody / "a") == {"a": "unreadable"}
    (nobody / "shut").mkdir(mode=0o000)
    assert problems(nobody) == {"a": "unreadable", "shut": "unreadable"}
    assert "cannot be listed" in refusal(nobody / "shut")
    assert "cannot be read" in refusal(nobody / "shut" / "x")
    (nobody / "shut").chmod(0o700)


def test_results_inside_the_input_are_left_out(tmp_path):
    make(tmp_path / "export", "x", "scores/scores.csv")
    assert names(tmp_path / "export", exclude=tmp_path / "export" / "scores") == ["x"]
    assert names(tmp_path / "export/**/*", exclude=tmp_path / "export" / "scores") == ["x"]
    assert "beside the output folder" in refusal(tmp_path / "export", exclude=tmp_path / "export")


def test_an_output_folder_that_is_made_meanwhile_is_left_out(tmp_path):
    make(tmp_path / "export", "x", "y/z")
    items = discover([str(tmp_path / "export")], tmp_path / "export" / "y" / "out")
    got = [next(items).name]
    make(tmp_path / "export", "y/out/scores.csv")
    assert got + [item.name for item in items] == ["x", "y/z"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_files(tmp_path):
    for number in range(900):
        folder = tmp_path / f"{number // 30}"
        folder.mkdir(exist_ok=True)
        (folder / f"{number}").touch()

    def peak(*inputs):
        tracemalloc.start()
        count = sum(1 for _ in discover([str(one) for one in inputs]))
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return count, top

    peak(tmp_path / "0")
    few, many = peak(tmp_path / "1"), peak(tmp_path)
    assert (few[0], many[0]) == (30, 900)
    assert many[1] < few[1] + 100_000  # as lists of items they would take 400,000


@pytest.mark.slow
def test_twenty_thousand_files_in_one_folder(tmp_path):
    for number in range(20_000):
        os.close(os.open(tmp_path / f"IM{number}", os.O_CREAT | os.O_WRONLY))
    assert names(tmp_path) == [f"IM{number}" for number in range(20_000)]


# Archives


@pytest.mark.slow
def test_an_archive_is_told_by_its_content_wherever_it_is_met(tmp_path):
    make(tmp_path, "e/x", "e/not_one.zip")
    path = write_zip(tmp_path / "e" / "IM1", [("c/IM2", b"1"), ("c/IM1", b"2")])
    assert names(tmp_path / "e") == ["IM1!c/IM1", "IM1!c/IM2", "not_one.zip", "x"]
    assert names(path) == names(tmp_path / "e/I*") == ["IM1!c/IM1", "IM1!c/IM2"]
    assert names(path, tmp_path / "e" / "x") == ["IM1!c/IM1", "IM1!c/IM2", "x"]
    for item in found(path):
        with zipfile.ZipFile(item.location) as archive:
            assert archive.read(item.member) == (b"2" if item.member == "c/IM1" else b"1")


def test_a_document_is_one_file(tmp_path):
    book = openpyxl.Workbook()
    book.save(tmp_path / "report.xlsx")
    make(tmp_path, "x")
    assert found(tmp_path)[0] == ScoringItem("report.xlsx", str(tmp_path / "report.xlsx"))


def test_an_archive_made_by_zip(tmp_path):
    if shutil.which("zip") is None:
        pytest.skip("zip is not installed")
    make(tmp_path / "export", "b/IM10", "b/IM2", "Ž/ü x")
    subprocess.run(["zip", "-qr", "../e.zip", "."], cwd=tmp_path / "export", check=True)
    assert [name.removeprefix("e.zip!") for name in names(tmp_path / "e.zip")] == names(tmp_path / "export")


# Tables


def table(folder, *lines, name="inputs.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_table_names_files_frames_patients_and_studies(tmp_path):
    make(tmp_path, "e/a/x", "e/y", "z")
    path = table(
        tmp_path / "e",
        "path,frame,patient_id,study_id,side,remark",
        "y,,p1,s1,,kept in its place",
        "./a/x,3,p2,,Rechts,",
        "../z,0,,,,",
        f"{tmp_path}/e/gone,,p3,,,",
        r"a\..\a\x,5,p2,,L,from Windows",
    )
    assert found(path) == [
        ScoringItem("y", str(tmp_path / "e/y"), patient="p1", study="s1"),
        ScoringItem("a/x//3", str(tmp_path / "e/a/x"), frame=3, patient="p2", side="right"),
        ScoringItem("../z", str(tmp_path / "z"), frame=0),
        ScoringItem("gone", str(tmp_path / "e/gone"), patient="p3", problem="not_found"),
        ScoringItem("a/x//5", str(tmp_path / "e/a/x"), frame=5, patient="p2", side="left"),
    ]


def test_a_side_that_is_no_side_is_refused_without_quoting_it(tmp_path):
    make(tmp_path, "x")
    with pytest.raises(UsvitError, match="the side is not known") as said:
        found(table(tmp_path, "path,side", "x,Meyer"))
    assert "Meyer" not in str(said.value)


def test_a_table_gives_a_file_the_name_that_its_folder_gives(tmp_path):
    make(tmp_path / "e", "a/x", "y")
    path = table(tmp_path / "e", "path,frame", "a/x,2", "y,")
    assert names(path) == ["a/x", "y"]
    assert names(path, tmp_path / "e") == ["e/a/x", "e/y", "e/inputs.csv"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t.tsv", "t.CSV", "t.xlsx", "t.parquet"])
def test_tables_of_every_kind(tmp_path, name):
    import pandas as pd

    make(tmp_path, "a b", "ü")
    rows = pd.DataFrame({"path": ["ü", "a b"], "frame": [None, 2], "patient_id": ["007", "8"]})
    path = tmp_path / name
    if name.endswith("xlsx"):
        rows.to_excel(path, index=False)
    elif name.endswith("parquet"):
        rows.to_parquet(path)
    else:
        rows.to_csv(path, index=False, sep="\t" if name.endswith("tsv") else ";")
    assert found(path) == [
        ScoringItem("ü", str(tmp_path / "ü"), patient="007"),
        ScoringItem("a b", str(tmp_path / "a b"), frame=2, patient="8"),
    ]


def test_an_archive_in_a_table_has_its_patient_and_frames(tmp_path):
    write_zip(tmp_path / "a.zip", [("m", b"1"), ("n", b"1")])
    path = table(tmp_path, "path,frame,patient_id", "a.zip,1,p", "a.zip,2,p")
    assert [(item.name, item.member, item.frame, item.patient) for item in found(path)] == [
        ("a.zip!m//1", "m", 1, "p"),
        ("a.zip!n//1", "n", 1, "p"),
        ("a.zip!m//2", "m", 2, "p"),
        ("a.zip!n//2", "n", 2, "p"),
    ]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["file,frame", "Doe.dcm,1"], "no column 'path'"),
        (["Doe.dcm,1", "Roe.dcm,2"], "no column 'path'"),
        (["path,frame", "Doe.dcm,first"], "Row 2 of {}: the frame is not an integer"),
        (["path,frame", "x,", "Doe.dcm,-1"], "Row 3 of {}: the frame is not an integer"),
        (["path,frame", "Doe.dcm,1.5"], "not an integer"),
        (["path,frame", "Doe.dcm,1", "./Doe.dcm,1.0"], "Rows 2 and 3 of {} name the same frame"),
        (["path,frame", "Doe.dcm,1", "x,", "Doe.dcm,"], "Rows 2 and 4"),
        (["path,frame", "Doe.dcm,", "Doe.dcm,4"], "Rows 2 and 3"),
        (["path,frame", ",1"], "Row 2 of {} has no path"),
        (["path", "Doe"], "Row 2 of {} names a folder"),
        (["path,frame"], "cannot be read"),
        (["path,frame", "Doe.dcm,1,Doe,Jane"], "a row has more cells"),
        (["path,frame", "x,", "Doe.dcm,1,Doe,Jane"], "line 3 has more cells"),
    ],
)
def test_a_table_that_is_wrong_is_told_by_row_and_never_quoted(tmp_path, lines, says):
    (tmp_path / "Doe").mkdir()
    path = table(tmp_path, *lines)
    text = refusal(path)
    assert says.format(path) in text
    assert "Doe" not in text.replace(str(path), "")


@pytest.mark.slow
def test_a_table_that_is_none(tmp_path):
    (tmp_path / "t.xlsx").write_bytes(b"no workbook")
    assert "cannot be read" in refusal(tmp_path / "t.xlsx")
    (tmp_path / "t.csv").write_bytes(b"")
    assert "cannot be read" in refusal(tmp_path / "t.csv")


# DICOMDIR


@pytest.fixture
def cd(tmp_path):
    """A CD with six instances."""
    files = FileSet()
    for number in range(6):
        path = write_dicom(tmp_path / "loose" / f"{number}", speckle(number), PatientName="A", StudyDate="20200101")
        from pydicom import dcmread

        dataset = dcmread(path)
        dataset.StudyTime, dataset.StudyID, dataset.AccessionNumber = "1", "1", ""
        dataset.SeriesInstanceUID, dataset.SeriesNumber, dataset.InstanceNumber = "1.2.5", 1, number + 1
        dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = f"1.2.3.{number + 1}"
        files.add(dataset)
    files.write(tmp_path / "cd")
    return tmp_path / "cd"


def on_disk(folder):
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
def test_a_dicomdir_gives_its_files_under_the_names_that_its_folder_gives(cd):
    assert sorted([*names(cd / "DICOMDIR"), "DICOMDIR"]) == on_disk(cd) == sorted(names(cd))
    assert problems(cd / "DICOMDIR") == {}
    assert "DICOMDIR" in names(cd)  # met on the way, it is a file like others


@pytest.mark.slow
def test_files_of_a_cd_are_found_in_any_case(cd):
    for path in sorted(cd.rglob("*"), reverse=True):
        if path.name != "DICOMDIR":
            path.rename(path.with_name(path.name.lower() + (".;1" if path.is_file() else "")))
    got = names(cd / "DICOMDIR")
    assert sorted([*got, "DICOMDIR"]) == on_disk(cd)
    assert all(name.endswith(".;1") and name == name.lower() for name in got)


@pytest.mark.slow
def test_a_file_that_is_missing_on_the_cd_is_not_found(cd):
    gone = names(cd / "DICOMDIR")[2]
    (cd / gone).unlink()
    assert problems(cd / "DICOMDIR") == {gone: "not_found"}


@pytest.mark.slow
def test_a_reference_that_climbs_out_is_not_followed(cd):
    from pydicom import dcmread

    make(cd.parent, "secret")
    index = dcmread(cd / "DICOMDIR")
    images = [record for record in index.DirectoryRecordSequence if "ReferencedFileID" in record]
    images[0].ReferencedFileID = ["..", "secret"]
    images[1].ReferencedFileID = f"{cd.parent}/secret"
    images[2].ReferencedFileID = [".", ".."]
    index.save_as(cd / "DICOMDIR")
    got = found(cd / "DICOMDIR")
    assert [item.problem for item in got] == ["not_found"] * 3 + [None] * 3


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DICOMDIR", "DICOMDIR-implicit", "DICOMDIR-bigEnd", "DICOMDIR-nopatient"])
def test_the_dicomdirs_of_pydicom(name):
    path = Path(get_testdata_file(f"dicomdirtests/{name}", download=False))
    got = found(path)
    assert len(got) > 10
    assert all((item.problem == "not_found") != Path(item.location).is_file() for item in got)


@pytest.mark.slow
def test_a_damaged_dicomdir_is_told(cd):
    raw = (cd / "DICOMDIR").read_bytes()
    (cd / "DICOMDIR").write_bytes(raw[:400])
    assert str(cd / "DICOMDIR") in refusal(cd / "DICOMDIR")


# Bad inputs


def test_inputs_that_are_none(tmp_path):
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    assert "No input" in refusal()
    assert "No input" in refusal("")
    assert f"{tmp_path}/gone does not exist" in refusal(tmp_path / "gone")
    assert f"{tmp_path}/gone/*.dcm matches no file" in refusal(tmp_path / "gone" / "*.dcm")
    assert f"nothing to score: no file in {tmp_path}/empty" in refusal(tmp_path / "empty")
    assert "does not exist" in refusal("a\0b")
    (tmp_path / "dangling").symlink_to("nothing")
    assert "does not exist" in refusal(tmp_path / "dangling")


def test_everything_wrong_is_said_before_the_first_item(tmp_path):
    make(tmp_path, "good/x")
    for bad in ("gone", "good/*.dcm"):
        with pytest.raises(UsvitError):
            discover([str(tmp_path / "good"), str(tmp_path / bad)])


def test_a_file_whose_name_looks_like_a_glob(tmp_path):
    make(tmp_path, "benign [1].png", "benign 1.png")
    assert names(tmp_path / "benign [1].png") == ["benign [1].png"]
    assert names(tmp_path / "benign [12].png") == ["benign 1.png"]


def test_an_error_about_an_input_of_odd_bytes_can_be_printed(tmp_path):
    text = refusal(os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcller"))
    assert "M\\xfcller" in text.encode("utf-8").decode()
