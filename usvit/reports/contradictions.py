"""Clusters of near-duplicates whose images carry different labels, named as the audit names them."""

from dataclasses import dataclass

from usvit.reports.run_files import Run
from usvit.wording import plural

MAX_SHOWN = 20
"""Clusters that a page lists; the audit lists all of them."""


@dataclass(frozen=True)
class _Contradiction:
    """One cluster of near-duplicates with different labels."""

    images: tuple[tuple[str, str], ...]
    """(image_id, label) of each image."""
    tested: bool
    """Whether images of several labels were tested; otherwise the run left out images of the cluster."""

    @property
    def words(self) -> str:
        """``benign (1) (benign), malignant (2) (malignant)``."""
        named = ", ".join(f"{name} ({label})" for name, label in self.images)
        return named if self.tested else f"{named}; not tested, because the run left out images of it"


def contradictions(run: Run) -> list[_Contradiction]:
    """Return the clusters with different labels, those that were not tested last.

    They are those of the manifest, as in the audit of the same images; without a manifest, those of the test images.
    """
    rows = run.test if run.manifest is None or "label" not in run.manifest else run.manifest
    tested = set(zip(run.test["dataset"], run.test["image_id"], strict=True))
    found = []
    clusters = rows[rows["group_id"].astype(str).str.startswith("copies:")]
    for _, own in clusters.groupby("group_id", sort=True):
        if own["label"].nunique() < 2:
            continue
        images = [*zip(own["image_id"].astype(str), own["label"].astype(str), strict=True)]
        here = [key in tested for key in zip(own["dataset"], own["image_id"], strict=True)]
        found.append(_Contradiction(tuple(images), own["label"][here].nunique() > 1))
    return sorted(found, key=lambda one: (not one.tested, one.images))


def contradictions_sentences(found: list[_Contradiction]) -> list[str]:
    """Say how many clusters there are, why the audit counts more of them, and what to do."""
    if not found:
        return []
    tested = sum(one.tested for one in found)
    said = f"{plural(len(found), 'cluster')} of near-duplicates in the manifest, as in an audit of the same images, "
    said += "carry different labels" if len(found) > 1 else "carries different labels"
    if tested < len(found):
        said += f"; images of {len(found) - tested} were left out of this run, so that {tested} are tested"
    do = (
        "In each, a label is wrong, or the images are not near-duplicates. 'usvit data audit' shows them side by side: "
        "correct the label, or leave all of them out with its keep-list (--keep-list). A model that gives all images "
        "of a cluster one answer is now counted as wrong about some of them."
    )
    more = [f"The audit lists {len(found) - MAX_SHOWN} more."] if len(found) > MAX_SHOWN else []
    return [f"{said}.", do, *more]
