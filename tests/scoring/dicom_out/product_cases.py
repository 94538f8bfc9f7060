"""What the tests of reports, captures and overlays share: sources, rows, and the tools that judge."""

import datetime
import hashlib
import subprocess
from pathlib import Path

import numpy as np
from pydicom.sequence import Sequence

from tests.data.conftest import speckle, tissue_region, write_dicom
from tests.programs import tool
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.findings import ScoringModel
from usvit.scoring.dicom_out.network_maps import NetworkMaps
from usvit.scoring.dicom_out.products import KINDS, MOST_FRAMES, Order, write_products
from usvit.scoring.items import ReadSettings, ScoringItem
from usvit.scoring.reading.item_reader import file_sha256_of

STARTED = datetime.datetime(2026, 11, 21, 20, 30, 15)
SETTINGS = ReadSettings(image_size=32, resize="pad", crop="tissue")
SCORER = ScoringModel(
    "vit_b32",
    hashlib.sha256(b"weights").hexdigest(),
    ("benign", "malignant", "normal"),
    "malignant",
    n_members=5,
    resize="pad",
)


def pseudonyms() -> Pseudonyms:
    return Pseudonyms(bytes(range(32)))  # a fixed key: of a random one, an id may hold a planted year by chance


def row(item_id: str, frame: int = 0, *, n_frames: int = 1, p: float = 0.75, kind: str = "dicom", **more) -> dict:
    """A row of scores.csv, as far as products need it; ``p`` is the calibrated probability."""
    return {
        "item_id": item_id,
        "frame": frame,
        "kind": kind,
        "n_frames": n_frames,
        "prob_benign": 0.9 * (1 - p),
        "prob_malignant": p,
        "abstained": "",
        "prob_normal": 0.1 * (1 - p),
        "calibrated_malignant": p,
        "spread_malignant": 0.0625,
        "decision": "malignant" if p >= 0.4 else "not malignant",
        "threshold": 0.4,
        "threshold_origin": "sensitivity >= 0.9 on 780 out-of-fold images",
        "novelty": 0.5,
        "unusual": False,
        "flags": "",
        **more,
    }


def rows(item_id: str, n_frames: int, **more) -> list[dict]:
    """Frame k of n has the probability (k + 1/2) / n."""
    return [row(item_id, k, n_frames=n_frames, p=(k + 0.5) / n_frames, **more) for k in range(n_frames)]


KNOWN = {
    "PatientName": "Doe^Jane",
    "PatientID": "MRN-4711",
    "PatientBirthDate": "19570203",
    "PatientSex": "F",
    "StudyDate": "20190807",
    "StudyTime": "101112",
    "AccessionNumber": "ACC-99",
    "StudyID": "ST-5",
    "ReferringPhysicianName": "House^Greg",
    "InstitutionName": "Mercy Hospital",
    "StudyInstanceUID": "1.2.826.0.1.3680043.8.498.1",
    "SeriesInstanceUID": "1.2.826.0.1.3680043.8.498.2",
    "SOPInstanceUID": "1.2.826.0.1.3680043.8.498.3",
}


def source(tmp_path: Path, n_frames: int = 1, *, size: tuple[int, int] = (96, 128), **tags) -> ScoringItem:
    """A DICOM file of ``n_frames`` of random speckle, in which the detector of words sees none at the usual size."""
    shape = size if n_frames == 1 else (n_frames, *size)
    pixels = np.resize(speckle(3, *size), shape)
    path = write_dicom(tmp_path / "in" / "Doe_Jane.dcm", pixels, **{**KNOWN, **tags})
    return ScoringItem("export/Doe_Jane.dcm", str(path))


def cut_source(tmp_path: Path, n_frames: int = 1, **tags) -> ScoringItem:
    """As ``source``, with a tissue region of 80 x 64 px in it."""
    return source(tmp_path, n_frames, SequenceOfUltrasoundRegions=Sequence([tissue_region(24, 16, 104, 80)]), **tags)


