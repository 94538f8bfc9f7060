"""``export.json`` of ``usvit models export``."""

from typing import ClassVar, Literal

from usvit.records.base import Classes, FileRecord, Name, Sha256, Text, key


class ExportRecord(FileRecord):
    """Description of an export. It is written last: if it exists, all files beside it are complete."""

    KIND: ClassVar[str] = "export"
    format: Literal["safetensors", "onnx", "monai"]
    usvit_version: Name
    weights_sha256: Sha256 = key("SHA-256 of the network's weights in safetensors format.")
    metadata_sha256: Sha256 = key("SHA-256 of the model.json of the safetensors format, as canonical JSON.")
    architecture: Name
    classes: Classes = key("Class names in the order of the outputs.")
    checked: Text | None = key("Result of the comparison with usvit's own prediction; null for safetensors.")
    files: dict[str, Sha256] = key("Path in the folder -> SHA-256 of the file.")
