"""``usvit models export``: a network as others can use it, checked before anybody gets it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError, unknown
from usvit.export import to_monai, to_onnx
from usvit.export.card import model_card
from usvit.export.check import Checked
from usvit.export.folder import finished, identity, refuse_occupied, staged
from usvit.export.source import NOVELTY_FILE, Source, open_source
from usvit.files import write_text

FORMATS = ("safetensors", "onnx", "monai")
_NEEDS = {"onnx": to_onnx.NEEDS, "monai": to_monai.NEEDS}


@dataclass(frozen=True)
class Exported:
    """What an export came to."""

    path: Path
    record: dict[str, Any]
    """The content of ``export.json``."""
    new: bool
    """False where the same export stood there already."""


def export_model(
    source: str,
    format_: str,
    out: Path,
    *,
    weights: str | None = None,
    classes: Sequence[str] = (),
    positive: str | None = None,
    image_size: int | None = None,
    descriptions: bool = True,
) -> Exported:
    """Write a network into a folder, in one of ``FORMATS``.

    Args:
        source: a run, a fold of one, an earlier export, or a name of the zoo (``open_source``).
        format_: ``safetensors``, ``onnx`` or ``monai``.
        out: the folder; it must be absent or empty, or hold the same export.
        weights, classes, positive, image_size: of a name of the zoo.
        descriptions: whether the copy descriptions of what the network has seen go with it. Without them the receiver
            can recognise equal pixels only.

    Raises:
        UsvitError: anything about the input, a part that the format has no word for, or a result that differs from
            usvit's own; nothing has been written then.
    """
    if format_ not in FORMATS:
        raise unknown("format", format_, FORMATS)
    _refuse_without_extra(format_)
    refuse_occupied(out)
    opened = open_source(source, weights=weights, classes=classes, positive=positive, image_size=image_size)
    return write_export(opened if descriptions else opened.without_descriptions(), format_, out)


def write_export(source: Source, format_: str, out: Path) -> Exported:
    """``export_model`` for a network in hand."""
    record = identity(source, format_)
    if before := finished(out, record):
        return Exported(out, before, new=False)
    record |= {"architecture": source.passport["architecture"], "classes": list(source.classes)}
    with staged(out, record) as folder:
        checked = _WRITERS[format_](source, folder)
        record["checked"] = str(checked) if checked else None
        card = folder / "docs" / "README.md" if format_ == "monai" else folder / "README.md"
        write_text(card, model_card(source.passport, format_, str(checked or "")))
    return Exported(out, record, new=True)


def _write_safetensors(source: Source, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(source.weights)
    source.write_passport(folder, with_novelty=True)
    if source.novelty is not None:
        (folder / NOVELTY_FILE).write_bytes(source.novelty)


def _write_onnx(source: Source, folder: Path) -> Checked:
    checked = to_onnx.write_onnx(source, folder)
    source.write_passport(folder, with_novelty=False)
    return checked


_WRITERS: dict[str, Callable[[Source, Path], Checked | None]] = {
    "safetensors": _write_safetensors,
    "onnx": _write_onnx,
    "monai": to_monai.write_bundle,
}


def _refuse_without_extra(format_: str) -> None:
    missing = [name for name in _NEEDS.get(format_, ()) if find_spec(name) is None]
    if missing:
        raise UsvitError(
            f"The format {format_} needs {', '.join(missing)}, which is not installed: pip install 'usvit[export]'"
        )
