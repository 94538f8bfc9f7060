"""Images after some mutations, which are read as by ``usvit score``.

Seeds are phantoms as pictures of every format and depth, as videos, and as DICOM in every transfer syntax that is
written here.
Each case is one seed after one to three mutations: flipped bits, overwritten runs, cuts, insertions, edited lengths and
header values, changed bytes in the compressed stream. Two worker processes read all cases, with the limits of ``usvit
score`` in place of those of ``child``: a case is bad if it does not end exactly once, or without pixels and without a
code. The summary has a row for each code, of which ``timeout`` and ``crashed`` are those of ended workers.
"""

import io
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gdcm  # type: ignore[import-untyped]
import numpy as np
from PIL import Image
from pydicom import uid

from benchmarks.fuzzing.child import Ended
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.mutations import mutated
from benchmarks.messy_export import HEALTHY, dicom, phantoms
from tests.data.io.videos import encapsulated, stream, uncompressed, written
from usvit.scoring.items import Failure, Frame, ItemFacts, ReadSettings, ScoringItem
from usvit.scoring.reading.workers import End, Readers

SIDE = 160
WORKERS = 2


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
    made |= videos(folder, image)
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


def videos(folder: Path, image: np.ndarray) -> dict[str, bytes]:
    """Return loops of each container and codec: those that OpenCV writes, and the streams of the tests."""
    made = {name: stream(name) for name in ("h264.mp4", "h264.mkv", "hevc.mp4")}
    for name, syntax in (("h264.h264", uid.MPEG4HP41), ("h264.ts", uid.MPEG4HP422D), ("hevc.hevc", uid.HEVCMP51)):
        made[f"dicom {name}"] = encapsulated(stream(name), syntax, 7)
    loop = np.stack([np.repeat(np.roll(image, shift, axis=1)[..., None], 3, axis=2) for shift in range(5)])
    for suffix, codec in (
        *(("avi", "FFV1"), ("mkv", "FFV1"), ("avi", "MJPG"), ("mov", "MJPG"), ("mp4", "mp4v"), ("avi", "XVID")),
        *(("mpg", "MPG2"), ("mpg", "PIM1")),
    ):
        made[f"{codec.lower()}.{suffix}"] = written(folder / f"loop.{suffix}", codec, loop)
    made["uncompressed.avi"] = uncompressed(loop)
    made["dicom mpeg-2"] = encapsulated(made["mpg2.mpg"], uid.MPEG2MPML, 5, loop.shape[1:3])
    return {f"video {name}": content for name, content in made.items()}


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


@dataclass
class Case:
    """A mutated image, and what the readers said about it."""

    name: str
    path: Path
    codes: list[str] = field(default_factory=list)
    frames: int = 0
    ends: int = 0
    took: Took = field(default_factory=lambda: Took(0.0, 0.0))

    def ended(self) -> Ended:
        whole = [code for code in self.codes if not code.startswith("frame: ")]
        code = whole[0] if whole else "scored in part" if self.codes and self.frames else (self.codes or ["scored"])[0]
        status: int | str = 0 if self.frames else 2
        if self.ends != 1 or not (self.frames or self.codes):
            status = f"ended {self.ends} times"
        return Ended(status, "\n".join(self.codes), self.took.seconds, self.took.peak_mb / 1000, code, self.name)


def images(root: Path, options: Options) -> Iterator[Ended]:
    made = seeds(root)
    names = options.chosen(made)
    healthy = [Case(f"healthy {name}", root / f"healthy {name}") for name in names]
    for name, case in zip(names, healthy, strict=True):
        case.path.write_bytes(made[name])
    cases = []
    for number in options.numbers:
        name = names[number % len(names)]
        content, mutations = mutated(made[name], options.rng(number))
        cases.append(Case(f"{name}: {mutations}", root / f"{number:05d}"))
        cases[-1].path.write_bytes(content)
    read(healthy, options)
    for case in healthy:
        if case.codes:
            raise SystemExit(f"the {case.name} is not read: {case.codes}")
    read(cases, options)
    for case in cases:
        yield case.ended()


def read(cases: list[Case], options: Options) -> None:
    """Read images as ``usvit score`` does, and note all messages about each."""
    settings = ReadSettings(image_size=224, resize="squash", crop="tissue", thumbnail_side=96)
    items = ((number, ScoringItem(case.path.name, str(case.path))) for number, case in enumerate(cases))
    limits = {"timeout": options.seconds, "memory_gb": options.memory_gb}
    last = -1
    with Readers(settings, workers=WORKERS, reader=timed_read, **limits) as pool:
        for number, _, message in pool.read(items):
            assert number in (last, last + 1), "items out of order"
            last, case = number, cases[number]
            assert not case.ends, "a message after the end"
            if isinstance(message, Failure):
                case.codes.append(message.code if message.frame is None else f"frame: {message.code}")
            elif isinstance(message, Took):
                case.took = message
            elif isinstance(message, End):
                case.ends += 1
            else:
                case.frames += isinstance(message, Frame)
