"""Small data sets in the layouts of the real ones: files on the disk, read by the code that reads the real ones."""

import zlib
from pathlib import Path

import numpy as np
import openpyxl
import pytest
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.uid import (
    BasicTextSRStorage,
    ExplicitVRLittleEndian,
    UltrasoundImageStorage,
    UltrasoundMultiFrameImageStorage,
)

BUSI_COUNTS = {"benign": 12, "malignant": 8, "normal": 6}
B_LABELS = ["Benign", "Malignant", "Benign", "Benign", "Malignant", "Benign", "Malignant", "Benign"]


def speckle(seed: int, height: int = 40, width: int = 56) -> np.ndarray:
    """(H, W) uint8 with the histogram of speckle; another seed gives another image."""
    envelope = np.random.default_rng(seed).rayleigh(45, (height, width))
    return envelope.clip(0, 255).astype(np.uint8)


def save(pixels: np.ndarray, path: Path, mode: str | None = None, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def blob(height: int = 40, width: int = 56, left: int = 10) -> np.ndarray:
    """(H, W) uint8 mask of one rectangular lesion."""
    mask = np.zeros((height, width), np.uint8)
    mask[12:25, left : left + 12] = 255
    return mask


def write_busi(root: Path) -> Path:
    """The release's layout in small: 26 images, 28 masks, and the oddities of the real one."""
    seed = 0
    for label, count in BUSI_COUNTS.items():
        for number in range(1, count + 1):
            seed += 1
            stem = f"{label} ({number})"
            save(speckle(seed), root / label / f"{stem}.png", "RGB")
            mask = np.zeros((40, 56), np.uint8) if label == "normal" else blob()
            save(mask, root / label / f"{stem}_mask.png")
    # Several masks of one image, an RGBA mask, a 1-bit mask, an image with colour.
    save(blob(left=35), root / "benign" / "benign (10)_mask_1.png")
    save(blob(left=0), root / "benign" / "benign (10)_mask_2.png")
    save(blob(), root / "malignant" / "malignant (3)_mask.png", "RGBA")
    save(blob(), root / "malignant" / "malignant (4)_mask.png", "1")
    coloured = np.stack([speckle(100), speckle(101), speckle(102)], axis=2)
    save(coloured, root / "benign" / "benign (5).png")
    # What operating systems leave behind.
    (root / "benign" / ".DS_Store").write_bytes(b"\0\0\0\1Bud1")
    (root / "benign" / "Thumbs.db").write_bytes(b"\xd0\xcf\x11\xe0")
    (root / "malignant" / "._malignant (1).png").write_bytes(b"\0\5\x16\7")
    return root


def b_image(number: int) -> np.ndarray:
    return speckle(1000 + number)


def write_sheet(path: Path, rows: list[list[object]]) -> Path:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def b_rows() -> list[list[object]]:
    """As in the release: names have become numbers."""
    return [["Image", "Type"], *([number, label] for number, label in enumerate(B_LABELS, start=1))]


def write_b(root: Path, sheet: str = "xlsx") -> Path:
    """``original/``, ``GT/`` and a table of the classes: ``xlsx`` or ``csv``."""
    for number in range(1, len(B_LABELS) + 1):
        save(b_image(number), root / "original" / f"{number:06}.png")
        save(blob(), root / "GT" / f"{number:06}.png")
    if sheet == "xlsx":
        write_sheet(root / "DatasetB.xlsx", b_rows())
    else:
        rows = [f"{number:06}.png,{label.upper()}\n" for number, label in enumerate(B_LABELS, start=1)]
        (root / "labels.csv").write_text("file,class\n" + "".join(rows))
    return root


def write_b_by_class(root: Path) -> Path:
    """``Benign/`` and ``Malignant/`` with the masks in ``GT/``."""
    for number, label in enumerate(B_LABELS, start=1):
        save(b_image(number), root / label / f"{number:06}.png")
        save(blob(), root / "GT" / f"{number:06}.png")
    return root


def write_csv(path: Path, rows: list[list[object]], separator: str = ",") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(separator.join(map(str, row)) + "\n" for row in rows))
    return path


