"""Writing a phantom set to a folder: whole or not at all."""

import dataclasses
import json
import math
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image

from usvit.data.phantom.lesion import Lesion
from usvit.data.phantom.marks import burn_calipers, burn_text, near_duplicate
from usvit.data.phantom.plan import PlannedView, draw_patient, has_lesion, plan_patients
from usvit.data.phantom.render import MARKS, Patient, cut_lesion, render_image, stream
from usvit.data.phantom.signs import SIGN_LAWS
from usvit.data.phantom.spec import CLASS_SHARE, GENERATOR_VERSION, PhantomSpec
from usvit.errors import UsvitError
from usvit.files import disk_errors, write_csv, write_json

Progress = Callable[[int, int], None]

PNG_LEVEL = 4  # speckle hardly compresses; more effort costs time and saves nothing
ABANDONED_AFTER_S = 3600  # a partial folder untouched for so long belongs to a killed run

SOURCES = (
    "Jensen 1996, Med Biol Eng Comput 34 Suppl 1:351 (echo as scatterers convolved with a point-spread function)",
    "Burckhardt 1978, IEEE Trans Sonics Ultrason 25:1; Wagner et al. 1983, ibid. 30:156 (Rayleigh speckle)",
    "Jakeman & Tough 1987, J Opt Soc Am A 4:1764; Dutt & Greenleaf 1994, Ultrason Imaging 16:265 (K-distribution)",
    "Culjat et al. 2010, Ultrasound Med Biol 36:861 (attenuation of fat, breast, muscle)",
    "Stavros et al. 1995, Radiology 196:123; ACR BI-RADS Atlas, 5th ed., 2013 (signs of benign and malignant lesions)",
)


def write_phantom(
    spec: PhantomSpec, out: Path, *, workers: int | None = None, progress: Progress | None = None
) -> Path:
    """Generate a phantom data set into a folder.

    Args:
        spec: what to generate.
        out: the folder to make; it must be missing or empty. It gets ``<label>/<image_id>.png``
            and ``<label>/<image_id>_mask.png`` (8-bit grey; 0 and 255 in the mask),
            ``phantom.csv`` (one row an image) and ``phantom.json`` (spec, version, sources).
        workers: threads; None takes one for each core. The bytes do not depend on it.
        progress: called in the caller's thread with (images done, images in all).

    Returns:
        ``out``. It appears complete or not at all: a run that is killed leaves a hidden
        ``.<name>.partial-...`` folder beside it, which a later run clears away.

    Raises:
        UsvitError: ``out`` is a file or holds files already (nothing is changed), or the disk
            is full or cannot be written.
    """
    out = Path(out)
    _refuse_occupied(out)
    with disk_errors(out), _partial_folder(out) as partial:
        for label in CLASS_SHARE:
            (partial / label).mkdir()
        patients = plan_patients(spec)
        rows = _write_images(spec, patients, partial, workers, progress)
        table = pd.DataFrame(rows).sort_values("image_id", kind="stable")
        write_csv(partial / "phantom.csv", table)
        write_json(partial / "phantom.json", _description(spec, table))
        _move_into_place(partial, out, spec)
    return out


def _write_images(
    spec: PhantomSpec,
    patients: list[list[PlannedView]],
    folder: Path,
    workers: int | None,
    progress: Progress | None,
) -> list[dict[str, Any]]:
    # Threads, not processes: nearly all the time goes into FFTs and array arithmetic, which let
    # go of the interpreter, and threads need no importable main module and no pickling.
    count = max(1, workers if workers is not None else os.cpu_count() or 1)
    rows: list[dict[str, Any]] = []
    with ThreadPoolExecutor(min(count, len(patients))) as pool:
        jobs = [pool.submit(_write_patient, spec, views, folder) for views in patients]
        try:
            for job in as_completed(jobs):
                rows += job.result()
                if progress is not None:
                    progress(len(rows), spec.n)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)  # do not finish what nobody waits for
            raise
    return rows


def _write_patient(spec: PhantomSpec, views: list[PlannedView], folder: Path) -> list[dict[str, Any]]:
    patient = draw_patient(spec, views[0].number, views[0].label)
    return [_write_view(spec, patient, planned, folder) for planned in views]


