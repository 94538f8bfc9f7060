"""Simulate a PACS export: nested folders, odd names, colour and grey, loops, damaged files, identities.

All images are phantoms, and all persons are invented. The tests of scoring and ``score_throughput.py`` use it.

    python -m benchmarks.messy_export FOLDER [--n 2000] [--damaged 0.05] [--size 256]
"""

import argparse
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence
from pydicom.uid import (
    DeflatedExplicitVRLittleEndian,
    ExplicitVRLittleEndian,
    ImplicitVRLittleEndian,
    JPEG2000Lossless,
    JPEGBaseline8Bit,
    RLELossless,
    UltrasoundImageStorage,
    UltrasoundMultiFrameImageStorage,
    generate_uid,
)

from usvit.data.phantom import PhantomSpec, write_phantom

UInt8 = NDArray[np.uint8]

NAMES = ("Nováková^Jana", "OConnor^Mary", "Müller^Greta", "Smith^Anne^Lee", "Dvořák^Eva", "Garcia^Lucia")
HOSPITAL = "Fictional General Hospital"


@dataclass
class Export:
    """Files that ``make_export`` wrote."""

    folder: Path
    good: list[Path] = field(default_factory=list)
    """Files that hold at least one image."""
    frames: int = 0
    """Images in ``good``."""
    bad: dict[Path, str] = field(default_factory=dict)
    """File -> the kind of damage."""
    links: list[Path] = field(default_factory=list)
    """Links that lead back to a folder above."""
    secrets: set[str] = field(default_factory=set)
    """Every identifier in a header, a file name or a folder name."""


def phantoms(folder: Path, n: int, size: int, seed: int = 0) -> list[UInt8]:
    """Return (H, W) uint8 phantoms, at most 200 different ones, because their content is not tested."""
    made = write_phantom(PhantomSpec(n=max(min(n, 200), 24), seed=seed, size=size), folder)
    files = sorted(path for path in made.rglob("*.png") if not path.stem.endswith("_mask"))
    return [np.asarray(Image.open(path).convert("L")) for path in files]


