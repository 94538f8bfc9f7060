"""JSON Schemas of all records, generated from the pydantic models into docs/reference.

``python -m usvit.records.schemas`` writes them, and ``--check`` only reports whether they are up to date. The schemas
describe what usvit writes, so they are stricter than reading: they allow no unknown key.
"""

import json
import sys
from pathlib import Path
from typing import Any

from usvit import records
from usvit.plain_data import Json
from usvit.plugins import record_modules
from usvit.records import CsvRow, FileRecord

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def schema_of(model: type[FileRecord] | type[CsvRow]) -> Json:
    """Build the JSON Schema (draft 2020-12) of what usvit writes for one model."""
    schema = _strict(model.model_json_schema())
    if issubclass(model, FileRecord):
        name = f"{model.KIND}-{model.VERSION}"
        schema["properties"]["schema_version"] = {"const": model.VERSION}
    else:
        name = f"{model.KIND}-row"
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"https://usvit.invalid/schemas/{name}.json",
    }
    return {**head, **schema}


def all_models() -> list[type[FileRecord] | type[CsvRow]]:
    """Return the models of all files: those of the core, then those of plug-ins."""
    modules = [records, *record_modules()]
    return [model for module in modules for model in (*module.FILE_RECORDS, *module.TABLE_ROWS)]


def all_schemas() -> dict[str, str]:
    """Return the content of every schema file by its name."""
    return {f"{model.KIND}.schema.json": json.dumps(schema_of(model), indent=2) + "\n" for model in all_models()}


def _strict(node: Any) -> Any:
    """Apply the markers of the keys and of ``OPEN``, and drop the titles and defaults that pydantic adds."""
    if isinstance(node, list):
        return [_strict(one) for one in node]
    if not isinstance(node, dict):
        return node
    inner = {name: _strict(one) for name, one in node.items() if not _noise(name, one)}
    fields = node.get("properties")
    if isinstance(fields, dict) and "type" in node:
        must = set(node.get("required", [])) | {name for name, one in fields.items() if _always_written(one)}
        inner["required"] = [name for name in fields if name in must]
        inner["additionalProperties"] = node.get("x-open", False)
    if "description" in inner and isinstance(node["description"], str):
        inner["description"] = " ".join(node["description"].split())
    if node.get("x-null") is False and "anyOf" in inner:
        choices = [one for one in inner.pop("anyOf") if one != {"type": "null"}]
        inner = {**(choices[0] if len(choices) == 1 else {"anyOf": choices}), **inner}
    return inner


def _always_written(field: Json) -> bool:
    return bool(field.get("x-required")) or ("default" in field and "x-null" not in field)


def _noise(name: str, value: Any) -> bool:
    return name in ("default", "x-null", "x-open", "x-required") or (name == "title" and isinstance(value, str))


def main(arguments: list[str]) -> int:
    """Write the schemas, or with ``--check`` return 1 if a file in docs/reference differs."""
    stale = []
    for name, text in sorted(all_schemas().items()):
        if not (FOLDER / name).is_file() or (FOLDER / name).read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in arguments:
                (FOLDER / name).write_text(text, encoding="utf-8")
    print("\n".join(stale) or "All schemas are up to date.")
    return int(bool(stale) and "--check" in arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
