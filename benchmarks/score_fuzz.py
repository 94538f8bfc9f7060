"""Fuzz the reader of batch scoring with mutated files, which are read as by ``usvit score``.

    python -m benchmarks.score_fuzz [--n 2000] [--seed 0] [--timeout 5] [--workers 2] [--keep FOLDER]

Seeds are phantoms as pictures of every format and depth, and as DICOM in every transfer syntax that is written here.
Each case is one seed after one to three mutations: flipped bits, overwritten runs, cuts, insertions, edited lengths and
header values, changed bytes in the compressed stream. Every case must give exactly one outcome, and no worker may end
the run.
The benchmark prints the outcomes by seed, the slowest cases, and those that timed out or crashed; ``--keep`` writes
these to a folder.
"""

import argparse
import io
import resource
import shutil
import struct
import subprocess
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gdcm  # type: ignore[import-untyped]
import numpy as np
from PIL import Image

from benchmarks.messy_export import HEALTHY, dicom, phantoms
from usvit.scoring.items import Failure, Frame, ItemFacts, ReadSettings, ScoringItem
from usvit.scoring.reading.workers import End, Readers

Rng = np.random.Generator
SIDE = 160


@dataclass
class Took:
    """Message that a worker adds to those of an item: the time that it took."""

    seconds: float
    peak_mb: float


def timed_read(item: ScoringItem, settings: ReadSettings) -> Iterator[ItemFacts | Frame | Failure | None]:
    """Run ``read_item``, and report how long it took."""
    from usvit.scoring.reading.item_reader import read_item

    start = time.perf_counter()
    yield from read_item(item, settings)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Took(time.perf_counter() - start, peak)  # type: ignore[misc]


# Seeds.


def seeds(folder: Path) -> dict[str, bytes]:
    """Return healthy files: name -> bytes."""
    image = phantoms(folder, 24, SIDE)[0]
    colour = np.stack([image, image[::-1], 255 - image], axis=2)
    made = {f"dicom {kind}": dicom(image, kind, "P1", "Nobody^N") for kind in HEALTHY}
    grey, rgb, deep = made["dicom grey"], made["dicom rgb"], made["dicom sixteen"]
    ways = gdcm.TransferSyntax
    for name, plain, syntax in (
        ("jpeg lossless", grey, ways.JPEGLosslessProcess14_1),
        ("jpeg lossless 14", grey, ways.JPEGLosslessProcess14),
        ("jpeg lossless 16 bit", deep, ways.JPEGLosslessProcess14_1),
        ("jpeg colour", rgb, ways.JPEGBaselineProcess1),
        ("jpeg-ls", grey, ways.JPEGLSLossless),
        ("jpeg-ls colour", rgb, ways.JPEGLSLossless),
        ("jpeg 2000 colour", rgb, ways.JPEG2000Lossless),
        ("rle colour", rgb, ways.RLELossless),
        ("big endian", deep, ways.ExplicitVRBigEndian),
    ):
        coded = _transcoded(folder, plain, syntax)
        if coded is None:
            print(f"gdcm does not write {name}: left out")
        else:
            made[f"dicom {name}"] = coded
    if shutil.which("dcmcjpeg"):  # GDCM writes 12 bits with a precision of 16, which no reader supports
        (folder / "deep").write_bytes(deep)
        subprocess.run(["dcmcjpeg", "+ee", folder / "deep", folder / "extended"], check=True)
        made["dicom jpeg extended"] = (folder / "extended").read_bytes()
    else:
        print("dcmtk's dcmcjpeg is not here: jpeg extended is left out")
    forms: dict[str, dict[str, Any]] = {
        "PNG": {},
        "BMP": {},
        "JPEG": {},
        "TIFF": {},
        "TIFF lzw": {"compression": "tiff_lzw"},
        "TIFF jpeg": {"compression": "jpeg"},
        "PNG palette": {},
        "GIF": {"save_all": True},
        "WEBP": {"save_all": True},
        "PNG frames": {"save_all": True},
        "JPEG2000": {},
        "PPM": {},
    }
    for form, options in forms.items():
        picture = Image.fromarray(colour)
        more = {"append_images": [picture.rotate(90)]} if options.get("save_all") or "frames" in form else {}
        packed = io.BytesIO()
        (picture.quantize(64) if "palette" in form else picture).save(packed, form.split()[0], **options, **more)
        made[form.lower()] = packed.getvalue()
    twelve = Image.fromarray(image.astype(np.uint16) * 16)
    for form, options in {
        "PNG": {},
        "PPM": {},
        "JPEG2000": {},
        "TIFF": {},
        "TIFF lzw": {"compression": "tiff_lzw"},
    }.items():
        packed = io.BytesIO()
        twelve.save(packed, form.split()[0], **options)
        made[f"{form.lower()} of 16 bits"] = packed.getvalue()
    return made