def person(folder: Path, name: str, number: int, size: tuple[int, int] = (96, 128)) -> ScoringItem:
    """A DICOM file of one patient."""
    own = {"PatientID": f"MRN-{number}", "PatientName": f"{name}^X", "SOPInstanceUID": f"1.2.3.{number}"}
    path = write_dicom(folder / f"{name}.dcm", speckle(number, *size), **{**KNOWN, **own})
    return ScoringItem(path.name, str(path))


def swap(one: Path, other: Path) -> None:
    aside = one.with_suffix(".aside")
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def order(
    tmp_path: Path, out: Path, wanted=KINDS, *, keep_ids: bool = False, pictures: bool = True, most: int = MOST_FRAMES
) -> Order:
    """What all tests order alike."""
    return Order(out, SCORER, frozenset(wanted), keep_ids, pictures, pseudonyms(), STARTED, SETTINGS, most)


def scored(item: ScoringItem, table: list[dict]) -> list[dict]:
    """The rows with the hash of the file as it is now, where they have none."""
    return [{"file_sha256": file_sha256_of(item, SETTINGS) or "absent", **one} for one in table]


def make(
    tmp_path: Path, item: ScoringItem, table: list[dict], wanted=KINDS, *, out: str = "out", saliency=None, **more
):
    """``write_products`` of one item, as if it had just been scored; (folder, products)."""
    n_failed, lesion = more.pop("n_failed", 0), more.pop("lesion", np.zeros((32, 32), np.float32))
    maps = NetworkMaps(saliency or {}, {one["frame"]: lesion for one in table})
    folder = tmp_path / out
    return folder, write_products(order(tmp_path, folder, wanted, **more), item, scored(item, table), maps, n_failed)


IODS = (
    *("ComprehensiveSR", "SCImage", "MultiframeTrueColorSCImage"),
    *("GrayscaleSoftcopyPresentationState", "ColorSoftcopyPresentationState", "Segmentation"),
)
"""Names that dciodvfy gives to the objects that we write."""


def iod_errors(path: Path) -> list[str]:
    """What dciodvfy calls an error."""
    done = subprocess.run([tool("dciodvfy"), "-new", str(path)], capture_output=True, text=True, errors="replace")
    lines = (done.stdout + done.stderr).splitlines()
    assert any(name in lines for name in IODS), lines
    return [line for line in lines if line.startswith(("Error", "FATAL"))]


ODD_HEADERS = {
    "plain": {},
    "no series": {"SeriesInstanceUID": None},
    "no study": {"StudyInstanceUID": None},
    "no patient": {"PatientID": None, "PatientName": None, "PatientBirthDate": None, "PatientSex": None},
    "empty values": {name: "" for name in KNOWN if name not in ("SOPInstanceUID", "StudyInstanceUID")},
    "dates that are none": {"PatientBirthDate": "unknown", "StudyDate": "07.08.2019", "StudyTime": "noon"},
    "another sex": {"PatientSex": "female"},
    "other letters": {"SpecificCharacterSet": "ISO_IR 100", "PatientName": "Müller^Jörg", "StudyID": "Ü1"},
    "a character set that is none": {"SpecificCharacterSet": "NO_SUCH", "StudyID": "X"},
    "retired class": {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.6"},
    "a capture": {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.7"},
}
"""Headers that are met: what changes in ``KNOWN``; None: absent."""


def odd_source(tmp_path: Path, name: str, n_frames: int = 1) -> ScoringItem:
    """A cut source with one of ``ODD_HEADERS``."""
    import pydicom

    item = cut_source(tmp_path, n_frames)
    data = pydicom.dcmread(item.location)
    with pydicom.config.disable_value_validation():
        for keyword, value in ODD_HEADERS[name].items():
            if value is None:
                del data[keyword]
            else:
                setattr(data, keyword, value)
        data.save_as(item.location)
    return item
