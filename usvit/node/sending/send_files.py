"""``usvit dicom send``: sends DICOM files to an archive, and lists what was sent.

The list, ``sent.csv``, has one line for each answer, which is on the disk before the next file is sent. The same
command sends what is missing: a file that the archive has stored is never sent twice.
"""

import csv
import io
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydicom.uid import MediaStorageDirectoryStorage

from usvit.config.keywords import takes_settings
from usvit.data.io import is_dicom
from usvit.errors import UsvitError, shortened
from usvit.files import (
    TABLE_BYTES,
    disk_errors,
    for_the_owner_alone,
    guarded,
    locked,
    read_bytes,
    refuse_link,
    sha256_of_file,
)
from usvit.node.config.sending import SendSettings
from usvit.node.config.settings import NodeTlsConfig, PeerConfig
from usvit.node.sending.answers import Answer, Outgoing, PeerUnavailable
from usvit.node.sending.store_scu import StoreScu, fits_one_association
from usvit.node.sending.stow import StowClient
from usvit.progress import Progress, shown_progress, task

_SENT_FILE = "sent.csv"
COLUMNS = ("file", "sha256", "to", "state", "status", "error", "time")
_AGAIN = 2
"""Times that an association is opened again after it was lost, before the rest is listed as not sent."""
_ADDRESS = re.compile(r"(?P<title>[^@]{1,64})@(?P<host>\[[0-9A-Fa-f:.%]+\]|[^:@/\s]+):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class FilesSent:
    """The result of ``send_dicom``."""

    record: Path
    """The list of what was sent, ``sent.csv``."""
    sent: int
    """Number of files that the archive has stored now."""
    warned: int
    """Number of these files about which the archive warns."""
    before: int
    """Number of files that were sent by an earlier call, and not now."""
    failed: dict[str, int]
    """Reason -> number of files that were not stored."""
    left_out: int
    """Number of files in folders that are not DICOM, or are symbolic links, which could lead out of the folder."""
    dry_run: bool = False
    """If True, ``sent`` is the number of files that would be sent."""

    @property
    def partly(self) -> bool:
        """True if a file was not stored."""
        return bool(self.failed)


def _parse_peer(settings: SendSettings) -> PeerConfig:
    """Return the peer that the settings describe.

    Raises:
        UsvitError: a part is missing or wrong.
    """
    to, stow = settings.to, settings.stow
    if (to is None) == (stow is None):
        raise UsvitError("Give either --to AE@HOST:PORT or --stow URL as the destination of the files.")
    try:
        if stow is not None:
            if settings.tls_certificate is not None or settings.tls_key is not None:
                raise UsvitError("--tls-certificate and --tls-key belong to --to; --stow uses --token-file.")
            return PeerConfig(
                dicomweb=stow,
                ca=settings.tls_ca,
                token_file=settings.token_file,
                timeout_seconds=settings.timeout,
            )
        if settings.token_file is not None:
            raise UsvitError("--token-file belongs to --stow.")
        found = _ADDRESS.fullmatch(str(to))
        if found is None:
            raise UsvitError(f"'{shortened(str(to))}' is not an address. Give AE@HOST:PORT, such as PACS@10.0.0.5:104.")
        tls = None
        if (settings.tls_ca, settings.tls_certificate, settings.tls_key) != (None, None, None):
            tls = NodeTlsConfig(ca=settings.tls_ca, certificate=settings.tls_certificate, private_key=settings.tls_key)
        host = found["host"].strip("[]")
        return PeerConfig(
            ae_title=found["title"], host=host, port=int(found["port"]), tls=tls, timeout_seconds=settings.timeout
        )
    except ValueError as error:  # pydantic's is one
        problems = getattr(error, "errors", None)
        why = problems(include_url=False)[0]["msg"].removeprefix("Value error, ") if problems else str(error)
        raise UsvitError(f"The peer cannot be used: {why}.") from error


@takes_settings
def send_dicom(
    paths: str | Path | Sequence[str | Path],
    *,
    settings: SendSettings,
    progress: Progress | None = None,
) -> FilesSent:
    """Send DICOM files to an archive by C-STORE or STOW-RS; files that were sent before are not sent again.

    Args:
        paths: folders and files. Of an output folder of ``score``, the folder ``dicom`` is sent; of any other folder,
            all DICOM files in it and below it; symbolic links in folders are not followed.
        settings: See ``SendSettings``.
        progress: shows how many files are done.

    Returns:
        Numbers of files; ``partly`` says whether one was not stored.

    Raises:
        UsvitError: an argument is wrong, there is no DICOM file, or the archive cannot be reached at all.

    Example:
        >>> import usvit
        >>> usvit.send_dicom("scores", to="PACS@127.0.0.1:11112").failed  # doctest: +SKIP
        {}
    """
    peer = _parse_peer(settings)
    title = PeerConfig(ae_title=_title(settings.calling), host="localhost", port=1).ae_title or "USVIT"
    given = [Path(one) for one in ([paths] if isinstance(paths, (str, Path)) else paths)]
    found, broken, left_out = _find(given)
    if not (found or broken):
        raise UsvitError(f"There is no DICOM file in {', '.join(map(str, given))}. Run 'usvit score' with --sr first.")
    base = given[0] if given[0].is_dir() else given[0].parent
    path = settings.record or base / _SENT_FILE
    name = settings.stow.rstrip("/") if settings.stow is not None else str(settings.to)
    with for_the_owner_alone(), locked(path.with_name(f".{path.name}.lock"), f"Another command writes {path}."):
        listed = _SentList(path, name, base)
        waiting = [one for one in found if not listed.has(one.path)]
        if settings.dry_run:
            return FilesSent(path, len(waiting), 0, len(found) - len(waiting), {}, left_out, True)
        sending = _Sending(peer, title, listed, shown_progress(progress))
        sending.send(waiting)
        for damaged in broken:
            sending.conclude(
                damaged, Answer(None, error="the file cannot be read, is damaged, too large, or has no file meta group")
            )
    return FilesSent(path, sending.sent, sending.warned, len(found) - len(waiting), sending.failed, left_out)


class _Sending:
    def __init__(self, peer: PeerConfig, calling: str, listed: "_SentList", progress: Progress):
        self._peer, self._calling, self._listed, self._progress = peer, calling, listed, progress
        self.sent = self.warned = 0
        self.failed: dict[str, int] = {}

    def send(self, files: list[Outgoing]) -> None:
        done, lost = 0, 0
        with task(self._progress, "sending", len(files), "files") as advance:
            while done < len(files):
                part = files[done : done + fits_one_association(files[done:])]
                before = done
                try:
                    with self._connection(part) as connected:
                        for one in part:
                            self.conclude(one.path, connected.send(one))
                            advance(done := done + 1)
                except PeerUnavailable as error:
                    if done == 0 and lost == 0 and not self._listed.written:
                        raise UsvitError(
                            f"Nothing was sent to {self._listed.peer}: {error}. Check the address, the AE titles of "
                            "both sides, and that the archive accepts this one."
                        ) from error
                    lost = 1 if done > before else lost + 1
                    if lost > _AGAIN:
                        for one in files[done:]:
                            self.conclude(one.path, Answer(None, error=str(error)))
                        return
                    time.sleep(min(1.0, self._peer.timeout_seconds))

    def _connection(self, files: list[Outgoing]) -> StoreScu | StowClient:
        if self._peer.dicomweb is not None:
            return StowClient(self._peer)
        return StoreScu(self._peer, files, calling=self._calling)

    def conclude(self, path: Path, answer: Answer) -> None:
        """List the answer to one file."""
        self._listed.add(path, answer)
        if answer.stored:
            self.sent += 1
            self.warned += answer.warning
        else:
            self.failed[answer.error] = self.failed.get(answer.error, 0) + 1


class _SentList:
    """The file ``sent.csv``: the last line of a file and peer holds."""

    def __init__(self, path: Path, peer: str, base: Path):
        self._path, self.peer, self._base = path, peer, base
        self.written = False
        self._stored: set[str] = set()
        """SHA-256 of files that the peer has stored."""
        self._hashes: dict[Path, str] = {}
        refuse_link(path)
        content = read_bytes(path, TABLE_BYTES) if path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]  # the last line may be cut off, if the machine stopped
        foreign = UsvitError(f"The file {path} is not a list of sent files. Choose another name with --record.")
        try:
            rows = list(csv.reader(io.StringIO(whole.decode("utf-8", "surrogateescape"))))
        except csv.Error as error:  # a cell of over 131,072 characters
            raise foreign from error
        if rows and tuple(rows[0]) != COLUMNS:
            raise foreign
        if len(whole) < len(content):
            with disk_errors(path):
                os.truncate(path, len(whole))
        for row in rows[1:]:
            found = dict(zip(COLUMNS, row, strict=False))
            if found.get("to") == peer and found.get("state") in ("sent", "warning"):
                self._stored.add(found["sha256"])
        self._empty = not rows

    def has(self, path: Path) -> bool:
        """Return whether the peer has stored these bytes."""
        self._hashes[path] = sha256_of_file(path)
        return self._hashes[path] in self._stored

    def add(self, path: Path, answer: Answer) -> None:
        """Append a line and flush it to the disk."""
        name = path.relative_to(self._base) if path.is_relative_to(self._base) else path
        state = "warning" if answer.warning else "sent" if answer.stored else "failed"
        status = "" if answer.status is None else str(answer.status)
        when = datetime.now(UTC).isoformat(timespec="seconds")
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if self._empty:
            rows.writerow(COLUMNS)
        sha256 = self._hashes.get(path, "")
        rows.writerow([guarded(name.as_posix()), sha256, self.peer, state, status, answer.error, when])
        self._empty, self.written = False, True
        with disk_errors(self._path), open(self._path, "ab") as file:
            file.write(text.getvalue().encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())


