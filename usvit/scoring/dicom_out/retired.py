"""Retired SOP classes of ultrasound images, which highdicom does not support."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from pydicom.dataset import Dataset

_SUCCESSORS = {
    "1.2.840.10008.5.1.4.1.1.6": "1.2.840.10008.5.1.4.1.1.6.1",
    "1.2.840.10008.5.1.4.1.1.3": "1.2.840.10008.5.1.4.1.1.3.1",
}


def supported_class(sop_class: str) -> str:
    """Return the successor of a retired class, under which an object is built, and any other class unchanged."""
    return _SUCCESSORS.get(sop_class, sop_class)


def with_class(evidence: Dataset, sop_class: str) -> Dataset:
    """Return a copy of the evidence with another SOP class."""
    changed = deepcopy(evidence)
    changed.SOPClassUID = sop_class
    return changed


def rename_references(data: Dataset, real: Mapping[str, str]) -> None:
    """Give references to instances the names of their real classes, in place of those under which they were built.

    Args:
        data: the object, which is modified.
        real: SOP instance UID -> SOP class of the instance.
    """

    def rename(part: Dataset, element: Any) -> None:
        if element.keyword == "ReferencedSOPClassUID" and part.get("ReferencedSOPInstanceUID") in real:
            element.value = real[part.ReferencedSOPInstanceUID]

    data.walk(rename)
