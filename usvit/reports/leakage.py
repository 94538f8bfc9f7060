"""Checks for leakage from training into the test, made on the files of a run."""

from dataclasses import dataclass

import pandas as pd

from usvit.data.datasets import descriptions_of
from usvit.data.splits import (
    Described,
    contamination_of,
    contamination_phrase,
    described_among,
    names_with_same_images,
    seen_by,
    together,
    unlisted,
)
from usvit.reports.run_files import Run

BY_HASH = "not found by exact hash"
"""Result if identical pixels were looked for but near-duplicates could not be."""


@dataclass(frozen=True)
class Check:
    """One check for leakage."""

    question: str
    found: int | None
    """Number of cases; None if the files do not contain the answer."""
    answer: str
    """The answer as a sentence."""
    clean: str = "passed"
    """Name of the result if nothing was found."""

    @property
    def result(self) -> str:
        """The result in a few words, for the page."""
        return "not known" if self.found is None else "PROBLEM" if self.found else self.clean


def leakage_checks(run: Run) -> list[Check]:
    """Look for groups and identical images in two splits of a fold, and for test images that a model was trained on.

    A test image counts as seen if the model was trained on it or on a near-duplicate of it. A check passes only if the
    near-duplicate descriptions of everything that was seen were compared with those of all test images.

    The checks read folds.csv, manifest.parquet and the model metadata, not the run's own statements.
    """
    parts = _with_manifest(run)
    described = {} if run.manifest is None else descriptions_of(run.manifest, run.folder / "manifest.parquet")
    return [
        _two_parts(
            parts,
            "group_id",
            "Does a group (patient, or near-duplicates) occur in two splits of one model?",
            "groups",
        ),
        _two_parts(parts, "sha256", "Do identical pixels occur in two splits of one model?", "images"),
        _seen(
            run,
            parts,
            described,
            ("train", "val"),
            "Was a model trained on one of its own test images, or on a near-duplicate of one?",
        ),
        _seen(
            run,
            parts,
            described,
            ("upstream",),
            "Were the initial weights trained on one of the test images, or on a near-duplicate of one?",
        ),
        _untested(run),
        _listed(run),
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


def _seen(run: Run, parts: pd.DataFrame | None, described: Described, keys: tuple[str, ...], question: str) -> Check:
    """Look up each fold's test images among the images that its network has seen, by pixel hash and description."""
    if run.manifest is None or parts is None or "sha256" not in parts or not run.metadata:
        return Check(question, None, "Not checked: folds.csv, manifest.parquet or model.json is missing.")
    same, copied, looked, compared, missing = set(), set(), 0, 0, 0
    seen_by_all = []
    for fold, metadata, folder in run.networks:
        seen = seen_by(metadata, folder).of_parts(*keys)
        seen_by_all.append(seen)
        looked += len(seen)
        compared += sum(map(len, seen.described))
        tested = parts[(parts["fold"] == fold) & (parts["part"] == "test")]["sha256"].dropna()
        same |= {(fold, digest) for digest in tested if digest in seen}
        own, undescribed = described_among(described, tested)
        missing += undescribed
        copied |= {(fold, digest) for digest in seen.copies_among(own)}
    if found := same | copied:
        copies = len(copied - same)
        how = f", {copies:,} of them as near-duplicates with other pixels" if copies else ""
        return Check(question, len(found), f"{len(found):,} test images had been seen{how}.")
    if keys == ("upstream",) and not looked and _from_scratch(run):
        return Check(question, 0, "No: the training began from scratch.")
    everything = together(seen_by_all)
    gaps = "; ".join(dict.fromkeys([*(gap.what for gap in everything.gaps), *everything.unhashed]))
    none = f"None by exact hash, against the {looked:,} pixel hashes on record"
    if everything.known == "nothing":
        return Check(question, None, f"Not known: which images were seen is not fully on record ({gaps}). {none}.")
    if everything.known == "hashes" or missing:
        why = gaps or f"{missing:,} test images"
        answer = (
            f"{none}. Near-duplicates with other pixels cannot be found without near-duplicate descriptions of {why}."
        )
        return Check(question, 0, answer, clean=BY_HASH)
    return Check(
        question,
        0,
        f"No near-duplicate found: the test images were compared with {compared:,} near-duplicate descriptions and "
        f"{looked:,} pixel hashes, which cover all images that were seen.",
    )


def _listed(run: Run) -> Check:
    """Look up the tested data sets in the published lists of the foundation models behind the networks."""
    question = "Was a foundation model behind the initial weights pre-trained on a tested data set?"
    if not run.metadata:
        return Check(question, None, "Not checked: model.json is missing.")
    seen = together(seen_by(metadata, folder) for _, metadata, folder in run.networks)
    found = contamination_of(names_with_same_images(run.predicted["dataset"]), seen.collections)
    if found:
        return Check(question, len(found), f"Yes: {'; '.join(map(contamination_phrase, found))}.")
    if doubt := unlisted(seen.collections):
        return Check(question, None, f"Not known. {doubt}")
    names = [one.network for one in seen.collections]
    if not names:
        return Check(question, 0, "No foundation model is on record.", clean="none on record")
    notes = "; ".join(one.note for one in seen.collections)
    answer = f"Not by the name of a data set on the published list of {' and '.join(names)}: {notes}."
    return Check(question, 0, answer, clean="not on the list")


def _from_scratch(run: Run) -> bool:
    model = run.record.model
    return model is not None and model.weights is not None and model.weights.source == "scratch"


def _untested(run: Run) -> Check:
    question = "Was each test image predicted exactly once, by a model that was not trained on it?"
    if run.folds is None:
        return Check(question, None, "Not checked: the run has no folds.csv.")
    tested = run.folds[run.folds["part"] == "test"]
    expected = set(zip(tested["fold"], tested["dataset"], tested["image_id"], strict=True))
    rows = run.predicted
    found = set(zip(rows["fold"].astype(int), rows["dataset"], rows["image_id"], strict=True))
    wrong = len(expected ^ found)
    return Check(question, wrong, f"No: {wrong:,} rows differ." if wrong else f"Yes, all {len(expected):,}.")
