"""Every published layout from its files to a manifest, and what each wrong file is told."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.data import conftest as layouts
from tests.data.conftest import save, speckle, write_busi, write_sheet
from usvit.data.datasets.cards import card_names, load_card
from usvit.data.datasets.manifest import Manifest, build_manifest
from usvit.data.datasets.readers import READERS, class_of, reader_for
from usvit.data.io.decoding import read_image, read_masks
from usvit.errors import UsvitError
from usvit.progress import NoProgress

BUILDERS = {
    "bus_bra": layouts.write_bus_bra,
    "breast": layouts.write_breast,
    "bus_uclm": layouts.write_bus_uclm,
    "curated_busi": layouts.write_curated_busi,
    "gdph_sysucc": layouts.write_gdph_sysucc,
    "busis": layouts.write_busis,
    "breastmnist": layouts.write_breastmnist,
}
EXPECTED = {  # images, patients (0: none are known), images with a mask
    "bus_bra": (30, 20, 30),
    "breast": (9, 9, 8),
    "bus_uclm": (18, 6, 18),
    "curated_busi": (4, 0, 4),
    "gdph_sysucc": (24, 0, 0),
    "busis": (11, 0, 11),
    "breastmnist": (36, 0, 0),
}


def manifest_of(datasets: str, root: Path) -> Manifest:
    return build_manifest(datasets, {"": root}, NoProgress())


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_each_layout_gives_a_manifest_with_its_patients_masks_and_classes(tmp_path, name):
    BUILDERS[name](tmp_path / "unpacked")
    manifest = manifest_of(name, tmp_path)
    table = manifest.table
    images, patients, masks = EXPECTED[name]
    assert (len(table), table.patient_id.nunique(), int(table.mask_path.notna().sum())) == (images, patients, masks)
    assert table.sha256.nunique() == images
    assert set(table.label) == set(load_card(name).classes) == set(manifest.classes)
    assert manifest.positive_class == "malignant"
    assert table.groupby("group_id").ngroups == (patients or images)
    assert table.exclude_reason.isna().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", BUILDERS)
def test_no_other_reader_takes_the_layout_for_its_own(tmp_path, name):
    root = BUILDERS[name](tmp_path / "data")
    takers = {
        other
        for other in [*BUILDERS, "b", "busi", "phantom"]
        if reader_for(load_card(other)).looks_like(root, load_card(other))
    }
    assert takers == {name}


def test_every_card_names_a_reader_that_is_there():
    named = {card.reader for card in map(load_card, card_names()) if card.reader}
    assert named == set(READERS)
    for name in card_names():
        if (card := load_card(name)).reader:
            assert reader_for(card).read


@pytest.mark.slow
def test_a_union_keeps_both_data_sets_apart(tmp_path):
    layouts.write_bus_bra(tmp_path / "BUSBRA")
    write_busi(tmp_path / "Dataset_BUSI_with_GT")
    manifest = manifest_of("bus_bra+busi", tmp_path)
    assert manifest.table.dataset.value_counts().to_dict() == {"bus_bra": 30, "busi": 26}
    assert manifest.classes == ("benign", "malignant", "normal")
    assert set(manifest.table[manifest.table.dataset == "busi"].patient_id.isna()) == {True}
    assert manifest.table.groupby("group_id").dataset.nunique().max() == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "break_it", "says"),
    [
        ("bus_bra", lambda root: shutil.rmtree(root / "Images"), "no folder 'Images'. Found: Masks"),
        ("bus_bra", lambda root: (root / "Images/bus_0002-s.png").unlink(), "row 4 of bus_data.csv names 'bus_0002-s'"),
        ("bus_bra", lambda root: save(speckle(1), root / "Images/bus_0099-l.png"), "has no row for the image 'bus_009"),
        ("bus_bra", lambda root: save(speckle(1), root / "Masks/mask_0099-l.png"), "mask 'mask_0099-l.png' has no ima"),
        ("bus_bra", lambda root: (root / "10-fold-cv.csv").unlink(), "no file '10-fold-cv.csv'"),
        ("breast", lambda root: next(root.rglob("case002_tumor2.png")).unlink(), "names the mask 'case002_tumor2.png'"),
        ("breast", lambda root: next(root.rglob("case003.png")).unlink(), "row 4 of BrEaST-Lesions.*names 'case003.pn"),
        (
            "breast",
            lambda root: shutil.copy(next(root.glob("*.xlsx")), root / "BrEaST-Lesions-USG (1).xlsx"),
            "two wor",
        ),
        (
            "bus_uclm",
            lambda root: (root / "images/COPE_001.png").unlink(),
            "names 'COPE_001.png', which is not an ima",
        ),
        ("bus_uclm", lambda root: save(speckle(1), root / "masks/XXXX_000.png"), "mask 'XXXX_000.png' has no image"),
        (
            "curated_busi",
            lambda root: save(speckle(1), root / "images/cyst_id_1.png"),
            "is known for images/cyst_id_1",
        ),
        (
            "curated_busi",
            lambda root: (root / "images/benign_id_20.png").unlink(),
            "mask 'benign_id_20_mask.png' has",
        ),
        ("curated_busi", lambda root: shutil.rmtree(root / "masks"), "no folder 'masks'. Found: images"),
        ("gdph_sysucc", lambda root: shutil.rmtree(root / "GDPH"), "no folder 'GDPH'. Found: SYSUCC"),
        ("gdph_sysucc", lambda root: (root / "GDPH/benign(12).png").rename(root / "GDPH/x.png"), "for GDPH/x.png"),
        ("gdph_sysucc", lambda root: (root / "BIRADS&FOLD.xlsx").unlink(), "no file 'BIRADS&FOLD.xlsx'"),
        ("gdph_sysucc", lambda root: save(speckle(1), root / "GDPH/benign(0).png"), r"both .* image 'benign\(0\)'"),
        ("busis", lambda root: shutil.rmtree(root / "GT"), "no folder 'GT'. Found: Original"),
        ("busis", lambda root: (root / "Original/case3.bmp").unlink(), "row 4 of BUSIS562.csv names '3'"),
        ("breastmnist", lambda root: layouts.write_breastmnist(root, 64), "breastmnist.npz, breastmnist_64.npz; keep"),
        ("breastmnist", lambda root: (root / "breastmnist.npz").write_bytes(b"PK"), "breastmnist.npz cannot be used"),
    ],
)
def test_what_is_missing_or_too_many_is_named_beside_the_layout(tmp_path, name, break_it, says):
    root = BUILDERS[name](tmp_path / "data")
    break_it(root)
    card = load_card(name)
    with pytest.raises(UsvitError, match=says) as caught:
        manifest_of(name, root)
    assert card.layout.splitlines()[0] in str(caught.value)
    assert str(root) in str(caught.value)


@pytest.mark.slow
def test_official_folds_of_bus_bra_are_read_as_they_are(tmp_path):
    manifest = manifest_of("bus_bra", layouts.write_bus_bra(tmp_path / "data"))
    table = manifest.table.assign(case=manifest.table.patient_id.astype(int))
    assert (table.official_folds == [f"5:{case % 5} 10:{case % 10}" for case in table.case]).all()
    assert table.groupby("patient_id").official_folds.nunique().max() == 1
    assert set(table.device) == {"GE Logiq 5", "Toshiba"}
    assert set(table.birads) == {"2", "3", "4", "5"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda rows: [*rows, "bus_9999-l,benign,1\n"], "5-fold-cv.csv names the image 'bus_9999-l', which is not in"),
        (lambda rows: rows[:-2], "lacks 2 images of bus_data.csv, such as 'bus_0019-r'"),
        (lambda rows: [*rows, rows[-1]], "has two rows for the image 'bus_0020-s'"),
        (lambda rows: [rows[0], *(row[:-2] + "0\n" for row in rows[1:])], "must contain the numbers 1 to 5"),
        (lambda rows: [rows[0].replace("kFold", "fold"), *rows[1:]], "no column 'kFold'. It has: ID, Pathology, fold"),
    ],
)
def test_a_folds_file_that_does_not_fit_the_images_is_refused(tmp_path, change, says):
    root = layouts.write_bus_bra(tmp_path / "data")
    path = root / "5-fold-cv.csv"
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(UsvitError, match=says):
        manifest_of("bus_bra", root)


def test_a_patient_of_two_labels_is_refused_where_the_card_says_that_labels_are_patients(tmp_path):
    root = layouts.write_bus_bra(tmp_path / "data")
    path = root / "bus_data.csv"
    path.write_text(path.read_text().replace("bus_0001-r,1,Cyst,benign", "bus_0001-r,1,Cyst,malignant"))
    with pytest.raises(UsvitError, match=r"patient '1' .* two labels: benign \(Images/bus_0001-l.png\) and malignant"):
        manifest_of("bus_bra", root)


def test_an_unknown_pathology_is_named_with_its_row(tmp_path):
    root = layouts.write_bus_bra(tmp_path / "data")
    path = root / "bus_data.csv"
    path.write_text(path.read_text().replace("bus_0002-s,2,Cyst,benign", "bus_0002-s,2,Cyst,atypical"))
    with pytest.raises(
        UsvitError, match=r"row 4 of bus_data.csv has the unknown label 'atypical'; .* knows benign, mal"
    ):
        manifest_of("bus_bra", root)


@pytest.mark.slow
def test_breast_takes_tumour_masks_alone_and_says_what_confirmed_the_label(tmp_path):
    table = manifest_of("breast", layouts.write_breast(tmp_path / "data")).table.set_index("patient_id")
    folder = "BrEaST-Lesions_USG-images_and_masks"
    assert table.mask_path["2"] == f"{folder}/case002_tumor1.png|{folder}/case002_tumor2.png"
    assert pd.isna(table.mask_path["3"])
    assert table.label_source.to_dict()["4"] == "biopsy"
    assert table.label_source.to_dict()["1"] == "follow-up"
    assert table.label_source.to_dict()["3"] == "dataset"
    assert table.birads["1"] == "4a"


@pytest.mark.slow
def test_breast_may_have_its_images_beside_the_workbook(tmp_path):
    root = layouts.write_breast(tmp_path / "data")
    for path in [*root.rglob("*.png")]:
        path.rename(root / path.name)
    assert len(manifest_of("breast", root).table) == 9


@pytest.mark.slow
def test_colour_masks_of_bus_uclm_are_lesion_whatever_the_colour(tmp_path):
    root = layouts.write_bus_uclm(tmp_path / "data")
    table = manifest_of("bus_uclm", root).table
    for _, row in table.iterrows():
        mask = read_masks([root / row.mask_path], (40, 56))
        assert mask.sum() == (0 if row.label == "normal" else (layouts.blob() > 0).sum())
    assert set(table[table.patient_id == "ANFO"].label) == {"malignant", "normal"}  # one patient, images of two classes


def test_curated_busi_comes_by_class_and_number(tmp_path):
    table = manifest_of("curated_busi", layouts.write_curated_busi(tmp_path / "data")).table
    assert list(table.image_id) == ["benign_id_3", "benign_id_20", "malignant_id_1", "normal_id_7"]


@pytest.mark.slow
def test_gdph_sysucc_gives_both_readers_and_no_official_folds(tmp_path):
    table = manifest_of("gdph_sysucc", layouts.write_gdph_sysucc(tmp_path / "data")).table.set_index("image_id")
    assert table.birads["benign(0)"] == "3/4b"
    assert table.birads["malignant(1)"] == "4a/4b"
    assert table.path["malignant(13)"] == "GDPH/malignant(13).png"
    assert table.official_folds.isna().all()


@pytest.mark.slow
def test_busis_matches_rows_and_files_by_their_number(tmp_path):
    table = manifest_of("busis", layouts.write_busis(tmp_path / "data")).table.set_index("image_id")
    assert table.label.to_dict()["case2"] == "benign"
    assert table.label.to_dict()["case11"] == "malignant"
    assert table.mask_path["case10"] == "GT/case10_GT.bmp"


@pytest.mark.slow
def test_breastmnist_frames_run_over_train_val_and_test(tmp_path):
    root = layouts.write_breastmnist(tmp_path / "data")
    table = manifest_of("breastmnist", root).table
    arrays = np.load(root / "breastmnist.npz")
    assert list(table.frame) == list(range(36))
    assert list(table.image_id[[0, 20, 26, 35]]) == ["train-0000", "val-0000", "test-0000", "test-0009"]
    for position, part, number in ((0, "train", 0), (25, "val", 5), (26, "test", 0), (35, "test", 9)):
        pixels = read_image(root / "breastmnist.npz", int(table.frame[position]))
        assert (pixels == arrays[f"{part}_images"][number][:, :, None]).all()
        assert (table.label[position] == "malignant") == (arrays[f"{part}_labels"][number, 0] == 0)
    assert table.official_folds.isna().all()


@pytest.mark.slow
def test_images_without_a_row_are_counted(tmp_path):
    root = layouts.write_gdph_sysucc(tmp_path / "data")
    write_sheet(root / "BIRADS&FOLD.xlsx", [["ID", "BIRADS-reader1"], ["benign(0)", 3]])
    with pytest.raises(UsvitError, match=r"has no row for the image 'benign\(10\).png' and 22 more"):
        manifest_of("gdph_sysucc", root)


def test_words_become_classes_whatever_their_case():
    uclm, folder = load_card("bus_uclm"), load_card("folder")
    assert class_of("MALIGNANT", uclm) == "malignant"
    assert class_of("cyst", uclm) is None
    assert class_of("Cyst", folder) == "Cyst"
    assert class_of("", folder) is None
