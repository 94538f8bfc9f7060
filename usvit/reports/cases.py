"""The cases of a report: the most confident errors and the most uncertain decisions."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from usvit.reports.run_files import Run
from usvit.reports.saliency_images import SaliencyImages
from usvit.reports.thumbnails import Pictures

MOST = 8
"""Cases of each kind."""


@dataclass(frozen=True)
class ReviewCase:
    """One test image with its prediction."""

    dataset: str
    image_id: str
    group_id: str
    fold: int
    label: str
    decision: str
    prob: tuple[tuple[str, float], ...]
    """Class and probability, in the order of the classes."""
    picture: str | None
    """A data URI."""
    why_no_picture: str
    saliency: tuple[tuple[str, str], ...]
    """Method and data URI of a picture from ``usvit explain``."""

    @property
    def words(self) -> str:
        """Alternative text of the picture."""
        return f"Image {self.image_id} of {self.dataset}: reference {self.label}, decision {self.decision}"


@dataclass(frozen=True)
class Cases:
    """Both lists of cases, with the number of errors and of test images."""

    confident_errors: tuple[ReviewCase, ...]
    uncertain: tuple[ReviewCase, ...]
    n_errors: int
    n_images: int


def find_cases(run: Run, pictures: Pictures, explained: SaliencyImages, most: int = MOST) -> Cases:
    """Choose the cases; each list has at most one image of a group.

    Confident errors are misclassified images, sorted by the probability of the decided class, highest first. Uncertain
    cases are sorted by the difference between the two highest probabilities, smallest first.
    """
    test, classes = run.test, run.metrics.classes
    prob = test[[f"prob_{name}" for name in classes]].to_numpy(np.float64)
    decision = prob.argmax(axis=1)
    wrong = np.array(classes, dtype=object)[decision] != test["label"].to_numpy(object)
    ordered = np.sort(prob, axis=1)

    def of(positions: np.ndarray) -> tuple[ReviewCase, ...]:
        once = test.iloc[positions].drop_duplicates("group_id").head(most).index
        where = {index: at for at, index in enumerate(test.index)}
        return tuple(_case(test, where[index], classes, prob, decision, pictures, explained) for index in once)

    errors = np.flatnonzero(wrong)
    return Cases(
        of(errors[np.argsort(-prob.max(axis=1)[errors], kind="stable")]),
        of(np.argsort(ordered[:, -1] - ordered[:, -2], kind="stable")),
        len(errors),
        len(test),
    )


def _case(
    test: pd.DataFrame,
    at: int,
    classes: list[str],
    prob: np.ndarray,
    decision: np.ndarray,
    pictures: Pictures,
    explained: SaliencyImages,
) -> ReviewCase:
    row = test.iloc[at]
    dataset, image_id = str(row["dataset"]), str(row["image_id"])
    picture, why = pictures.thumbnail(dataset, image_id)
    return ReviewCase(
        dataset=dataset,
        image_id=image_id,
        group_id=str(row["group_id"]),
        fold=int(row["fold"]),
        label=str(row["label"]),
        decision=classes[decision[at]],
        prob=tuple((name, float(prob[at, k])) for k, name in enumerate(classes)),
        picture=picture,
        why_no_picture=why,
        saliency=explained.pictures(dataset, image_id, show_image=pictures.allowed(dataset)),
    )