def make_export(folder: Path, images: list[UInt8], n: int, *, damaged: float = 0.05, seed: int = 0) -> Export:
    """Write ``n`` files, a share of which is damaged, and one link that forms a loop.

    Args:
        folder: Folder to create.
        images: Images that the files show, in turn.
        n: Number of files, without links.
        damaged: Share of damaged files; the kinds of damage take turns.
        seed: Seed of all random choices.
    """
    rng = np.random.default_rng(seed)
    export = Export(folder)
    broken = set(rng.choice(n, round(n * damaged), replace=False).tolist())
    kinds = [*HEALTHY, *HEALTHY[:4], "picture"]
    for number in range(n):
        name = NAMES[number // 7 % len(NAMES)]
        patient = f"PID{seed}{number // 7:06d}"
        place = (
            folder / f"{name.replace('^', ' ')} {patient}" / f"Study {number // 3 % 3}" / ("A", "x y", "Ž")[number % 3]
        )
        place.mkdir(parents=True, exist_ok=True)
        export.secrets |= {patient, *(part for part in name.split("^") if len(part) > 4)}
        image = images[number % len(images)]
        if number in broken:
            how = list(DAMAGE)[len(export.bad) % len(DAMAGE)]
            path = place / f"IM{number:05d}{'.dcm' if number % 2 else ''}"
            DAMAGE[how](path, image, patient, name)
            export.bad[path] = how
            continue
        kind = kinds[number % len(kinds)]
        if kind == "picture":
            suffix = (".png", ".jpg", ".tif", ".bmp", ".dcm")[number // len(kinds) % 5]
            path = place / f"{name.split('^')[0]} {number}{suffix}"
            export.secrets.add(path.stem)
            Image.fromarray(image).save(path, format="PNG" if suffix == ".dcm" else None)
            frames = 1
        else:
            path = place / (f"IM{number:05d}", f"{number}.DCM", f"I {number}.dcm", f"{patient}_{number}")[number % 4]
            frames = 3 if kind == "loop" else 1
            path.write_bytes(dicom(image, kind, patient, name, export.secrets))
        export.good.append(path)
        export.frames += frames
    loop = folder / "back"
    if hasattr(os, "symlink"):
        loop.symlink_to(folder, target_is_directory=True)
        export.links.append(loop)
    return export


HEALTHY = (
    "grey",
    "implicit",
    "rgb",
    "rle",
    "jpeg",
    "jpeg2000",
    "deflated",
    "monochrome1",
    "sixteen",
    "regions",
    "loop",
)


def dicom(image: UInt8, kind: str, patient: str, name: str, secrets: set[str] | None = None) -> bytes:
    """Return the bytes of a file of one kind in ``HEALTHY``."""
    dataset = header(patient, name, secrets)
    pixels: NDArray[Any] = image
    if kind == "rgb":
        pixels = np.stack([image] * 3, axis=2)
    elif kind == "monochrome1":
        pixels = (255 - image).astype(np.uint8)
    elif kind == "loop":
        pixels = np.stack([image, np.flip(image, 1), np.roll(image, 5, 1)])
        dataset.SOPClassUID = dataset.file_meta.MediaStorageSOPClassUID = UltrasoundMultiFrameImageStorage
        dataset.NumberOfFrames = 3
    describe(dataset, pixels, colour=kind == "rgb", frames=kind == "loop")
    if kind == "monochrome1":
        dataset.PhotometricInterpretation = "MONOCHROME1"
    if kind == "sixteen":
        dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 12, 11
        pixels = image.astype("<u2") << 4
    if kind == "regions":
        height, width = image.shape
        region = Dataset()
        region.RegionSpatialFormat = region.RegionDataType = 1
        region.RegionFlags = 0
        region.RegionLocationMinX0 = region.RegionLocationMinY0 = 8
        region.RegionLocationMaxX1, region.RegionLocationMaxY1 = width - 9, height - 9
        region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3
        region.PhysicalDeltaX = region.PhysicalDeltaY = 0.01
        dataset.SequenceOfUltrasoundRegions = Sequence([region])
    dataset.PixelData = pixels.tobytes()
    if kind == "implicit":
        dataset.file_meta.TransferSyntaxUID = ImplicitVRLittleEndian
    elif kind == "deflated":
        dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    elif kind == "rle":
        dataset.compress(RLELossless, generate_instance_uid=False)
    elif kind == "jpeg2000":
        dataset.compress(JPEG2000Lossless, generate_instance_uid=False)
    elif kind == "jpeg":
        coded = io.BytesIO()
        Image.fromarray(pixels).save(coded, "JPEG", quality=92)
        dataset.PixelData = encapsulate([coded.getvalue()])
        dataset["PixelData"].is_undefined_length = True
        dataset.file_meta.TransferSyntaxUID = JPEGBaseline8Bit
    return saved(dataset)


def header(patient: str, name: str, secrets: set[str] | None = None) -> Dataset:
    """Return a header with invented patient, date and place."""
    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = UltrasoundImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = generate_uid()
    dataset.SpecificCharacterSet = "ISO_IR 192"
    dataset.PatientName, dataset.PatientID, dataset.PatientSex = name, patient, "F"
    dataset.PatientBirthDate, dataset.StudyDate, dataset.StudyTime = "19610417", "20240229", "101112"
    dataset.StudyInstanceUID = generate_uid(entropy_srcs=[patient, "study"])
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=[patient, "series"])
    dataset.FrameOfReferenceUID = generate_uid(entropy_srcs=[patient, "frame"])
    dataset.AccessionNumber, dataset.StudyID = f"ACC{patient}", "1"
    dataset.SeriesNumber, dataset.InstanceNumber, dataset.Modality = 1, 1, "US"
    dataset.InstitutionName, dataset.ReferringPhysicianName = HOSPITAL, "Referrer^Doctor"
    dataset.Manufacturer, dataset.ManufacturerModelName = "Fictional Ultrasound", "Echo 3000"
    dataset.PatientOrientation, dataset.Laterality = "", ""
    if secrets is not None:
        secrets |= {HOSPITAL, "19610417", f"ACC{patient}", "Referrer", "Echo 3000"}
        secrets |= {str(dataset.SOPInstanceUID), str(dataset.StudyInstanceUID), str(dataset.SeriesInstanceUID)}
    return dataset


def describe(dataset: Dataset, pixels: NDArray[Any], *, colour: bool, frames: bool) -> None:
    """Add the image module for 8-bit pixels."""
    dataset.Rows, dataset.Columns = pixels.shape[1:3] if frames else pixels.shape[:2]
    dataset.SamplesPerPixel = 3 if colour else 1
    dataset.PhotometricInterpretation = "RGB" if colour else "MONOCHROME2"
    if colour:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated = dataset.BitsStored = 8
    dataset.HighBit, dataset.PixelRepresentation = 7, 0


def saved(dataset: Dataset) -> bytes:
    """Return the bytes of a DICOM file."""
    file = io.BytesIO()
    dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()


def _truncated(path: Path, image: UInt8, patient: str, name: str) -> None:
    whole = dicom(image, "grey", patient, name)
    path.write_bytes(whole[: len(whole) // 2])


def _wrong_length(path: Path, image: UInt8, patient: str, name: str) -> None:
    dataset = header(patient, name)
    describe(dataset, image, colour=False, frames=False)
    dataset.Rows = dataset.Rows * 2
    dataset.PixelData = image.tobytes()
    path.write_bytes(saved(dataset))


def _no_pixels(path: Path, image: UInt8, patient: str, name: str) -> None:
    path.write_bytes(saved(header(patient, name)))


def _bomb(path: Path, image: UInt8, patient: str, name: str) -> None:
    """Return a deflated data set that would inflate to 8 GB of zeros."""
    dataset = header(patient, name)
    dataset.file_meta.TransferSyntaxUID = DeflatedExplicitVRLittleEndian
    whole = saved(dataset)
    end = 132 + 12 + struct.unpack("<L", whole[140:144])[0]
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    zeros = packer.compress(bytes(1 << 24)) + packer.flush(zlib.Z_FULL_FLUSH)  # a complete block, so it can be repeated
    path.write_bytes(whole[:end] + zeros * 512 + packer.flush())


def _zip_bomb(path: Path, image: UInt8, patient: str, name: str) -> None:
    """Return an archive of 100 kB with ten members of 100 MB of zeros each."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{patient}.dcm", "w") as member:
        member.write(bytes(100_000_000))


def _empty(path: Path, image: UInt8, patient: str, name: str) -> None:
    path.write_bytes(b"")


def _text(path: Path, image: UInt8, patient: str, name: str) -> None:
    path.with_suffix(".dcm").write_text(f"Report of {name}, {patient}: nothing abnormal.")
    if path.suffix != ".dcm":
        path.with_suffix(".dcm").rename(path)


def _nan_window(path: Path, image: UInt8, patient: str, name: str) -> None:
    dataset = header(patient, name)
    describe(dataset, image, colour=False, frames=False)
    dataset.WindowCenter, dataset.WindowWidth = 10.0, 10.0
    dataset.PixelData = image.tobytes()
    whole = saved(dataset)
    # pydicom would refuse to write it. DS is text, so the digits are replaced in the file.
    path.write_bytes(whole.replace(b"\x28\x00\x50\x10DS\x04\x0010.0", b"\x28\x00\x50\x10DS\x04\x00NaN "))


def _dangling(path: Path, image: UInt8, patient: str, name: str) -> None:
    path.symlink_to(path.parent / "gone")


def _cut_jpeg(path: Path, image: UInt8, patient: str, name: str) -> None:
    coded = io.BytesIO()
    Image.fromarray(image).save(coded, "JPEG")
    path.write_bytes(coded.getvalue()[: len(coded.getvalue()) // 3])


def _noise(path: Path, image: UInt8, patient: str, name: str) -> None:
    path.write_bytes(np.random.default_rng(len(str(path))).bytes(5000))


DAMAGE: dict[str, Callable[[Path, UInt8, str, str], None]] = {
    "truncated": _truncated,
    "wrong_length": _wrong_length,
    "no_pixels": _no_pixels,
    "deflated_bomb": _bomb,
    "zip_bomb": _zip_bomb,
    "empty": _empty,
    "text": _text,
    "nan_window": _nan_window,
    "dangling_link": _dangling,
    "cut_jpeg": _cut_jpeg,
    "noise": _noise,
}
"""Functions that write one file that cannot be scored (without unreadable files, because root can read them)."""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--damaged", type=float, default=0.05)
    parser.add_argument("--size", type=int, default=256)
    options = parser.parse_args()
    images = phantoms(options.folder.with_name(options.folder.name + "-phantoms"), options.n, options.size)
    export = make_export(options.folder, images, options.n, damaged=options.damaged)
    print(f"{len(export.good)} good files with {export.frames} images, {len(export.bad)} damaged, in {export.folder}")


if __name__ == "__main__":
    main()