def _transcoded(folder: Path, plain: bytes, syntax: int) -> bytes | None:
    source, target = folder / "plain.dcm", folder / "coded.dcm"
    source.write_bytes(plain)
    target.unlink(missing_ok=True)
    reader = gdcm.ImageReader()
    reader.SetFileName(str(source))
    change = gdcm.ImageChangeTransferSyntax()
    change.SetTransferSyntax(gdcm.TransferSyntax(syntax))
    if not reader.Read():
        return None
    change.SetInput(reader.GetImage())
    if not change.Change():
        return None
    writer = gdcm.ImageWriter()
    writer.SetFileName(str(target))
    writer.SetFile(reader.GetFile())
    writer.SetImage(change.GetOutput())
    return target.read_bytes() if writer.Write() else None


# Mutations: each takes bytes, which it may change in place, and returns bytes.


def flip(data: bytearray, rng: Rng) -> bytearray:
    """Flip bits anywhere."""
    for at in rng.integers(len(data), size=rng.integers(1, 65)):
        data[at] ^= 1 << rng.integers(8)
    return data


def flip_head(data: bytearray, rng: Rng) -> bytearray:
    """Flip bits in the header."""
    for at in rng.integers(min(len(data), 1600), size=rng.integers(1, 9)):
        data[at] ^= 1 << rng.integers(8)
    return data


def overwrite(data: bytearray, rng: Rng) -> bytearray:
    """Overwrite a run by zeros, ones or noise."""
    at, size = int(rng.integers(len(data))), int(rng.integers(1, 400))
    run = [bytes(size), b"\xff" * size, rng.bytes(size)][rng.integers(3)]
    data[at : at + size] = run[: len(data) - at]
    return data


def cut(data: bytearray, rng: Rng) -> bytearray:
    """Remove the end."""
    return data[: rng.integers(len(data))]


def insert(data: bytearray, rng: Rng) -> bytearray:
    at = int(rng.integers(len(data)))
    data[at:at] = rng.bytes(int(rng.integers(1, 200)))
    return data


def remove(data: bytearray, rng: Rng) -> bytearray:
    at = int(rng.integers(len(data)))
    del data[at : at + int(rng.integers(1, 200))]
    return data


def repeat(data: bytearray, rng: Rng) -> bytearray:
    """Repeat a piece."""
    at, size = int(rng.integers(len(data))), int(rng.integers(1, 2000))
    data[at:at] = data[at : at + size]
    return data


LENGTHS = (0, 1, 2, 3, 0x7F, 0xFF, 0xFFFE, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF)
LONG = {b"OB", b"OW", b"SQ", b"UN", b"UT", b"OF", b"UC"}
SHORT = {b"US", b"UI", b"CS", b"LO", b"DS", b"IS", b"PN", b"SH", b"FD", b"SL", b"UL", b"DA", b"TM"}


