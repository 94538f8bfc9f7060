"""Read image files: pictures, DICOM and MedMNIST's ``.npz``, as 8-bit RGB pixels."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .bad_image import BadImage as BadImage
    from .bad_image import refusing as refusing
    from .coco import CocoImage as CocoImage
    from .coco import OpenedCoco as OpenedCoco
    from .coco import coco_file as coco_file
    from .coco import coco_name as coco_name
    from .coco import mask_file as mask_file
    from .decoding import decode as decode
    from .decoding import read_image as read_image
    from .decoding import read_indices as read_indices
    from .decoding import read_masks as read_masks
    from .dicom.dicom_file import DicomFile as DicomFile
    from .dicom.dicom_file import read_dicom_frame as read_dicom_frame
    from .dicom.dicom_file import read_dicom_identity as read_dicom_identity
    from .dicom.dicom_file import read_facts as read_facts
    from .dicom.metadata import DicomFacts as DicomFacts
    from .dicom.metadata import DicomIdentity as DicomIdentity
    from .dicom.patient import PatientIdentity as PatientIdentity
    from .dicom.patient import differing_patients as differing_patients
    from .formats import IMAGE_SUFFIXES as IMAGE_SUFFIXES
    from .formats import PICTURE_NAMES as PICTURE_NAMES
    from .formats import STILL_SUFFIXES as STILL_SUFFIXES
    from .formats import UNREAD_SUFFIXES as UNREAD_SUFFIXES
    from .image_hashes import Fingerprint as Fingerprint
    from .image_hashes import fingerprint as fingerprint
    from .image_hashes import pixel_sha256 as pixel_sha256
    from .medmnist import npz_labels as npz_labels
    from .raster import IN_MEMORY as IN_MEMORY
    from .raster import PictureFile as PictureFile
    from .sniffing import DICOM_SUFFIXES as DICOM_SUFFIXES
    from .sniffing import HEAD_BYTES as HEAD_BYTES
    from .sniffing import is_dicom as is_dicom
    from .sniffing import kind_of as kind_of
    from .types import MIN_SIDE as MIN_SIDE
    from .types import Box as Box
    from .types import Decoded as Decoded
    from .types import UInt8 as UInt8
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
