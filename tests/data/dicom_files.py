"""DICOM files of every kind of pixels, made in memory, with the picture that they must give."""

import subprocess
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image
from pydicom.dataset import Dataset, FileMetaDataset
from pydicom.encaps import encapsulate
from pydicom.uid import UID, ExplicitVRBigEndian, ExplicitVRLittleEndian, UltrasoundMultiFrameImageStorage

from tests.programs import tool

HEIGHT, WIDTH = 34, 42  # no multiple of a JPEG block; even, as YBR_FULL_422 needs; enough for JPEG 2000


@dataclass
class Kind:
    """How pixels are stored."""

    colours: str
    bits: int = 8
    stored: int | None = None
    """Bits stored, where they are fewer."""
    signed: bool = False
    planar: int = 0
    tags: dict[str, object] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        return 1 if self.colours in ("MONOCHROME1", "MONOCHROME2", "PALETTE COLOR") else 3

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(f"{'i' if self.signed else 'u'}{self.bits // 8}")

    def __str__(self) -> str:
        parts = [self.colours.replace(" ", "-"), str(self.stored or self.bits)]
        return "-".join(parts + ["signed"] * self.signed + ["planes"] * (self.planar == 1))


def scene(seed: int, height: int = HEIGHT, width: int = WIDTH) -> np.ndarray:
    """(H, W, 3) float, smooth enough for lossy compression, each channel with all values from 0 to 1."""
    y, x = np.mgrid[:height, :width] / np.array([height, width]).reshape(2, 1, 1)
    waves = np.stack([np.sin(4 * x + seed), np.cos(4 * y - seed), np.sin(3 * (x + y) + 2 * seed)], axis=2)
    low, high = waves.min(axis=(0, 1)), waves.max(axis=(0, 1))
    return (waves - low) / (high - low)


def stored_values(kind: Kind, frames: int) -> np.ndarray:
    """(frames, H, W[, 3]) of ``kind.dtype``."""
    pictures = np.stack([scene(number) for number in range(frames)])
    bits = kind.stored or kind.bits
    values = np.rint(pictures * (2**bits - 1)).astype(np.int64)
    if kind.colours == "YBR_FULL_422":
        values[:, :, 1::2, 1:] = values[:, :, ::2, 1:]
    if kind.samples == 1:
        values = values[..., 0]
    return (values - (2 ** (bits - 1) if kind.signed else 0)).astype(kind.dtype)


def expected(kind: Kind, values: np.ndarray) -> np.ndarray:
    """(frames, H, W, 3) uint8: what must be seen, by the formulas of PS3.3 and nothing of usvit."""
    bits = kind.stored or kind.bits
    if kind.colours == "PALETTE COLOR":
        return np.stack(
            [
                table[values] >> (8 if kind.tags["RedPaletteColorLookupTableDescriptor"][2] == 16 else 0)
                for table in palette(kind)
            ],
            axis=-1,
        ).astype(np.uint8)
    if kind.samples == 1:
        level = values.astype(float) + (2 ** (bits - 1) if kind.signed else 0)
        grey = np.rint(level * 255 / (2**bits - 1)).astype(np.uint8)
        return np.repeat((255 - grey if kind.colours == "MONOCHROME1" else grey)[..., None], 3, axis=-1)
    eight = (values >> (bits - 8)).astype(np.uint8)
    if kind.colours == "RGB":
        return eight
    luma, blue, red = (eight[..., channel].astype(float) for channel in range(3))
    rgb = [
        luma + 1.402 * (red - 128),
        luma - 0.114 * 1.772 / 0.587 * (blue - 128) - 0.299 * 1.402 / 0.587 * (red - 128),
        luma + 1.772 * (blue - 128),
    ]
    return np.floor(np.stack(rgb, axis=-1) + 0.5).clip(0, 255).astype(np.uint8)