def length(data: bytearray, rng: Rng) -> bytearray:
    """Change the length of one element (DICOM), chunk (PNG) or segment (JPEG)."""
    places: list[tuple[int, str]] = []
    if data[:4] == b"\x89PNG":
        at = 8
        while at + 8 <= len(data):
            places.append((at, ">I"))
            at += 12 + struct.unpack_from(">I", data, at)[0]
    elif data[:2] == b"\xff\xd8":
        places = [(at + 2, ">H") for at in range(len(data) - 4) if data[at] == 0xFF and 0xC0 <= data[at + 1] <= 0xFE]
    elif data[128:132] == b"DICM":
        for at in range(132, min(len(data) - 12, 6000)):
            kind = bytes(data[at + 4 : at + 6])
            if kind in LONG:
                places.append((at + 8, "<I"))
            elif kind in SHORT:
                places.append((at + 6, "<H"))
        places += [(at + 4, "<I") for at in range(132, len(data) - 8) if data[at : at + 4] == b"\xfe\xff\x00\xe0"]
    else:
        places = [(int(at), "<I") for at in rng.integers(max(len(data) - 4, 1), size=8) if at + 4 <= len(data)]
    if places:
        at, form = places[rng.integers(len(places))]
        size = struct.calcsize(form)
        if at + size <= len(data):
            old = struct.unpack_from(form, data, at)[0]
            new = int(rng.choice([*LENGTHS, old + 1, old - 1, old * 2, old // 2])) & (256**size - 1)
            struct.pack_into(form, data, at, new)
    return data


IMAGE_TAGS = (0x0002, 0x0004, 0x0006, 0x0008, 0x0010, 0x0011, 0x0100, 0x0101, 0x0102, 0x0103)
"""Elements of group 0028: samples, photometric interpretation, planar configuration, frames, size, bits, sign."""
VALUES = (0, 1, 2, 3, 4, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 64, 255, 256, 4095, 0x7FFF, 0x8000, 0xFFFF)
WORDS = (b"MONOCHROME1 ", b"MONOCHROME2 ", b"RGB ", b"YBR_FULL", b"YBR_FULL_422", b"PALETTE COLOR ", b"YBR_ICT ")
SYNTAXES = (
    "",
    ".1",
    ".2",
    ".1.99",
    ".4.50",
    ".4.51",
    ".4.57",
    ".4.70",
    ".4.80",
    ".4.81",
    ".4.90",
    ".4.91",
    ".4.201",
    ".5",
)


def value(data: bytearray, rng: Rng) -> bytearray:
    """Change one value that describes the pixels; the checksum of a PNG is corrected."""
    if data[:4] == b"\x89PNG" and len(data) > 33:
        at = 16 + int(rng.integers(13))
        data[at] = int(rng.choice([0, 1, 2, 3, 4, 6, 8, 16, 127, 255]))
        struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
        return data
    if data[128:132] != b"DICM":
        return flip_head(data, rng)
    if rng.random() < 0.2:
        start = data.find(b"1.2.840.10008.1.2", 132)
        end = start + struct.unpack_from("<H", data, start - 2)[0] if start > 132 else -1
        if 0 < start < end <= len(data):
            syntax = ("1.2.840.10008.1.2" + SYNTAXES[rng.integers(len(SYNTAXES))]).encode()
            data[start:end] = syntax.ljust(end - start, b"\0")[: end - start]
        return data
    at = data.find(b"\x28\x00" + struct.pack("<H", IMAGE_TAGS[rng.integers(len(IMAGE_TAGS))]), 132)
    if at < 0 or at + 10 > len(data):
        return flip_head(data, rng)
    if bytes(data[at + 4 : at + 6]) in (b"CS", b"IS"):
        size = struct.unpack_from("<H", data, at + 6)[0]
        words = (
            WORDS if data[at + 4 : at + 6] == b"CS" else (b"0", b"-1", b"2", b"9", b"99", b"1e9", b"2147483647", b"x")
        )
        data[at + 8 : at + 8 + size] = words[rng.integers(len(words))].ljust(size)[:size]
    else:
        struct.pack_into("<H", data, at + 8, VALUES[rng.integers(len(VALUES))])
    return data


def stream(data: bytearray, rng: Rng) -> bytearray:
    """Change the header of the compressed stream: sizes, precision, tables, tiles."""
    starts = [at for mark in (b"\xff\xd8\xff", b"\xff\x4f\xff\x51", b"IDAT") if (at := data.find(mark)) >= 0]
    if not starts:
        return overwrite(data, rng)
    start = starts[0]
    for at in rng.integers(start + 2, min(len(data), start + 200) + 2, size=rng.integers(1, 4)):
        if at < len(data):
            data[at] = int(rng.choice([0, 1, 2, 3, 4, 8, 16, 0x7F, 0x80, 0xFF, int(rng.integers(256))]))
    return data


MUTATIONS: tuple[Callable[[bytearray, Rng], bytearray], ...] = (
    *(flip, flip_head, overwrite, cut, insert, remove, repeat),
    *(length, length, value, value, stream),
)


def mutated(seed: bytes, rng: Rng) -> tuple[bytes, str]:
    """Apply mutations; return (bytes, names of the mutations)."""
    data, names = bytearray(seed), []
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
        if data:
            data = mutation(data, rng)
            names.append(mutation.__name__)
    return bytes(data), "+".join(names)


# The run.


@dataclass
class Case:
    seed: str
    mutations: str
    path: Path
    codes: list[str] = field(default_factory=list)
    frames: int = 0
    ends: int = 0
    seconds: float = 0.0
    peak_mb: float = 0.0

    @property
    def outcome(self) -> str:
        whole = [code for code in self.codes if not code.startswith("frame: ")]
        return whole[0] if whole else "scored in part" if self.codes and self.frames else (self.codes or ["scored"])[0]


def run(options: argparse.Namespace, folder: Path) -> list[Case]:
    made = seeds(folder)
    rng = np.random.default_rng(options.seed)
    cases = []
    for number in range(options.n):
        name = list(made)[number % len(made)]
        content, mutations = mutated(made[name], rng)
        path = folder / f"{number:05d}"
        path.write_bytes(content)
        cases.append(Case(name, mutations, path))
    settings = ReadSettings(image_size=224, resize="squash", crop="tissue", thumbnail_side=96)
    items = ((number, ScoringItem(case.path.name, str(case.path))) for number, case in enumerate(cases))
    last = -1
    with Readers(
        settings, workers=options.workers, timeout=options.timeout, memory_gb=options.memory, reader=timed_read
    ) as pool:
        for name, (number, item) in zip(made, ((-1, ScoringItem(f"seed {name}", "")) for name in made), strict=True):
            path = folder / "seed"
            path.write_bytes(made[name])
            good = [
                m
                for *_, m in pool.read([(number, ScoringItem(item.name, str(path)))])
                if isinstance(m, Frame | Failure)
            ]
            if not good or isinstance(good[0], Failure):
                print(f"The seed {name} itself is not read: {good}")
        start = time.perf_counter()
        for number, _, message in pool.read(items):
            assert number in (last, last + 1), "items out of order"
            last, case = number, cases[number]
            assert not case.ends, "a message after the end"
            if isinstance(message, Failure):
                case.codes.append(message.code if message.frame is None else f"frame: {message.code}")
            elif isinstance(message, Took):
                case.seconds, case.peak_mb = message.seconds, message.peak_mb
            elif isinstance(message, End):
                case.ends += 1
            else:
                case.frames += isinstance(message, Frame)
    print(f"{len(cases)} cases in {time.perf_counter() - start:.0f} s with {options.workers} workers")
    return cases


def tell(cases: list[Case], keep: Path | None) -> None:
    assert all(case.ends == 1 for case in cases), "a case did not end exactly once"
    assert all(case.frames or case.codes for case in cases), "a case ended without a row or a failure"
    outcomes = Counter(case.outcome for case in cases)
    for outcome, count in outcomes.most_common():
        seeds_of = Counter(case.seed for case in cases if case.outcome == outcome)
        most = ", ".join(f"{name} {n}" for name, n in seeds_of.most_common(4))
        print(f"{outcome:26s}{count:6d}   {most}")
    print("slowest:")
    for case in sorted(cases, key=lambda case: -case.seconds)[:5]:
        print(f"  {case.seconds:6.2f} s  {case.path.name}  {case.seed}: {case.mutations} -> {case.outcome}")
    print(f"largest worker: {max(case.peak_mb for case in cases):.0f} MB")
    for case in cases:
        if {"timeout", "crashed", "frame: crashed"} & set(case.codes):
            print(f"  {case.codes[0]}: {case.path.name} {case.seed}: {case.mutations}, after {case.frames} frames")
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{case.path.name} {case.seed} {case.mutations}").write_bytes(case.path.read_bytes())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=5)
    parser.add_argument("--memory", type=float, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tell(run(options, Path(folder)), options.keep)


if __name__ == "__main__":
    from benchmarks import score_fuzz  # imported by its module name, with which workers find its reader

    score_fuzz.main()
