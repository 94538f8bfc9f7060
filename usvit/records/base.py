"""What all records share: strict types, bounded numbers and lengths, and errors that name the file and the key."""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from usvit.errors import UsvitError
from usvit.files import read_json

Count = Annotated[int, Field(ge=0, le=10**12)]
Fold = Annotated[int, Field(ge=0, lt=10_000)]
Number = Annotated[float, Field(ge=-1e15, le=1e15)]
Text = Annotated[str, Field(max_length=20_000)]
Name = Annotated[str, Field(min_length=1, max_length=300)]
Classes = Annotated[list[Name], Field(min_length=2, max_length=1000)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Record(BaseModel):
    """Strict types; keys that are not named stay."""

    model_config = ConfigDict(extra="allow", strict=True, allow_inf_nan=False)


def read_record(path: Path, model: type[Record], hint: str = "", *, follow: bool = False) -> dict[str, Any]:
    """The content of a JSON file that its model accepts.

    Args:
        path: the file.
        model: of this kind of file.
        hint: what to say where there is none.
        follow: whether it may be a symbolic link: only where the user named this very file.

    Raises:
        UsvitError: it is absent, no regular file, beyond the bounds, no JSON, or a key has a value that cannot be.
    """
    content = read_json(path, hint, follow=follow)
    check_record(content, model, path)
    return content


def check_record(content: dict[str, Any], model: type[Record], path: Path) -> None:
    """UsvitError naming file and key where the content is not what the model says."""
    try:
        model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(str(part)[:60] for part in first["loc"]) or "(all)"
        reason = re.sub(r"^(Value error|Input should be)", "should be", first["msg"], count=1)[:200]
        raise UsvitError(f"{path} is damaged: key {key}: {reason}. Copy the file again.") from None


@contextmanager
def fitting(folder: Path) -> Iterator[None]:
    """The last net below the work on a stranger's records, where two of them contradict each other.

    Each record by itself has been checked. What no schema can say is that, for example, the classes of one file are
    keys in another. Whatever breaks on that is told as one sentence with its place, not as a traceback.

    Raises:
        UsvitError: anything but an error of the system, or UsvitError itself, was raised.
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
            "and nobody has changed it, this is a bug of usvit: please report it."
        ) from error