def write_bus_bra(root: Path, patients: int = 20) -> Path:
    """Two views of every odd patient; every third patient is malignant; five- and ten-fold files by patient."""
    rows: list[list[object]] = [
        ["ID", "Case", "Histology", "Pathology", "BIRADS", "Device", "Width", "Height", "Side", "BBOX"]
    ]
    folds: dict[int, list[list[object]]] = {number: [["ID", "Pathology", "kFold"]] for number in (5, 10)}
    for case in range(1, patients + 1):
        pathology = "benign" if case % 3 else "malignant"
        for side in "lr" if case % 2 else "s":
            name = f"{case:04}-{side}"
            save(speckle(2000 + len(rows)), root / "Images" / f"bus_{name}.png")
            save(blob(), root / "Masks" / f"mask_{name}.png")
            device = ["GE Logiq 5", "Toshiba"][case % 2]
            rows.append([f"bus_{name}", case, "Cyst", pathology, 2 + case % 4, device, 56, 40, side, '"[1,1,5,5]"'])
            for number, fold in folds.items():
                fold.append([f"bus_{name}", pathology, case % number + 1])
    write_csv(root / "bus_data.csv", rows)
    for number, fold in folds.items():
        write_csv(root / f"{number}-fold-cv.csv", fold)
    return root


def write_breast(root: Path) -> Path:
    """Nine cases: case 3 is normal, case 2 has two tumour masks and one of something else."""
    folder = root / "BrEaST-Lesions_USG-images_and_masks"
    names = ["CaseID", "Image_filename", "Mask_tumor_filename", "Mask_other_filename", "Pixel_size", "Age"]
    rows: list[list[object]] = [[*names, "Verification", "BIRADS", "Classification"]]
    for case in range(1, 10):
        stem = f"case{case:03}"
        save(speckle(3000 + case), folder / f"{stem}.png", "RGBA")
        masks = {2: [f"{stem}_tumor1.png", f"{stem}_tumor2.png"], 3: []}.get(case, [f"{stem}_tumor.png"])
        others = [f"{stem}_other1.png"] if case == 2 else []
        for number, name in enumerate(masks + others):
            save(blob(left=10 * number), folder / name, "RGBA")
        label, how = ("normal", "not applicable") if case == 3 else ("benign", "confirmed by follow-up care")
        if case % 4 == 0:
            label, how = "malignant", "confirmed by biopsy"
        birads = "4a" if case % 2 else 5
        rows.append([case, f"{stem}.png", "&".join(masks), "&".join(others), 0.0071, 50, how, birads, label])
    write_sheet(root / "BrEaST-Lesions-USG-clinical-data-Dec-15-2023.xlsx", rows)
    return root


def write_bus_uclm(root: Path) -> Path:
    """Six patients of three images; masks in the colour of the class, black for normal."""
    rows: list[list[object]] = [["Image", "Resolution", "Label", "Doppler", "Marks", "Combined"]]
    patients = ("ALWI", "ANFO", "COPE", "ELCO", "FLKA", "VITR")
    for patient, label in zip(patients, ("Benign", "Malignant") * 3, strict=True):
        for number in range(3):
            name = f"{patient}_{number:03}.png"
            this = "Normal" if number == 2 else label
            save(speckle(4000 + len(rows)), root / "images" / name)
            colour = {"Benign": [0, 1, 0], "Malignant": [1, 0, 0], "Normal": [0, 0, 0]}[this]
            save((blob()[:, :, None] * np.array(colour)).astype(np.uint8), root / "masks" / name)
            rows.append([name, "56x40", this, "No", "Yes" if number else "No", "No"])
    write_csv(root / "INFO.csv", rows, ";")
    return root


def write_curated_busi(root: Path) -> Path:
    for index, (label, number) in enumerate([("benign", 20), ("benign", 3), ("malignant", 1), ("normal", 7)]):
        save(speckle(5000 + index), root / "images" / f"{label}_id_{number}.png")
        save(blob(), root / "masks" / f"{label}_id_{number}_mask.png")
    return root


def write_gdph_sysucc(root: Path) -> Path:
    rows: list[list[object]] = [["ID", "BIRADS-reader1", "BIRADS-reader2", "fold"]]
    for hospital, first in (("SYSUCC", 0), ("GDPH", 12)):
        for number in range(first, first + 12):
            label = "malignant" if number % 2 else "benign"
            save(speckle(6000 + number), root / hospital / f"{label}({number}).png")
            rows.append([f"{label}({number})", "4A" if number % 3 else 3, "4b", number % 5 + 1])
    write_sheet(root / "BIRADS&FOLD.xlsx", rows)
    return root


