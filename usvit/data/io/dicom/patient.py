"""Whose image a DICOM file says it is, and whether two files can be of one patient."""

import re
import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

from pydicom import Dataset

from usvit.data.io.dicom.header import text

_NUL = "\0 "


@dataclass(frozen=True)
class PatientIdentity:
    """The attributes that tell patients apart; all are private, and "" or empty if the file lacks them."""

    patient_id: str = field(default="", repr=False)
    """PatientID, without padding."""
    issuer: str = field(default="", repr=False)
    """IssuerOfPatientID: the same number of another hospital belongs to somebody else."""
    birth_date: str = field(default="", repr=False)
    """PatientBirthDate, as digits."""
    name: frozenset[str] = field(default=frozenset(), repr=False)
    """The words of PatientName, without case and accents, so that ``DOE JANE`` is ``Doe^Jane``."""

    @classmethod
    def of(cls, data: Dataset) -> Self:
        """Read the identity from a data set."""
        return cls(
            text(data, "PatientID").strip(_NUL),
            text(data, "IssuerOfPatientID").strip(_NUL),
            re.sub(r"\D", "", text(data, "PatientBirthDate")),
            _words(text(data, "PatientName")),
        )

    def differences(self, other: Self) -> tuple[str, ...]:
        """Return the keywords that show that two files are of different patients; none if they can be of one.

        Different values are of different patients; a value that one of the files lacks tells nothing, except for the
        PatientID. Names that contain one another are equal (``Doe^Jane`` and ``Doe^Jane^Mary``). If the PatientID and
        the birth date are given and equal, another spelling of the name tells nothing; if the birth date and the name
        are, a PatientID that one of the files lacks tells nothing.
        """
        born = self.birth_date == other.birth_date != ""
        named = bool(self.name and other.name) and (self.name <= other.name or other.name <= self.name)
        one_lacks = not (self.patient_id and other.patient_id)
        found = []
        if self.patient_id != other.patient_id and not (one_lacks and born and named):
            found.append("PatientID")
        if self.issuer and other.issuer and self.issuer != other.issuer:
            found.append("IssuerOfPatientID")
        if self.birth_date and other.birth_date and not born:
            found.append("PatientBirthDate")
        same_id = self.patient_id == other.patient_id != ""
        if self.name and other.name and not named and not (same_id and born):
            found.append("PatientName")
        return tuple(found)

    def merged(self, other: Self) -> Self:
        """Return what two files of one patient say together."""
        return type(self)(
            self.patient_id or other.patient_id,
            self.issuer or other.issuer,
            self.birth_date or other.birth_date,
            max(self.name, other.name, key=len),
        )

    def hidden(self, pseudonym: Callable[[str], str]) -> Self:
        """Return the identity with pseudonyms as its values, which compares like the original."""
        return type(self)(
            pseudonym(self.patient_id),
            pseudonym(self.issuer),
            pseudonym(self.birth_date),
            frozenset(map(pseudonym, self.name)),
        )


def differing_patients(patients: Iterable[PatientIdentity]) -> tuple[str, ...]:
    """Return the keywords that show that files are of more than one patient; none if they can be of one."""
    together: PatientIdentity | None = None
    for one in patients:
        if together is None:
            together = one
        elif differences := together.differences(one):
            return differences
        else:
            together = together.merged(one)
    return ()


def _words(name: str) -> frozenset[str]:
    """Return the words of the first three components of the first group of a person's name (PS3.5 6.2)."""
    groups = [group for group in name.split("=") if group.strip("^ \0")]
    plain = unicodedata.normalize("NFKD", "^".join(groups[0].split("^")[:3]) if groups else "")
    bare = "".join(one for one in plain if not unicodedata.combining(one)).casefold()
    return frozenset(re.findall(r"\w+", bare))
