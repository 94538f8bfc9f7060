"""Settings of the commands ``usvit data``: preparation, audit, folds, preview and phantom."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section


class ReadingSettings(Section):
    """How the files of a data set are read and named."""

    skip_bad: bool = False
    """Leave out unreadable files and list them (exit code 3)."""
    keep_ids: bool = False
    """Keep the image and patient ids of folder, table and dicom data. The output is then private."""


class PreparationSettings(ReadingSettings):
    """Settings of the preparation of a manifest."""

    out: Annotated[Path | None, Option(metavar="FILE")] = None
    """Parquet file to write. (default: manifests/NAME.parquet)"""
    fetch: bool = False
    """Download the data set to DIR/NAME, if its card has a licensed address."""
    keep_label_conflicts: Annotated[bool, Option("--keep-conflicts")] = False
    """Keep pixel-identical images that have different labels."""
    accept_counts: bool = False
    """Accept other numbers of images than the card states, such as a subset."""


class AuditSettings(ReadingSettings):
    """Settings of an audit."""

    out: Path | None = None
    """Folder to write. (default: audits/<data>)"""


class SplitArguments(Section):
    """How folds are made; None: as for a cross-validation."""

    manifest: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """Manifest that 'usvit data prepare' wrote, instead of a data set."""
    scheme: str | None = None
    """``auto`` (the authors' folds if any), ``drawn``, ``official``, ``by_dataset`` or ``by_device``."""
    folds: int | None = None
    """Number of folds, at least 2. (default: 5)"""
    hold_out: bool = False
    """Save one 70/15/15 hold-out instead of folds."""
    repeats: int | None = None
    """Number of complete cross-validations, each with its own folds. (default: 1)"""
    unit: str | None = None
    """``group``, or ``image``, which separates the images of a patient: a LEAKING split."""
    seed: int | None = None
    """Seed of the assignment. (default: 0)"""


class PreviewSettings(Section):
    """Settings of a preview of an augmentation policy."""

    policy: str = "us"
    """``none``, ``light``, ``us``, ``trivial``, or ``all`` for one block of rows for each."""
    n: Annotated[int, Field(ge=1, le=50)] = 6
    """Number of images, from the classes in turn."""
    variants: Annotated[int, Field(ge=1, le=20)] = 5
    """Number of variants of each image."""
    size: Annotated[int, Field(ge=32, le=1024)] = 224
    """Side of the network's input in pixels."""
    resize: Literal["pad", "squash"] = "pad"
    """``pad`` (keeps the aspect ratio) or ``squash``."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Random seed of the choice of images and of the variants."""


Ablation = Literal["none", "signs", "lesion"]


class PhantomSettings(Section):
    """Settings of a phantom data set; ``usvit.data.phantom.PhantomSpec`` checks their ranges."""

    n: int = 240
    """Number of images."""
    seed: int = 0
    """Random seed; the same seed gives the same bytes."""
    size: int = 256
    """Side of the square images, in pixels."""
    near_duplicates: float = 0.0
    """Share of images that are near-duplicates of others."""
    text: float = 0.0
    """Share of images with burned-in text."""
    calipers: float = 0.0
    """Share of images with calipers."""
    ablate: Ablation = "none"
    """Remove information on the class. signs: lesions look the same in all classes; lesion: no lesions."""
    scanner: Annotated[str, Option(metavar="SETTING=VALUE,...")] = ""
    """Settings of the scanner for all patients, instead of drawn ones: frequency_mhz, depth_mm, looks,
    dynamic_range_db, gain_db, penetration_db."""
    views: Annotated[int, Option(metavar="N")] = 0
    """Largest number of views of a patient, up to 20; the table then names lesions, sides and exams. 0: up to 3,
    without these."""
    lesions: int = 1
    """Largest number of lesions of a patient; needs ``views``."""
    exams: int = 1
    """Largest number of exams of a patient; needs ``views``."""
    sign_views: Annotated[int, Option(metavar="N")] = 0
    """Number of views of a malignant lesion that show its signs; needs ``views``. 0: all of them."""
