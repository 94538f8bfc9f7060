"""Names of the images and patients of a data set in everything that usvit writes.

The file names and patient ids of a public release are public. Those of a user's own images may name patients: such a
data set is private, and its images and patients get pseudonyms, made with the key that ``usvit score`` uses. So a
patient has the same id in training and in scoring, and cannot be identified without the key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from usvit.data.datasets.cards import DataCard, card_names
from usvit.data.io import BadImage
from usvit.errors import UsvitError
from usvit.pseudonyms import Pseudonyms, default_key_path
from usvit.terminal import on_own_terminal

OWN_READERS = frozenset({"folder", "masks", "coco", "table", "dicom"})
"""Readers of users' own images; the other readers read public releases."""
_WITHHELD = "[withheld]"


class Public(str):
    """Quoted text that cannot name a person, such as the number of a row or the name of a required column."""


class NamesFile(Public):
    """Quoted text that names a file of the user, such as ``row 7 of labels.csv``; ``hidden`` does not name it.

    Args:
        text: the text.
        hidden: what errors about a private data set say instead, such as ``row 7 of the table``.
    """

    hidden: str

    def __new__(cls, text: str, hidden: str) -> "NamesFile":
        made = super().__new__(cls, text)
        made.hidden = hidden
        return made

    def __reduce__(self) -> tuple[type, tuple[str, str]]:  # errors come from other processes
        return NamesFile, (str(self), self.hidden)


class OwnColumns(str):
    """Names of columns of the user's table: shown on the user's own terminal, and withheld where a log may keep them.

    A header may be the row of a patient.
    """


class DataError(UsvitError):
    """Error about a data set whose message quotes it: names of files, cells of a table.

    Args:
        text: the message, with a field in braces for each quotation.
        quoted: field -> quotation. For a private data set, a ``Path`` (relative to the data root) is replaced by its
            pseudonym, a ``BadImage`` by its code, and a ``NamesFile`` by its hidden text; ``Public`` text and
            numbers are kept; anything else is withheld.
    """

    def __init__(self, text: str, /, **quoted: object):
        self._text, self._quoted = text, quoted
        super().__init__(text.format(**{name: _plainly(value) for name, value in quoted.items()}))

    def without_quotations(self, pseudonyms: Pseudonyms) -> str:
        """Return the message for a private data set."""
        return self._text.format(**{name: _hidden(value, pseudonyms) for name, value in self._quoted.items()})


def _plainly(value: object) -> str:
    if isinstance(value, BadImage):
        return value.reason
    return value.as_posix() if isinstance(value, Path) else str(value)


def _hidden(value: object, pseudonyms: Pseudonyms) -> str:
    if isinstance(value, NamesFile):
        return value.hidden
    if isinstance(value, Public | int):
        return str(value)
    if isinstance(value, BadImage):
        return value.code
    if isinstance(value, OwnColumns):
        return str(value) if on_own_terminal() else f"{_WITHHELD[:-1]}: shown on a terminal only]"
    return pseudonyms.item(value.as_posix()) if isinstance(value, Path) else _WITHHELD


def is_private(card: DataCard) -> bool:
    """Return True if the file names and patient ids of a data set may name people.

    That is the case for all data sets except the releases with a shipped card, unless the card says ``public_ids``.
    """
    return not card.public_ids and (card.reader in OWN_READERS or card.name not in card_names())


