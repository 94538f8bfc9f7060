import dataclasses
import shutil

import pandas as pd
import pyarrow.parquet
import pytest

from usvit.config import DataConfig
from usvit.data.datasets.manifest import COLUMNS, build_manifest
from usvit.data.datasets.manifest_file import (
    datasets_of,
    keep_only,
    open_manifest,
    read_manifest,
    with_classes,
    write_manifest,
)
from usvit.data.datasets.units import with_units
from usvit.errors import UsvitError
from usvit.files import write_csv
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow


@pytest.fixture
def manifest(busi):
    return build_manifest("busi", {"": busi}, NoProgress())


@pytest.fixture
def file(tmp_path, manifest):
    write_manifest(manifest, tmp_path / "busi.parquet")
    return tmp_path / "busi.parquet"


def rewrite(file, change):
    """The same file with its table changed by hand; the metadata stay."""
    read = pyarrow.parquet.read_table(file)
    table = pyarrow.Table.from_pandas(change(read.to_pandas()), preserve_index=False)
    pyarrow.parquet.write_table(table.replace_schema_metadata(read.schema.metadata), file)


def test_a_manifest_comes_back_as_it_was_written(manifest, file):
    back = read_manifest(file, {})
    assert back.sha256() == manifest.sha256()
    assert (back.roots, back.classes, back.positive_class) == (manifest.roots, manifest.classes, "malignant")
    assert back.licenses == {"busi": "unclear"}
    assert datasets_of(file) == "busi"


def test_images_that_were_moved_are_found_where_the_user_says(tmp_path, manifest, file):
    shutil.move(manifest.roots["busi"], tmp_path / "elsewhere")
    with pytest.raises(UsvitError, match=r"benign \(1\).png of the manifest .* is not in .* pass --data-root busi=DIR"):
        read_manifest(file, {})
    assert read_manifest(file, {"busi": tmp_path / "elsewhere"}).roots == {"busi": tmp_path / "elsewhere"}
    assert read_manifest(file, {"": tmp_path / "elsewhere"}).sha256() == manifest.sha256()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda table: table.assign(path="../secret.png"), r"the path ../secret.png, which leads out of its folder"),
        (lambda table: table.assign(path="/etc/passwd"), "the path /etc/passwd, which leads out"),
        (lambda table: table.assign(mask_path="a.png|../b.png"), r"the path ../b.png, which leads out"),
        (lambda table: table.assign(image_id="x"), "two rows with the id 'x'"),
        (lambda table: table.assign(label="cyst"), "'benign \\(1\\)' the label 'cyst', which is not one of benign"),
        (lambda table: table.assign(dataset="b"), "states no folder for the data set 'b'"),
        (lambda table: table.drop(columns="group_id"), "no column 'group_id'"),
    ],
    ids=["climbs", "absolute", "mask climbs", "double id", "label", "data set", "column"],
)
def test_what_a_file_claims_is_checked(file, change, error):
    rewrite(file, change)
    with pytest.raises(UsvitError, match=error):
        read_manifest(file, {})


def test_other_files_are_no_manifests(tmp_path, manifest):
    with pytest.raises(UsvitError, match="There is no manifest"):
        read_manifest(tmp_path / "none.parquet", {})
    (tmp_path / "text.parquet").write_text("image_id,path")
    with pytest.raises(UsvitError, match="it is not a Parquet file"):
        read_manifest(tmp_path / "text.parquet", {})
    manifest.table.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(UsvitError, match="is not a manifest from 'usvit data prepare'"):
        datasets_of(tmp_path / "table.parquet")


def test_settings_open_a_file_or_a_folder_to_the_same_images(busi, manifest, file):
    of_file = open_manifest(DataConfig(dataset="busi", manifest=str(file)), {}, NoProgress())
    of_folder = open_manifest(DataConfig(dataset="busi"), {"": busi}, NoProgress())
    assert of_file.sha256() == of_folder.sha256() == manifest.sha256()
    for ignored in ({"skip_bad": True}, {"keep_label_conflicts": True}, {"near_duplicates": "ignore"}):
        with pytest.raises(UsvitError, match=f"data.{next(iter(ignored))} cannot be used with a manifest"):
            open_manifest(DataConfig(dataset="busi", manifest=str(file), **ignored), {}, NoProgress())
    with pytest.raises(UsvitError, match=r"data.dataset is b, but the manifest .* contains busi"):
        open_manifest(DataConfig(dataset="b", manifest=str(file)), {}, NoProgress())


