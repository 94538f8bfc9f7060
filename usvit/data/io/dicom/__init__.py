"""DICOM files: frames as 8-bit RGB, and the metadata that usvit needs.

``byte_stream`` reads bytes within limits, ``header`` parses them, ``layout`` checks the description of the pixels,
``fragments`` finds a frame, ``decode`` returns its stored values, and ``display`` converts them to a picture.
``regions`` reads the tissue region, and ``metadata`` the remaining facts.
"""

from usvit.data.io.dicom.dicom_file import DicomFile, read_dicom_frame, read_dicom_identity, read_facts
from usvit.data.io.dicom.metadata import DicomFacts, DicomIdentity
from usvit.data.io.dicom.regions import Regions

__all__ = [
    "DicomFacts",
    "DicomFile",
    "DicomIdentity",
    "Regions",
    "read_dicom_frame",
    "read_dicom_identity",
    "read_facts",
]
