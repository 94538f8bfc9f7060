"""Settings of scoring: of the networks, which ``usvit score`` and the models of a node share, and of a job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from usvit.config.fields import Option
from usvit.config.sections import Section

BATCH_SIZE = 32
"""Number of images that the networks process at once, if nothing else is chosen."""


def _folds_text(folds: str | int | Sequence[int]) -> str:
    """Return a choice of folds as ``all`` or numbers joined by commas: ``[0, 2]`` becomes ``0,2``."""
    return ",".join(map(str, [folds] if isinstance(folds, (str, int)) else folds))


Device = Literal["auto", "cpu", "cuda"]
Precision = Literal["auto", "fp32", "bf16"]
Product = Literal["sr", "sc", "gsps", "seg", "overlay", "fhir"]


class NetworkSettings(Section):
    """Networks of a run: which of them, where they are computed, and how their outputs become decisions."""

    panel = "Networks and decisions"

    folds: Annotated[
        str,
        BeforeValidator(_folds_text, json_schema_input_type=str | int | Sequence[int]),
        Option("--fold", metavar="K"),
    ] = "all"
    """Folds of each run whose networks are averaged: ``all``, or numbers such as ``0`` or ``0,2``."""
    operating_point: Annotated[str, Option(metavar="RULE")] = "sensitivity>=0.9"
    """``sensitivity>=X``, ``specificity>=X``, ``youden``, or a threshold as a number."""
    calibration: Annotated[Path | None, Option(metavar="FILE")] = None
    """File with a temperature and thresholds, written by ``usvit recalibrate``."""
    require_signature: Annotated[Path | None, Option(metavar="PUBKEY", rare=True)] = None
    """Public key (PEM) with which every model, segmenter and text tower must be signed, by ``usvit models sign``."""
    flip: bool = False
    """Average the probabilities of each image with those of its mirror image."""
    device: Device = "auto"
    """Device that computes: ``auto``, ``cpu`` or ``cuda``."""
    precision: Precision = "auto"
    """Precision of the networks: ``auto``, ``fp32`` or ``bf16``."""


class ModelSettings(NetworkSettings):
    """A model that scores images from files: its networks, and the processes that read the files."""

    panel = "Reading and computing"

    seg_from: Annotated[Path | None, Option(metavar="RUN")] = None
    """Run of ``usvit transfer --how segment``, or one of its folds, whose segmenters mark the lesion, instead of the
    model itself. The tables then have the area of the lesion."""
    concepts_from: Annotated[Path | None, Option(metavar="RUN")] = None
    """Run of ``usvit transfer --how text`` whose text tower scores concepts, such as a spiculated margin. The table
    ``scores.csv`` then has a score of each value of each concept."""
    abstain: bool = False
    """Make no decision on images that are out of distribution."""
    batch_size: Annotated[int, Field(ge=1, le=4096), Option(rare=True)] = BATCH_SIZE
    """Number of images that the networks process at once."""
    workers: Annotated[int | None, Field(ge=1, le=256), Option(rare=True)] = None
    """Number of reader processes. (default: one for each CPU core)"""
    timeout: Annotated[float, Field(gt=0), Option(rare=True)] = 60.0
    """Maximum time to decode one image, in seconds; the file fails after it."""
    memory_gb: Annotated[float, Field(ge=0.1), Option(rare=True)] = 4.0
    """Maximum memory of one reader process, in GB."""


class ScoringSettings(ModelSettings):
    """Settings of a scoring job."""

    panel = "What is scored and kept"

    frames: Annotated[str, Option(metavar="POLICY")] = "all"
    """Frames of a multi-frame file to score: ``all``, ``middle``, ``every:K``, or ``top:K`` by quality."""
    abstain_at: Annotated[str | None, Option(metavar="LOW,HIGH")] = None
    """Make no decision on uncertain images, studies and patients: calibrated probabilities such as ``0.05,0.6``, or
    ``conformal`` for the sets of the calibration."""
    keep_ids: bool = False
    """Keep paths and patient ids; the outputs are then as private as the input."""
    key: Annotated[Path | None, Option(metavar="FILE", rare=True)] = None
    """File with the secret key of the pseudonyms, created if missing. (default: in your settings)"""
    link: Annotated[Path | None, Option(metavar="FILE")] = None
    """Private table to write, outside the results: which pseudonym belongs to which file. A finished job can write it
    later, too."""
    audit_log: Annotated[Path | None, Option(metavar="FILE", rare=True)] = None
    """File to which two lines are appended, who scored what and when, without patient data (mode 600)."""
    thumbnails: Annotated[bool, Option(rare=True)] = False
    """Show small images on the page ``scores.html``."""
    pictures: Annotated[bool, Option(rare=True)] = False
    """Also draw images whose tissue region is unknown; they may show a patient's name."""
    products: frozenset[Product] = frozenset()
    """Files to write for each input file: ``sr`` (DICOM SR), ``sc`` (DICOM Secondary Capture), ``gsps`` (DICOM
    presentation state), ``seg`` (DICOM segmentation), ``overlay`` (PNG), ``fhir`` (HL7 FHIR);
    ``ProductOptions`` describes them."""
    engine: Annotated[Literal["local", "ray"], Option(rare=True)] = "local"
    """``local``, or ``ray`` for the machines of a Ray cluster."""
    address: Annotated[str | None, Option(metavar="HOST:PORT", rare=True)] = None
    """Address of the Ray cluster. (default: start one on this machine)"""
    cpus: Annotated[int | None, Field(ge=1), Option(rare=True)] = None
    """Number of CPUs of each Ray worker. (default: 2)"""


class ProductOptions(Section):
    """Products of a scoring job as options of the command line, one for each."""

    panel = "Pictures and DICOM to write"

    sr: bool = False
    """Write a DICOM SR (TID 1500) for each DICOM file."""
    sc: bool = False
    """Write a DICOM Secondary Capture: image, saliency and result."""
    gsps: bool = False
    """Write a DICOM presentation state: region and result, over the image."""
    seg: bool = False
    """Write a DICOM segmentation: what the model, or ``--seg-from``, marks as the lesion."""
    overlay: Annotated[bool, Option("--overlays")] = False
    """Write the same pictures as PNG."""
    fhir: bool = False
    """Write the results as HL7 FHIR (JSON): a DiagnosticReport and an Observation for each frame."""

    def products(self) -> frozenset[Product]:
        """Return the products that were chosen."""
        return frozenset(name for name in get_args(Product) if getattr(self, name))