def _write_view(spec: PhantomSpec, patient: Patient, planned: PlannedView, folder: Path) -> dict[str, Any]:
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
    Image.fromarray(image).save(folder / path, compress_level=PNG_LEVEL)
    Image.fromarray(mask.astype(np.uint8) * 255).save(folder / mask_path, compress_level=PNG_LEVEL)
    return {
        "image_id": planned.image_id,
        "label": planned.label,
        "patient_id": planned.patient_id,
        "view": planned.view,
        "path": path,
        "mask_path": mask_path,
        "duplicate_of": planned.duplicate_of,
        "text": planned.text,
        "calipers": planned.calipers,
        "frequency_mhz": round(patient.device.frequency_mhz, 3),
        "pixel_spacing_mm": round(patient.device.depth_mm / spec.size, 5),
        **_lesion_columns(lesion if with_lesion else None, patient.device.depth_mm),
    }


def _lesion_columns(lesion: Lesion | None, extent_mm: float) -> dict[str, float]:
    """Where the lesion lies and what its signs are; all NaN where there is none."""
    names = ["lesion_diameter_mm", "lesion_depth_mm", "lesion_across_mm", *(f"sign_{name}" for name in SIGN_LAWS)]
    if lesion is None:
        return dict.fromkeys(names, math.nan)
    place = [lesion.diameter * extent_mm, lesion.depth * extent_mm, lesion.across * extent_mm]
    values = place + [getattr(lesion.signs, name) for name in SIGN_LAWS]
    return {name: round(value, 4) for name, value in zip(names, values, strict=True)}


def _description(spec: PhantomSpec, table: pd.DataFrame) -> dict[str, Any]:
    return {
        "generator_version": GENERATOR_VERSION,
        "key": spec.key,
        "spec": dataclasses.asdict(spec),
        "n_images": len(table),
        "n_patients": int(table["patient_id"].nunique()),
        "class_counts": {label: int((table["label"] == label).sum()) for label in CLASS_SHARE},
        "n_near_duplicates": int((table["duplicate_of"] != "").sum()),
        "sources": list(SOURCES),
    }


def _refuse_occupied(out: Path) -> None:
    if out.exists() and not out.is_dir():
        raise UsvitError(f"Cannot write the phantom set to {out}: it is a file. Name a folder that can be made.")
    if out.is_dir() and any(out.iterdir()):
        raise UsvitError(
            f"Cannot write the phantom set to {out}: the folder is not empty, and nothing in it is overwritten. "
            "Name another folder, or remove this one first."
        )


@contextmanager
def _partial_folder(out: Path) -> Iterator[Path]:
    """A hidden folder beside ``out`` under a name of its own; gone afterwards, whatever happens."""
    out.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{out.name}.partial-"
    for leftover in out.parent.iterdir():
        if leftover.name.startswith(prefix) and leftover.is_dir() and _last_touched(leftover) < _abandoned_before():
            shutil.rmtree(leftover, ignore_errors=True)
    partial = out.parent / f"{prefix}{os.getpid()}-{secrets.token_hex(8)}"
    partial.mkdir()
    try:
        yield partial
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _abandoned_before() -> float:
    return time.time() - ABANDONED_AFTER_S


def _last_touched(folder: Path) -> float:
    # A folder's time changes when a file is added to it, so the class folders suffice.
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:  # it vanished under our eyes: its owner is at work
        return math.inf


def _move_into_place(partial: Path, out: Path, spec: PhantomSpec) -> None:
    try:
        if out.is_dir():
            out.rmdir()
        partial.rename(out)
    except OSError:
        # Somebody else was faster. The same spec gives the same bytes, so theirs will do.
        if _holds(out, spec):
            return
        _refuse_occupied(out)
        raise


def _holds(out: Path, spec: PhantomSpec) -> bool:
    try:
        found = json.loads((out / "phantom.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return found.get("generator_version") == GENERATOR_VERSION and found.get("spec") == dataclasses.asdict(spec)
