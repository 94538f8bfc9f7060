"""Data classes that the modules of batch scoring exchange; imports neither torch nor pydicom.

Items are found (``discovery``), read in worker processes (``reading``), scored (``ensemble``, ``pipeline``), kept in a
journal (``journal``) and written as tables (``tables``) and DICOM (``dicom_out``). Only ``ScoringItem`` and
``ItemFacts`` hold data about a person. It leaves the process as a pseudonym only (``usvit.pseudonyms``), unless the
user asks to keep it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from usvit.data.io import PICTURE_NAMES, UInt8
from usvit.data.transforms import Preprocessing

FAILURES = {
    "not_found": "there is no such file (any more)",
    "unreadable": "it cannot be read (permissions, or a disk error)",
    "empty": "it holds no bytes",
    "not_an_image": f"its content is neither DICOM nor {PICTURE_NAMES}",
    "no_pixels": "a DICOM file without an image (a report, a plan, an index of other files)",
    "truncated": "it ends before its pixels do",
    "damaged": "its content contradicts itself or cannot be decoded",
    "too_large": "it would unpack to far more than an image needs (a decompression bomb?)",
    "unsupported_syntax": "its transfer syntax cannot be decoded here",
    "unsupported_codec": "its video codec is not decoded here; convert it to H.264 in MP4, or to multi-frame DICOM",
    "unsupported_pixels": "its kind of pixels (photometric interpretation, bit depth) is not supported",
    "unknown_range": "it does not state the range of its grey values, and none can be assumed",
    "several_frames": "it holds several pictures, and none was chosen",
    "no_such_frame": "it has no frame of the number that was asked for",
    "timeout": "decoding took longer than --timeout allows",
    "crashed": "a decoder crashed on it, or used too much memory",
    "changed_since_scoring": "its bytes are not those that were scored: it was changed, or exchanged with another file",
    "loop": "a link that leads back to a folder above it",
    "archive": "the archive is damaged or encrypted, or unpacks to far more than it holds",
}
"""Reasons why something was not scored: a code, and a phrase that quotes nothing of the file's content."""
Row = dict[str, Any]
"""A row of a table: column -> cell."""


@dataclass(frozen=True)
class ScoringItem:
    """One file that may hold images. Its fields are private: they may name a person."""

    name: str = field(repr=False)
    """Path relative to the input, with forward slashes; for a member of an archive, ``inner.zip!folder/file``. Ids are
    made of it, and the paths of a label table are compared with it. Unique in a job."""
    location: str = field(repr=False)
    """Path of the file, or of the archive, on this machine."""
    member: str | None = field(default=None, repr=False)
    """Name inside the zip archive at ``location``."""
    frame: int | None = None
    """The single frame that a table of inputs asks for; None: the frame policy decides."""
    patient: str | None = field(default=None, repr=False)
    """Patient id from a table of inputs; None: the file's own is used."""
    study: str | None = field(default=None, repr=False)
    """Study id from a table of inputs; None: the file's own is used."""
    side: str | None = None
    """``left`` or ``right`` from a table of inputs; None: the file's own are used."""
    problem: str | None = None
    """A code of ``FAILURES`` if discovery already found that the file cannot be read. It is then not sent to a
    worker."""

    @property
    def source(self) -> str:
        """Where the images come from, as a user finds them again."""
        place = self.location or self.name
        return place if self.member is None else f"{place}!{self.member}"


