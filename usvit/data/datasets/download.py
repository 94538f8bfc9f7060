"""Download of one file, with resumption and verification of length and checksum.

A transfer goes to ``NAME.part``, which gets its final name when length and checksum are right. A killed or broken
transfer continues from its ``.part`` (``Range``) if the server supports it and confirms that the file is unchanged
(``If-Range`` with its ETag); otherwise it starts again.
"""

import hashlib
import http.client
import logging
import ssl
import time
import urllib.error
from collections.abc import Callable
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import urlsplit

from usvit import __version__
from usvit.data.datasets.cards import FetchFile
from usvit.errors import UsvitError
from usvit.files import disk_errors, no_follow, read_text, regular_file, write_text
from usvit.progress import Progress
from usvit.web import BYTES_PER_SECOND, RedirectRefused, WebLimits, open_url

logger = logging.getLogger(__name__)

WAITS: tuple[float, ...] = (1.0, 4.0, 15.0)
"""Seconds before each further attempt; the count restarts when an attempt has received more bytes."""
TIMEOUT = 60.0
"""Seconds without data after which a connection counts as broken."""
PATIENCE = 600.0
"""Seconds for which a server may break off again and again, however little each attempt receives."""
CHUNK = 1 << 20
MAX_BYTES = 100 * 1000**3
"""Maximum length of a file whose card does not state it; no public set of breast ultrasound comes near it."""
MAX_UNTOLD = 2 * 1000**3
"""Maximum length of a file whose length neither the card nor the server states."""
_PASSING = {408, 425, 429, 500, 502, 503, 504}
"""HTTP status codes of temporary errors."""
_LOCAL = {"localhost", "127.0.0.1", "::1"}
_T = TypeVar("_T")


class _Broken(Exception):
    """This attempt failed, but another one may succeed."""


def download(file: FetchFile, path: Path, progress: Progress) -> None:
    """Download one file unless it exists already.

    Args:
        file: address, length and checksums.
        path: target, in an existing folder. ``path.part`` and ``path.etag`` are used during the transfer.
        progress: shown in megabytes if the server reports the length.

    Raises:
        UsvitError: The address is neither https nor on this machine, the server does not have the file or closes the
            connection each time, length or checksum is wrong (the file is deleted), or the disk is full.
    """
    if path.exists():
        _verify(file, path)
        return
    part = path.with_name(path.name + ".part")
    _patiently(file.url, lambda: _transfer(file, part, progress), part)
    _verify(file, part)
    part.replace(path)
    _etag_of(part).unlink(missing_ok=True)


def read_url(url: str, limit: int) -> bytes:
    """Read a small response completely.

    Raises:
        UsvitError: See ``download``; or the response is longer than ``limit`` bytes.
    """

    def attempt() -> bytes:
        with _open(url, limit + 1) as response:
            try:
                return response.read(limit + 1)
            except (OSError, http.client.HTTPException) as error:
                raise _Broken(f"the connection broke ({error!r})") from error

    answer = _patiently(url, attempt)
    if len(answer) > limit:
        raise UsvitError(f"{url} sends more than {limit:,} bytes.")
    return answer


def _patiently(url: str, attempt: Callable[[], _T], part: Path | None = None) -> _T:
    """Retry after temporary errors; the count of attempts starts again whenever ``part`` has grown.

    A server that breaks off again and again is tolerated for ``PATIENCE``, and longer while the file grows at the rate
    that ``usvit.web`` demands.
    """
    best = failures = 0
    start, before = time.monotonic(), part.stat().st_size if part and part.exists() else 0
    while True:
        try:
            return attempt()
        except _Broken as broken:
            have = part.stat().st_size if part and part.exists() else 0
            best, failures = (have, 1) if have > best else (best, failures + 1)
            slow = time.monotonic() - start > PATIENCE + (have - before) / BYTES_PER_SECOND
            kept = f" ({have:,} bytes are here)" if have else ""
            if failures > len(WAITS) or slow:
                times = "again and again" if slow else f"{failures} times"
                raise UsvitError(
                    f"The download of {url} failed {times}: {broken}{kept}. "
                    "Run the same command again to continue from there, or see 'usvit data info NAME' for other ways."
                ) from broken
            logger.info(f"{url}: {broken}; trying again in {WAITS[failures - 1]:g} s{kept}")
            time.sleep(WAITS[failures - 1])


