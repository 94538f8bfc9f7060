"""``usvit models export``: write a network in a format that other tools read, and verify it."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from usvit.config.exporting import ExportSettings
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError, unknown
from usvit.exporting import to_monai, to_onnx
from usvit.exporting.exportable import ExportSource, open_source
from usvit.exporting.folder import EXPORT_FILE, finished, hashes_of, identity, output_folder, staged
from usvit.exporting.model_card import model_card
from usvit.exporting.verification import Checked
from usvit.files import write_text
from usvit.records import ExportRecord, save_record

FORMATS = ("safetensors", "onnx", "monai")
_NEEDS = {"onnx": to_onnx.NEEDS, "monai": to_monai.NEEDS}


@dataclass(frozen=True)
class Exported:
    """The result of an export."""

    path: Path
    record: ExportRecord
    """The content of ``export.json``."""
    new: bool
    """False if the folder already held the same export."""


@takes_settings
def export(
    model: str | Path,
    out: str | Path,
    *,
    format: str = "safetensors",
    settings: ExportSettings,
) -> Exported:
    """Write a network, its metadata and a model card into a folder.

    ONNX files and MONAI bundles are compared with usvit's own prediction before anything is put in place.

    Args:
        model: folder of a run with one fold, of a fold, or of an earlier export; or a name of ``usvit models list``.
        out: folder to write; it must be absent, empty, or hold the same export.
        format: ``safetensors``, ``onnx`` or ``monai``.
        settings: see ``ExportSettings``.

    Returns:
        The folder and the content of ``export.json``.

    Raises:
        UsvitError: an argument is wrong, the format cannot express a part of the network, or the exported network
            differs from usvit's own prediction. Nothing has been written.

    Example:
        >>> import usvit
        >>> exported = usvit.export("runs/hold-out", "exported")
        >>> exported.record.format, (exported.path / "model.safetensors").is_file()
        ('safetensors', True)
    """
    out = Path(out)
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    _refuse_without_extra(format)
    output_folder(out).refuse_other_files()
    opened = open_source(str(model), settings)
    return write_export(opened if settings.descriptions else opened.without_descriptions(), format, out)


def write_export(source: ExportSource, format_: str, out: Path) -> Exported:
    """Export a network that is already loaded; see ``export``."""
    wanted = identity(source, format_)
    if before := finished(out, wanted):
        return Exported(out, before, new=False)
    with staged(out) as folder:
        checked = _WRITERS[format_](source, folder)
        card = folder / "docs" / "README.md" if format_ == "monai" else folder / "README.md"
        write_text(card, model_card(source.metadata, format_, str(checked or "")))
        record = ExportRecord.model_validate(
            {
                **wanted,
                "architecture": source.metadata.architecture,
                "classes": source.metadata.classes,
                "checked": str(checked) if checked else None,
                "files": hashes_of(folder),
            }
        )
        save_record(folder / EXPORT_FILE, record)
    return Exported(out, record, new=True)


def _write_safetensors(source: ExportSource, folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(source.weights)
    source.write_metadata(folder, with_features=True)


def _write_onnx(source: ExportSource, folder: Path) -> Checked:
    checked = to_onnx.write_onnx(source, folder)
    source.write_metadata(folder, with_features=False)
    return checked


_WRITERS: dict[str, Callable[[ExportSource, Path], Checked | None]] = {
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