def write_busis(root: Path) -> Path:
    rows: list[list[object]] = [["img name", "Ground Truth Name", "tumor type"]]
    for number in range(1, 12):
        save(speckle(7000 + number), root / "Original" / f"case{number}.bmp")
        save(blob(), root / "GT" / f"case{number}_GT.bmp")
        rows.append([f"case{number:03}", f"case{number:03}_GT", "BM"[number % 2]])
    write_csv(root / "BUSIS562.csv", rows)
    return root


def write_breastmnist(root: Path, side: int = 28) -> Path:
    """20 training, 6 validation and 10 test images; label 0 is malignant."""
    root.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for part, count, seed in (("train", 20, 0), ("val", 6, 100), ("test", 10, 200)):
        arrays[f"{part}_images"] = np.stack([speckle(8000 + seed + number, side, side) for number in range(count)])
        arrays[f"{part}_labels"] = (np.arange(count)[:, None] % 3 > 0).astype(np.uint8)
    np.savez_compressed(root / ("breastmnist.npz" if side == 28 else f"breastmnist_{side}.npz"), **arrays)
    return root


def write_dicom(path: Path, pixels: np.ndarray | None, **tags: object) -> Path:
    """An uncompressed ultrasound file; (H, W) or (frames, H, W) uint8 or uint16 grey, (H, W, 3) RGB; None: a report."""
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = pixels is not None and pixels.ndim == 3 and pixels.shape[2] != 3
    image = UltrasoundMultiFrameImageStorage if frames else UltrasoundImageStorage
    data = Dataset()
    data.SOPClassUID = BasicTextSRStorage if pixels is None else image
    data.SOPInstanceUID = f"1.2.3.{zlib.crc32(path.name.encode())}"
    data.StudyInstanceUID, data.PatientID, data.ManufacturerModelName = "1.2.4", "MRN-1", "LOGIQ E9"
    data.Modality = "US"
    if pixels is not None:
        colour = pixels.ndim == 3 and pixels.shape[2] == 3
        data.SamplesPerPixel = 3 if colour else 1
        data.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
        data.Rows, data.Columns = pixels.shape[:2] if colour or pixels.ndim == 2 else pixels.shape[1:]
        if colour:
            data.PlanarConfiguration = 0
        elif pixels.ndim == 3:
            data.NumberOfFrames = len(pixels)
        data.BitsAllocated = data.BitsStored = pixels.dtype.itemsize * 8
        data.HighBit = data.BitsStored - 1
        data.PixelRepresentation = int(pixels.dtype.kind == "i")
        raw = pixels.tobytes()
        data.add_new("PixelData", "OB" if pixels.dtype.itemsize == 1 else "OW", raw + b"\0" * (len(raw) % 2))
    for name, value in tags.items():
        setattr(data, name, value)
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID
    data.save_as(path, enforce_file_format=True)
    return path


@pytest.fixture
def busi(tmp_path: Path) -> Path:
    return write_busi(tmp_path / "Dataset_BUSI_with_GT")


@pytest.fixture
def dataset_b(tmp_path: Path) -> Path:
    return write_b(tmp_path / "DatasetB")


@pytest.fixture(autouse=True)
def _no_data_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USVIT_DATA", raising=False)


def tissue_region(left: int, top: int, right: int, bottom: int) -> Dataset:
    """A 2-D tissue region of 0.1 mm a pixel; right and bottom are exclusive (PS3.3 C.8.5.5.1.2)."""
    one = Dataset()
    one.RegionSpatialFormat, one.RegionDataType, one.RegionFlags = 1, 1, 2
    one.RegionLocationMinX0, one.RegionLocationMinY0 = left, top
    one.RegionLocationMaxX1, one.RegionLocationMaxY1 = right - 1, bottom - 1
    one.PhysicalUnitsXDirection = one.PhysicalUnitsYDirection = 3
    one.PhysicalDeltaX = one.PhysicalDeltaY = 0.01
    return one
