"""Whatever usvit writes or says of a private data set, it names no patient in it."""

import os
import re
import stat
from pathlib import Path

import pandas as pd
import pydicom
import pytest

from tests.conftest import REPOSITORY, TINY
from tests.data.conftest import save, speckle, write_dicom
from usvit.data.datasets.cards import load_card
from usvit.data.datasets.identities import DataError, Public, is_private
from usvit.data.datasets.readers import READERS
from usvit.files import for_the_owner_alone
from usvit.pseudonyms import Pseudonyms, default_key_path

PLANTED = re.compile(rb"Muster|Erika|4711\d{4}|ACC-?77|1\.2\.840\.99", re.IGNORECASE)
N = 24
FAST = (*TINY, "--set", "train.steps=2")


def patient(number: int) -> str:
    return f"4711{number // 2:04}"


def name(number: int) -> str:
    return f"Muster_Erika_{patient(number)}_{number:02}"


def plant(folder: Path, kind: str) -> Path:
    """A data set of 12 patients whose names and numbers stand wherever they can."""
    rows = ["path,label,patient_id"]
    for number in range(N):
        label = ("benign", "malignant")[number // 2 % 2]
        pixels = speckle(number, 48, 48) // (1 + number // 2 % 2)
        if kind == "folder":
            save(pixels, folder / label / f"{name(number)}.png")
        elif kind == "table":
            save(pixels, folder / "Muster" / f"{name(number)}.png")
            rows.append(f"Muster/{name(number)}.png,{label},{patient(number)}")
        else:
            tags = {
                "PatientName": "Muster^Erika",
                "AccessionNumber": "ACC-77",
                "StudyInstanceUID": f"1.2.840.98.{number}",
                "SOPInstanceUID": f"1.2.840.99.{number}",
            }
            write_dicom(folder / f"{name(number)}.dcm", pixels, PatientID=patient(number), **tags)
            rows.append(f"{name(number)}.dcm,{label},")
    if kind != "folder":
        (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


def found_in(folder: Path) -> set[str]:
    """The files below a folder that hold what was planted, in their bytes, their cells or their names."""
    found = set()
    for path in folder.rglob("*"):
        content = path.relative_to(folder).as_posix().encode()
        if path.is_file():
            content += path.read_bytes()
            if path.suffix == ".parquet":
                content += pd.read_parquet(path).to_csv().encode()
        if PLANTED.search(content):
            found.add(path.relative_to(folder).as_posix())
    return found


def names_nobody(answer) -> bool:
    return not PLANTED.search((answer.out + answer.err).encode())


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("sets")
    return {kind: plant(root / kind[0], kind) for kind in ("dicom", "folder", "table")}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dicom", "table"])
def test_a_training_run_names_nobody_and_calls_patients_as_scoring_does(usvit, planted, tmp_path, kind):
    answer = usvit("cv", "--dataset", kind, "--data-root", planted[kind], *FAST, "--out", tmp_path / "run")
    assert answer.code == 0 and names_nobody(answer)
    assert not found_in(tmp_path / "run")
    ids = Pseudonyms.of_key(default_key_path())
    table = pd.read_parquet(tmp_path / "run" / "manifest.parquet")
    assert set(table.patient_id) == {ids.patient(patient(number)) for number in range(N)}
    predictions = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert set(predictions.image_id) == set(table.image_id) == set(table.path)
    # What comes after finds the images all the same.
    kept = usvit("report", tmp_path / "run", "--data-root", planted[kind], "--include-images")
    assert kept.code == 0 and b"data:image/jpeg" in (tmp_path / "run" / "report.html").read_bytes()
    explained = usvit("explain", tmp_path / "run", "--data-root", planted[kind], "--method", "occlusion", "--images", 1)
    assert explained.code == 0 and names_nobody(kept) and names_nobody(explained)
    assert not found_in(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dicom", "folder", "table"])
def test_data_commands_name_nobody(usvit, planted, tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    root = planted[kind]
    answers = [
        usvit("data", "prepare", kind, "--data-root", root, "--out", tmp_path / "private" / "m.parquet"),
        usvit("data", "prepare", kind, "--data-root", root, "--out", tmp_path / "private" / "m.parquet", "--json"),
        usvit("data", "audit", "--dataset", kind, "--data-root", root, "--out", tmp_path / "shown" / "audit"),
        usvit("data", "split", "--manifest", tmp_path / "private" / "m.parquet", "--out", tmp_path / "shown" / "f.csv"),
        usvit("data", "preview", "--dataset", kind, "--data-root", root, "--out", tmp_path / "p.png", "--json"),
    ]
    assert [answer.code for answer in answers] == [0] * 5
    assert all(map(names_nobody, answers))
    assert not found_in(tmp_path / "shown")
    # The manifest leads to the images: it is the way back, and for the owner alone.
    assert found_in(tmp_path / "private") == {"m.parquet"}
    assert stat.S_IMODE((tmp_path / "private" / "m.parquet").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "shown" / "audit" / "audit.html").stat().st_mode) == 0o600
    link = usvit("data", "link", kind, "--data-root", root, "--out", tmp_path / "private" / "link.csv")
    linked = pd.read_csv(tmp_path / "private" / "link.csv")
    assert link.code == 0 and names_nobody(link)
    assert stat.S_IMODE((tmp_path / "private" / "link.csv").stat().st_mode) == 0o600
    folds = pd.read_csv(tmp_path / "shown" / "f.csv")
    assert set(folds.image_id) <= set(linked.item_id) and all(map(os.path.exists, linked.path))


FAULTS = {
    "no row": lambda root: write_dicom(root / f"{name(90)}.dcm", speckle(1, 48, 48)),
    "no file": lambda root: (root / f"{name(3)}.dcm").unlink(),
    "no image": lambda root: write_dicom(root / f"{name(4)}.dcm", None),
    "damaged": lambda root: (root / f"{name(5)}.dcm").write_bytes((root / f"{name(5)}.dcm").read_bytes()[:-900]),
    "none": lambda root: (root / f"{name(6)}.dcm").write_bytes(b"Muster Erika " * 40),
    "a label": lambda root: (root / "labels.csv").write_text(f"path,label\n{name(0)}.dcm,Muster Erika {patient(0)}\n"),
    "a header": lambda root: (root / "labels.csv").write_text(f"{name(0)}.dcm,benign\n{name(1)}.dcm,benign\n"),
    "twice": lambda root: (root / "labels.csv").write_text(f"path,label\n{name(0)}.dcm,b\n{name(0)}.dcm,b\n"),
    "a path": lambda root: (root / "labels.csv").write_text(f"path,label\n/x/{name(0)}.dcm,b\n"),
    "a ragged table": lambda root: (root / "labels.csv").write_text(
        f"path,label\na,b\n{name(0)},b,Muster,x,{patient(0)}\n"
    ),
    "another file": lambda root: (root / f"{name(7)}.docx").write_bytes(b"Muster" * 99),
    "frames": lambda root: spoil(root / f"{name(8)}.dcm", NumberOfFrames="Muster Erika"),
    "rows": lambda root: spoil(root / f"{name(8)}.dcm", PhotometricInterpretation="MUSTER ERIKA"),
}


def spoil(path: Path, **values: str) -> None:
    data = pydicom.dcmread(path)
    with pydicom.config.disable_value_validation():
        for keyword, value in values.items():
            if keyword == "NumberOfFrames":
                data.add_new("NumberOfFrames", "LO", value)
            else:
                setattr(data, keyword, value)
        data.save_as(path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_errors_name_nobody(usvit, tmp_path, fault):
    root = plant(tmp_path / "d", "dicom")
    FAULTS[fault](root)
    for command in (["cv", *FAST, "--dataset"], ["data", "prepare"]):
        answer = usvit(*command, "dicom", "--data-root", root, "--out", tmp_path / "out")
        assert answer.code == 2, answer
        assert names_nobody(answer), answer.err
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_files_that_are_left_out_go_by_pseudonyms(usvit, tmp_path):
    root = plant(tmp_path / "t", "table")
    bad = root / "Muster" / f"{name(0)}.png"
    bad.write_bytes(bad.read_bytes()[:200])
    answer = usvit("data", "prepare", "table", "--data-root", root, "--out", tmp_path / "m.parquet", "--skip-bad")
    ids = Pseudonyms.of_key(default_key_path())
    assert answer.code == 3 and names_nobody(answer)
    assert f"skipped: {ids.item(f'Muster/{name(0)}.png')}: it cannot be read as an image" in answer.out


@pytest.mark.slow
def test_a_bug_names_nobody(usvit, planted, tmp_path, monkeypatch):
    def broken(*_):
        raise ValueError(f"{name(0)} of {patient(0)}")

    monkeypatch.setattr("usvit.data.datasets.manifest.image_key", broken)
    for command in (["cv", *FAST, "--dataset"], ["data", "prepare"]):
        answer = usvit(*command, "dicom", "--data-root", planted["dicom"], "--out", tmp_path / "out")
        assert answer.code == 1 and names_nobody(answer) and "ValueError (the message is left out" in answer.err


@pytest.mark.slow
def test_own_ids_are_understood_in_keep_lists_and_folds(usvit, planted, tmp_path):
    own = [f"{label}/{name(n)}" for n in range(N) for label in [("benign", "malignant")[n // 2 % 2]]]
    pd.DataFrame({"image_id": own[:20]}).to_csv(tmp_path / "keep.csv", index=False)
    given = ("--dataset", "folder", "--data-root", planted["folder"], "--keep-list", tmp_path / "keep.csv")
    assert usvit("data", "split", *given, "--hold-out", "--out", tmp_path / "a.csv").code == 0
    folds = pd.read_csv(tmp_path / "a.csv")
    ids = Pseudonyms.of_key(default_key_path())
    own_of = {ids.item(f"{one}.png"): one for one in own}
    assert set(folds.image_id) == {ids.item(f"{one}.png") for one in own[:20]}
    folds.assign(image_id=folds.image_id.map(own_of)).to_csv(tmp_path / "own.csv", index=False)
    frozen = ("--set", f"split.file={tmp_path / 'own.csv'}")
    assert usvit("data", "split", *given, "--hold-out", *frozen, "--out", tmp_path / "b.csv").code == 0
    assert (tmp_path / "b.csv").read_text() == (tmp_path / "a.csv").read_text()
    pd.DataFrame({"image_id": [own[0], "benign/Muster_9"]}).to_csv(tmp_path / "keep.csv", index=False)
    answer = usvit("data", "split", *given, "--out", tmp_path / "c.csv")
    assert answer.code == 2 and "such as that of row 3" in answer.err and names_nobody(answer)


@pytest.mark.slow
def test_with_keep_ids_they_are_kept_and_everything_is_for_the_owner_alone(usvit, planted, tmp_path):
    given = ("--dataset", "folder", "--data-root", planted["folder"], *FAST, "--keep-ids")
    assert usvit("cv", *given, "--out", tmp_path / "run").code == 0
    assert {"manifest.parquet", "predictions.csv", "folds.csv"} <= found_in(tmp_path / "run")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert modes == {0o600}
    assert stat.S_IMODE((tmp_path / "run").stat().st_mode) == 0o700
    manifest = tmp_path / "m.parquet"
    assert (
        usvit("data", "prepare", "folder", "--data-root", planted["folder"], "--out", manifest, "--keep-ids").code == 0
    )
    answer = usvit("data", "split", "--manifest", manifest, "--out", tmp_path / "f.csv")
    assert answer.code == 2 and "pass --keep-ids if this is intended" in answer.err
    assert usvit("data", "split", "--manifest", manifest, "--out", tmp_path / "f.csv", "--keep-ids").code == 0
    assert stat.S_IMODE((tmp_path / "f.csv").stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_manifest_of_another_key_is_refused(usvit, planted, tmp_path, monkeypatch):
    manifest = tmp_path / "m.parquet"
    assert usvit("data", "prepare", "table", "--data-root", planted["table"], "--out", manifest).code == 0
    monkeypatch.setenv("USVIT_KEY", str(tmp_path / "another"))
    answer = usvit("data", "split", "--manifest", manifest, "--out", tmp_path / "f.csv")
    assert answer.code == 2 and "was written with another key" in answer.err


def test_a_file_is_never_there_with_another_mode(tmp_path):
    with for_the_owner_alone():
        (tmp_path / "a").write_text("x")
        (tmp_path / "b").mkdir()
    assert [stat.S_IMODE((tmp_path / one).stat().st_mode) for one in "ab"] == [0o600, 0o700]
    before = os.umask(0o022)
    os.umask(before)
    (tmp_path / "c").write_text("x")
    assert stat.S_IMODE((tmp_path / "c").stat().st_mode) == 0o666 & ~before


def test_public_releases_are_those_with_a_layout_of_their_own(tmp_path):
    private = {reader for reader in READERS if is_private(load_card({"b": "b"}.get(reader, reader)))}
    assert private == {"folder", "table", "dicom", "masks", "coco"}
    card = (REPOSITORY / "data_cards" / "folder.md").read_text()
    for text, expected in ((card, True), (card.replace("reader:", "public_ids: true\nreader:", 1), False)):
        (tmp_path / "mine.md").write_text(text.replace("name: folder", "name: mine", 1))
        assert is_private(load_card(str(tmp_path / "mine.md"))) is expected


def test_what_is_withheld_of_an_error():
    error = DataError("{where}: {path} says '{text}'", where=Public("row 3"), path=Path("a/Erika.png"), text="Muster")
    assert str(error) == "row 3: a/Erika.png says 'Muster'"
    ids = Pseudonyms(bytes(range(32)))
    assert error.without_quotations(ids) == f"row 3: {ids.item('a/Erika.png')} says '[withheld]'"
