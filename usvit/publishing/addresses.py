"""Places to push models to and pull them from: the Hugging Face hub, folders, and addresses of fsspec."""

import contextlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import urlsplit, urlunsplit

from usvit.errors import UsvitError
from usvit.files import regular_file

HUB = "hf://"
_CHUNK = 1 << 20


def shown(address: str) -> str:
    """Return an address without password and query, which may be secrets."""
    parts = urlsplit(address)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", "")) if parts.netloc else address


def put(address: str, files: Mapping[str, Path | bytes], *, public: bool) -> None:
    """Write files to a place that holds none yet; the last one is written last.

    Args:
        address: ``hf://OWNER/NAME`` for a repository of the hub, a folder, or an address of fsspec (``s3://...``).
        files: Path there -> the file here, or its content.
        public: Whether everybody may read a new repository of the hub.

    Raises:
        UsvitError: There are files already, or the place cannot be reached or written.
    """
    with _driver_errors(address, "written"):
        if address.startswith(HUB):
            _put_on_hub(_repository(address), files, public=public)
            return
        system, path = _opened(address)
        if system.exists(path) and system.find(path):
            raise _taken(address)
        try:
            for name, source in files.items():
                system.makedirs(str(PurePosixPath(path) / PurePosixPath(name).parent), exist_ok=True)
                with system.open(f"{path}/{name}", "wb") as target:
                    if isinstance(source, bytes):
                        target.write(source)
                    else:
                        with regular_file(source) as file:
                            while chunk := file.read(_CHUNK):
                                target.write(chunk)
        except BaseException:
            with contextlib.suppress(Exception):
                system.rm(path, recursive=True)
            raise


def get(address: str, name: str, target: BinaryIO, most: int) -> None:
    """Copy one file of a place.

    Raises:
        UsvitError: There is no such file, it has more than ``most`` bytes, or the place cannot be reached.
    """
    with _driver_errors(address, "read"):
        system, path = _opened(address)
        with system.open(f"{path}/{name}", "rb", block_size=0 if address.startswith(HUB) else None) as source:
            while chunk := source.read(_CHUNK):
                most -= len(chunk)
                if most < 0:
                    raise UsvitError(f"{name} at {shown(address)} is larger than such a file may be. Nothing was kept.")
                target.write(chunk)


def _put_on_hub(repository: str, files: Mapping[str, Path | bytes], *, public: bool) -> None:
    from huggingface_hub import CommitOperationAdd, HfApi
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    api = HfApi()
    api.create_repo(repository, private=not public, exist_ok=True)
    if set(api.list_repo_files(repository)) - {".gitattributes"}:
        raise _taken(HUB + repository)
    added = [CommitOperationAdd(name, source) for name, source in files.items()]
    api.create_commit(repository, added, commit_message="Model of usvit")


def _repository(address: str) -> str:
    name = address.removeprefix(HUB)
    if len(name.split("/")) != 2 or "@" in name:
        raise UsvitError(f"{address} is no repository of the hub to push to: write hf://OWNER/NAME.")
    return name


def _opened(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path there."""
    import fsspec

    if address.startswith(("http://", "https://")) or "::" in address:
        raise UsvitError(
            f"{shown(address)} is no address of a model: write hf://OWNER/NAME, a folder, or an address of fsspec, "
            "such as s3://BUCKET/FOLDER."
        )
    system, path = fsspec.core.url_to_fs(address if "://" in address else str(Path(address).expanduser().absolute()))
    return system, path.rstrip("/")


def _taken(address: str) -> UsvitError:
    return UsvitError(f"{shown(address)} holds files already. Nothing was changed: choose another place.")


@contextmanager
def _driver_errors(address: str, verb: str) -> Iterator[None]:
    """Turn the errors of a driver, each of which has its own, into one paragraph."""
    try:
        yield
    except UsvitError:
        raise
    except FileNotFoundError as error:
        raise UsvitError(
            f"There is no model of usvit at {shown(address)}: a file is not there ({error}). "
            "Check the address; 'usvit models push' writes all files of a model."
        ) from error
    except ImportError as error:
        raise UsvitError(
            f"{shown(address)} needs a driver of fsspec that is not installed: {error}. Install it with pip."
        ) from error
    except Exception as error:
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        hint = " For the hub, log in with 'hf auth login', or set HF_TOKEN." if address.startswith(HUB) else ""
        raise UsvitError(
            f"{shown(address)} cannot be {verb}: {reason.rstrip('.')}. Check the address, the connection and your "
            f"rights there.{hint}"
        ) from error
