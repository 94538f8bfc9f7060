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

Attack = Callable[[Path], Path]


# Healthy files.


def healthy() -> dict[str, tuple[str, bytes]]:
    """Return small valid files: name -> (suffix or whole name, bytes)."""
    import openpyxl
    import pandas as pd
    import torch
    from safetensors.torch import save

    table = pd.DataFrame({"path": ["a.png", "b.png"], "frame": ["0", ""], "patient_id": ["p1", "p2"]})
    parquet, book, archive, weights, arrays, dicomdir = (io.BytesIO() for _ in range(6))
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
    _write_index(dicomdir, [b"IMAGES\\IM1", b"IMAGES\\IM2"])
    recipe = "model:\n  name: vit_ti16\ntrain:\n  steps: 10\noptim: &o\n  lr: 1.0e-3\n"
    card = (Path(__file__).parents[2] / "data_cards" / "busi.md").read_bytes()
    return {
        "csv": ("list.csv", table.to_csv(index=False).encode()),
        "parquet": ("list.parquet", parquet.getvalue()),
        "xlsx": ("list.xlsx", book.getvalue()),
        "zip": ("export.zip", archive.getvalue()),
        "dicomdir": ("DICOMDIR", dicomdir.getvalue()),
        "recipe": ("recipe.yaml", recipe.encode()),
        "card": ("card.md", card),
        "pth": ("w.pth", weights.getvalue()),
        "npz": ("w.npz", arrays.getvalue()),
        "safetensors": ("w.safetensors", save(state)),
    }


def _write_index(file: io.BytesIO, references: list[bytes], syntax: str = "1.2.840.10008.1.2.1") -> None:
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
    file.write(start + body)


# Attacks: each writes a file into a folder, and returns its path.


