import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import TINY
from tests.data.conftest import blob, save, speckle, write_dicom
from tests.data.io.videos import uncompressed
from usvit.data.datasets.cards import DataCard, OwnTable, load_card
from usvit.data.datasets.identities import Identities
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.manifest import build_manifest
from usvit.data.datasets.readers import folder as reader
from usvit.data.io.formats import PICTURE_FORMATS
from usvit.errors import UsvitError
from usvit.progress import NoProgress

CARD = load_card("folder")


def mine(**fields: object) -> DataCard:
    return DataCard.model_validate({**CARD.model_dump(), **fields})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Twelve images a class, the same file names in both; one has two masks."""
    for seed, label in enumerate(("benign", "malignant")):
        for number in range(12):
            save(speckle(100 * seed + number), tmp_path / "mine" / label / f"{number}.png")
    for name, left in (("3_mask", 0), ("3_mask_1", 30)):
        save(blob(left=left), tmp_path / "mine" / "malignant" / f"{name}.png")
    return tmp_path / "mine"


def test_folders_are_classes_and_ids_do_not_collide(root):
    records = open_dataset(CARD, {"": root}, NoProgress())[1]
    assert len(records) == len({record.image_id for record in records}) == 24
    assert [record.image_id for record in records[:2]] == ["benign/0", "benign/1"]
    assert {record.label for record in records if record.path.parts[0] == "malignant"} == {"malignant"}
    masks = {record.image_id: record.mask_paths for record in records if record.mask_paths}
    assert masks == {"malignant/3": (Path("malignant/3_mask.png"), Path("malignant/3_mask_1.png"))}


def test_a_card_maps_folders_to_classes(root):
    (root / "benign").rename(root / "B")
    (root / "malignant").rename(root / "CANCER")
    card = mine(
        classes={"benign": None, "malignant": None},
        labels={"b": "benign", "cancer": "malignant"},
        positive_class="malignant",
    )
    assert {record.label for record in reader.read(root, card)} == {"benign", "malignant"}


@pytest.mark.slow
def test_a_cross_validation_runs_on_class_folders(root, usvit, tmp_path):
    out = tmp_path / "run"
    answer = usvit("cv", "--dataset", "folder", "--data-root", root, *TINY, "--out", out)
    assert answer.code == 0, answer.err
    assert (out / "report.html").is_file()


def test_classes_without_a_malignant_one_need_a_positive_class(root):
    (root / "malignant").rename(root / "cyst")
    with pytest.raises(UsvitError, match=r"positive class is not known \(classes: benign, cyst\)"):
        build_manifest("folder", {"": root}, NoProgress())


@pytest.mark.parametrize(("other", "positive"), [("cyst", "cyst"), ("benign", None)])
def test_the_only_class_beside_normal_is_positive_unless_it_is_benign_or_another_is_named(root, other, positive):
    (root / "benign").rename(root / "normal")
    (root / "malignant").rename(root / other)
    if positive is None:
        with pytest.raises(UsvitError, match=r"positive class is not known \(classes: benign, normal\)"):
            build_manifest("folder", {"": root}, NoProgress())
    else:
        assert build_manifest("folder", {"": root}, NoProgress()).positive_class == positive
    with pytest.raises(UsvitError, match="positive class"):
        build_manifest("folder", {"": root}, NoProgress(), own=OwnTable(positive="lump"))


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("stray.png", "no class is known for stray.png"),
        ("benign/patient1/a.png", "no class is known for benign/patient1/a.png"),
        ("benign/patient1/left/a.png", "no class is known for benign/patient1/left/a.png"),
        ("benign/99_mask.png", "the mask '99_mask.png' in 'benign' has no image '99'"),
        ("cyst/a.png", "the folder 'cyst' is not a class of the data card 'folder', which has benign, malignant"),
    ],
)
def test_an_image_that_belongs_nowhere_is_named(root, place, says):
    save(speckle(9), root / place)
    card = mine(classes={"benign": None, "malignant": None}, positive_class="malignant")
    with pytest.raises(UsvitError, match=says) as caught:
        open_dataset(card, {"": root}, NoProgress(), Identities(kept=True))
    assert "benign/a.png" in str(caught.value)  # the layout


def test_dicom_files_are_not_left_out_silently(root):
    write_dicom(root / "benign" / "a.dcm", speckle(1))
    with pytest.raises(UsvitError, match=r"'benign' contains DICOM files \(a.dcm\): use the data set 'dicom'"):
        reader.read(root, CARD)


@pytest.mark.slow
def test_two_files_of_one_name_are_refused(root):
    save(speckle(5), root / "benign" / "3.jpg")
    with pytest.raises(UsvitError, match=r"Two images have one id, 'benign/3': benign/3.jpg and benign/3.png"):
        build_manifest("folder", {"": root}, NoProgress(), keep_ids=True)


def test_a_file_of_several_frames_is_refused_and_never_its_first_frame_used(root):
    frames = [Image.fromarray(speckle(seed)) for seed in (50, 51)]
    for name in ("a.gif", "b.webp", "c.tif", "d.png"):
        path = root / "benign" / name
        frames[0].save(path, save_all=True, append_images=frames[1:], lossless=True)
        with pytest.raises(UsvitError, match="several_frames"):
            build_manifest("folder", {"": root}, NoProgress())
        path.unlink()
    loop = np.repeat(np.stack([speckle(50), speckle(51)])[..., None], 3, axis=3)
    (root / "benign" / "e.avi").write_bytes(uncompressed(loop))
    with pytest.raises(UsvitError, match="several_frames"):
        build_manifest("folder", {"": root}, NoProgress())
    (root / "benign" / "e.avi").write_bytes(uncompressed(loop[:1]))
    frames[0].save(root / "benign" / "still.gif")
    assert len(build_manifest("folder", {"": root}, NoProgress()).table) == 26


def test_every_format_is_read_and_a_range_that_was_assumed_is_warned_of(root, caplog):
    pictures = sorted(suffix for one in PICTURE_FORMATS if one.pillow for suffix in one.suffixes)
    for number, suffix in enumerate(pictures):
        save(speckle(200 + number), root / "benign" / f"of{suffix[1:]}{suffix}")
    save(speckle(300).astype(np.uint16) * 16, root / "benign" / "deep.png")
    manifest = build_manifest("folder", {"": root}, NoProgress())
    assert len(manifest.table) == 24 + len(pictures) + 1
    assert f"1 of the {len(manifest.table)} images have more than 8 bits" in caplog.text


@pytest.mark.parametrize("name", ["a.heic", "B.AVIF", "loop.wmv"])
def test_a_picture_of_another_format_is_not_left_out_without_a_word(root, name):
    (root / "benign" / name).write_bytes(b"anything")
    with pytest.raises(UsvitError, match="format is not read: convert it to PNG"):
        open_dataset(CARD, {"": root}, NoProgress(), Identities(kept=True))


@pytest.mark.parametrize("place", ["{label}/P{patient}", "P{patient}/{label}"])
def test_folders_of_patients_are_guessed_on_either_side_of_the_class(tmp_path, place):
    for seed, label in enumerate(("benign", "malignant")):
        for number in range(6):
            folder = tmp_path / place.format(label=label, patient=number // 2 + 3 * seed)
            save(speckle(100 * seed + number), folder / f"{label[0]}{number}.png")
    records = open_dataset(CARD, {"": tmp_path}, NoProgress())[1]
    assert len(records) == 12
    assert {record.patient_id: record.label for record in records} == {
        f"P{patient}": "benign" if patient < 3 else "malignant" for patient in range(6)
    }


@pytest.mark.parametrize("outer", ["train", "mine"])
def test_splits_and_a_single_folder_around_the_classes_are_not_patients(tmp_path, outer):
    for name in (outer, *(["test", "a", "b", "c"] if outer == "train" else [])):
        for label in ("benign", "malignant"):
            save(speckle(1), tmp_path / name / label / "1.png")
    if outer == "train":
        with pytest.raises(UsvitError, match="no class is known for a/benign"):
            reader.read(tmp_path, CARD)
    else:
        records = open_dataset(CARD, {"": tmp_path}, NoProgress())[1]
        assert {record.patient_id for record in records} == {None}


def test_what_was_understood_of_own_images_is_said_before_they_are_read(root, caplog):
    (root / "benign" / "3.png").write_bytes(b"not an image")
    with caplog.at_level("INFO"), pytest.raises(UsvitError, match="cannot be read"):
        build_manifest("folder", {"": root}, NoProgress())
    assert "benign 12, malignant 12; no patients, so only near-duplicates stay together" in caplog.text


def test_a_file_whose_name_is_not_utf8_is_refused_by_name(root):
    (root / "benign" / "3.png").rename(root / "benign" / os.fsdecode(b"\xff\xfe.png"))
    with pytest.raises(UsvitError, match=r"\\xff\\xfe\.png is not valid UTF-8.*Rename the file"):
        open_dataset(CARD, {"": root}, NoProgress(), Identities(kept=True))