@dataclass(frozen=True)
class Identities:
    """Names of the images, patients and files of one data set."""

    pseudonyms: Pseudonyms | None = None
    """Pseudonyms of a private data set; None if the data set's own names are used."""
    kept: bool = False
    """True if own names are used although the data set is private: what is written is then as private as the images."""

    @classmethod
    def of(cls, card: DataCard, keep_ids: bool = False) -> "Identities":
        """Return pseudonyms with the user's key if the data set is private and ``keep_ids`` is False.

        Raises:
            UsvitError: The key cannot be read or created.
        """
        if not is_private(card):
            return cls()
        return cls(kept=True) if keep_ids else cls(Pseudonyms.of_key(default_key_path()))

    def image(self, own_id: str, path: Path, frame: int) -> str:
        """Return the id of an image: the id of its file in ``usvit score``, and the frame unless it is 0."""
        if self.pseudonyms is None:
            return own_id
        return self.pseudonyms.item(path.as_posix()) + (f"-{frame}" if frame else "")

    def patient(self, own_id: str | None) -> str | None:
        """Return the id of a patient; None if there is none."""
        return own_id if self.pseudonyms is None or own_id is None else self.pseudonyms.patient(own_id) or None

    def lesion(self, own_id: str | None) -> str | None:
        """Return the id of a lesion; None if there is none."""
        return own_id if self.pseudonyms is None or own_id is None else self.pseudonyms.lesion(own_id) or None

    def exam(self, own_id: str | None) -> str | None:
        """Return the id of an exam, which ``usvit score`` calls a study; None if there is none."""
        return own_id if self.pseudonyms is None or own_id is None else self.pseudonyms.study(own_id) or None

    def path(self, name: str) -> str:
        """Return what is written instead of a path relative to the data root."""
        return name if self.pseudonyms is None else self.pseudonyms.item(name)

    def names(self, paths: Iterable[str]) -> dict[str, str]:
        """Map the written names back to paths, for users who have the key and the files."""
        return {self.path(path): path for path in paths}

    def told(self, error: UsvitError) -> UsvitError:
        """Return an error of the data set's reader in a form that may be shown and logged."""
        if self.pseudonyms is None:
            return error
        if isinstance(error, DataError):
            return UsvitError(error.without_quotations(self.pseudonyms))
        return UsvitError("its files or its table do not match the layout (details are private and therefore withheld)")

    def told_bad(self, bad: BadImage, path: Path) -> UsvitError:
        """Return the error for an unusable image; ``path`` is relative to the data root."""
        if self.pseudonyms is None:
            return bad
        return UsvitError(
            f"Cannot use the image file {self.path(path.as_posix())}: {self.reason(bad)}. 'usvit data link' shows "
            "which file that is. Replace it, or pass --skip-bad to leave out such files and list them."
        )

    def reason(self, bad: BadImage) -> str:
        """Return why an image cannot be used, without the decoder's message if that may quote a private file."""
        return bad.reason if self.pseudonyms is None else f"it cannot be read as an image ({bad.code})"


def of_fingerprint(fingerprint: str, what: str) -> Identities:
    """Return identities with the user's key, and check that it is the key with this fingerprint.

    Raises:
        UsvitError: The user has another key.
    """
    pseudonyms = Pseudonyms.of_key(default_key_path())
    if pseudonyms.fingerprint != fingerprint:
        raise UsvitError(
            f"{what} was written with another key (fingerprint {fingerprint}; {default_key_path()} has "
            f"{pseudonyms.fingerprint}). Name its key in USVIT_KEY, or write it again."
        )
    return Identities(pseudonyms)


class Places:
    """Files of one data set by their names in a run's manifest, which are pseudonyms if the data set is private.

    Args:
        root: root of the data set.
        identities: names of its images.
        paths: paths of its images and masks, relative to the root.
    """

    def __init__(self, root: Path, identities: Identities, paths: Iterable[str]):
        self.root, self._identities = root, identities
        self._names = {} if identities.pseudonyms is None else identities.names(paths)

    def file(self, name: str) -> Path:
        """Return the file that a cell of the run's manifest names."""
        return self.root / self._names.get(name, name)

    def reason(self, bad: BadImage) -> str:
        """Return which file cannot be used and why, in a form that may be shown."""
        if self._identities.pseudonyms is None:
            return f"{bad.path}: {bad.reason}"
        return self._identities.reason(bad)
