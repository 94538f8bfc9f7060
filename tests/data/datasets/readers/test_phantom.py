import shutil
from pathlib import Path

import pandas as pd
import pytest

from usvit.data.datasets.cards import load_card
from usvit.data.datasets.readers import phantom as reader
from usvit.data.io.decoding import read_image, read_masks
from usvit.errors import UsvitError

CARD = load_card("phantom")


@pytest.fixture
def phantom(small_phantom: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(small_phantom, tmp_path / "phantom")


def edit(root: Path, **columns: object) -> None:
    table = pd.read_csv(root / "phantom.csv", dtype=str, keep_default_na=False)
    table.assign(**columns).to_csv(root / "phantom.csv", index=False)


def test_what_was_written_is_read(phantom):
    records = reader.read(phantom, CARD)
    assert reader.looks_like(phantom, CARD)
    assert len(records) == 48
    assert len({record.image_id for record in records}) == 48
    assert {record.label for record in records} == {"benign", "malignant", "normal"}
    for record in records[:6]:
        pixels = read_image(phantom / record.path)
        mask = read_masks([phantom / path for path in record.mask_paths], pixels.shape[:2])
        assert mask.any() == (record.label != "normal")
        assert 0 < record.pixel_spacing_mm < 2


def test_views_of_one_patient_share_its_id_and_its_class(phantom):
    table = pd.DataFrame(
        [(record.patient_id, record.label) for record in reader.read(phantom, CARD)],
        columns=["id", "y"],
    )
    assert 1 < len(table) / table.id.nunique() < 3
    assert table.groupby("id").y.nunique().max() == 1


def test_ids_stay_text(phantom):
    edit(phantom, patient_id="007")
    assert {record.patient_id for record in reader.read(phantom, CARD)} == {"007"}


def test_missing_column_is_named(phantom):
    table = pd.read_csv(phantom / "phantom.csv")
    table.drop(columns="mask_path").to_csv(phantom / "phantom.csv", index=False)
    with pytest.raises(UsvitError, match=r"lacks the column 'mask_path'.*usvit data phantom"):
        reader.read(phantom, CARD)


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3\n", b"a\n\xff\xfe\n"], ids=["empty", "ragged", "binary"])
def test_damaged_table_is_an_error_that_says_so(phantom, content):
    (phantom / "phantom.csv").write_bytes(content)
    with pytest.raises(UsvitError, match=r"phantom.csv (as a CSV table|lacks)"):
        reader.read(phantom, CARD)


def test_a_spacing_that_is_no_number_is_an_error(phantom):
    edit(phantom, pixel_spacing_mm="wide")
    with pytest.raises(UsvitError, match=r"phantom.csv is damaged.*wide"):
        reader.read(phantom, CARD)


def test_table_without_rows_is_an_error(phantom):
    pd.read_csv(phantom / "phantom.csv").head(0).to_csv(phantom / "phantom.csv", index=False)
    with pytest.raises(UsvitError, match="no rows"):
        reader.read(phantom, CARD)
