"""Retired SOP classes of ultrasound images, which highdicom does not support."""

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


def rename_references(data: Dataset, built: str, real: str) -> None:
    """Give every reference to the class under which an object was built the name of the real one."""

    def rename(part: Dataset, element: Any) -> None:
        if element.keyword == "ReferencedSOPClassUID" and element.value == built:
            element.value = real

    if built != real:
        data.walk(rename)
