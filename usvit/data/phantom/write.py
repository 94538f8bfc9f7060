"""Write a phantom data set to a folder, completely or not at all."""

import math
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

from usvit.data.phantom.lesion import Lesion
from usvit.data.phantom.marks import burn_calipers, burn_text, near_duplicate
from usvit.data.phantom.plan import SENTENCES, PlannedView, draw_patient, has_lesion, plan_patients
from usvit.data.phantom.render import MARKS, Patient, cut_lesion, render_image, stream
from usvit.data.phantom.sentences import WORDING, descriptors, sentence
from usvit.data.phantom.signs import SIGN_LAWS, Signs
from usvit.data.phantom.spec import CLASS_SHARE, GENERATOR_VERSION, PhantomSpec
from usvit.data.phantom.units import unit_columns
from usvit.errors import UsvitError
from usvit.files import OutputFolder, TakenFolder, write_csv
from usvit.progress import NO_PROGRESS, Progress, task
from usvit.records import PhantomRecord, load_record, save_record
from usvit.records.phantom import PhantomSpecRecord
from usvit.resources import usable_cores

_PNG_LEVEL = 4  # speckle hardly compresses, so a higher level costs time without saving space

Row = dict[str, str | int | float | bool]
"""A row of ``phantom.csv``."""
SOURCES = (
    "Jensen 1996, Med Biol Eng Comput 34 Suppl 1:351 (echo as scatterers convolved with a point-spread function)",
    "Burckhardt 1978, IEEE Trans Sonics Ultrason 25:1; Wagner et al. 1983, ibid. 30:156 (Rayleigh speckle)",
    "Jakeman & Tough 1987, J Opt Soc Am A 4:1764; Dutt & Greenleaf 1994, Ultrason Imaging 16:265 (K-distribution)",
    "Culjat et al. 2010, Ultrasound Med Biol 36:861 (attenuation of fat, breast, muscle)",
    "Stavros et al. 1995, Radiology 196:123; ACR BI-RADS Atlas, 5th ed., 2013 (signs of benign and malignant lesions)",
)


def write_phantom(
    spec: PhantomSpec, out: Path, *, workers: int | None = None, progress: Progress = NO_PROGRESS
) -> Path:
    """Generate a phantom data set and write it to a folder.

    Args:
        spec: Number and size of the images, seed, and what is burned into them.
        out: Folder to create; it must be missing or empty. It receives ``<label>/<image_id>.png`` and
            ``<label>/<image_id>_mask.png`` (8-bit grey; 0 and 255 in the mask), ``phantom.csv`` (one row per image),
            ``texts.csv`` (the sentence and the descriptors of each image: ``text.pairs`` of ``usvit transfer``) and
            ``phantom.json`` (spec, version, sources).
        workers: Number of threads; None takes one per usable core. The bytes do not depend on it.
        progress: Shown while images are made.

    Returns:
        ``out``. It appears complete or not at all. A run that is killed leaves a hidden folder ``.<name>.partial-...``
        beside it, which a later run removes.

    Raises:
        UsvitError: ``out`` is a file or holds files already (nothing is changed), or the disk is full or cannot be
            written.
    """
    out = Path(out)
    folder = OutputFolder(out, "a phantom set")
    folder.refuse_other_files()
    try:
        with folder.staged() as partial:
            for label in CLASS_SHARE:
                (partial / label).mkdir()
            patients = plan_patients(spec)
            rows = _write_images(spec, patients, partial, workers, progress)
            table = pd.DataFrame(rows).sort_values("image_id", kind="stable")
            write_csv(partial / "phantom.csv", table)
            write_csv(partial / "texts.csv", _texts(spec, table))
            save_record(partial / "phantom.json", _description(spec, table))
    except TakenFolder:
        if not _holds(out, spec):  # otherwise another process was faster; the same spec gives the same bytes
            raise
    return out


def _write_images(
    spec: PhantomSpec,
    patients: list[list[PlannedView]],
    folder: Path,
    workers: int | None,
    progress: Progress,
) -> list[Row]:
    # Nearly all the time goes into FFTs and array arithmetic, which release the interpreter lock, so threads are as
    # fast as processes here, and they need neither pickling nor an importable main module.
    count = max(1, usable_cores() if workers is None else workers)
    rows: list[Row] = []
    with (
        ThreadPoolExecutor(min(count, len(patients))) as pool,
        task(progress, "making the phantom", spec.n, "images") as advance,
    ):
        jobs = [pool.submit(_write_patient, spec, views, folder) for views in patients]
        try:
            for job in as_completed(jobs):
                rows += job.result()
                advance(len(rows))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # nobody waits for the other images
            raise
    return rows


