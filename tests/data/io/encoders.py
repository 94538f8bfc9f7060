"""Encoders of pictures that share no code with the decoders under test: files are built byte by byte.

Values are unsigned integers of any depth, (H, W) or (H, W, samples), unless a function says otherwise.
"""

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.generic]


def packed_rows(values: Values, bits: int, order: str = ">") -> list[bytes]:
    """Each row of samples as bytes; samples of fewer than 8 bits, or of 12, are packed with the first one highest."""
    rows = values.reshape(len(values), -1)
    if values.dtype.kind == "f" or bits in (8, 16, 32, 64):
        kind = values.dtype.kind if values.dtype.kind in "fi" else "u"
        return [row.astype(f"{order}{kind}{bits // 8}").tobytes() for row in rows]
    shifts = np.arange(bits - 1, -1, -1)
    return [
        np.packbits((row[:, None].astype(np.int64) >> shifts & 1).astype(np.uint8).ravel()).tobytes() for row in rows
    ]


def png(values: Values, bits: int, colour: int = 0, chunks: tuple[tuple[bytes, bytes], ...] = ()) -> bytes:
    """A PNG without filters; ``colour`` is the colour type, and ``chunks`` come before the pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", values.shape[1], values.shape[0], bits, colour, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + row for row in packed_rows(values, bits)))
    body = [(b"IHDR", head), *chunks, (b"IDAT", pixels), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in body)


def bmp(
    values: Values, bits: int, palette: bytes = b"", *, top_down: bool = False, masks: tuple[int, ...] = ()
) -> bytes:
    """A BMP; ``palette`` holds blue, green, red, 0 per entry, and ``masks`` those of red, green and blue."""
    rows = packed_rows(values, bits, "<")
    padded = [row + b"\0" * (-len(row) % 4) for row in (rows if top_down else rows[::-1])]
    extra = palette + b"".join(struct.pack("<I", mask) for mask in masks)
    height = -len(values) if top_down else len(values)
    width = values.shape[1]
    info = struct.pack(
        "<IiiHHIIiiII", 40, width, height, 1, values[0, 0].size * bits, 3 if masks else 0, 0, 0, 0, len(palette) // 4, 0
    )
    start = 14 + len(info) + len(extra)
    pixels = b"".join(padded)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + extra + pixels


def run_length_bmp(values: Values, palette: bytes) -> bytes:
    """A BMP of 8 bits in which every pixel is a run of one (BI_RLE8)."""
    pixels = b"".join(b"".join(bytes((1, int(value))) for value in row) + b"\0\0" for row in values[::-1]) + b"\0\1"
    info = struct.pack(
        "<IiiHHIIiiII", 40, values.shape[1], len(values), 1, 8, 1, len(pixels), 0, 0, len(palette) // 4, 0
    )
    start = 14 + len(info) + len(palette)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + info + palette + pixels


def os2_bmp(values: Values, palette: bytes) -> bytes:
    """A BMP of 8 bits with the old header of 12 bytes; ``palette`` holds blue, green, red."""
    rows = b"".join(row + b"\0" * (-len(row) % 4) for row in packed_rows(values, 8)[::-1])
    start = 14 + 12 + len(palette)
    head = struct.pack("<IHHHH", 12, values.shape[1], len(values), 1, 8)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + head + palette + rows


def pnm(values: Values, largest: int, *, plain: bool = False, comment: str = "") -> bytes:
    """A PGM or PPM file with the given largest value, raw or as text."""
    colour = values.ndim == 3
    kind = 2 + colour + (0 if plain else 3)
    head = f"P{kind}\n{comment}{values.shape[1]} {len(values)}\n{largest}\n"
    if plain:
        return head.encode() + "\n".join(" ".join(map(str, row)) for row in values.reshape(len(values), -1)).encode()
    return head.encode() + b"".join(packed_rows(values, 8 if largest < 256 else 16))


def pbm(ink: Values, *, plain: bool = False) -> bytes:
    """A PBM file; a value of 1 is black."""
    head = f"P{1 if plain else 4}\n{ink.shape[1]} {len(ink)}\n".encode()
    if plain:
        return head + "\n".join(" ".join(map(str, row)) for row in ink).encode()
    return head + b"".join(packed_rows(ink, 1))


def tiff(
    *pages: Values,
    bits: int,
    photometric: int = 1,
    order: str = "<",
    compression: int = 1,
    fill_order: int = 1,
    sample_format: int | None = None,
    tile: int = 0,
    planar: int = 1,
    rows_per_strip: int = 0,
    big: bool = False,
    packed: list[bytes] | None = None,
    kinds: list[int] | None = None,
    tags: dict[int, tuple[int, list[int]]] | None = None,
) -> bytes:
    """A TIFF of one or several pages.

    Args:
        pages: (H, W) or (H, W, samples) each.
        bits: Bits of a sample.
        photometric: 0 white is zero, 1 black is zero, 2 RGB, 3 palette, 5 CMYK, 6 YCbCr.
        order: ``<`` or ``>``.
        compression: 1 none, 5 LZW, 7 JPEG, 8 and 32946 deflate, 32773 packed bits.
        fill_order: 2 stores the lowest bit first.
        sample_format: 1 unsigned, 2 signed, 3 floating point; None leaves it out.
        tile: Side of square tiles; 0 stores strips.
        planar: 2 stores each sample in planes of its own.
        rows_per_strip: 0 for one strip.
        big: Write BigTIFF, with offsets of 64 bits.
        packed: Strips that are compressed already.
        kinds: NewSubfileType of each page.
        tags: Further tags: number -> (type, values).
    """
    offset, count_format = ("Q", "Q") if big else ("I", "H")
    head = (b"II" if order == "<" else b"MM") + struct.pack(
        order + ("HHHQ" if big else "HI"), *((43, 8, 0, 16) if big else (42, 8))
    )
    content = bytearray(head)
    for number, page in enumerate(pages):
        height, width = page.shape[:2]
        samples = page.shape[2] if page.ndim == 3 else 1
        layers = [page] if planar == 1 else [page[..., one] for one in range(samples)]
        blocks = []
        for layer in layers:
            if tile:
                filled = np.zeros((-(-height // tile) * tile, -(-width // tile) * tile, *layer.shape[2:]), layer.dtype)
                filled[:height, :width] = layer
                for top in range(0, height, tile):
                    blocks += [filled[top : top + tile, left : left + tile] for left in range(0, width, tile)]
            else:
                step = rows_per_strip or height
                blocks += [layer[top : top + step] for top in range(0, height, step)]
        coded = packed or [_compressed(packed_rows(block, bits, order), compression) for block in blocks]
        if fill_order == 2:
            coded = [bytes(int(f"{byte:08b}"[::-1], 2) for byte in one) for one in coded]
        lengths = [len(one) for one in coded]
        entries: dict[int, tuple[int, list[int]]] = {
            256: (4, [width]),
            257: (4, [height]),
            258: (3, [bits] * samples),
            259: (3, [compression]),
            262: (3, [photometric]),
            277: (3, [samples]),
            **({266: (3, [fill_order])} if fill_order != 1 else {}),
            **({339: (3, [sample_format] * samples)} if sample_format else {}),
            **({284: (3, [planar])} if planar != 1 else {}),
            **({254: (4, [kinds[number]])} if kinds else {}),
            **(tags or {}),
        }
        # The size of the directory is known before its values are, so offsets of the pixels follow it.
        names = (322, 323, 324, 325) if tile else (278, 273, 279)
        for name in names:
            entries[name] = (4, [0])
        entry_bytes = 20 if big else 12
        start = len(content)
        after = start + (8 if big else 2) + entry_bytes * len(entries) + (8 if big else 4)
        if tile:
            entries[322], entries[323] = (4, [tile]), (4, [tile])
            places, sizes = 324, 325
        else:
            entries[278] = (4, [rows_per_strip or height])
            places, sizes = 273, 279
        entries[sizes] = (4, lengths)
        extra = bytearray()
        for name in sorted(entries):
            if name == places:
                continue
            data = _values(order, *entries[name])
            if len(data) > (8 if big else 4):
                extra += data + b"\0" * (len(data) % 2)
        table_of_places = after + len(extra)
        pixels = table_of_places + 4 * len(coded)
        entries[places] = (4, [pixels + sum(lengths[:at]) for at in range(len(coded))])
        directory, kept = bytearray(struct.pack(order + count_format, len(entries))), bytearray()
        for name in sorted(entries):
            kind, values = entries[name]
            data = _values(order, kind, values)
            directory += struct.pack(order + "HH" + offset, name, kind, len(values))
            if len(data) <= (8 if big else 4):
                directory += data.ljust(8 if big else 4, b"\0")
            elif name == places:
                directory += struct.pack(order + offset, table_of_places)
            else:
                directory += struct.pack(order + offset, after + len(kept))
                kept += data + b"\0" * (len(data) % 2)
        body = bytes(kept) + _values(order, *entries[places]) + b"".join(coded)
        following = after + len(body) + len(body) % 2
        directory += struct.pack(order + offset, following if number + 1 < len(pages) else 0)
        content += directory + body + b"\0" * (len(body) % 2)
    return bytes(content)


_TYPES = {1: "B", 3: "H", 4: "I", 12: "d"}


def _values(order: str, kind: int, values: list[int]) -> bytes:
    return b"".join(struct.pack(order + _TYPES[kind], value) for value in values)


def _compressed(rows: list[bytes], compression: int) -> bytes:
    data = b"".join(rows)
    if compression == 32773:  # runs of literals end with each row
        parts = [row[at : at + 128] for row in rows for at in range(0, len(row), 128)]
        return b"".join(bytes((len(part) - 1,)) + part for part in parts)
    if compression == 5:  # the table is cleared before its codes need a tenth bit
        codes = [code for at in range(0, len(data), 200) for code in (256, *data[at : at + 200])] + [257]
        return np.packbits([code >> bit & 1 for code in codes for bit in range(8, -1, -1)]).tobytes()
    return zlib.compress(data) if compression in (8, 32946) else data
