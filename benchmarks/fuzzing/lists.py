"""Lists, archives, indexes, YAML files and weights that are attacks, or healthy ones after some mutations.

A case is a handmade attack (bombs, cycles, numbers of 5,000 digits, equal names, ...) or a healthy file after one to
three mutations. usvit's functions read it: ``discover`` for lists, archives and indexes, ``load_recipe`` and
``build_config`` or ``read_card`` for YAML, ``parse_weights`` and ``load_checkpoint`` into a small network for weights.
The readers may start processes, each of which may take 2 GB.
"""

import io
import json
import pickle
import shutil
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzzing.child import Ended, run_apart
from benchmarks.fuzzing.harness import Options, Rng
from benchmarks.fuzzing.mutations import MUTATIONS

Attack = Callable[[Path], bytes | None]
"""Writes a file, or returns its bytes."""
_FILES = {
    **{"csv": "a.csv", "parquet": "a.parquet", "xlsx": "a.xlsx", "zip": "a.zip", "dicomdir": "DICOMDIR"},
    **{"recipe": "a.yaml", "card": "a.md", "pth": "a.pth", "npz": "a.npz", "safetensors": "a.safetensors"},
}
"""Kind of a file -> its name."""


# Healthy files.


def healthy() -> dict[str, tuple[str, bytes]]:
    """Return small valid files: name -> (suffix or whole name, bytes)."""
    import openpyxl
    import pandas as pd
    import torch
    from safetensors.torch import save

    table = pd.DataFrame({"path": ["a.png", "b.png"], "frame": ["0", ""], "patient_id": ["p1", "p2"]})
    parquet, book, archive, weights, arrays = (io.BytesIO() for _ in range(5))
    table.to_parquet(parquet)
    sheet = openpyxl.Workbook()
    for row in [list(table.columns), *table.to_numpy().tolist()]:
        sheet.worksheets[0].append(row)
    sheet.save(book)
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in ("a/IM1", "a/IM2", "b/IM10"):
            opened.writestr(name, b"no image")
    state = {"head.weight": torch.zeros(3, 4), "norm.bias": torch.ones(4)}
    torch.save({"model": state, "epoch": 3}, weights)
    named: dict[str, Any] = {"head/kernel": np.zeros((4, 3), np.float32)}
    np.savez(arrays, **named)
    recipe = "model:\n  name: vit_ti16\ntrain:\n  steps: 10\noptim: &o\n  lr: 1.0e-3\n"
    card = (Path(__file__).parents[2] / "data_cards" / "busi.md").read_bytes()
    return {
        "csv": ("list.csv", table.to_csv(index=False).encode()),
        "parquet": ("list.parquet", parquet.getvalue()),
        "xlsx": ("list.xlsx", book.getvalue()),
        "zip": ("export.zip", archive.getvalue()),
        "dicomdir": ("DICOMDIR", _index([b"IMAGES\\IM1", b"IMAGES\\IM2"])),
        "recipe": ("recipe.yaml", recipe.encode()),
        "card": ("card.md", card),
        "pth": ("w.pth", weights.getvalue()),
        "npz": ("w.npz", arrays.getvalue()),
        "safetensors": ("w.safetensors", save(state)),
    }


def _index(references: list[bytes], syntax: str = "1.2.840.10008.1.2.1") -> bytes:
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.filewriter import dcmwrite
    from pydicom.uid import UID

    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = UID("1.2.840.10008.1.3.10"), UID("1.2.3")
    meta.TransferSyntaxUID = UID("1.2.840.10008.1.2.1")
    data = Dataset()
    data.file_meta = meta
    head = io.BytesIO()
    dcmwrite(head, data, enforce_file_format=True)
    items = b"".join(
        struct.pack("<HHI", 0xFFFE, 0xE000, 8 + len(one) + len(one) % 2)
        + struct.pack("<HH2sH", 4, 0x1500, b"CS", len(one) + len(one) % 2)
        + one
        + b" " * (len(one) % 2)
        for one in references
    )
    body = struct.pack("<HH2sHI", 4, 0x1220, b"SQ", 0, len(items)) + items
    start = head.getvalue()
    if syntax.endswith(".99"):
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        body = deflate.compress(body) + deflate.flush()
        old = b"1.2.840.10008.1.2.1\0"
        new = syntax.encode()
        at = start.index(old)
        start = start[: at - 2] + struct.pack("<H", len(new)) + new + start[at + len(old) :]
        (length,) = struct.unpack_from("<I", start, 140)
        start = start[:140] + struct.pack("<I", length + len(new) - len(old)) + start[144:]
    return start + body