def test_a_keep_list_leaves_out_what_it_does_not_name(tmp_path, manifest):
    kept = manifest.table[["image_id"]].iloc[::2]
    write_csv(tmp_path / "keep.csv", kept)
    result = keep_only(manifest, tmp_path / "keep.csv")
    assert result.usable.image_id.tolist() == kept.image_id.tolist()
    assert set(result.excluded.exclude_reason) == {"not in the keep-list keep.csv"}
    assert manifest.excluded.empty


def test_a_keep_list_with_a_column_keep_is_an_audit_s(tmp_path, manifest):
    listed = manifest.table[["dataset", "image_id"]].assign(keep=manifest.table.index % 3 > 0)
    write_csv(tmp_path / "keep.csv", listed)
    assert keep_only(manifest, tmp_path / "keep.csv").usable.image_id.tolist() == listed.image_id[listed.keep].tolist()


@pytest.mark.parametrize(
    ("table", "error"),
    [
        (
            pd.DataFrame({"image_id": ["benign (1)", "ghost"]}),
            "names 1 images that are not in the data, such as 'ghost'",
        ),
        (pd.DataFrame({"name": ["benign (1)"]}), "has no column 'image_id'; it has name"),
        (pd.DataFrame({"image_id": ["benign (1)"]}), "leaves no image of the class 'malignant'"),
    ],
)
def test_a_keep_list_that_does_not_fit_is_refused(tmp_path, manifest, table, error):
    write_csv(tmp_path / "keep.csv", table)
    with pytest.raises(UsvitError, match=error):
        keep_only(manifest, tmp_path / "keep.csv")
    with pytest.raises(UsvitError, match=r"There is no keep-list .*none\.csv"):
        keep_only(manifest, tmp_path / "none.csv")


def test_classes_can_be_left_out(manifest):
    two = with_classes(manifest, ("benign", "malignant"))
    assert two.classes == ("benign", "malignant")
    assert set(two.usable.label) == {"benign", "malignant"}
    assert set(two.excluded.exclude_reason) == {"its class is not among data.classes"}
    with pytest.raises(UsvitError, match="Unknown class 'cyst'"):
        with_classes(manifest, ("malignant", "cyst"))
    with pytest.raises(UsvitError, match="needs the positive class 'malignant' and another one"):
        with_classes(manifest, ("benign", "normal"))


def test_units_and_their_level_come_back_and_a_manifest_without_them_says_nothing_of_them(tmp_path, manifest, file):
    assert b"label_level" not in pyarrow.parquet.read_schema(file).metadata[b"usvit"]
    assert not {"lesion_id", "side", "exam_id"} & {*pyarrow.parquet.read_schema(file).names}
    n = len(manifest.table)
    units = {"patient_id": "P", "lesion_id": [None, *["L"] * (n - 1)], "side": ["left"] * n}
    found = dataclasses.replace(
        manifest,
        table=manifest.table.assign(**units)[with_units(COLUMNS, ("lesion_id", "side"))],
        label_level="patient",
    )
    write_manifest(found, tmp_path / "u.parquet")
    back = read_manifest(tmp_path / "u.parquet", {})
    assert back.label_level == "patient" and back.sha256() == found.sha256()
    assert list(back.table) == with_units(COLUMNS, ("lesion_id", "side"))


def test_a_manifest_whose_units_contradict_each_other_is_refused(file):
    rewrite(file, lambda table: table.assign(patient_id=[f"P{number}" for number in range(len(table))], lesion_id="L"))
    with pytest.raises(UsvitError, match=r"contradicts itself: an image belong.* one lesion but have two patients"):
        read_manifest(file, {})
