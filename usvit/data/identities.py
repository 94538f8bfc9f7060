"""How the images and patients of a data set are called in everything that usvit writes.

The file names and patient ids of a public release are public. Those of a user's own images name patients: such a data
set is private, and its images and patients go by pseudonyms, made with the key that ``usvit score`` uses. So a patient
has one id in training and in scoring, and nobody without the key can tell who it is.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from usvit.data.cards import DataCard, card_names
from usvit.data.images import BadImage
from usvit.errors import UsvitError
from usvit.pseudonyms import Pseudonyms, default_key_path

OWN_READERS = frozenset({"folder", "table", "dicom"})
"""Readers of users' own images; all others read the layout of a public release."""
WITHHELD = "[withheld]"


class Public(str):
    """A quotation that names nobody: the number of a row, the name of a column that usvit asks for."""


class DataError(UsvitError):
    """A fault of a data set, in words that quote it: names of files, cells of a table.

    Args:
        text: the sentence, with a field in braces for each quotation.
        quoted: field -> what stands there. A ``Path``, relative to the data root, has a pseudonym that the user can
            look up; of a ``BadImage`` the reason is quoted, or its code; ``Public`` text and numbers stand in any case;
            anything else can only be withheld.
    """

    def __init__(self, text: str, /, **quoted: object):
        self._text, self._quoted = text, quoted
        super().__init__(text.format(**{name: _plainly(value) for name, value in quoted.items()}))

    def without_quotations(self, pseudonyms: Pseudonyms) -> str:
        """The same sentence for a private data set."""
        return self._text.format(**{name: _hidden(value, pseudonyms) for name, value in self._quoted.items()})


def _plainly(value: object) -> str:
    if isinstance(value, BadImage):
        return value.reason
    return value.as_posix() if isinstance(value, Path) else str(value)


def _hidden(value: object, pseudonyms: Pseudonyms) -> str:
    if isinstance(value, Public | int):
        return str(value)
    if isinstance(value, BadImage):
        return value.code
    return pseudonyms.item(value.as_posix()) if isinstance(value, Path) else WITHHELD


def is_private(card: DataCard) -> bool:
    """Whether a data set's file names and patient ids may name people.

    That is so of all data sets but the releases that usvit ships a card for, unless the card says ``public_ids``.
    """
    return not card.public_ids and (card.reader in OWN_READERS or card.name not in card_names())


@dataclass(frozen=True)
class Identities:
    """How one data set's images, patients and files are called."""

    pseudonyms: Pseudonyms | None = None
    """None: as the data set calls them."""
    kept: bool = False
    """Whether that is so although the data set is private: what is written is then as private as the images."""

    @classmethod
    def of(cls, card: DataCard, keep_ids: bool = False) -> "Identities":
        """Pseudonyms under the user's key where the data set is private; with ``keep_ids`` never.

        Raises:
            UsvitError: the key cannot be read, or made.
        """
        if not is_private(card):
            return cls()
        return cls(kept=True) if keep_ids else cls(Pseudonyms.of_key(default_key_path()))

    def image(self, own_id: str, path: Path, frame: int) -> str:
        """Of an image: the id that ``usvit score`` gives its file below this folder, and its frame unless it is 0."""
        if self.pseudonyms is None:
            return own_id
        return self.pseudonyms.item(path.as_posix()) + (f"-{frame}" if frame else "")

    def patient(self, own_id: str | None) -> str | None:
        """Of a patient; None where there is no id."""
        return own_id if self.pseudonyms is None or own_id is None else self.pseudonyms.patient(own_id) or None

    def path(self, name: str) -> str:
        """What stands for a path, relative to the data root, in what is written."""
        return name if self.pseudonyms is None else self.pseudonyms.item(name)

    def names(self, paths: Iterable[str]) -> dict[str, str]:
        """What stands for each path -> the path: the way back, for who has the key and the files."""
        return {self.path(path): path for path in paths}

    def told(self, error: UsvitError) -> UsvitError:
        """An error of the data set's reader, fit to be shown and logged."""
        if self.pseudonyms is None:
            return error
        if isinstance(error, DataError):
            return UsvitError(error.without_quotations(self.pseudonyms))
        return UsvitError("its files or its table are not as the layout says (more would quote them)")

    def told_bad(self, bad: BadImage, path: Path) -> UsvitError:
        """An image that cannot be used; ``path`` is relative to the data root."""
        if self.pseudonyms is None:
            return bad
        return UsvitError(
            f"Cannot use the image file {self.path(path.as_posix())}: {self.reason(bad)}. 'usvit data link' tells "
            "which file that is. Replace it, or pass --skip-bad to leave out such files and list them."
        )

    def reason(self, bad: BadImage) -> str:
        """Why an image cannot be used; a decoder's own words may quote the file."""
        return bad.reason if self.pseudonyms is None else f"it cannot be read as an image ({bad.code})"


def of_fingerprint(fingerprint: str, what: str) -> Identities:
    """Under the user's key, which must be the one that made what is there.

    Raises:
        UsvitError: it is another key.
    """
    pseudonyms = Pseudonyms.of_key(default_key_path())
    if pseudonyms.fingerprint != fingerprint:
        raise UsvitError(
            f"{what} was written with another key (fingerprint {fingerprint}; {default_key_path()} has "
            f"{pseudonyms.fingerprint}). Name its key in USVIT_KEY, or write it again."
        )
    return Identities(pseudonyms)


class Places:
    """Where the images of a run lie: its manifest has pseudonyms for the paths of private data sets.

    Args:
        root: of one data set.
        identities: of it.
        paths: of its images and masks, relative to the root.
    """

    def __init__(self, root: Path, identities: Identities, paths: Iterable[str]):
        self.root, self._identities = root, identities
        self._names = {} if identities.pseudonyms is None else identities.names(paths)

    def file(self, name: str) -> Path:
        """The file that a cell of the run's manifest names."""
        return self.root / self._names.get(name, name)

    def reason(self, bad: BadImage) -> str:
        """Which file cannot be used, and why, fit to be shown."""
        if self._identities.pseudonyms is None:
            return f"{bad.path}: {bad.reason}"
        return self._identities.reason(bad)


@dataclass(frozen=True)
class OwnIds:
    """Which image a user means who calls it as the data set does: in a keep-list, in folds."""

    ids: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict, repr=False)
    """(data set, the image's own id) -> its id."""

    def id_of(self, dataset: str, image_id: str) -> str:
        """The id of an image; what is no own id is taken for an id already."""
        return self.ids.get((dataset, image_id), image_id)
