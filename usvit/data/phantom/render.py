"""One view of one patient, from its random streams to grey values."""

import dataclasses

import numpy as np
from numpy.typing import NDArray

from usvit.data.phantom.acoustics import envelope, log_compress
from usvit.data.phantom.device import Device, sample_device
from usvit.data.phantom.fields import Field, Grid
from usvit.data.phantom.lesion import Lesion, insert, perturb, sample_lesion
from usvit.data.phantom.tissue import Tissue, draw_maps, sample_tissue

FINEST_GRID = 256  # cells; smaller images are rendered this fine and averaged down
CONTACT_GAPS = 0.4  # mean number of columns of bad contact in an image, whatever is in it

# Random streams of a patient. Each has its own seed, so that what one of them draws, a lesion
# for instance, moves nothing in the others.
DEVICE, TISSUE, LESION, CUT, TEXTURE, INSIDE, SPECKLE, MARKS = range(8)


@dataclasses.dataclass(frozen=True)
class RenderedImage:
    """What comes out: ``image`` (H, W) uint8 grey, ``mask`` (H, W) bool, True in the lesion."""

    image: NDArray[np.uint8]
    mask: NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Patient:
    """Everything that the views of a patient share."""

    seed: int  # of the data set
    number: int  # of the patient in it
    device: Device
    tissue: Tissue
    lesion: Lesion


def stream(seed: int, number: int, purpose: int, view: int = 0) -> np.random.Generator:
    """The random stream for one purpose: told by its numbers, not by the order of the calls."""
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(number, purpose, view)))


def sample_patient(seed: int, number: int, malignant: bool) -> Patient:
    """Draw a patient; the class moves the signs of the lesion and nothing else.

    Every patient has a lesion to draw, the healthy ones too: whether it is put into the image is
    told to ``render_image``. So a patient is the same person with the lesion and without.
    """
    return Patient(
        seed=seed,
        number=number,
        device=sample_device(stream(seed, number, DEVICE)),
        tissue=sample_tissue(stream(seed, number, TISSUE)),
        lesion=sample_lesion(stream(seed, number, LESION), malignant),
    )


def cut_lesion(patient: Patient, view: int) -> Lesion:
    """The patient's lesion as a view cuts it; ``view`` counts from 1."""
    return perturb(patient.lesion, stream(patient.seed, patient.number, CUT, view))


def render_image(patient: Patient, view: int, *, size: int, with_lesion: bool) -> RenderedImage:
    """Render one view.

    Args:
        patient: from ``sample_patient``.
        view: counts from 1; views differ in the cut, in texture and in speckle.
        size: height and width in px.
        with_lesion: False leaves the lesion out; all the rest of the view stays the same.

    Returns:
        The image, depth downward, and the mask, which is empty without a lesion.
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
    """(W,) loss in dB under the places where the probe does not touch the skin well."""
    loss = np.zeros(grid.pixels, np.float32)
    for _ in range(rng.poisson(CONTACT_GAPS)):
        # More often at the ends of the probe, where it lifts off a curved breast.
        at, width, depth = rng.beta(0.4, 0.4), rng.uniform(0.02, 0.06), rng.uniform(3, 12)
        loss += depth * np.exp(-0.5 * ((grid.axis_mm / grid.extent_mm - at) / width) ** 2)
    return loss


def _average(field: Field, by: int) -> Field:
    height, width = field.shape
    return field.reshape(height // by, by, width // by, by).mean(axis=(1, 3))