def _title(calling: str) -> str:
    bare = calling.strip(" ")
    if not 0 < len(bare) <= 16 or "\\" in bare or not all(" " <= one <= "~" for one in bare):
        raise UsvitError(
            f"'{shortened(calling)}' is not an AE title: give up to 16 characters of ASCII without a backslash."
        )
    return bare


def _find(given: Iterable[Path]) -> tuple[list[Outgoing], list[Path], int]:
    """Return the DICOM files, each once; those among them that cannot be sent; and the number of other files."""
    found: dict[Path, Outgoing] = {}
    broken: list[Path] = []
    left_out = 0
    for top in given:
        if not top.exists():
            raise UsvitError(f"There is no file or folder {top}.")
        for path in _files(top):
            if (path.is_symlink() and path != top) or not path.is_file() or not is_dicom(path):
                left_out += 1
                continue
            try:
                one = Outgoing.of(path)
            except (OSError, ValueError):
                broken.append(path)
                continue
            if one.sop_class_uid == MediaStorageDirectoryStorage:
                left_out += 1
            else:
                found[path] = one
    return list(found.values()), list(dict.fromkeys(broken)), left_out


def _files(top: Path) -> Iterator[Path]:
    if not top.is_dir():
        yield top
        return
    if (top / "dicom").is_dir() and not (top / "dicom").is_symlink() and (top / "summary.json").is_file():
        top = top / "dicom"
    for folder, folders, names in os.walk(top):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith(".") and name != _SENT_FILE)
