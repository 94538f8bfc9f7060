"""Images of an external test that the model or its calibration has seen, and how reliably this is known."""

import pandas as pd

from usvit.data.splits import copies_of_seen, names_with_same_images, refuse_contaminated
from usvit.errors import LeakageError
from usvit.records import ContaminationRecord, SeenAnswer
from usvit.scoring.calibration import LocalCalibration, group_sha256
from usvit.scoring.external.labels import LabelledSet
from usvit.scoring.external.scored_set import ScoredSet


def without_seen(
    scored: ScoredSet, labelled: LabelledSet, refit: LocalCalibration | None, *, drop: bool, use: str = "test"
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split the labelled rows into groups of which nothing has been seen, and the others.

    An image counts as seen if it or a near-duplicate of it was used in training. ``usvit score`` marks such images.

    Args:
        scored: all scored images, because an unlabelled image of the same patient counts as well.
        labelled: the images with a label.
        refit: a calibration; the images that it was fitted on count as seen.
        drop: leave out seen groups, instead of raising ``LeakageError``.
        use: purpose of the images, for error messages.

    Raises:
        LeakageError: a group was seen and ``drop`` is False, or no group is left.
    """
    everything, rows = scored.rows, labelled.rows
    trained = set(everything.loc[everything["seen"], "group_id"])
    fitted: set[str] = set()
    if refit is not None:
        copies = copies_of_seen(scored.descriptions, refit.fitted_on_copies)
        known = everything["pixel_sha256"].isin(refit.fitted_on | set(copies))
        known |= everything["group_id"].map(group_sha256).isin(refit.fitted_on_groups)
        fitted = set(everything.loc[known, "group_id"])
    at = rows["group_id"].isin(trained | fitted)
    if at.any() and (not drop or at.all()):
        who = "The model" if rows["group_id"].isin(trained).any() else f"The calibration {refit and refit.source}"
        groups = sorted(set(rows.loc[at, "group_id"]))
        shown = f"{', '.join(groups[:5])}{', ...' if len(groups) > 5 else ''}"
        advice = (
            f"Nothing would be left. Use other patients for the {use}."
            if at.all()
            else "Use other patients, or pass --drop-seen to leave these groups out."
        )
        raise LeakageError(
            f"{who} has seen images of {len(groups)} groups ({int(at.sum())} of {len(rows)} labelled images) that "
            f"would be used for the {use}, the images themselves or near-duplicates: {shown}. {advice}"
        )
    return rows[~at].reset_index(drop=True), rows[at]


def contamination_of_set(
    scored: ScoredSet, rows: pd.DataFrame, dataset: str | None, *, allow: bool
) -> tuple[tuple[ContaminationRecord, ...], str | None]:
    """Refuse labelled images of a data set that a foundation model behind the networks was pre-trained on.

    Args:
        scored: the scored set.
        rows: the labelled rows; a column ``dataset`` of the label table names the data set of each.
        dataset: data set of all images, if the user named it.
        allow: return the contamination instead of refusing it.

    Returns:
        The contamination, and a warning if data sets are listed but nobody says which one the images are from.

    Raises:
        LeakageError: there is contamination, and it is not allowed.
    """
    told = scored.seen_record.collections if scored.seen_record is not None else None
    collections = told or []
    column = rows.get("dataset", ())
    names = dataset.split("+") if dataset else [one for one in column if isinstance(one, str) and one]
    found = refuse_contaminated(names_with_same_images(names), {"The model": collections}, allow=allow)
    listed = sorted({card for one in collections for card in one.cards})
    if names or not listed:
        return found, None
    return found, (
        f"The model started from {' and '.join(one.network for one in collections)}, which was pre-trained on public "
        f"data sets, among them {', '.join(listed)}. Which data set these images are from is not known: name it with "
        "--dataset, or in a column 'dataset' of the label table, so that contamination is recognised."
    )


def seen_check(scored: ScoredSet, rows: pd.DataFrame, refit: LocalCalibration | None) -> SeenAnswer:
    """Determine how reliably it is known that none of these images has been seen.

    Args:
        scored: the scored set.
        rows: the tested images, without those that ``without_seen`` left out.
        refit: a calibration that was fitted on other images.
    """
    record = scored.seen_record
    blank = rows["flags"].str.split(";").map(lambda flags: "blank" in flags).astype(bool)
    missing = sorted(set(rows["pixel_sha256"][~blank]) - set(scored.descriptions))
    gaps = [gap.what for gap in (record.gaps if record is not None else None) or ()]
    if record is not None and record.known == "nothing":
        return SeenAnswer(
            found="not known",
            answer=f"It is not on record which images were seen in training: {'; '.join(dict.fromkeys(gaps))}. None of "
            f"the tested images, or a near-duplicate of one, is among the {record.n_hashes or 0:,} that are on record.",
        )
    why = []
    if record is None:
        why.append("the folder does not say that usvit score compared near-duplicate descriptions")
    elif record.known != "copies":
        why.append(
            f"there are no near-duplicate descriptions of {'; '.join(dict.fromkeys(gaps)) or 'what the model has seen'}"
        )
    if missing:
        why.append(f"{len(missing)} tested images have no near-duplicate description")
    if refit is not None and not refit.describes_all:
        why.append(f"{refit.source} does not have near-duplicate descriptions of all images that it was fitted on")
    if why:
        return SeenAnswer(
            found="none by exact hash",
            answer="Not found by exact hash. Near-duplicates with other pixels may be among the tested images: "
            f"{'; and '.join(why)}.",
        )
    n = (record.n_descriptions if record is not None else None) or 0
    return SeenAnswer(
        found="none",
        answer=f"No image, and no near-duplicate of one, found: the tested images were compared with {n:,} images "
        "that the model has seen, by pixel hash and by near-duplicate description.",
    )
