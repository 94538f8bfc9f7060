"""What passes between the parts of batch scoring; no torch, no pydicom.

Items are found (``find``), read in worker processes (``reading``), scored (``ensemble``, ``stream``), kept in a journal
(``journal``) and written as tables (``tables``) and DICOM (``dicom_out``). What tells of a person is only in ``Item``
and ``Facts``: it never leaves the process but as a pseudonym (``pseudonyms``), unless the user asked to keep it.
"""

from dataclasses import dataclass, field

from usvit.data.images import UInt8

FAILURES = {
    "not_found": "there is no such file (any more)",
    "unreadable": "it cannot be read (permissions, or a disk error)",
    "empty": "it holds no bytes",
    "not_an_image": "its content is neither DICOM nor a known image format",
    "no_pixels": "a DICOM file without an image (a report, a plan, an index of other files)",
    "truncated": "it ends before its pixels do",
    "damaged": "its content contradicts itself or cannot be decoded",
    "too_large": "it would unpack to far more than an image needs (a decompression bomb?)",
    "unsupported_syntax": "its transfer syntax cannot be decoded here",
    "unsupported_pixels": "its kind of pixels (photometric interpretation, bit depth) is not supported",
    "no_such_frame": "it has no frame of the number that was asked for",
    "timeout": "decoding took longer than --timeout allows",
    "crashed": "a decoder crashed on it, or used too much memory",
    "changed_since_scoring": "its bytes are not those that were scored: it was changed, or exchanged with another file",
    "loop": "a link that leads back to a folder above it",
    "archive": "the archive is damaged or encrypted, or unpacks to far more than it holds",
}
"""Why something was not scored: a code, and a sentence in which nothing of the file's own content stands."""


@dataclass(frozen=True)
class Item:
    """One file that may hold images. Its fields are private: they may name a person."""

    name: str = field(repr=False)
    """What ids are made of, and what a label table's paths are compared with: the path relative to its input, with
    forward slashes; of a member of an archive ``inner.zip!folder/file``. Unique in a job."""
    location: str = field(repr=False)
    """Where it lies on this machine: the file's path, or the archive's."""
    member: str | None = field(default=None, repr=False)
    """Name inside the zip archive at ``location``."""
    frame: int | None = None
    """The one frame that a table of inputs asks for; None: the frame policy decides."""
    patient: str | None = field(default=None, repr=False)
    """From a table of inputs, else the file's own."""
    study: str | None = field(default=None, repr=False)
    problem: str | None = None
    """A code of ``FAILURES`` where discovery itself found that it cannot be read; no worker is asked then."""


@dataclass(frozen=True)
class Facts:
    """What a file's header says. Private but for the first five."""

    kind: str
    """``dicom`` or ``picture``."""
    file_sha256: str
    n_frames: int
    """In the file, whatever the policy chose."""
    pixel_spacing_mm: float | None
    """Of the tissue region, in the file's own pixels."""
    flags: tuple[str, ...]
    """Of the header: ``doppler``, ``m_mode``, ``spectral``, ``dual_view`` (from its ultrasound regions), ``burned_in``
    (it says that words are burned in)."""
    instance: str = field(repr=False)
    """SOPInstanceUID; "" for a picture."""
    study: str = field(repr=False)
    """StudyInstanceUID; ""."""
    patient: str = field(repr=False)
    """PatientID; ""."""
    device: str = field(repr=False)
    """ManufacturerModelName; ""."""


@dataclass(frozen=True)
class Frame:
    """One image, ready for the network."""

    number: int
    """In its file, from 0."""
    pixels: UInt8 = field(repr=False)
    """(S, S, 3) uint8: what ``Preprocessing`` makes of the (cropped) image."""
    pixel_sha256: str
    """``usvit.data.images.pixel_sha256`` of the whole decoded frame: tells whether the network has seen it."""
    flags: tuple[str, ...]
    """Of the pixels: names of ``usvit.data.audit.flags.PIXEL_FLAGS``."""
    quality: float
    """In [0, 1] (``usvit.data.quality``)."""
    thumbnail: bytes | None = field(default=None, repr=False)
    """A small JPEG of the tissue region, where it was asked for."""
    description: bytes = field(default=b"", repr=False)
    """Copy description of the whole decoded frame (``usvit.data.copies.compact``): recognises a copy of what the
    network has seen, and copies among the scored images. No image can be made of it."""


@dataclass(frozen=True)
class Failure:
    """Why an item, or one frame of it, was not scored."""

    code: str
    """A key of ``FAILURES``."""
    frame: int | None = None
    """None: the whole file."""
    detail: str | None = field(default=None, repr=False)
    """More, in the decoder's own words. Private: it may quote the file."""


@dataclass(frozen=True)
class Done:
    """What a killed job had of an item already."""

    frames: set[int | None] = field(default_factory=set)
    """Scored, or failed; None: the whole file failed."""
    file_sha256: str | None = None
    """Of the file whose frames were scored; None where none was."""


@dataclass(frozen=True)
class ReadSettings:
    """How items are read; the same for all items of a job."""

    image_size: int
    resize: str
    crop: str
    """``tissue`` or ``whole`` (``Preprocessing``)."""
    frames: str = "all"
    """``all``, ``middle``, ``every:K`` or ``top:K`` (the K best by quality, in their order)."""
    thumbnail_side: int | None = None
    """Longer side in px; None: none are made."""
    pictures: bool = False
    """Make thumbnails also of images without a known tissue region, unless words are found in them."""
    keep_words: bool = False
    """Make thumbnails of all images, whatever words they show."""
    max_bytes: int = 4_000_000_000
    """An item of more bytes, packed or unpacked, is ``too_large``."""


def score_columns(classes: tuple[str, ...], positive: str) -> list[str]:
    """The columns of ``scores.csv`` in their order; ``tables`` says what each holds.

    ``item_id`` and ``frame`` are a row's key. The columns of ``PRIVATE_COLUMNS`` are empty without ``--keep-ids``.
    """
    return [
        *("item_id", "frame", "instance_id", "study_id", "patient_id", "kind", "n_frames"),
        *(f"prob_{name}" for name in classes),
        *(f"calibrated_{positive}", f"spread_{positive}"),
        *("decision", "threshold", "threshold_origin"),
        *("novelty", "unusual", "seen", "flags", "quality", "pixel_spacing_mm"),
        *("pixel_sha256", "file_sha256", "model_sha256"),
        *PRIVATE_COLUMNS,
    ]


DESCRIPTION = "copy_description"
"""Key of a row beside the columns of ``scores.csv``: the description of its image, in base64."""
COPY_COLUMNS = ("item_id", "frame", "pixel_sha256", DESCRIPTION)
"""Of ``copies.parquet``, where descriptions stand as bytes."""
PRIVATE_COLUMNS = ("path", "sop_instance_uid", "study_instance_uid", "original_patient_id", "device")
FAILURE_COLUMNS = ("item_id", "path", "frame", "code", "reason")
"""``path`` is empty without ``--keep-ids``."""
