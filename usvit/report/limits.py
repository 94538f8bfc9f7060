"""What a reader must not conclude from a run, as far as its files tell."""

from usvit.data.cards import DataCard
from usvit.metrics.intervals import FEW_GROUPS
from usvit.report.run import Run
from usvit.report.words import count, dig, listed


def limits_of(run: Run, cards: dict[str, DataCard | None]) -> list[str]:
    """The limits of a run, the gravest first."""
    metrics, folds = run.metrics, run.record.get("folds") or {}
    positive = metrics["positive_class"]
    found = []
    if folds.get("unit") == "image":
        found.append(
            f"The split leaks: {count(folds.get('leaking_groups'))} groups stand in two parts of a fold. The figures "
            "are inflated and say nothing about new patients."
        )
    if patients(run) in ("none", "some"):
        found.append(
            f"{'No' if patients(run) == 'none' else 'Not every'} image carries a patient identifier. Two images of one "
            "patient may stand on both sides of a split, and the intervals, which then count images or copies, may be "
            "too narrow."
        )
    of_class = {name: n for name, n in (metrics.get("class_groups") or {}).items() if n}
    rarest = min(of_class, key=lambda name: of_class[name], default="")
    fewest = min(metrics["n_groups"], of_class.get(rarest, metrics["n_groups"]))
    if fewest < FEW_GROUPS:
        found.append(
            f"There are only {fewest} groups{f' with an image of class {rarest!r}' if rarest else ''}; "
            f"below {FEW_GROUPS}, intervals hold the truth less often than they say."
        )
    found.append(
        "There was no external test: all images come from the data sets that the model was developed on. Other "
        "hospitals, devices and operators may give other figures."
    )
    share = metrics["class_counts"].get(positive, 0) / metrics["n_images"]
    found.append(
        f"{share:.0%} of the test images are {positive}. In a clinic the share is another, usually far lower; PPV, "
        "NPV, the probabilities' calibration and the decision curve hold for this share only."
    )
    unclear = [name for name, card in cards.items() if card is None or card.license == "unclear"]
    if unclear:
        found.append(f"The licence of {listed(unclear)} is unclear; check it before publishing or using the model.")
    found.append(
        "The model sees one image at a time, without history, other views or earlier examinations, and answers for any "
        "picture, of a breast or not."
    )
    if len(metrics["folds"]) > 1:
        found.append(
            "The folds' models share most of their training images, so that the SD over folds is no interval. "
            + (
                "The first interval of each figure counts patients and what another training would give; the pooled "
                "interval takes the models as given."
                if run.n_repeats > 1
                else "The intervals are about these models: what another training would give is not in them. "
                "'usvit cv --repeats 3' measures it."
            )
        )
    else:
        found.append("One model was trained once: how much another seed or split would change it was not measured.")
    if (dig(run.record, "config.loss.class_weights") or "") == "balanced":
        found.append("The loss weighted the classes, so that probabilities lean towards rare classes.")
    return found


def patients(run: Run) -> str | None:
    """ "all", "some" or "none" of the images carry a patient identifier; None where it is not recorded."""
    grouping = dig(run.record, "data.grouping")
    if not grouping:
        return None
    by_patient, total = grouping.get("patient", 0), sum(grouping.values())
    return "none" if by_patient == 0 else "all" if by_patient == total else "some"
