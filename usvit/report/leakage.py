"""What could have leaked from training into the test, looked for anew in the files of a run."""

from dataclasses import dataclass

import pandas as pd

from usvit.data.seen import seen_by
from usvit.report.run import Run


@dataclass(frozen=True)
class Check:
    """One thing that must not be."""

    question: str
    found: int | None
    """How many cases; None where the files do not tell."""
    answer: str
    """In a sentence."""


def leakage_checks(run: Run) -> list[Check]:
    """Look for groups and identical images in two parts of a fold, and for test images that a model had seen.

    Made from folds.csv, manifest.parquet and the passports, not from what the run said of itself.
    """
    parts = _with_manifest(run)
    return [
        _two_parts(
            parts,
            "group_id",
            "Does a group (patient, or copies of one frame) stand in two parts of one split?",
            "groups",
        ),
        _two_parts(parts, "sha256", "Do identical pixels stand in two parts of one split?", "images"),
        _seen(run, parts, ("train", "val"), "Had a model seen one of its own test images in training?"),
        _seen(run, parts, ("upstream",), "Had the first weights been trained on one of the test images?"),
        _untested(run),
    ]


def _with_manifest(run: Run) -> pd.DataFrame | None:
    if run.folds is None or run.manifest is None:
        return None
    columns = [name for name in ("dataset", "image_id", "group_id", "sha256") if name in run.manifest]
    known = run.manifest[columns].astype({"dataset": str, "image_id": str})
    return run.folds.merge(known, on=["dataset", "image_id"], how="left")


def _two_parts(parts: pd.DataFrame | None, column: str, question: str, what: str) -> Check:
    if parts is None or column not in parts:
        return Check(question, None, "Not checked: the run has no folds.csv with a manifest.parquet.")
    lost = int(parts[column].isna().sum())
    n_parts = parts.dropna(subset=[column]).groupby(["fold", column])["part"].nunique()
    found = int(n_parts[n_parts > 1].reset_index()[column].nunique())
    looked = f"{parts[column].nunique():,} {'groups' if what == 'groups' else 'different images'}"
    looked += f" in {parts['fold'].nunique()} folds" if parts["fold"].nunique() > 1 else ""
    unknown = f"; {lost:,} rows of folds.csv are not in the manifest" if lost else ""
    return Check(
        question, found, f"{found:,} {what} do, of {looked}{unknown}." if found else f"None, of {looked}{unknown}."
    )


def _seen(run: Run, parts: pd.DataFrame | None, keys: tuple[str, ...], question: str) -> Check:
    if parts is None or "sha256" not in parts or not run.passports:
        return Check(question, None, "Not checked: it takes folds.csv, manifest.parquet and each fold's model.json.")
    found, looked, unhashed = set(), 0, set()
    for fold, passport in run.passports.items():
        seen = seen_by(passport, run.folder / f"fold-{fold}").of_parts(*keys)
        looked += len(seen)
        unhashed |= set(seen.unhashed)
        tested = parts[(parts["fold"] == fold) & (parts["part"] == "test")]
        found |= {(fold, digest) for digest in tested["sha256"] if digest in seen}
    if unhashed and not found:
        names = " and ".join(sorted(unhashed))
        return Check(
            question,
            None,
            f"Not known: the first weights learnt from {names}, and which images these were is not on "
            f"record (source.hashes was false). None, against the {looked:,} pixel hashes that are.",
        )
    if keys == ("upstream",) and not looked:
        weights = (run.record.get("model") or {}).get("weights") or {}
        if weights.get("source") == "scratch":
            return Check(question, 0, "No: the training began from scratch.")
        return Check(question, None, "Not known: the first weights carry no list of the images they were trained on.")
    answer = (
        f"{len(found):,} test images had been seen." if found else f"None, against {looked:,} pixel hashes on record."
    )
    return Check(question, len(found), answer)


def _untested(run: Run) -> Check:
    question = "Was each image of a test part predicted, once and by a model that it was held out from?"
    if run.folds is None:
        return Check(question, None, "Not checked: the run has no folds.csv.")
    tested = run.folds[run.folds["part"] == "test"]
    expected = set(zip(tested["fold"], tested["dataset"], tested["image_id"], strict=True))
    rows = run.predicted
    found = set(zip(rows["fold"].astype(int), rows["dataset"], rows["image_id"], strict=True))
    wrong = len(expected ^ found)
    return Check(question, wrong, f"No: {wrong:,} rows differ." if wrong else f"Yes, all {len(expected):,}.")