def _write_patient(spec: PhantomSpec, views: list[PlannedView], folder: Path) -> list[Row]:
    drawn = {_lesion_of(one): draw_patient(spec, one.number, one.label, one.unit) for one in views}
    return [_write_view(spec, drawn[_lesion_of(planned)], planned, folder) for planned in views]


def _lesion_of(planned: PlannedView) -> tuple[int, bool]:
    """Return what distinguishes the lesions that the views of a patient show."""
    return planned.unit.lesion, planned.unit.shows_signs


def _write_view(spec: PhantomSpec, patient: Patient, planned: PlannedView, folder: Path) -> Row:
    with_lesion = has_lesion(spec, planned.label)
    rendered = render_image(patient, planned.source_view, size=spec.size, with_lesion=with_lesion)
    lesion = cut_lesion(patient, planned.source_view)
    image, mask = rendered.image, rendered.mask
    rng = stream(spec.seed, planned.number, MARKS, planned.view)
    if planned.duplicate_of:
        image, mask = near_duplicate(image, mask, rng)
    if planned.calipers:
        image = burn_calipers(image, lesion)
    if planned.text:
        image = burn_text(image, patient.device.frequency_mhz, rng)

    path = f"{planned.label}/{planned.image_id}.png"
    mask_path = f"{planned.label}/{planned.image_id}_mask.png"
    Image.fromarray(image).save(folder / path, compress_level=_PNG_LEVEL)
    Image.fromarray(mask.astype(np.uint8) * 255).save(folder / mask_path, compress_level=_PNG_LEVEL)
    return {
        "image_id": planned.image_id,
        "label": planned.label,
        "patient_id": planned.patient_id,
        **unit_columns(planned.patient_id, planned.unit),
        "view": planned.view,
        "path": path,
        "mask_path": mask_path,
        "duplicate_of": planned.duplicate_of,
        "text": planned.text,
        "calipers": planned.calipers,
        "frequency_mhz": round(patient.device.frequency_mhz, 3),
        "pixel_spacing_mm": round(patient.device.depth_mm / spec.size, 5),
        **({"device": spec.scanner} if spec.scanner else {}),
        **_lesion_columns(lesion if with_lesion else None, patient.device.depth_mm),
    }


def _lesion_columns(lesion: Lesion | None, extent_mm: float) -> dict[str, float]:
    """Return the place and the signs of the lesion as columns; all are NaN without a lesion."""
    names = ["lesion_diameter_mm", "lesion_depth_mm", "lesion_across_mm", *(f"sign_{name}" for name in SIGN_LAWS)]
    if lesion is None:
        return dict.fromkeys(names, math.nan)
    place = [lesion.diameter * extent_mm, lesion.depth * extent_mm, lesion.across * extent_mm]
    values = place + [getattr(lesion.signs, name) for name in SIGN_LAWS]
    return {name: round(value, 4) for name, value in zip(names, values, strict=True)}


def _texts(spec: PhantomSpec, table: pd.DataFrame) -> pd.DataFrame:
    """Return columns ``image_id``, ``text`` and one for each kind of descriptor, which is empty without a lesion."""
    rows = []
    for number, row in enumerate(table.to_dict("records")):
        signs = Signs(**{name: row[f"sign_{name}"] for name in SIGN_LAWS})
        found = descriptors(None if math.isnan(signs.margin) else signs)
        rng = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(SENTENCES, number)))
        rows.append({"image_id": row["image_id"], "text": sentence(found, rng), **found})
    return pd.DataFrame(rows, columns=["image_id", "text", *WORDING])


def _description(spec: PhantomSpec, table: pd.DataFrame) -> PhantomRecord:
    return PhantomRecord(
        generator_version=GENERATOR_VERSION,
        key=spec.key,
        spec=_recorded(spec),
        n_images=len(table),
        n_patients=int(table["patient_id"].nunique()),
        class_counts={label: int((table["label"] == label).sum()) for label in CLASS_SHARE},
        n_near_duplicates=int((table["duplicate_of"] != "").sum()),
        sources=list(SOURCES),
    )


def _recorded(spec: PhantomSpec) -> PhantomSpecRecord:
    """Return the specification for the record; a scanner that is drawn for each patient is not mentioned."""
    units = {} if spec.views else dict.fromkeys(("views", "lesions", "exams", "sign_views"))
    return PhantomSpecRecord(**dict(spec) | {"scanner": spec.scanner or None} | units)


def _holds(out: Path, spec: PhantomSpec) -> bool:
    try:
        found = load_record(out / "phantom.json", PhantomRecord)
    except UsvitError:
        return False
    return found.generator_version == GENERATOR_VERSION and found.spec == _recorded(spec)
