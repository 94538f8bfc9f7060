"""Render one view of one patient, from its random streams to grey values."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from usvit.data.phantom.acoustics import envelope, log_compress
from usvit.data.phantom.device import Scanner, sample_device
from usvit.data.phantom.fields import Field, Grid
from usvit.data.phantom.lesion import Lesion, insert, perturb, sample_lesion
from usvit.data.phantom.tissue import Tissue, draw_maps, sample_tissue

FINEST_GRID = 256  # cells; smaller images are rendered on this grid and averaged
_CONTACT_GAPS = 0.4  # mean number of places with bad contact in an image, independent of its content

# Random streams of a patient. Each has its own seed, so that draws of one do not affect the others.
DEVICE, TISSUE, LESION, CUT, TEXTURE, INSIDE, SPECKLE, MARKS = range(8)


@dataclasses.dataclass(frozen=True)
class RenderedImage:
    """A rendered view: ``image`` (H, W) uint8 grey, ``mask`` (H, W) bool, True in the lesion."""

    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Patient:
    """Properties that all views of a patient share."""

    seed: int  # of the data set
    number: int  # of the patient in it
    device: Scanner
    tissue: Tissue
    lesion: Lesion


def stream(seed: int, number: int, purpose: int, view: int = 0) -> np.random.Generator:
    """Return the random stream for one purpose. It does not depend on the order of the calls."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, purpose, view)))


def sample_patient(seed: int, number: int, malignant: bool, lesion: int = 0) -> Patient:
    """Draw a patient with one of the lesions, counted from 0; only the signs of the lesion depend on the class.

    Every patient has a lesion, even a healthy one; ``render_image`` decides whether it is in the image. So a patient is
    the same with and without the lesion.
    """
    return Patient(
        seed=seed,
        number=number,
        device=sample_device(stream(seed, number, DEVICE)),
        tissue=sample_tissue(stream(seed, number, TISSUE)),
        lesion=sample_lesion(stream(seed, number, LESION, lesion), malignant),
    )


def cut_lesion(patient: Patient, view: int) -> Lesion:
    """Return the patient's lesion in the section of a view; ``view`` counts from 1."""
    return perturb(patient.lesion, stream(patient.seed, patient.number, CUT, view))


def render_image(patient: Patient, view: int, *, size: int, with_lesion: bool) -> RenderedImage:
    """Render one view.

    Args:
        patient: Patient from ``sample_patient``.
        view: Number of the view from 1; views differ in the section, in texture and in speckle.
        size: Height and width in pixels.
        with_lesion: If False, the lesion is left out, and everything else stays the same.

    Returns:
        The image, with depth downwards, and the mask, which is empty without a lesion.
    """
    finer = -(-FINEST_GRID // size)
    grid = Grid(size * finer, patient.device.depth_mm)

    def own(purpose: int) -> np.random.Generator:
        return stream(patient.seed, patient.number, purpose, view)

    texture = own(TEXTURE)
    maps = draw_maps(patient.tissue, grid, texture)
    contact_loss_db = _contact_loss_db(grid, texture)
    mask = np.zeros((grid.pixels, grid.pixels), bool)
    if with_lesion:
        mask = insert(cut_lesion(patient, view), maps, grid, own(INSIDE))
    echo = envelope(maps, contact_loss_db, patient.device, grid, own(SPECKLE))
    shown = _average(log_compress(echo, patient.device), finer)
    image = np.rint(shown * 255).astype(np.uint8)
    return RenderedImage(image, _average(mask.astype(np.float32), finer) > 0.5)


def _contact_loss_db(grid: Grid, rng: np.random.Generator) -> Field:
    """Return (W,) the loss in dB below places where the probe has bad contact with the skin."""
    loss = np.zeros(grid.pixels, np.float32)
    for _ in range(rng.poisson(_CONTACT_GAPS)):
        # More frequent at the ends of the probe, which lift off a curved breast.
        at, width, depth = rng.beta(0.4, 0.4), rng.uniform(0.02, 0.06), rng.uniform(3, 12)
        loss += depth * np.exp(-0.5 * ((grid.axis_mm / grid.extent_mm - at) / width) ** 2)
    return loss


def _average(field: Field, by: int) -> Field:
    height, width = field.shape
    return field.reshape(height // by, by, width // by, by).mean(axis=(1, 3))