def attacks() -> dict[str, tuple[str, Attack]]:
    """Return the attacks: name -> (kind, function that writes the file)."""
    found: dict[str, tuple[str, Attack]] = {}

    def attack(kind: str) -> Callable[[Attack], Attack]:
        def note(function: Attack) -> Attack:
            found[function.__name__] = (kind, function)
            return function

        return note

    def text(kind: str, name: str, file: str, content: str | bytes) -> None:
        raw = content.encode() if isinstance(content, str) else content
        found[name] = (kind, lambda folder: _put(folder / file, raw))

    @attack("zip")
    def zip_of_equal_names(folder: Path) -> Path:
        with warnings.catch_warnings(), zipfile.ZipFile(folder / "a.zip", "w") as archive:
            warnings.simplefilter("ignore")
            for _ in range(16_000):
                archive.writestr("IM1", b"x")
        return folder / "a.zip"

    @attack("zip")
    def zip_of_long_names(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for number in range(200):
                archive.writestr(("a1" * 30_000) + str(number), b"x")
        return folder / "a.zip"

    @attack("zip")
    def zip_with_commands_in_names(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.zip", "w") as archive:
            for name in ("\x1b[2Ja", "../../../x", "/etc/x", "a\nb", "C:\\x", "\u202egpj", "CON"):
                archive.writestr(name, b"x")
        return folder / "a.zip"

    @attack("zip")
    def zip_with_an_lzma_dictionary(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_LZMA) as archive:
            archive.writestr("a", bytes(1000))
        raw = bytearray((folder / "a.zip").read_bytes())
        at = raw.index(b"a", 30) + 1
        raw[at + 5 : at + 9] = b"\xff\xff\xff\xff"  # a dictionary of 4 GB
        return _put(folder / "a.zip", bytes(raw))

    @attack("zip")
    def zip_bomb(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for number in range(40):
                archive.writestr(str(number), bytes(40_000_000))
        return folder / "a.zip"

    @attack("parquet")
    def parquet_of_one_long_text(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(500_000, np.int32)), pa.array(["p" * 10_000]))
        pq.write_table(pa.table({"path": texts}), folder / "a.parquet")
        return folder / "a.parquet"

    @attack("parquet")
    def parquet_of_many_rows(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"path": pa.nulls(50_000_000, pa.string())}), folder / "a.parquet")
        return folder / "a.parquet"

    @attack("parquet")
    def parquet_of_many_columns(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({f"c{number}": ["x"] for number in range(20_000)}), folder / "a.parquet")
        return folder / "a.parquet"

    @attack("parquet")
    def parquet_of_nested_lists(folder: Path) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"path": [[["a"] * 50] * 50] * 500}), folder / "a.parquet")
        return folder / "a.parquet"

    @attack("xlsx")
    def xlsx_of_many_rows(folder: Path) -> Path:
        rows = b"".join(b'<row r="%d"><c r="A%d"><v>1</v></c></row>' % (k, k) for k in range(1, 900_000))
        return _book(folder / "a.xlsx", rows)

    @attack("xlsx")
    def xlsx_of_the_last_column(folder: Path) -> Path:
        return _book(
            folder / "a.xlsx",
            b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (k, k) for k in range(1, 60_000)),
        )

    @attack("xlsx")
    def xlsx_of_the_last_row(folder: Path) -> Path:
        return _book(folder / "a.xlsx", b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>')

    @attack("xlsx")
    def xlsx_that_unpacks_to_much(folder: Path) -> Path:
        return _book(folder / "a.xlsx", b" " * 300_000_000)

    @attack("xlsx")
    def xlsx_of_entities(folder: Path) -> Path:
        entities = b"".join(b'<!ENTITY e%d "%s">' % (k, b"&e%d;" % (k - 1) * 10) for k in range(1, 10))
        head = b'<?xml version="1.0"?><!DOCTYPE w [<!ENTITY e0 "lollollol">' + entities + b"]>"
        cell = b'<row r="1"><c r="A1" t="inlineStr"><is><t>&e9;</t></is></c></row>'
        return _book(folder / "a.xlsx", cell, head)

    @attack("xlsx")
    def xlsx_with_a_huge_number(folder: Path) -> Path:
        return _book(folder / "a.xlsx", b'<row r="1"><c r="A1"><v>' + b"9" * 50_000 + b"</v></c></row>")

    @attack("xlsx")
    def xlsx_with_a_huge_row_number(folder: Path) -> Path:
        return _book(folder / "a.xlsx", b'<row r="' + b"9" * 6_000 + b'"><c r="A1"><v>1</v></c></row>')

    @attack("dicomdir")
    def dicomdir_deflated(folder: Path) -> Path:
        content = io.BytesIO()
        _write_index(content, [b"A"] * 1_500_000, "1.2.840.10008.1.2.1.99")
        return _put(folder / "DICOMDIR", content.getvalue())

    @attack("dicomdir")
    def dicomdir_of_many(folder: Path) -> Path:
        content = io.BytesIO()
        _write_index(content, [b"IM%d" % number for number in range(4_000)])
        return _put(folder / "DICOMDIR", content.getvalue())

    @attack("dicomdir")
    def dicomdir_that_climbs(folder: Path) -> Path:
        content = io.BytesIO()
        _write_index(content, [b"..\\..\\..\\etc\\passwd", b"/etc/passwd", b"C:\\x", b"\x1b[2J", b"A\0B"])
        return _put(folder / "DICOMDIR", content.getvalue())

    @attack("dicomdir")
    def dicomdir_nested(folder: Path) -> Path:
        content = io.BytesIO()
        _write_index(content, [b"A"])
        start = content.getvalue()[: content.getvalue().index(struct.pack("<HH", 4, 0x1220))]
        deep = struct.pack("<HH2sHI", 4, 0x1220, b"SQ", 0, 0xFFFFFFFF) + struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)
        return _put(folder / "DICOMDIR", start + deep * 20_000)

    text("csv", "csv_of_many_columns", "a.csv", "," * 500_000 + "\n1\n")
    text("csv", "csv_of_short_rows_below_a_long_header", "a.csv", "path" + ",b" * 9_000 + "\n" + "1\n" * 400_000)
    text("csv", "csv_of_one_cell", "a.csv", "path\n" + "x" * 20_000_000)
    text("csv", "csv_of_one_open_quote", "a.csv", 'path\n"' + "x\n" * 2_000_000)
    text("csv", "csv_of_quotes", "a.csv", "path\n" + '"' * 2_000_000)
    text("csv", "csv_of_nothing", "a.csv", "path\n" + "\n" * 5_000_000)
    text("csv", "csv_of_zeros", "a.csv", bytes(3_000_000))
    text("csv", "csv_of_commands", "a.csv", "path,frame\n\x1b[2J,0\n../../x,1\n")
    text("csv", "csv_of_a_frame_of_many_digits", "a.csv", "path,frame\na," + "9" * 5_000 + "\n")
    text("csv", "csv_of_equal_headers", "a.csv", ",".join(["path"] * 5_000) + "\nx\n")
    text("csv", "csv_of_equal_rows", "a.csv", "path,frame\n" + "".join(f"a,{n}\n" for n in range(10_000)))
    chain = "".join(f"  {b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    text("recipe", "yaml_bomb", "a.yaml", "train:\n  a: &a [x,x,x,x,x,x,x,x,x]\n" + chain)
    merges = "".join(f"{b}: &{b}\n  <<: [{','.join([f'*{a}'] * 30)}]\n" for a, b in zip("abcde", "bcdef", strict=True))
    text("recipe", "yaml_of_merges", "a.yaml", "a: &a {x: 1}\n" + merges)
    text("recipe", "yaml_that_holds_itself", "a.yaml", "train: &a\n  b: *a\n")
    text("recipe", "yaml_key_that_holds_itself", "a.yaml", "&a ? *a\n: 1\n")
    text("recipe", "yaml_of_many_digits", "a.yaml", "train: {steps: " + "9" * 5_000 + "}\n")
    text("recipe", "yaml_of_many_hexadecimal_digits", "a.yaml", "train: {steps: 0x" + "f" * 5_000 + "}\n")
    text("recipe", "yaml_of_sixties", "a.yaml", "train: {steps: " + ":".join(["1"] * 5_000) + "}\n")
    text("recipe", "yaml_of_brackets", "a.yaml", "[" * 100_000)
    text("recipe", "yaml_of_braces", "a.yaml", "{a: " * 50_000)
    text("recipe", "yaml_of_dashes", "a.yaml", "- " * 90_000)
    text("recipe", "yaml_of_one_word", "a.yaml", "x" * 5_000_000)
    text("recipe", "yaml_of_a_long_key", "a.yaml", "x" * 150_000 + ": 1\n")
    text("recipe", "yaml_of_code", "a.yaml", "train: !!python/object/apply:os.system [touch x]\n")
    text("recipe", "yaml_of_a_bad_date", "a.yaml", "train: {steps: 2001-99-99}\n")
    text("recipe", "yaml_of_commands", "a.yaml", 'train: {"\\e[2J": 1}\n')
    text("recipe", "yaml_of_infinities", "a.yaml", "train: {steps: .inf}\noptim: {lr: .nan}\n")
    text("recipe", "yaml_of_wrong_kinds", "a.yaml", "train: [1]\nmodel: 3\noptim: null\n")
    text("recipe", "yaml_of_numbers_as_keys", "a.yaml", "1: 2\n2.5: {3: 4}\nnull: 1\n")
    text("recipe", "yaml_of_a_network_of_a_million_layers", "a.yaml", "model: {name: vit, vit: {depth: 1000000}}\n")
    text("recipe", "yaml_of_invalid_text", "a.yaml", b"train: \xff\xfe\n")
    text("card", "card_of_a_bomb", "a.md", "---\nname: &a [x,x,x,x,x,x,x,x,x]\n" + chain.replace("  ", "") + "---\n")
    text("card", "card_of_many_digits", "a.md", "---\nclasses: {a: " + "9" * 5_000 + "}\n---\n")

    @attack("pth")
    def pth_that_holds_itself(folder: Path) -> Path:
        import torch

        table: dict[str, Any] = {}
        table["model"] = table
        torch.save(table, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_of_complex_numbers(folder: Path) -> Path:
        import torch

        torch.save({"norm.weight": torch.ones(4, dtype=torch.complex64)}, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_of_stretched_tensors(folder: Path) -> Path:
        import torch

        torch.save({"pos_embed": torch.zeros(1).expand(1, 1_000_001, 64)}, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_deflated(folder: Path) -> Path:
        import torch

        torch.save({"a": torch.zeros(80_000_000)}, folder / "b.pth")
        with (
            zipfile.ZipFile(folder / "b.pth") as plain,
            zipfile.ZipFile(folder / "a.pth", "w", 8, compresslevel=1) as out,
        ):
            for info in plain.infolist():
                with plain.open(info) as source, out.open(info.filename, "w") as target:
                    while chunk := source.read(1 << 24):
                        target.write(chunk)
        (folder / "b.pth").unlink()
        return folder / "a.pth"

    @attack("pth")
    def pth_of_wrapped_names(folder: Path) -> Path:
        import torch

        torch.save({"module." * 200_000 + "a": torch.zeros(1)}, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_of_odd_names(folder: Path) -> Path:
        import torch

        names = ["blocks." + "9" * 5_000 + ".attn.qkv.weight", "\x1b[2J", "", "." * 10_000, "a\0b", "\ud800"]
        torch.save({name: torch.zeros(2) for name in names}, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_of_many_tensors(folder: Path) -> Path:
        import torch

        one = torch.zeros(1)
        torch.save({f"t{number}": one for number in range(100_000)}, folder / "a.pth")
        return folder / "a.pth"

    @attack("pth")
    def pth_that_runs_code(folder: Path) -> Path:
        return _put(folder / "a.pth", pickle.dumps(_RunsCode(folder.parent / "the code has been run")))

    @attack("pth")
    def pth_of_a_huge_bytearray(folder: Path) -> Path:
        return _put(folder / "a.pth", b"\x80\x02c__builtin__\nbytearray\n\x8a\x06\x00\x00\x00\x00\x00\x10\x85R.")

    @attack("npz")
    def npz_bomb(folder: Path) -> Path:
        np.savez_compressed(folder / "a.npz", w=np.zeros(400_000_000, np.float32))
        return folder / "a.npz"

    @attack("npz")
    def npz_that_claims_much(folder: Path) -> Path:
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(
            head, {"descr": "<f4", "fortran_order": False, "shape": (250_000, 1_000_000)}
        )
        with zipfile.ZipFile(folder / "a.npz", "w") as archive:
            archive.writestr("w.npy", head.getvalue() + bytes(1000))
        return folder / "a.npz"

    @attack("npz")
    def npz_of_complex_numbers(folder: Path) -> Path:
        np.savez(folder / "a.npz", w=np.zeros(3, np.complex128))
        return folder / "a.npz"

    @attack("npz")
    def npz_of_objects(folder: Path) -> Path:
        np.savez(folder / "a.npz", w=np.array([{}, []], dtype=object))
        return folder / "a.npz"

    @attack("safetensors")
    def safetensors_of_a_huge_header(folder: Path) -> Path:
        return _put(folder / "a.safetensors", struct.pack("<Q", 1 << 60) + b"{}")

    @attack("safetensors")
    def safetensors_of_a_huge_shape(folder: Path) -> Path:
        return _safetensors(folder, {"w": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}, b"")

    @attack("safetensors")
    def safetensors_of_complex_numbers(folder: Path) -> Path:
        return _safetensors(folder, {"w": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}, bytes(8))

    @attack("safetensors")
    def safetensors_of_deep_metadata(folder: Path) -> Path:
        header = b'{"__metadata__": ' + b"[" * 50_000 + b"}"
        return _put(folder / "a.safetensors", struct.pack("<Q", len(header)) + header)

    @attack("safetensors")
    def safetensors_of_no_elements(folder: Path) -> Path:
        shape = [0, 1 << 62, 1 << 62]
        return _safetensors(folder, {"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}, b"")

    return found


class _RunsCode:
    def __init__(self, proof: Path):
        self.proof = proof

    def __reduce__(self) -> Any:
        return Path.touch, (self.proof,)


def _put(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _safetensors(folder: Path, header: dict[str, Any], content: bytes) -> Path:
    text = json.dumps(header).encode()
    return _put(folder / "a.safetensors", struct.pack("<Q", len(text)) + text + content)


def _book(path: Path, rows: bytes, head: bytes = b"") -> Path:
    import openpyxl

    plain = io.BytesIO()
    openpyxl.Workbook().save(plain)
    start = head + b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    with zipfile.ZipFile(plain) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as book:
        for name in old.namelist():
            is_sheet = name == "xl/worksheets/sheet1.xml"
            book.writestr(name, start + rows + b"</sheetData></worksheet>" if is_sheet else old.read(name))
    return path


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
