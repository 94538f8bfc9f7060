"""The limits of a run, as sentences for its report."""

from usvit.data.datasets import DataCard
from usvit.metrics.intervals import FEW_GROUPS
from usvit.reports.formatting import contaminated_sentence, count
from usvit.reports.run_files import Run
from usvit.wording import listed


def limits_of(run: Run, cards: dict[str, DataCard | None]) -> list[str]:
    """Return the limits of a run as sentences, the most serious first."""
    metrics, folds = run.metrics, run.record.folds
    positive = metrics.positive_class
    found = []
    if folds and folds.unit == "image":
        found.append(
            f"The split leaks: {count(folds.leaking_groups)} groups occur in two splits of a fold. The "
            "figures are inflated and do not apply to new patients."
        )
    if contaminated := contaminated_sentence(metrics.contamination):
        found.append(contaminated)
    if patients(run) in ("none", "some"):
        found.append(
            f"{'No' if patients(run) == 'none' else 'Not every'} image carries a patient identifier. Images of one "
            "patient may be in both the training and the test split, and the intervals, which then count images or "
            "near-duplicates, may be too narrow."
        )
    of_class = {name: n for name, n in metrics.class_groups.items() if n}
    rarest = min(of_class, key=lambda name: of_class[name], default="")
    fewest = min(metrics.n_groups, of_class.get(rarest, metrics.n_groups))
    if fewest < FEW_GROUPS:
        found.append(
            f"There are only {fewest} groups{f' with an image of class {rarest!r}' if rarest else ''}; "
            f"below {FEW_GROUPS}, 95 % intervals cover the true value less often than 95 %."
        )
    if run.evaluated is None:
        found.append(
            "There was no external test: all images come from the data sets that the model was developed on. "
            "Performance may differ in other hospitals, on other devices and with other operators."
        )
    elif metrics.external is None:
        found.append(
            "These are predictions of a table: usvit did not see the training, and cannot tell whether it used images "
            "or patients of this test."
        )
    else:
        found.append(
            "The test shows the performance for these patients, devices and operators; elsewhere it may differ."
        )
    share = metrics.class_counts.get(positive, 0) / metrics.n_images
    found.append(
        f"{share:.0%} of the test images are {positive}. In a clinic this share is different, usually far lower. "
        "PPV, NPV, calibration and decision curve hold for this share only."
    )
    unclear = [
        name for name, card in cards.items() if (card.license == "unclear" if card else run.evaluated is None)
    ]  # an evaluation may be of patients, whose images have no licence
    if unclear:
        found.append(f"The licence of {listed(unclear)} is unclear; check it before publishing or using the model.")
    found.append(
        "The model sees one image at a time, without history, other views or earlier examinations. It gives an answer "
        "for any picture, whether it shows a breast or not."
    )
    if len(metrics.folds) > 1:
        found.append(
            "The models of the folds share most of their training images, so the SD over folds is not a confidence "
            "interval. "
            + (
                "The first interval of each figure accounts for new patients and for repeated training; the pooled "
                "interval takes the models as given."
                if run.n_repeats > 1
                else "The intervals hold for these models and do not include the variation between trainings; "
                "'usvit cv --repeats 3' measures it."
            )
        )
    elif run.evaluated is None:
        what = "Each network of the ensemble" if run.record.kind == "ensemble" else "One model"
        found.append(
            f"{what} was trained once. How much the results change with another seed or split was not measured."
        )
    config = run.record.config
    if config and config.loss and config.loss.class_weights == "balanced":
        found.append("The loss weighted the classes, so probabilities are shifted towards rare classes.")
    return found


def patients(run: Run) -> str | None:
    """Return whether "all", "some" or "none" of the images carry a patient identifier; None if it is not recorded."""
    grouping = run.record.data and run.record.data.grouping
    if not grouping:
        return None
    by_patient, total = grouping.get("patient", 0), sum(grouping.values())
    return "none" if by_patient == 0 else "all" if by_patient == total else "some"
