"""Folds in a file: frozen once, used by every run that is to be compared."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from usvit.config import RunConfig
from usvit.data.manifest_file import open_manifest
from usvit.data.splits import PARTS, folds_sha256, leaking_groups, make_folds, read_folds
from usvit.errors import UsvitError
from usvit.files import write_csv, write_json
from usvit.progress import Progress
from usvit.pseudonyms import for_the_owner_alone

SCHEMA_VERSION = "1.0"


def freeze_folds(
    kind: Literal["cv", "train"], config: RunConfig, roots: dict[str, Path], out: Path, progress: Progress
) -> dict[str, Any]:
    """Make the folds that the settings ask for, and write them to a CSV file with a summary beside it.

    Args:
        kind: ``cv`` for k folds, ``train`` for one hold-out.
        config: its sections ``data`` and ``split`` and the seed are used.
        roots: data set -> folder, "" for all.
        out: the CSV file; the summary is written to the same name with ``.json``.
        progress: shown while images are decoded.

    Returns:
        The summary: the folds' sha256, scheme, unit, seed, and the images, groups and classes of each part.

    Raises:
        UsvitError: about the images or the folds, or ``out`` holds other folds; nothing has been written then.
    """
    if out.suffix != ".csv":
        raise UsvitError(f"--out {out}: folds are written as CSV. Choose a name that ends in .csv.")
    manifest = open_manifest(config.data, roots, progress)
    rows = manifest.usable
    folds = make_folds(kind, rows, config.split, config.split_seed, manifest.own_ids)
    if out.exists() and folds_sha256(read_folds(out)) != folds_sha256(folds):
        raise UsvitError(f"{out} holds other folds. Nothing was changed: remove it, or choose another --out.")
    joined = folds.merge(rows[["dataset", "image_id", "label", "group_id"]], on=["dataset", "image_id"])
    parts = []
    for fold in sorted(joined.fold.unique()):
        for part in PARTS:
            there = joined[(joined.fold == fold) & (joined.part == part)]
            counts = {label: int((there.label == label).sum()) for label in manifest.classes}
            row = {"fold": int(fold), "part": part, "images": len(there), "groups": int(there.group_id.nunique())}
            parts.append({**row, "classes": counts})
    summary = {
        "schema_version": SCHEMA_VERSION,
        "sha256": folds_sha256(folds),
        "manifest_sha256": manifest.sha256(),
        "datasets": list(manifest.roots),
        "kind": kind,
        "scheme": config.split.scheme,
        "unit": config.split.unit,
        "seed": config.split_seed,
        "n_images": len(rows),
        "n_groups": int(rows.group_id.nunique()),
        "leaking_groups": len(leaking_groups(folds, rows)),
        "parts": parts,
    }
    with for_the_owner_alone() if manifest.is_private else nullcontext():
        write_json(out.with_suffix(".json"), summary)
        write_csv(out, folds)
    return summary
