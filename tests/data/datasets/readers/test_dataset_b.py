import shutil
from pathlib import Path

import pytest

from tests.data.conftest import (
    B_LABELS,
    b_image,
    b_rows,
    blob,
    save,
    speckle,
    write_b,
    write_b_by_class,
    write_busi,
    write_sheet,
)
from usvit.data.datasets.cards import load_card
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.readers import dataset_b as reader
from usvit.errors import UsvitError
from usvit.progress import NoProgress

CARD = load_card("b")

IDS = [f"{number:06}" for number in range(1, len(B_LABELS) + 1)]


def labels_of(root: Path) -> dict[str, str]:
    return {record.image_id: record.label for record in reader.read(root, CARD)}


def expected() -> dict[str, str]:
    return {image_id: label.lower() for image_id, label in zip(IDS, B_LABELS, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize("sheet", ["xlsx", "csv"])
def test_class_comes_from_the_sheet_and_order_from_the_number(tmp_path, sheet):
    root = write_b(tmp_path / "b", sheet)
    assert labels_of(root) == expected()
    assert [record.image_id for record in reader.read(root, CARD)] == IDS


def test_class_comes_from_the_folders_where_images_are_sorted(tmp_path):
    root = write_b_by_class(tmp_path / "b")
    assert labels_of(root) == expected()
    assert reader.read(root, CARD)[0].path == Path("Benign/000001.png")


def test_class_folders_may_lie_in_original_with_masks_in_gt_by_class(tmp_path):
    for number, label in enumerate(B_LABELS, start=1):
        save(b_image(number), tmp_path / "original" / label.lower() / f"{number:06}.png")
        save(blob(), tmp_path / "GT" / label.lower() / f"{number:06}.png")
    assert labels_of(tmp_path) == expected()
    assert all(len(record.mask_paths) == 1 for record in reader.read(tmp_path, CARD))


@pytest.mark.slow
def test_masks_in_gt_and_beside_the_image_are_found(tmp_path, dataset_b):
    assert reader.read(dataset_b, CARD)[2].mask_paths == (Path("GT/000003.png"),)
    root = write_b_by_class(tmp_path / "by_class")
    shutil.rmtree(root / "GT")
    save(blob(), root / "Benign" / "000001_mask.png")
    records = reader.read(root, CARD)
    assert [record.mask_paths for record in records[:2]] == [(Path("Benign/000001_mask.png"),), ()]
    assert [record.image_id for record in records] == IDS


@pytest.mark.slow
def test_unpadded_numbers_come_in_the_order_of_their_value(tmp_path):
    for number in range(1, 13):
        save(speckle(number), tmp_path / "original" / f"{number}.png")
    rows = [["Image", "Type"], *([number, "Benign" if number % 2 else "Malignant"] for number in range(1, 13))]
    write_sheet(tmp_path / "DatasetB.xlsx", rows)
    assert [record.image_id for record in reader.read(tmp_path, CARD)] == [str(number) for number in range(1, 13)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [lambda n: n, lambda n: float(n), lambda n: f"{n:06}", lambda n: f"{n:06}.png", lambda n: f" {n}.JPEG "],
    ids=["number", "float", "padded", "file", "other-file"],
)
def test_however_the_sheet_writes_the_image_it_is_found(dataset_b, name):
    rows = [["No", "Type"], *([name(number), label] for number, label in b_rows()[1:])]
    write_sheet(dataset_b / "DatasetB.xlsx", rows)
    assert labels_of(dataset_b) == expected()


def test_numbers_that_a_csv_export_gave_a_decimal_point_are_found(tmp_path):
    root = write_b(tmp_path / "b", "csv")
    (root / "labels.csv").write_text(
        "image,type\n" + "".join(f"{number}.0,{label}\n" for number, label in b_rows()[1:])
    )
    assert labels_of(root) == expected()


@pytest.mark.slow
def test_the_image_column_is_found_among_columns_of_small_numbers_and_blank_rows_do_not_matter(dataset_b):
    rows = [["BI-RADS", "Type", "Image"], *([3 + number % 2, label, number] for number, label in b_rows()[1:])]
    write_sheet(dataset_b / "DatasetB.xlsx", [*rows, [None, None, None]])
    assert labels_of(dataset_b) == expected()


@pytest.mark.slow
def test_the_faulty_row_is_named_although_another_column_matches_more_often(dataset_b):
    rows = [["BI-RADS", "Image", "Type"], *([3, number, label] for number, label in b_rows()[1:])]
    rows[4][1] = 99
    write_sheet(dataset_b / "DatasetB.xlsx", rows)
    with pytest.raises(UsvitError, match=r"the row '99' of DatasetB.xlsx does not name an image"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_row_without_an_image_is_named(dataset_b):
    write_sheet(dataset_b / "DatasetB.xlsx", [*b_rows(), [77, "Benign"]])
    with pytest.raises(UsvitError, match=r"the row '77' of DatasetB.xlsx does not name an image"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_image_without_a_row_is_named(dataset_b):
    write_sheet(dataset_b / "DatasetB.xlsx", b_rows()[:-1])
    with pytest.raises(UsvitError, match=r"no class is known for original/000008.png"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
@pytest.mark.parametrize("value", ["Cyst", None])
def test_row_without_one_of_the_two_classes_is_shown(dataset_b, value):
    rows = b_rows()
    rows[3][1] = value
    write_sheet(dataset_b / "DatasetB.xlsx", rows)
    with pytest.raises(UsvitError, match=r"\['3', '(Cyst)?'\] of DatasetB.xlsx has no class: 'Type'"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_two_rows_for_one_image_are_refused(dataset_b):
    write_sheet(dataset_b / "DatasetB.xlsx", [*b_rows(), ["000002.png", "Malignant"]])
    with pytest.raises(UsvitError, match=r"two rows for the image '000002.png'"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_sheet_without_a_class_column_shows_the_columns_it_has(dataset_b):
    write_sheet(dataset_b / "DatasetB.xlsx", [["Image", "Size"], [1, 2]])
    with pytest.raises(UsvitError, match=r"no column of DatasetB.xlsx .* found: \['Image', 'Size'\]"):
        reader.read(dataset_b, CARD)


def test_missing_sheet_and_two_sheets_are_refused(dataset_b):
    (dataset_b / "labels.csv").write_text("file,class\n")
    with pytest.raises(UsvitError, match=r"one spreadsheet .* found: DatasetB.xlsx, labels.csv"):
        reader.read(dataset_b, CARD)
    for path in (*dataset_b.glob("*.csv"), *dataset_b.glob("*.xlsx")):
        path.unlink()
    with pytest.raises(UsvitError, match=r"one spreadsheet .* found: none"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_lock_file_of_an_open_workbook_is_not_a_second_sheet(dataset_b):
    (dataset_b / "~$DatasetB.xlsx").write_bytes(b"locked by a colleague")
    assert labels_of(dataset_b) == expected()


@pytest.mark.slow
@pytest.mark.parametrize("content", [b"", b"not a workbook", None], ids=["empty", "text", "cut"])
def test_damaged_workbook_is_named(dataset_b, content):
    path = dataset_b / "DatasetB.xlsx"
    path.write_bytes(path.read_bytes()[:2000] if content is None else content)
    with pytest.raises(UsvitError, match=r"the spreadsheet DatasetB.xlsx cannot be read"):
        reader.read(dataset_b, CARD)


@pytest.mark.slow
def test_mask_without_an_image_is_named(dataset_b):
    save(blob(), dataset_b / "GT" / "000099.png")
    with pytest.raises(UsvitError, match=r"the mask '000099.png' has no image"):
        reader.read(dataset_b, CARD)


@pytest.mark.parametrize("place", ["stray.png", "Other/stray.png"])
def test_image_outside_the_class_folders_has_no_class(tmp_path, place):
    root = write_b_by_class(tmp_path / "b")
    save(speckle(9), root / place)
    with pytest.raises(UsvitError, match=rf"no class is known for {place}"):
        reader.read(root, CARD)


def test_empty_original_is_explained(tmp_path):
    (tmp_path / "original").mkdir()
    write_sheet(tmp_path / "DatasetB.xlsx", [["Image", "Type"]])
    with pytest.raises(UsvitError, match=r"no images in 'original'|no column"):
        reader.read(tmp_path, CARD)


@pytest.mark.slow
def test_busi_is_not_taken_for_dataset_b_even_without_its_normals(tmp_path):
    busi = write_busi(tmp_path / "A_busi")
    shutil.rmtree(busi / "normal")
    b = write_b(tmp_path / "B")
    root, _ = open_dataset(CARD, {"": tmp_path}, NoProgress())
    assert root == b
