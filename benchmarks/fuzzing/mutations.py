"""Mutations of files: each takes bytes, which it may change in place, and returns bytes."""

import struct
import zlib
from collections.abc import Callable

from benchmarks.fuzzing.harness import Rng


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
