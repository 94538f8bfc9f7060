"""``usvit kit verify`` and ``usvit kit install``: what the kit's own install.py does, with usvit's errors."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.kit import install as kit_script


@checked_arguments
def verify_kit(kit: str | Path, sha256: str | None = None) -> str:
    """Compare every file of an air-gap kit with its hash, and refuse missing, changed and further files.

    Args:
        kit: Folder of the kit.
        sha256: SHA-256 of its SHA256SUMS, which ``build_kit`` returned. Without it, a kit that somebody has built again
            is accepted.

    Returns:
        The SHA-256 of SHA256SUMS.

    Raises:
        UsvitError: The kit is not as it was built.
    """
    with _as_usvit_error():
        return kit_script.verify(Path(kit), sha256)


@checked_arguments
def install_kit(kit: str | Path, into: str | Path, sha256: str | None = None) -> Path:
    """Verify an air-gap kit, and install it into a new virtual environment without network.

    Args:
        kit: Folder of the kit.
        into: Folder of the new environment.
        sha256: See ``verify_kit``.

    Returns:
        The Python of the environment.

    Raises:
        UsvitError: The kit is not as it was built or is for another Python, ``into`` exists, or pip failed. No
            environment is left.
    """
    with _as_usvit_error():
        return kit_script.install(Path(kit), Path(into), sha256)


@contextmanager
def _as_usvit_error() -> Iterator[None]:
    try:
        yield
    except kit_script.KitError as error:
        raise UsvitError(str(error)) from None
