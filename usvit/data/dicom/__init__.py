"""DICOM files: one frame as 8-bit RGB, and the few facts of the header that are needed.

``source`` reads bytes within limits, ``header`` parses them, ``layout`` checks what they say of the pixels,
``fragments`` finds a frame, ``decode`` makes values of it, ``display`` a picture; ``regions`` says where the tissue is.
"""

from usvit.data.dicom.facts import DicomFacts
from usvit.data.dicom.file import DicomFile, read_dicom_frame, read_facts
from usvit.data.dicom.regions import Regions

__all__ = ["DicomFacts", "DicomFile", "Regions", "read_dicom_frame", "read_facts"]
