from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.data.conftest import blob, save, speckle, write_csv, write_dicom, write_sheet
from tests.data.io.videos import uncompressed
from usvit.data.datasets.cards import DataCard, OwnTable, load_card
from usvit.data.datasets.identities import Identities
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.manifest import build_manifest
from usvit.data.datasets.readers import table as reader
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.pseudonyms import Pseudonyms, default_key_path

COLUMNS = {"path": "file", "label": "dx", "patient_id": "pid", "mask_path": "mask", "pixel_spacing_mm": "mm"}
HEADER = ["file", "dx", "pid", "mask", "mm", "device"]


def card(**fields: object) -> DataCard:
    base = load_card("table").model_dump()
    classes = {"benign": None, "malignant": None}
    ours = {"classes": classes, "positive_class": "malignant", "labels": {"0": "benign", "1": "malignant"}}
    return DataCard.model_validate({**base, "columns": COLUMNS, **ours, **fields})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Eight images of four patients in ``scans/``, one with two masks."""
    rows: list[list[object]] = [HEADER]
    for number in range(8):
        save(speckle(number), tmp_path / "scans" / f"{number}.png")
        rows.append([f"scans/{number}.png", number // 2 % 2, f"00{number // 2}", "", 0.08, "LOGIQ"])
    for left in (0, 30):
        save(blob(left=left), tmp_path / "masks" / f"0_{left}.png")
    rows[1][3] = "masks/0_0.png|masks/0_30.png"
    write_csv(tmp_path / "labels.csv", rows)
    return tmp_path


def change(root: Path, old: str, new: str) -> None:
    path = root / "labels.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def opened(root: Path, the_card: DataCard | None = None):
    """What the reader finds and says, ids as they are."""
    return open_dataset(the_card or card(), {"": root}, NoProgress(), Identities(kept=True))[1]


def test_mapped_columns_reach_the_records_and_unmapped_ones_of_our_name_do_too(root):
    records = reader.read(root, card())
    assert [record.image_id for record in records] == [f"scans/{number}" for number in range(8)]
    assert [record.label for record in records] == ["benign", "benign", "malignant", "malignant"] * 2
    assert [record.patient_id for record in records[:3]] == ["000", "000", "001"]
    assert records[0].mask_paths == (Path("masks/0_0.png"), Path("masks/0_30.png"))
    assert {record.pixel_spacing_mm for record in records} == {0.08}
    assert {record.device for record in records} == {"LOGIQ"}
    assert {record.label_source for record in records} == {"dataset"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_excel_and_parquet_say_the_same_as_csv(root, kind):
    expected = reader.read(root, card())
    rows = pd.read_csv(root / "labels.csv", dtype=str, keep_default_na=False)
    (root / "labels.csv").unlink()
    if kind == "xlsx":
        write_sheet(root / "labels.xlsx", [HEADER, *rows.to_numpy().tolist()])
    else:
        rows.astype({"dx": int, "mm": float}).to_parquet(root / "labels.parquet")
    assert reader.read(root, card(table=None)) == expected


@pytest.mark.slow
def test_a_card_of_the_user_goes_from_its_file_to_a_manifest(root):
    path = root / "my_card.md"
    path.write_text(
        "---\nname: my_clinic\npretty_name: My clinic\nlicense: unclear\ncitation: Unpublished.\nhost: mine\n"
        "how_to_get: Ask.\nlayout: labels.csv\nreader: table\ntable: labels.csv\nlabel_level: patient\n"
        "columns: {path: file, label: dx, patient_id: pid}\nclasses: {benign: 4, malignant: 4}\n"
        "labels: {'0': benign, '1': malignant}\npositive_class: malignant\n"
        "patient_ids: 'yes'\npatient_ids_from: the column pid\n---\n"
    )
    manifest = build_manifest(str(path), {"": root}, NoProgress())
    assert set(manifest.table.dataset) == {"my_clinic"}
    assert manifest.table.groupby("group_id").ngroups == 4


def test_the_shipped_card_takes_any_classes_and_backslashes_of_windows(root):
    rows = [["path", "label"], *([f"scans\\{number}.png", "ab"[number % 2]] for number in range(8))]
    write_csv(root / "labels.csv", rows)
    records = opened(root, load_card("table"))
    assert {record.label for record in records} == {"a", "b"}
    assert records[3].path == Path("scans/3.png")


def test_one_file_may_serve_several_rows_by_its_frames(root):
    write_dicom(root / "loop.dcm", pixels=pd.Series(range(4)).to_numpy().repeat(48).reshape(4, 6, 8).astype("uint8"))
    write_csv(root / "labels.csv", [["path", "label", "frame"], ["loop.dcm", 0, 1], ["loop.dcm", 1, 3]])
    records = reader.read(root, card(columns={}))
    assert [(record.image_id, record.frame) for record in records] == [("loop#1", 1), ("loop#3", 3)]


@pytest.mark.parametrize("name", ["loop.dcm", "loop.gif", pytest.param("loop.avi", marks=pytest.mark.slow)])
def test_frames_are_chosen_by_the_table_and_never_taken_without_being_chosen(root, name):
    if name == "loop.dcm":
        write_dicom(root / name, pixels=np.stack([speckle(seed) for seed in (60, 61)]))
    elif name == "loop.avi":
        (root / name).write_bytes(uncompressed(np.repeat(np.stack([speckle(60), speckle(61)])[..., None], 3, axis=3)))
    else:
        frames = [Image.fromarray(speckle(seed)) for seed in (60, 61)]
        frames[0].save(root / name, save_all=True, append_images=frames[1:])
    rows = [["path", "label", "frame"], [name, "benign", 0], [name, "malignant", 1]]
    write_csv(root / "labels.csv", rows)
    manifest = build_manifest("table", {"": root}, NoProgress())
    assert [*manifest.table.frame] == [0, 1] and manifest.table.sha256.nunique() == 2
    write_csv(root / "labels.csv", [["path", "label"], [name, "benign"], ["scans/1.png", "malignant"]])
    with pytest.raises(UsvitError, match="several_frames"):
        build_manifest("table", {"": root}, NoProgress())


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("scans/3.png", "../secret.png", r"row 5 of labels.csv: the path '../secret.png' leads out of the data root"),
        ("scans/3.png", "/etc/passwd", r"row 5 of labels.csv: the path '/etc/passwd' leads out"),
        ("scans/3.png", "C:\\scans\\3.png", r"leads out of the data root"),
        ("scans/3.png", "scans/33.png", r"row 5 of labels.csv: the file 'scans/33.png' does not exist"),
        ("scans/3.png", "", r"row 5 of labels.csv: the file '' does not exist"),
        ("scans/3.png", "scans/2.png", r"row 4 of labels.csv and row 5 of labels.csv both have the id 'scans/2'"),
        (
            "scans/3.png,1",
            "scans/3.png,2",
            r"row 5 of labels.csv has the unknown label '2'; .* knows 0, 1, beni",
        ),
        ("scans/3.png,1", "scans/3.png,", r"row 5 of labels.csv has no label"),
        ("scans/3.png,1", "scans/3.png,0", r"patient '001' .* two labels: malignant \(scans/2.png\) and benign"),
        ("masks/0_30.png", "masks/1_30.png", r"row 2 of labels.csv: the file 'masks/1_30.png' does not exist"),
        ("masks/0_30.png", "../0_30.png", r"row 2 of labels.csv: the path '../0_30.png' leads out"),
        (",0.08", ",wide", r"row 2 of labels.csv: pixel_spacing_mm 'wide' is not a positive number"),
        (",0.08", ",-1", r"pixel_spacing_mm '-1' is not a positive number"),
        (",0.08", ",nan", r"pixel_spacing_mm 'nan' is not a positive number"),
        ("file,dx", "name,dx", r"labels.csv has no column 'file'. It has: name, dx, pid"),
        ("mask,", "outline,", r"labels.csv has no column 'mask'. It has"),
    ],
)
def test_each_wrong_cell_is_named_with_its_row(root, old, new, says):
    save(speckle(9), root.parent / "secret.png")
    change(root, old, new)
    with pytest.raises(UsvitError, match=says):
        opened(root, card(label_level="patient"))


def test_two_rows_with_one_id_or_one_image_are_refused(root):
    rows = [["path", "label", "image_id"], ["scans/0.png", 0, "a"], ["scans/1.png", 1, "a"]]
    write_csv(root / "labels.csv", rows)
    with pytest.raises(UsvitError, match=r"row 2 of labels.csv and row 3 of labels.csv both have the id 'a'"):
        reader.read(root, card(columns={}))
    rows[2] = ["scans/0.png", 1, "b"]
    write_csv(root / "labels.csv", rows)
    with pytest.raises(UsvitError, match=r"both have the image 'scans/0.png#0'"):
        reader.read(root, card(columns={}))


@pytest.mark.parametrize("frame", ["x", "-1", "1.5"])
def test_a_frame_that_is_no_whole_number_is_refused(root, frame):
    write_csv(root / "labels.csv", [["path", "label", "frame"], ["scans/0.png", 0, frame]])
    with pytest.raises(UsvitError, match=rf"row 2 of labels.csv: frame '{frame}' is not a whole number from 0"):
        reader.read(root, card(columns={}))


def test_a_column_that_nobody_mapped_says_how_to_map_it(root):
    with pytest.raises(
        UsvitError, match=r"no column 'label'\. .* --label-col COL; or .* columns: {label: <the table's name>}"
    ):
        reader.read(root, card(columns={"path": "file"}))


def test_a_card_that_maps_a_name_of_nothing_gets_the_nearest(root):
    with pytest.raises(UsvitError, match=r"patient.*patient_id"):
        reader.read(root, card(columns={**COLUMNS, "patient": "pid"}))


def test_without_a_named_table_there_must_be_one_alone(root):
    write_csv(root / "more.csv", [["a"], ["b"]])
    with pytest.raises(UsvitError, match=r"one spreadsheet .* found: labels.csv, more.csv"):
        opened(root, card(table=None))
    for path in root.glob("*.csv"):
        path.unlink()
    with pytest.raises(UsvitError, match=r"it does not have the expected layout"):
        opened(root)


UNITS = {"path": "file", "label": "dx", "patient_id": "pid", "lesion_id": "Herd", "side": "Seite", "exam_id": "U"}


def write_units(root: Path, *rows: list[object]) -> DataCard:
    """A table of lesions; image k of the folder is row k."""
    cells = [[f"scans/{number}.png", *row] for number, row in enumerate(rows)]
    write_csv(root / "labels.csv", [["file", "dx", "pid", "Herd", "Seite", "U"], *cells])
    return card(columns=UNITS)


def test_lesions_sides_and_exams_are_read_in_words_of_several_languages(root):
    rows = [[0, "A", "A1", "Links", "E1"], [1, "A", "A2", "droite", "E1"], [0, "B", "", "", ""]]
    records = opened(root, write_units(root, *rows))
    assert [(one.lesion_id, one.side, one.exam_id) for one in records] == [
        ("A1", "left", "E1"),
        ("A2", "right", "E1"),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ([1, "B", "A1", "L", "E2"], r"scans/0.png and scans/1.png .* one lesion but have two patients: .* numbered"),
        ([1, "A", "A1", "R", "E1"], r"scans/0.png and scans/1.png .* one lesion but have two sides"),
        ([1, "B", "B1", "L", "E1"], r"scans/0.png and scans/1.png .* one exam but have two patients: .*exam_id"),
        ([1, "", "B1", "L", ""], r"image scans/1.png .* has a lesion but no patient"),
        ([1, "A", "A1", "beide", "E1"], r"row 3 of labels.csv: the side 'beide' is not known. Known are left, l,"),
    ],
)
def test_each_contradiction_of_units_is_one_error(root, row, says):
    the_card = write_units(root, [0, "A", "A1", "L", "E1"], row)
    with pytest.raises(UsvitError, match=says):
        opened(root, the_card)


@pytest.mark.parametrize(("level", "name"), [("lesion", "A1"), ("breast", "A, left"), ("exam", "E1"), ("patient", "A")])
def test_a_card_may_state_that_a_unit_has_one_label(root, level, name):
    the_card = write_units(root, [0, "A", "A1", "L", "E1"], [1, "A", "A1", "L", "E1"])
    assert len(opened(root, the_card)) == 2  # by image: a finding of the audit, and no error
    stated = card(columns=UNITS, label_level=level)
    with pytest.raises(UsvitError, match=rf"The {level} '{name}' of the data set table has two labels: benign"):
        opened(root, stated)


@pytest.mark.slow
def test_units_get_pseudonyms_and_columns_only_where_an_image_has_a_value(root):
    write_units(root, ["benign", "A", "A1", "", "E1"], ["malignant", "B", "B1", "", ""])
    own = OwnTable(columns=UNITS)
    table = build_manifest("table", {"": root}, NoProgress(), own=own).table
    assert "side" not in table
    ids = Pseudonyms.of_key(default_key_path())
    assert list(table.lesion_id) == [ids.lesion("A1"), ids.lesion("B1")]
    assert table.exam_id[0] == ids.study("E1") and table.exam_id.isna()[1]
    assert ids.lesion("A1") not in (ids.patient("A1"), ids.study("A1"))
    kept = build_manifest("table", {"": root}, NoProgress(), own=own, keep_ids=True).table
    assert list(kept.lesion_id) == ["A1", "B1"]