@dataclass(frozen=True)
class ItemFacts:
    """Facts from the header of a file. All but the first five are private."""

    kind: str
    """``dicom`` or ``picture``."""
    file_sha256: str
    n_frames: int
    """Number of frames in the file, whatever the frame policy chose."""
    pixel_spacing_mm: float | None
    """Pixel spacing in the tissue region, in the file's original resolution."""
    flags: tuple[str, ...]
    """Flags of the file: ``doppler``, ``m_mode``, ``spectral``, ``dual_view`` (from its ultrasound regions),
    ``burned_in`` (the header states that text is burned in), and ``assumed_range`` (the file does not state how its
    values become 0 to 255)."""
    instance: str = field(repr=False)
    """SOPInstanceUID; "" for a picture."""
    study: str = field(repr=False)
    """StudyInstanceUID; ""."""
    patient: str = field(repr=False)
    """PatientID; ""."""
    device: str = field(repr=False)
    """ManufacturerModelName; ""."""
    sides: tuple[str | None, ...] = (None,)
    """``DicomFacts.sides``."""
    study_date: str = field(default="", repr=False)
    """StudyDate, ISO 8601; ""."""

    def side(self, frame: int) -> str | None:
        """Return the breast that a frame shows, ``left`` or ``right``; None if it is not stated."""
        return self.sides[min(frame, len(self.sides) - 1)]


@dataclass(frozen=True)
class Frame:
    """One image, ready for the network."""

    number: int
    """Number of the frame in its file, from 0."""
    pixels: UInt8 = field(repr=False)
    """(S, S, 3) uint8: the image, cropped and resized by ``Preprocessing``."""
    pixel_sha256: str
    """``usvit.data.io.image_hashes.pixel_sha256`` of the whole decoded frame, which identifies images that the network
    has seen."""
    flags: tuple[str, ...]
    """Flags from the pixels: names of ``usvit.data.audit.flags.PIXEL_FLAGS``."""
    quality: float
    """Quality in [0, 1] (``usvit.data.audit.frame_quality``)."""
    grey: tuple[float, float] = (math.nan, math.nan)
    """Brightness and contrast: mean and SD of the grey levels that the network's crop shows, in [0, 255]."""
    size: tuple[int, int] | None = None
    """Width and height of this crop, in pixels of the file."""
    thumbnail: bytes | None = field(default=None, repr=False)
    """A small JPEG of the tissue region, if the job asks for it."""
    description: bytes = field(default=b"", repr=False)
    """Near-duplicate description of the whole decoded frame (``usvit.data.near_duplicates.compact``). It identifies
    near-duplicates of images that the network has seen, and near-duplicates among the scored images. The image cannot
    be reconstructed from it."""
    others: Mapping[str, UInt8] = field(default_factory=dict, repr=False)
    """The image for each of ``ReadSettings.others``."""

    @property
    def for_mask(self) -> UInt8:
        """The image for what marks the lesion: a segmenter, or the networks themselves."""
        return self.others.get("segmenter", self.pixels)

    @property
    def for_concepts(self) -> UInt8:
        """The image for what scores concepts."""
        return self.others["concepts"]


@dataclass(frozen=True)
class Failure:
    """The reason why an item, or one frame of it, was not scored."""

    code: str
    """A key of ``FAILURES``."""
    frame: int | None = None
    """Number of the frame; None: the whole file."""
    detail: str | None = field(default=None, repr=False)
    """The decoder's own message. Private, because it may quote the file."""


@dataclass(frozen=True)
class Done:
    """The part of an item that an interrupted job has already completed."""

    frames: set[int | None] = field(default_factory=set)
    """Frames that were scored or failed; None stands for the whole file, which failed."""
    file_sha256: str | None = None
    """Hash of the file whose frames were scored; None if no frame was scored."""


@dataclass(frozen=True)
class ReadSettings:
    """Settings for reading items; the same for all items of a job."""

    image_size: int
    resize: str
    crop: str
    """``tissue`` or ``whole`` (``Preprocessing``)."""
    frames: str = "all"
    """``all``, ``middle``, ``every:K`` or ``top:K`` (the K best by quality, in their order)."""
    thumbnail_side: int | None = None
    """Longer side of the thumbnails in pixels; None: make none."""
    pictures: bool = False
    """Also make thumbnails of images without a known tissue region, unless text is found in them."""
    keep_words: bool = False
    """Make thumbnails of all images, even if they show text."""
    max_bytes: int = 4_000_000_000
    """An item with more bytes, packed or unpacked, fails as ``too_large``."""
    others: Mapping[str, Preprocessing] = field(default_factory=dict)
    """How images are also resized, for ``Ensemble.companions``; the crop of a segmenter is that of the networks."""

    @property
    def square(self) -> Preprocessing:
        """How images are cropped and resized for the networks, which normalise them later."""
        return Preprocessing(self.image_size, self.resize, (0, 0, 0), (1, 1, 1), self.crop)

    @property
    def mask_square(self) -> Preprocessing:
        """The same for what marks the lesion."""
        return self.others.get("segmenter", self.square)