def _open(url: str, max_bytes: int, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
    """Open an address that is https or on this machine; redirects are followed on the same server."""
    _refuse_unsafe(url)
    limits = WebLimits(max_bytes, TIMEOUT)
    try:
        return open_url(url, limits, headers={"User-Agent": f"usvit/{__version__}", **(headers or {})}, timeout=TIMEOUT)
    except RedirectRefused as error:
        raise UsvitError(
            f"{url}: {error}. 'usvit data info NAME' explains how to get the data by hand; if the host has moved the "
            "file, write its new address into the data card."
        ) from error
    except urllib.error.HTTPError as error:
        if error.code == 416 or error.code in _PASSING:
            raise _Broken(f"the server answers {error.code} ({error.reason})") from error
        raise UsvitError(
            f"The server answers {error.code} ({error.reason}) for {url}. "
            "'usvit data info NAME' explains how to get the data by hand."
        ) from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error  # urllib wraps most errors
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise UsvitError(
                f"The certificate of {urlsplit(url).hostname} cannot be verified ({reason.verify_message}). Behind a "
                "proxy that opens connections, set SSL_CERT_FILE to a file with its certificate."
            ) from error
        raise _Broken(f"no connection ({reason})") from error


def _transfer(file: FetchFile, part: Path, progress: Progress) -> None:
    have = part.stat().st_size if part.exists() else 0
    if have and have == file.bytes:
        return
    etag = _etag_of(part)
    headers = {"Range": f"bytes={have}-"} if have else {}
    if have and etag.exists():
        headers["If-Range"] = read_text(etag, 10_000)
    try:
        response = _open(file.url, (file.bytes or MAX_BYTES) + 1, headers)
    except _Broken as broken:
        if getattr(broken.__cause__, "code", None) == 416:  # the server has a shorter, other file
            part.unlink(missing_ok=True)
        raise
    with response, disk_errors(part):
        start, total = _extent(response)
        most = file.bytes or (MAX_UNTOLD if total is None else MAX_BYTES)
        if file.bytes is None and total is not None and total > most:
            raise UsvitError(_too_long(file.url, most))
        if start not in (0, have):
            raise _Broken("the server sends another range of bytes than requested")
        if file.bytes is not None and total not in (None, file.bytes):
            part.unlink(missing_ok=True)
            raise UsvitError(
                f"{file.url} is not the file that the data card names: expected {file.bytes:,} bytes, found {total:,}."
            )
        if (mark := response.headers.get("ETag", "")) and not mark.startswith("W/"):  # weak: bytes may differ
            write_text(etag, mark)
        else:
            etag.unlink(missing_ok=True)
        with open(part, "ab" if start else "wb", opener=no_follow) as target:
            have = _copy(response, target, start, total, part.stem, progress, most)
    if have > most:
        part.unlink(missing_ok=True)
        etag.unlink(missing_ok=True)
        raise UsvitError(_too_long(file.url, most))
    if total is not None and have < total:
        raise _Broken(f"the server closed the connection at {have:,} of {total:,} bytes")


def _extent(response: http.client.HTTPResponse) -> tuple[int, int | None]:
    """Return the offset of the response in the file, and the length of the file if the server reports it."""
    length = response.headers.get("Content-Length")
    if response.status == 206:
        # Content-Range: bytes 100-999/1000
        spans, _, total = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("/")
        begin = spans.partition("-")[0]
        return (int(begin) if begin.isdecimal() else -1), int(total) if total.isdecimal() else None
    return 0, int(length) if length is not None and length.isdecimal() else None


def _copy(
    source: http.client.HTTPResponse,
    target: IO[bytes],
    have: int,
    total: int | None,
    name: str,
    progress: Progress,
    most: int,
) -> int:
    """Append the response to the file; return its length, which exceeds ``most`` if the server sends too much."""
    megabyte = 1_000_000
    if total is not None:
        progress.start(f"downloading {name}", max(total // megabyte, 1), "MB", have // megabyte)
    try:
        while True:
            try:
                chunk = source.read1(CHUNK)
            except (OSError, http.client.HTTPException) as error:
                raise _Broken(f"the connection broke at {have:,} bytes ({error!r})") from error
            if not chunk:
                return have
            have += len(chunk)
            if have > most:
                return have
            target.write(chunk)
            progress.update(have // megabyte)
    finally:
        progress.finish()


def _verify(file: FetchFile, path: Path) -> None:
    """Delete a file with the wrong length or checksum, and raise an error."""
    found = path.stat().st_size
    problem = f"{file.bytes:,} bytes, found {found:,}" if file.bytes not in (None, found) else None
    for kind, expected in (("sha256", file.sha256), ("md5", file.md5)):
        if problem is None and expected is not None:
            with regular_file(path) as opened:
                digest = hashlib.file_digest(opened, kind).hexdigest()
            problem = f"{kind} {expected}, found {digest}" if digest != expected else None
    if problem is not None:
        path.unlink()
        _etag_of(path).unlink(missing_ok=True)
        raise UsvitError(
            f"{file.url} is not the expected file: expected {problem}. It was deleted. Run the command "
            "again; if it fails again, the file on the server was changed or damaged. Report it to its host."
        )


def _too_long(url: str, most: int) -> str:
    return (
        f"{url} sends more than {most:,} bytes. If the file is that long, state its length in the data card (bytes: "
        "N); otherwise report it to its host."
    )


def _etag_of(part: Path) -> Path:
    return part.with_suffix(".etag")


def _refuse_unsafe(url: str) -> None:
    address = urlsplit(url)
    if address.scheme == "https" or (address.scheme == "http" and address.hostname in _LOCAL):
        return
    raise UsvitError(f"usvit does not download from {url}: only https addresses are allowed.")
