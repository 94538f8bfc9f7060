"""What is sent to a peer, and what a peer answers.

Texts of a peer are never passed on: they may quote a data set. An answer holds a number and our own words.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from pydicom.filereader import read_file_meta_info

from usvit.files import open_regular

OUT_OF_RESOURCES = range(0xA700, 0xA800)
DUPLICATE = 0x0111
MAX_BYTES = 4_000_000_000
"""Upper bound of a file that is sent; DICOM objects are read whole, and a longer element cannot be stated."""
_SUCCESS = 0x0000
_T = TypeVar("_T")
_WARNINGS = (0x0001, 0x0107, 0x0116, *range(0xB000, 0xC000))
_WORDS = {
    0x0111: "it already has an object with this UID",
    0x0117: "it does not accept the UID of the object",
    0x0122: "it does not support the SOP class",
    0x0124: "it does not authorise the sender",
    0x0210: "it reports a duplicate message",
    0x0211: "it does not know the operation",
    0x0212: "it reports an argument of a wrong type",
    0x0213: "it is out of resources",
}


class PeerUnavailable(Exception):
    """A peer cannot be reached, refuses the association or does not answer: nothing can be sent to it at the moment.

    The text is our own.
    """


def bounded_answers(answers: Iterable[_T], most: int, seconds: float, seconds_each: float = 0.0) -> Iterator[_T]:
    """Yield the answers of a peer to one request, up to a number and a time.

    Args:
        answers: the answers; each comes in a limited time, or ends the iteration.
        most: maximum number of answers.
        seconds: time for all of them, with ``seconds_each`` more for each that has come.

    Raises:
        PeerUnavailable: there are more, or they take longer.
    """
    start = time.monotonic()
    for n_found, one in enumerate(answers, 1):
        if n_found > most:
            raise PeerUnavailable(f"it sends more than {most:,} answers to one request: ask for less at a time")
        if time.monotonic() - start > seconds + n_found * seconds_each:
            raise PeerUnavailable("its answers come too slowly")
        yield one


@dataclass(frozen=True)
class Outgoing:
    """A DICOM file that is sent."""

    path: Path
    sop_class_uid: str
    sop_instance_uid: str
    transfer_syntax_uid: str

    @classmethod
    def of(cls, path: Path) -> Self:
        """Read the file meta group of a file.

        Raises:
            ValueError: it is no DICOM file, or the group lacks an element.
            OSError: it cannot be read, is no regular file or has more than ``MAX_BYTES``.
        """
        try:
            open_regular(path, MAX_BYTES).close()
            meta = read_file_meta_info(path)
            found = [
                str(meta[keyword].value)
                for keyword in ("MediaStorageSOPClassUID", "MediaStorageSOPInstanceUID", "TransferSyntaxUID")
            ]
        except OSError:
            raise
        except Exception as error:  # pydicom raises many types for damaged files
            raise ValueError("no DICOM file with a file meta group") from error
        if not all(found):
            raise ValueError("no DICOM file with a file meta group")
        return cls(path, *found)


@dataclass(frozen=True)
class Answer:
    """What a peer answered to one object."""

    status: int | None
    """DICOM status, or status of HTTP from 400 to 599; None if the object could not be offered."""
    error: str = ""
    """Why it was not stored, in our words; "" if it was."""
    warning: bool = False
    """The peer has stored it and warns."""
    passing: bool = False
    """The peer may store it later; others would not fare better now."""

    @property
    def stored(self) -> bool:
        return not self.error

    @classmethod
    def of_status(cls, status: int) -> Self:
        """Return the answer that a status of C-STORE means (PS3.4 B.2.3, PS3.7 annex C).

        An object that the peer already has counts as stored: its UID is ours alone, and an earlier answer was lost.
        """
        if status == _SUCCESS:
            return cls(status)
        if status in _WARNINGS or status == DUPLICATE:
            return cls(status, warning=True)
        return cls(status, error=_words_of(status), passing=status in OUT_OF_RESOURCES or status == 0x0213)


def _words_of(status: int) -> str:
    """Return the meaning of a status that is a failure."""
    if status in _WORDS:
        words = _WORDS[status]
    elif status in OUT_OF_RESOURCES:
        words = "it is out of resources"
    elif status in range(0xA900, 0xAA00):
        words = "it says that the data set does not match its SOP class"
    elif status in range(0xC000, 0xD000):
        words = "it cannot understand the object"
    else:
        words = "it refuses the object"
    return f"{words} (0x{status:04X})"