def concept_column(name: str) -> str:
    """Return the column of a value of a concept, such as ``margin: spiculated``."""
    return f"concept_{name}"


def score_columns(
    classes: tuple[str, ...],
    positive: str,
    *,
    sides: bool = False,
    weights: bool = False,
    lesions: bool = False,
    concepts: Sequence[str] = (),
) -> list[str]:
    """Return the columns of ``scores.csv`` in their order; docs/reference/files.md describes each.

    ``sides`` tells whether an image of the job states the breast that it shows; otherwise there are no columns ``side``
    and ``breast_id``. ``weights`` tells whether attention pools the images of a breast, study or patient, with a column
    ``view_weight``. ``lesions`` tells whether the lesion was marked (``LESION_COLUMNS``). ``concepts`` names the values
    of concepts that were scored (``concept_column``).

    ``item_id`` and ``frame`` are the key of a row. The columns of ``PRIVATE_COLUMNS`` are empty without ``--keep-ids``.
    """
    return [
        *("item_id", "frame", "instance_id", "study_id", "patient_id", *(("side", "breast_id") if sides else ())),
        *("kind", "n_frames"),
        *(f"prob_{name}" for name in classes),
        *(f"calibrated_{positive}", f"spread_{positive}"),
        *((VIEW_WEIGHT,) if weights else ()),
        *("decision", "abstained", "threshold", "threshold_origin"),
        *("novelty", "unusual", "seen", "flags", "quality", "pixel_spacing_mm"),
        *(LESION_COLUMNS if lesions else ()),
        *map(concept_column, concepts),
        *IMAGE_COLUMNS,
        *("pixel_sha256", "file_sha256", "model_sha256"),
        *PRIVATE_COLUMNS,
    ]


DESCRIPTION = "copy_description"
"""Additional key of a row: the near-duplicate description of its image, in base64."""
VIEW_WEIGHT = "view_weight"
"""Share of an image in the result of its study or patient."""
VIEWS = "views"
"""Additional key of a row: calibrated ``prob`` (M, K) of its image by each network, and what attention needs of it,
``described`` (M, E)."""
COPY_COLUMNS = ("item_id", "frame", "pixel_sha256", DESCRIPTION)
"""Columns of ``copies.parquet``, which holds the descriptions as bytes."""
PRIVATE_COLUMNS = ("path", "sop_instance_uid", "study_instance_uid", "original_patient_id", "device", "study_date")
IMAGE_COLUMNS = ("brightness", "contrast", "width", "height")
"""Mean and SD of the grey levels of the network's crop, and its size in pixels."""
LESION_COLUMNS = ("lesion_area", "lesion_unit")
"""Area of the marked lesion, 0 without one, and its unit: ``mm2`` if the pixel spacing is known, otherwise ``px``."""
ADDED_COLUMNS = (*IMAGE_COLUMNS, "study_date")
"""Columns that tables of versions before ``usvit watch`` lack; they are read as empty."""
FAILURE_COLUMNS = ("item_id", "path", "frame", "code", "reason")
"""``path`` is empty without ``--keep-ids``."""

DECIDES = {"file": "files.csv", "breast": "breasts.csv", "exam": "studies.csv", "patient": "patients.csv"}
"""Unit of a threshold -> table whose rows it decides."""
UNIT_IDS = {"file": "item_id", "breast": "breast_id", "exam": "study_id", "patient": "patient_id"}
"""Unit of a threshold -> column of ``scores.csv`` that names it."""