# Attacks: each writes a file into a folder, and returns its path.


def attacks() -> dict[str, tuple[str, Callable[[Path], Path]]]:
    """Return the attacks: name -> (kind, function that writes the file)."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch

    found: dict[str, tuple[str, Callable[[Path], Path]]] = {}

    def attack(kind: str) -> Callable[[Attack], Attack]:
        def note(function: Attack) -> Attack:
            def written(folder: Path) -> Path:
                path = folder / _FILES[kind]
                if (content := function(path)) is not None:
                    path.write_bytes(content)
                return path

            found[function.__name__] = (kind, written)
            return function

        return note

    def text(kind: str, name: str, content: str | bytes) -> None:
        raw = content.encode() if isinstance(content, str) else content
        found[name] = (kind, lambda folder: _put(folder / _FILES[kind], raw))

    @attack("zip")
    def zip_of_equal_names(path: Path) -> None:
        with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
            warnings.simplefilter("ignore")
            for _ in range(16_000):
                archive.writestr("IM1", b"x")

    @attack("zip")
    def zip_of_long_names(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for number in range(200):
                archive.writestr(("a1" * 30_000) + str(number), b"x")

    @attack("zip")
    def zip_with_commands_in_names(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in ("\x1b[2Ja", "../../../x", "/etc/x", "a\nb", "C:\\x", "\u202egpj", "CON"):
                archive.writestr(name, b"x")

    @attack("zip")
    def zip_with_an_lzma_dictionary(path: Path) -> bytes:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a", bytes(1000))
        raw = bytearray((path).read_bytes())
        at = raw.index(b"a", 30) + 1
        raw[at + 5 : at + 9] = b"\xff\xff\xff\xff"  # a dictionary of 4 GB
        return bytes(raw)

    @attack("zip")
    def zip_bomb(path: Path) -> None:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(40):
                archive.writestr(str(number), bytes(40_000_000))

    @attack("parquet")
    def parquet_of_one_long_text(path: Path) -> None:
        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, np.int32)), pa.array(["p" * 10_000]))
        pq.write_table(pa.table({"path": texts}), path)

    @attack("parquet")
    def parquet_of_many_rows(path: Path) -> None:
        pq.write_table(pa.table({"path": pa.nulls(50_000_000, pa.string())}), path)

    @attack("parquet")
    def parquet_of_many_columns(path: Path) -> None:
        pq.write_table(pa.table({f"c{number}": ["x"] for number in range(20_000)}), path)

    @attack("parquet")
    def parquet_of_nested_lists(path: Path) -> None:
        pq.write_table(pa.table({"path": [[["a"] * 50] * 50] * 500}), path)

    @attack("xlsx")
    def xlsx_of_many_rows(path: Path) -> None:
        rows = b"".join(b'<row r="%d"><c r="A%d"><v>1</v></c></row>' % (k, k) for k in range(1, 900_000))
        _book(path, rows)

    @attack("xlsx")
    def xlsx_of_the_last_column(path: Path) -> None:
        _book(
            path,
            b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (k, k) for k in range(1, 60_000)),
        )

    @attack("xlsx")
    def xlsx_of_the_last_row(path: Path) -> None:
        _book(path, b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')

    @attack("xlsx")
    def xlsx_that_unpacks_to_much(path: Path) -> None:
        _book(path, b" " * 300_000_000)

    @attack("xlsx")
    def xlsx_of_entities(path: Path) -> None:
        entities = b"".join(b'<!ENTITY e%d "%s">' % (k, b"&e%d;" % (k - 1) * 10) for k in range(1, 10))
        head = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY e0 "lollollol">' + entities + b"]>"
        cell = b'<row r="1"><c r="A1" t="inlineStr"><is><t>&e9;</t></is></c></row>'
        _book(path, cell, head)

    @attack("xlsx")
    def xlsx_with_a_huge_number(path: Path) -> None:
        _book(path, b'<row r="1"><c r="A1"><v>' + b"9" * 50_000 + b"</v></c></row>")

    @attack("xlsx")
    def xlsx_with_a_huge_row_number(path: Path) -> None:
        _book(path, b'<row r="' + b"9" * 6_000 + b'"><c r="A1"><v>1</v></c></row>')

    @attack("dicomdir")
    def dicomdir_deflated(path: Path) -> bytes:
        return _index([b"A"] * 1_500_000, "1.2.840.10008.1.2.1.99")

    @attack("dicomdir")
    def dicomdir_of_many(path: Path) -> bytes:
        return _index([b"IM%d" % number for number in range(4_000)])

    @attack("dicomdir")
    def dicomdir_that_climbs(path: Path) -> bytes:
        return _index([b"..\\..\\..\\etc\\passwd", b"/etc/passwd", b"C:\\x", b"\x1b[2J", b"A\0B"])

    @attack("dicomdir")
    def dicomdir_nested(path: Path) -> bytes:
        start, _, _ = _index([b"A"]).partition(struct.pack("<HH", 4, 0x1220))
        deep = struct.pack("<HH2sHI", 4, 0x1220, b"SQ", 0, 0xFFFFFFFF) + struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
        return start + deep * 20_000

    text("csv", "csv_of_many_columns", "," * 500_000 + "\n1\n")
    text("csv", "csv_of_short_rows_below_a_long_header", "path" + ",b" * 9_000 + "\n" + "1\n" * 400_000)
    text("csv", "csv_of_one_cell", "path\n" + "x" * 20_000_000)
    text("csv", "csv_of_one_open_quote", 'path\n"' + "x\n" * 2_000_000)
    text("csv", "csv_of_quotes", "path\n" + '"' * 2_000_000)
    text("csv", "csv_of_nothing", "path\n" + "\n" * 5_000_000)
    text("csv", "csv_of_zeros", bytes(3_000_000))
    text("csv", "csv_of_commands", "path,frame\n\x1b[2J,0\n../../x,1\n")
    text("csv", "csv_of_a_frame_of_many_digits", "path,frame\na," + "9" * 5_000 + "\n")
    text("csv", "csv_of_equal_headers", ",".join(["path"] * 5_000) + "\nx\n")
    text("csv", "csv_of_equal_rows", "path,frame\n" + "".join(f"a,{n}\n" for n in range(10_000)))
    chain = "".join(f"  {b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    text("recipe", "yaml_bomb", "train:\n  a: &a [x,x,x,x,x,x,x,x,x]\n" + chain)
    merges = "".join(f"{b}: &{b}\n  <<: [{','.join([f'*{a}'] * 30)}]\n" for a, b in zip("abcde", "bcdef", strict=True))
    text("recipe", "yaml_of_merges", "a: &a {x: 1}\n" + merges)
    text("recipe", "yaml_that_holds_itself", "train: &a\n  b: *a\n")
    text("recipe", "yaml_key_that_holds_itself", "&a ? *a\n: 1\n")
    text("recipe", "yaml_of_many_digits", "train: {steps: " + "9" * 5_000 + "}\n")
    text("recipe", "yaml_of_many_hexadecimal_digits", "train: {steps: 0x" + "f" * 5_000 + "}\n")
    text("recipe", "yaml_of_sixties", "train: {steps: " + ":".join(["1"] * 5_000) + "}\n")
    text("recipe", "yaml_of_brackets", "[" * 100_000)
    text("recipe", "yaml_of_braces", "{a: " * 50_000)
    text("recipe", "yaml_of_dashes", "- " * 90_000)
    text("recipe", "yaml_of_one_word", "x" * 5_000_000)
    text("recipe", "yaml_of_a_long_key", "x" * 150_000 + ": 1\n")
    text("recipe", "yaml_of_code", "train: !!python/object/apply:os.system [touch x]\n")
    text("recipe", "yaml_of_a_bad_date", "train: {steps: 2001-99-99}\n")
    text("recipe", "yaml_of_commands", 'train: {"\\e[2J": 1}\n')
    text("recipe", "yaml_of_infinities", "train: {steps: .inf}\noptim: {lr: .nan}\n")
    text("recipe", "yaml_of_wrong_kinds", "train: [1]\nmodel: 3\noptim: null\n")
    text("recipe", "yaml_of_numbers_as_keys", "1: 2\n2.5: {3: 4}\nnull: 1\n")
    text("recipe", "yaml_of_a_network_of_a_million_layers", "model: {name: vit, vit: {depth: 1000000}}\n")
    text("recipe", "yaml_of_invalid_text", b"train: \xff\xfe\n")
    text("card", "card_of_a_bomb", "---\nname: &a [x,x,x,x,x,x,x,x,x]\n" + chain.replace("  ", "") + "---\n")
    text("card", "card_of_many_digits", "---\nclasses: {a: " + "9" * 5_000 + "}\n---\n")

    @attack("pth")
    def pth_that_holds_itself(path: Path) -> None:
        table: dict[str, Any] = {}
        table["model"] = table
        torch.save(table, path)

    @attack("pth")
    def pth_of_complex_numbers(path: Path) -> None:
        torch.save({"norm.weight": torch.ones(4, dtype=torch.complex64)}, path)

    @attack("pth")
    def pth_of_stretched_tensors(path: Path) -> None:
        torch.save({"pos_embed": torch.zeros(1).expand(1, 1_000_001, 64)}, path)

    @attack("pth")
    def pth_deflated(path: Path) -> None:
        torch.save({"a": torch.zeros(80_000_000)}, path.with_name("b.pth"))
        with (
            zipfile.ZipFile(path.with_name("b.pth")) as plain,
            zipfile.ZipFile(path, "w", 8, compresslevel=1) as out,
        ):
            for info in plain.infolist():
                with plain.open(info) as source, out.open(info.filename, "w") as target:
                    while chunk := source.read(1 << 24):
                        target.write(chunk)
        (path.with_name("b.pth")).unlink()

    @attack("pth")
    def pth_of_wrapped_names(path: Path) -> None:
        torch.save({"module." * 200_000 + "a": torch.zeros(1)}, path)

    @attack("pth")
    def pth_of_odd_names(path: Path) -> None:
        names = ["blocks." + "9" * 5_000 + ".attn.qkv.weight", "\x1b[2J", "", "." * 10_000, "a\0b", "\ud800"]
        torch.save({name: torch.zeros(2) for name in names}, path)

    @attack("pth")
    def pth_of_many_tensors(path: Path) -> None:
        one = torch.zeros(1)
        torch.save({f"t{number}": one for number in range(100_000)}, path)

    @attack("pth")
    def pth_that_runs_code(path: Path) -> bytes:
        return pickle.dumps(_RunsCode(path.parents[1] / "the code has been run"))

    @attack("pth")
    def pth_of_a_huge_bytearray(path: Path) -> bytes:
        return b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x10\x85R."

    @attack("npz")
    def npz_bomb(path: Path) -> None:
        np.savez_compressed(path, w=np.zeros(400_000_000, np.float32))

    @attack("npz")
    def npz_that_claims_much(path: Path) -> None:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            head, {"descr": "<f4", "fortran_order": False, "shape": (250_000, 1_000_000)}
        )
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("w.npy", head.getvalue() + bytes(1000))

    @attack("npz")
    def npz_of_complex_numbers(path: Path) -> None:
        np.savez(path, w=np.zeros(3, np.complex128))

    @attack("npz")
    def npz_of_objects(path: Path) -> None:
        np.savez(path, w=np.array([{}, []], dtype=object))

    @attack("safetensors")
    def safetensors_of_a_huge_header(path: Path) -> bytes:
        return struct.pack("<Q", 1 << 60) + b"{}"

    @attack("safetensors")
    def safetensors_of_a_huge_shape(path: Path) -> bytes:
        return _safetensors({"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, b"")

    @attack("safetensors")
    def safetensors_of_complex_numbers(path: Path) -> bytes:
        return _safetensors({"w": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8))

    @attack("safetensors")
    def safetensors_of_deep_metadata(path: Path) -> bytes:
        header = b'{"__metadata__": ' + b"[" * 50_000 + b"}"
        return struct.pack("<Q", len(header)) + header

    @attack("safetensors")
    def safetensors_of_no_elements(path: Path) -> bytes:
        shape = [0, 1 << 62, 1 << 62]
        return _safetensors({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}, b"")

    return found


class _RunsCode:
    def __init__(self, proof: Path):
        self.proof = proof

    def __reduce__(self) -> Any:
        return Path.touch, (self.proof,)


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _safetensors(header: dict[str, Any], content: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + content


def _book(path: Path, rows: bytes, head: bytes = b"") -> None:
    import openpyxl

    plain = io.BytesIO()
    openpyxl.Workbook().save(plain)
    start = head + b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        for name in old.namelist():
            is_sheet = name == "xl/worksheets/sheet1.xml"
            book.writestr(name, start + rows + b"</sheetData></worksheet>" if is_sheet else old.read(name))


def mutated(kind: str, content: bytes, rng: Rng) -> tuple[bytes, str]:
    """Apply one to three mutations, for compressed archives also to their content; return (bytes, names)."""
    data, names = bytearray(content), []
    for _ in range(rng.choice([1, 1, 2, 3])):
        if kind in ("xlsx", "zip", "pth", "npz") and rng.random() < 0.5 and zipfile.is_zipfile(io.BytesIO(data)):
            data = bytearray(_mutated_inside(bytes(data), rng))
            names.append("inside")
        elif data:
            mutation = MUTATIONS[rng.integers(len(MUTATIONS))]
            data = mutation(data, rng)
            names.append(mutation.__name__)
    return bytes(data), "+".join(names)


def _mutated_inside(content: bytes, rng: Rng) -> bytes:
    """Mutate one member and pack it again with a correct checksum, so that it reaches the parser of the content."""
    made = io.BytesIO()
    try:
        opened = zipfile.ZipFile(io.BytesIO(content))
    except Exception:  # an earlier mutation has damaged its directory
        return content
    with opened as old:
        infos = old.infolist()
        chosen = int(rng.integers(len(infos))) if infos else -1
        with warnings.catch_warnings(), zipfile.ZipFile(made, "w") as new:
            warnings.simplefilter("ignore")
            for number, info in enumerate(infos):
                try:
                    data = bytearray(old.read(info))
                except Exception:  # an earlier mutation has damaged it
                    return content
                if number == chosen and data:
                    data = MUTATIONS[rng.integers(7)](data, rng)
                new.writestr(info.filename, bytes(data), info.compress_type)
    return made.getvalue()


# Reading, as usvit does.


def read(kind: str, path: Path) -> str:
    if kind in ("csv", "parquet", "xlsx", "zip", "dicomdir"):
        from usvit.scoring.discovery.inputs import discover

        return f"{sum(1 for _ in discover([str(path)]))} items"
    if kind == "recipe":
        from usvit.config import build_config, load_recipe

        config = build_config(load_recipe(str(path)))
        from usvit.models.zoo import find_model

        find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
        return "a configuration"
    if kind == "card":
        from usvit.data.datasets.cards import read_card

        read_card(path)
        return "a card"
    import timm

    from usvit.models.weights.load import load_checkpoint
    from usvit.models.weights.read import parse_weights

    model = timm.create_model("vit_tiny_patch16_224", num_classes=2, embed_dim=24, depth=1, num_heads=2, img_size=32)
    report = load_checkpoint(model, parse_weights(path.read_bytes(), path), file=path.name, name="vit")
    return report.line()


def run_on_file(kind: str, name: str, path: Path, options: Options) -> Ended:
    """Read one file; nothing around its folder may change."""
    around = path.parent.parent
    return run_apart(
        lambda: read(kind, path), folder=path.parent, outside=(around,), kind=kind, name=name, **options.limits
    )


def lists(root: Path, options: Options) -> Iterator[Ended]:
    """Run all attacks, then mutations of healthy files."""
    # Modules are imported once here, because every child is a fork of this process.
    import timm  # noqa: F401

    import usvit.config
    import usvit.data.datasets.cards
    import usvit.models.weights.load
    import usvit.models.zoo
    import usvit.scoring.discovery.inputs  # noqa: F401

    handmade = [(name, *attack) for name, attack in attacks().items() if options.only in attack[0]]
    seeds = healthy()
    kinds = options.chosen(seeds)
    for number in options.numbers:
        place = root / f"{number:04d}" / "in"
        place.mkdir(parents=True)
        if number < len(handmade):
            name, kind, write = handmade[number]
            path = write(place)
        else:
            kind = kinds[number % len(kinds)]
            file, content = seeds[kind]
            changed, name = mutated(kind, content, options.rng(number))
            path = _put(place / file, changed)
        yield run_on_file(kind, name, path, options)
        shutil.rmtree(place.parent)
