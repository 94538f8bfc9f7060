"""SOP classes and transfer syntaxes of the images that a node takes in."""

from pynetdicom import register_uid
from pynetdicom.service_class import StorageServiceClass
from pynetdicom.sop_class import _STORAGE_CLASSES

from usvit.scoring import IMAGE_CLASSES

TRANSFER_SYNTAXES = tuple(
    f"1.2.840.10008.1.2{tail}"
    for tail in (
        *("", ".1", ".2", ".1.99"),  # implicit and explicit little endian, explicit big endian, deflated
        *(".4.50", ".4.51", ".4.53", ".4.55", ".4.57", ".4.70"),  # JPEG
        *(".4.80", ".4.81", ".4.90", ".4.91", ".5"),  # JPEG-LS, JPEG 2000, RLE
        *(".4.201", ".4.202", ".4.203"),  # HTJ2K
    )
)
"""Transfer syntaxes that ``usvit score`` reads."""


def image_classes() -> list[str]:
    """Return the SOP classes of images, and make pynetdicom store the retired ones as well."""
    for number, uid in enumerate(sorted(set(IMAGE_CLASSES) - set(_STORAGE_CLASSES.values()))):
        register_uid(uid, f"RetiredUltrasoundStorage{number}", StorageServiceClass)
    return list(IMAGE_CLASSES)
