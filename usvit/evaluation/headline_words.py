"""The sentences that say what the figures of a headline and their intervals refer to."""

from dataclasses import dataclass

from usvit.records import TrainingShareRecord


@dataclass(frozen=True)
class PredictionOrigin:
    """What gave the predictions of one test image."""

    networks: int = 1
    """Networks whose probabilities are averaged, each of another run."""
    external: bool = False
    """Whether the images are new patients for a model that was finished before (``usvit evaluate SCORES --labels``)."""
    table: bool = False
    """Whether the predictions are a table of which only the columns are known."""

    @property
    def model(self) -> str:
        """``model``, or ``ensemble of 3 networks``."""
        return "model" if self.networks == 1 else f"ensemble of {self.networks} networks"

    @property
    def models(self) -> str:
        return "models" if self.networks == 1 else "ensembles"


ONE_MODEL = PredictionOrigin()


def explained(origin: PredictionOrigin, n_folds: int, n_repeats: int, share: TrainingShareRecord | None) -> str:
    """Return what the headline and its intervals refer to, for the reader of a page.

    Args:
        origin: what gave the predictions.
        n_folds: folds of all repeats.
        n_repeats: complete cross-validations.
        share: the training share; None for a single set of test images.
    """
    if n_folds == 1:
        return " ".join(_of_one_set(origin))
    said = [*(_of_repeats(origin, n_folds, n_repeats) if n_repeats > 1 else _of_folds(origin, n_folds))]
    said.append(
        f"The model that one would use afterwards, such as the mean of these {origin.models} or one that is trained on "
        "all images, was not tested: it is expected to do about as well or better, and an external test measures it."
    )
    if share is not None:
        said += _of_share(share, n_repeats)
    return " ".join(said)


def _of_one_set(origin: PredictionOrigin) -> list[str]:
    if origin.external:
        return [
            "An external test: the scored model, as it is, on images of new patients.",
            "The interval holds for this model on new patients like these.",
        ]
    first = f"One {origin.model} on its hold-out test images."
    if origin.table:
        first = "One table of predictions, taken as those of one model on images that it was not trained on."
    return [
        first,
        f"The interval holds for this {origin.models[:-1]} on new patients like these.",
        "It was trained once; another training, with another seed or split, may give a figure outside the interval.",
    ]


def _of_folds(origin: PredictionOrigin, n_folds: int) -> list[str]:
    return [
        f"The mean of {n_folds} folds, each of one {origin.model} on images that it did not see.",
        f"The interval holds for the mean true figure of these {n_folds} {origin.models} on new patients like these.",
        "Each was trained once; another training, with another seed or split, may give a figure outside the interval "
        "(repeats of the cross-validation, as with --repeats 3, measure this).",
    ]


def _of_repeats(origin: PredictionOrigin, n_folds: int, n_repeats: int) -> list[str]:
    return [
        f"The mean over {n_repeats} repeats of cross-validation, {n_folds} {origin.models} in all, each on images that "
        "it did not see.",
        "The intervals of AUC and Brier score hold for the expected figure of this training procedure at this number "
        "of training images, on patients like these. Accuracy, balanced accuracy, sensitivity and specificity also "
        "depend on where the models cut, which all of them learned from the same patients: their intervals hold for "
        f"the mean of these {n_folds} {origin.models}.",
    ]


def _of_share(share: TrainingShareRecord, n_repeats: int) -> list[str]:
    """Explain the training share, and why the same scores get another interval without the rows that show it."""
    if share.reason:
        return [
            f"{share.reason[0].upper()}{share.reason[1:]}; so the largest training share is assumed, and the intervals "
            "are rather too long. As a run of usvit, with its inner "
            "validation rows, the same scores get shorter ones."
        ]
    if n_repeats > 1:
        return []
    return [
        f"A share of {share.value:.2f} of a fold's variance is due to its training, estimated from inner validation "
        "images that are test images of another fold. A table of the test images alone does not show it, so that the "
        "same scores get longer intervals there."
    ]