def with_palette(kind: Kind, depth: int, big_endian: bool = False) -> Kind:
    """A kind with three tables of ``depth`` bits an entry; the values that can be stored are their entries."""
    count = 2 ** (kind.stored or kind.bits)
    for number, name in enumerate(("Red", "Green", "Blue")):
        table = ((np.arange(count, dtype=np.int64) * (number + 1) * 977 + 13 * number) % 2**depth).astype(np.uint16)
        kind.tags[f"{name}PaletteColorLookupTableDescriptor"] = [count % 65536, 0, depth]
        raw = table.astype(np.uint8).tobytes() if depth == 8 else table.astype("<u2").tobytes()
        if big_endian:
            raw = np.frombuffer(raw, "<u2").astype(">u2").tobytes()
        kind.tags[f"{name}PaletteColorLookupTableData"] = raw
        kind.tags[f"_{name}"] = table
    return kind


def palette(kind: Kind) -> list[np.ndarray]:
    return [kind.tags[f"_{name}"] for name in ("Red", "Green", "Blue")]


def dataset(kind: Kind, frames: int, syntax: UID, height: int = HEIGHT, width: int = WIDTH) -> Dataset:
    """A header without pixels."""
    data = Dataset()
    data.SOPClassUID, data.SOPInstanceUID = UltrasoundMultiFrameImageStorage, "1.2.3.4"
    data.SamplesPerPixel, data.PhotometricInterpretation = kind.samples, kind.colours
    data.Rows, data.Columns = height, width
    if frames > 1:
        data.NumberOfFrames = frames
    if kind.samples == 3:
        data.PlanarConfiguration = kind.planar
    data.BitsAllocated, data.BitsStored = kind.bits, kind.stored or kind.bits
    data.HighBit, data.PixelRepresentation = data.BitsStored - 1, int(kind.signed)
    for name, value in kind.tags.items():
        if not name.startswith("_"):
            setattr(data, name, value)
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID, data.file_meta.MediaStorageSOPClassUID = syntax, data.SOPClassUID
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    return data


def as_bytes(data: Dataset) -> bytes:
    stream = BytesIO()
    data.save_as(stream, enforce_file_format=True)
    return stream.getvalue()


def native(kind: Kind, values: np.ndarray, syntax: UID = ExplicitVRLittleEndian, vr: str = "OW") -> bytes:
    """An uncompressed file."""
    data = dataset(kind, len(values), syntax, *values.shape[1:3])
    if kind.colours == "YBR_FULL_422":  # Y1 Y2 Cb Cr, PS3.3 C.7.6.3.1.2
        pairs = values.reshape(len(values), HEIGHT, WIDTH // 2, 2, 3)
        values = np.concatenate([pairs[..., 0], pairs[..., 0, 1:]], axis=-1)
    elif kind.planar:
        values = np.moveaxis(values, -1, 1)
    big = syntax == ExplicitVRBigEndian
    raw = values.astype(values.dtype.newbyteorder(">" if big else "<")).tobytes()
    raw += b"\0" * (len(raw) % 2)
    if big and vr == "OW" and kind.bits == 8:
        raw = np.frombuffer(raw, "<u2").astype(">u2").tobytes()
    data.add_new("PixelData", vr, raw)
    return as_bytes(data)


def compressed(
    kind: Kind, frames: list[bytes], syntax: UID | str, has_table: bool = True, height: int = HEIGHT, width: int = WIDTH
) -> bytes:
    """A file of compressed frames."""
    data = dataset(kind, len(frames), UID(syntax), height, width)
    data.add_new("PixelData", "OB", encapsulate(frames, has_bot=has_table))
    data["PixelData"].is_undefined_length = True
    return as_bytes(data)


def jpeg(values: np.ndarray, mode: str, **options: object) -> bytes:
    """(H, W[, 3]) uint8 as baseline JPEG, its values taken as those of ``mode``: L, RGB or YCbCr."""
    stream = BytesIO()
    image = Image.frombytes(mode, values.shape[1::-1], np.ascontiguousarray(values).tobytes())
    image.save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


def converted(name: str, content: bytes, folder: Path, *options: str) -> bytes:
    """A file passed through one of dcmtk's converters."""
    program = tool(name)
    (folder / "in.dcm").write_bytes(content)
    subprocess.run([program, *options, folder / "in.dcm", folder / "out.dcm"], check=True, capture_output=True)
    return (folder / "out.dcm").read_bytes()
