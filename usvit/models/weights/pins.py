"""Pins: the commit and the SHA-256 of the hub's weights, since a repository can change under the same name.

Weights in a Python package are pinned in the same way, with the version of the package in place of the commit.
``pins.json`` beside the zoo ships with usvit; the user's own file (``usvit models pin``) takes precedence. Weights of a
repository without a pin are used as the hub has them, and run.json, model.json and ``usvit models info`` say so.
"""

import re
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from usvit.errors import UsvitError
from usvit.files import read_json, write_json

SHIPPED = Path(__file__).resolve().parents[1] / "zoo" / "pins.json"
MAX_BYTES = 10_000_000
_COMMIT = "[0-9a-f]{40}"
_SHAPES = {"revision": rf"{_COMMIT}|\d{{1,5}}(\.\d{{1,5}}){{1,3}}", "sha256": "[0-9a-f]{64}", "file": r"[\w.-]{1,100}"}


@dataclass(frozen=True)
class Pin:
    """One exact file on the hub or in a Python package."""

    revision: str
    """Commit of the repository, 40 hexadecimal digits, or version of the package."""
    file: str
    """Name of the file, without a folder."""
    sha256: str


def pin_of(repository: str) -> Pin | None:
    """Return the pin of a repository (``timm/vit_base_patch16_224.augreg_in21k``) or a package; None if it has none.

    Raises:
        UsvitError: A file of pins is damaged.
    """
    return read_pins(own_pins()).get(repository) or read_pins(SHIPPED).get(repository)


def own_pins() -> Path:
    """Return the path of the user's file of pins."""
    return Path(platformdirs.user_config_dir("usvit", appauthor=False)) / "pins.json"


def read_pins(path: Path) -> dict[str, Pin]:
    """Read a file of pins as repository -> pin; return an empty dictionary if there is no file.

    Raises:
        UsvitError: The file is damaged.
    """
    if not path.is_file():
        return {}
    if path.stat().st_size > MAX_BYTES:
        raise UsvitError(f"The file of pins {path} has more than {MAX_BYTES:,} bytes. Delete it, and pin again.")
    pins = {}
    for repository, pin in read_json(path).items():
        if not isinstance(pin, dict) or set(pin) != set(_SHAPES):
            raise UsvitError(f"In {path}, '{repository}' needs exactly {', '.join(_SHAPES)}. Correct or delete it.")
        for key, shape in _SHAPES.items():
            if not isinstance(pin[key], str) or not re.fullmatch(shape, pin[key]):
                raise UsvitError(f"In {path}, {key} of '{repository}' is not valid. Correct or delete it.")
        pins[repository] = Pin(**pin)
    return pins


def add_pin(path: Path, repository: str, pin: Pin) -> None:
    """Write a pin into a file of pins, creating the file if needed and replacing an older pin of the repository."""
    pins = {**read_pins(path), repository: pin}
    write_json(path, {name: asdict(one) for name, one in sorted(pins.items())})


def revision_of(cached: Path) -> str | None:
    """Return the commit of a file in the Hugging Face cache (``snapshots/<commit>/<file>``), or None."""
    return cached.parent.name if re.fullmatch(_COMMIT, cached.parent.name) else None
