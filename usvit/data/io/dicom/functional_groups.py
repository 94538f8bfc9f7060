"""Functional groups of enhanced multi-frame files: those of all frames, and those of each frame (PS3.3 C.7.6.16)."""

from dataclasses import dataclass

import pydicom

from usvit.data.io.dicom.header import first, items


@dataclass(frozen=True)
class _FunctionalGroups:
    """The groups of one file."""

    shared: pydicom.Dataset | None
    """Item of SharedFunctionalGroupsSequence; None if there is none."""
    frames: list[pydicom.Dataset]
    """Items of PerFrameFunctionalGroupsSequence; empty if there are none."""

    def item(self, sequence: str, number: int, keywords: tuple[str, ...]) -> pydicom.Dataset | None:
        """Return the item of a group that is valid for a frame, its own one first; None if there is none.

        Args:
            sequence: Keyword of the group, such as ``FrameVOILUTSequence``.
            number: Number of the frame, from 0.
            keywords: The item must hold a value of one of these; an empty item says nothing.
        """
        for holder in (*self.frames[number : number + 1], self.shared):
            for item in [] if holder is None else items(holder, sequence)[:1]:
                if any(keyword in item and first(item, keyword) not in (None, "") for keyword in keywords):
                    return item
        return None


def functional_groups(data: pydicom.Dataset) -> _FunctionalGroups:
    """Read the functional groups of a header."""
    shared = items(data, "SharedFunctionalGroupsSequence")
    return _FunctionalGroups(shared[0] if shared else None, items(data, "PerFrameFunctionalGroupsSequence"))
