"""Common base of all records: strict types, bounded numbers and lengths, and errors that name the file and the key."""

import functools
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from usvit.errors import UsvitError
from usvit.files import read_json, write_json
from usvit.plain_data import Json
from usvit.records.migrations import migrate
from usvit.representation import Summarised

Count = Annotated[int, Field(ge=0, le=10**12)]
Fold = Annotated[int, Field(ge=0, lt=10_000)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Classes = Annotated[list[Name], Field(min_length=2, max_length=1000, json_schema_extra={"uniqueItems": True})]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def key(description: str = "", *, alias: str | None = None, **schema: Any) -> Any:
    """Declare a key that usvit always writes; reading refuses a file without it.

    Args:
        description: text of the JSON Schema.
        alias: name of the key in the file, if it is not a Python identifier.
        **schema: further keywords of the JSON Schema, such as ``minimum=1``. They describe what usvit writes; reading
            checks only the Python type.
    """
    if schema:  # otherwise the keywords of an annotated type stay, such as the bounds of a share
        return Field(description=description or None, alias=alias, json_schema_extra=schema)
    return Field(description=description or None, alias=alias)


def of_section(
    description: str = "", *, null: bool = False, empty: Callable[[], Any] = lambda: None, **schema: Any
) -> Any:
    """Declare a key that is always in its section, where the section itself is only in some files.

    In a file without the section, the record has the section with what ``empty`` returns, so that readers need not
    distinguish. The schema requires the key, and allows null only if ``null`` is true.
    """
    extra = {"x-required": True, "x-null": null, **schema}
    return Field(default_factory=empty, description=description or None, json_schema_extra=extra)


def optional(description: str = "", *, null: bool = False, **schema: Any) -> Any:
    """Declare a key that usvit writes only in some files.

    The schema allows null only if ``null`` is true; otherwise, a record that is made with None is written without the
    key. The other arguments are those of ``key``.
    """
    return Field(None, description=description or None, json_schema_extra={"x-null": null, **schema})


class Record(Summarised, BaseModel):
    """Base class of all records and their parts: strict types; keys that the model does not name are kept.

    The class docstring and the fields become the JSON Schema (``usvit.records.schemas``). The schema allows further
    keys only if ``model_config`` is ``OPEN``.
    """

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False, defer_build=True)

    def model_post_init(self, context: Any, /) -> None:
        """Count the defaults of keys that every file contains as given, and None of keys without null as not given."""
        self.__pydantic_fields_set__.update(_written_defaults(type(self)))
        absent = {name for name in _never_null(type(self)) if getattr(self, name) is None}
        self.__pydantic_fields_set__.difference_update(absent)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values of some keys, which are not checked; None is as in a new record."""
        copy = super().model_copy(update=update, deep=deep)
        copy.model_post_init(None)
        return copy

    def _facts(self) -> Json:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def content(self) -> Json:
        """Return the keys and values that the file contains, to be written into another file."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)


@functools.cache
def _written_defaults(model: type[Record]) -> frozenset[str]:
    """Return the fields with a plain default, which are written although nobody gave them."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if not field.is_required()
        and field.default_factory is None
        and not (isinstance(field.json_schema_extra, dict) and "x-null" in field.json_schema_extra)
    )


@functools.cache
def _never_null(model: type[Record]) -> frozenset[str]:
    """Return the fields that a file contains with a value or not at all (``optional`` without ``null``)."""
    return frozenset(
        name
        for name, field in model.model_fields.items()
        if isinstance(extra := field.json_schema_extra, dict)
        and extra.get("x-null") is False
        and not extra.get("x-required")
    )


class InGivenOrder(Record):
    """A part whose keys depend on the kind of the file: they are written in the order in which they were given."""

    _order: tuple[str, ...] = PrivateAttr(())

    @model_validator(mode="wrap")
    @classmethod
    def _remember_order(cls, given: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(given)
        if isinstance(given, Mapping):
            found._order = tuple(given)
        return found

    @model_serializer(mode="wrap")
    def _in_order(self, handler: SerializerFunctionWrapHandler) -> Json:
        content: Json = handler(self)
        return {name: content[name] for name in self._order if name in content} | content


OPEN = ConfigDict(json_schema_extra={"x-open": True})
BY_NAME = ConfigDict(populate_by_name=True)
"""For records with an alias: code makes them by the names of the fields."""
FROZEN = ConfigDict(frozen=True)
"""For records that code computes with: they cannot be changed, and have a hash if their parts have one."""


class FileRecord(Record):
    """Base class of the models of whole files.

    ``KIND`` names the schema in docs/reference and the entries in ``usvit.records.migrations``; ``VERSION`` is the
    schema version that usvit writes.
    """

    KIND: ClassVar[str]
    VERSION: ClassVar[str] = "1.0"
    schema_version: str = VERSION


OneRecord = TypeVar("OneRecord", bound=FileRecord)


def load_record(path: Path, model: type[OneRecord], hint: str = "", *, follow: bool = False) -> OneRecord:
    """Read a JSON file as an instance of its model.

    Args:
        path: The file.
        model: Model of this kind of file.
        hint: What to do if the file does not exist; part of the error message.
        follow: Accept a symbolic link. Use it only for a file that the user named.

    Raises:
        UsvitError: If the file is missing, is not a regular file, is too large, is not JSON, or a key has an invalid
            value.
    """
    content = migrate(read_json(path, hint, follow=follow), model.KIND)
    version = content.get("schema_version", model.VERSION)
    if version != model.VERSION:
        raise UsvitError(
            f"{path} was written by another version of usvit (schema {str(version)[:20]}, and this version reads "
            f"{model.VERSION}). Run the command that wrote it again with this version."
        )
    if "schema_version" not in content:
        raise UsvitError(f"{path} is damaged: key schema_version: Field required. Copy the file again.")
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:60] for part in first["loc"]) or "(all)"
        reason = re.sub(r"^(Value error,|Input should be)", "should be", first["msg"], count=1)[:200]
        raise UsvitError(f"{path} is damaged: key {where}: {reason}. Copy the file again.") from None


def save_record(path: Path, record: FileRecord, *, mode: int = 0o666) -> None:
    """Write a record as a JSON file, with the keys in the order of the model.

    Args:
        path: The file; it is replaced as a whole.
        record: The record; keys that were not given are not written.
        mode: Permissions of a new file, before the umask.

    Raises:
        UsvitError: If the file cannot be written.
    """
    write_json(path, record.content(), mode=mode)


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """Turn any failure of the enclosed work on several records into one error with its place, without a traceback.

    Each record has been checked alone. No schema can say, for example, that the classes of one file are keys in
    another; records from different runs contradict each other there.

    Args:
        folder: Folder of the records, for the error message.

    Raises:
        UsvitError: If anything except an ``OSError`` or a ``UsvitError`` is raised; those pass unchanged.
    """
    try:
        yield
    except (UsvitError, OSError):
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        raise UsvitError(
            f"The records in {folder} do not fit together ({type(error).__name__} in {Path(place.filename).name}, line "
            f"{place.lineno}): a file was changed, or comes from another run. Copy the folder again. If usvit wrote it "
            "and nobody has changed it, this is a bug in usvit: please report it."
        ) from error
