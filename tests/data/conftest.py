"""Small data sets in the layouts of the real ones: files on the disk, read by the code that reads the real ones."""

from pathlib import Path

import numpy as np
import openpyxl
import pytest
from PIL import Image

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


@pytest.fixture
def busi(tmp_path: Path) -> Path:
    return write_busi(tmp_path / "Dataset_BUSI_with_GT")


@pytest.fixture
def dataset_b(tmp_path: Path) -> Path:
    return write_b(tmp_path / "DatasetB")


@pytest.fixture(autouse=True)
def _no_data_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USVIT_DATA", raising=False)
