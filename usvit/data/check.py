"""Does what is on the disk agree with the data card?"""

from dataclasses import dataclass

import pandas as pd

from usvit.data.cards import DataCard
from usvit.data.manifest import mask_names


@dataclass(frozen=True)
class Counts:
    """What was found of one data set."""

    images: int
    classes: dict[str, int]
    """In the card's order; a class that the card names and nothing was found of is 0."""
    masks: int
    patients: int
    """Distinct patient ids; 0 where there are none."""


def count(table: pd.DataFrame, card: DataCard) -> Counts:
    """Count one data set's rows of a manifest's table, those left out for a reason included."""
    rows = table[table.dataset == card.name]
    found = {str(label): int(n) for label, n in rows.label.value_counts().items()}
    classes = {label: found.get(label, 0) for label in (*card.classes, *sorted(set(found) - set(card.classes)))}
    masks = sum(len(mask_names(cell)) for cell in rows.mask_path)
    return Counts(len(rows), classes, masks, rows.patient_id.nunique())


def check_against_card(table: pd.DataFrame, card: DataCard) -> list[str]:
    """Compare the counts of one data set with those that its card states.

    Args:
        table: a manifest's table; rows of other data sets are passed over.
        card: of the data set.

    Returns:
        One entry for each difference, such as ``benign: card 437, found 436``; empty where all agree. What the
        card leaves open is not compared.
    """
    found = count(table, card)
    pairs = [(label, stated, found.classes[label]) for label, stated in card.classes.items()]
    pairs += [("masks", card.n_masks, found.masks), ("patients", card.n_patients, found.patients)]
    return [f"{what}: card {stated}, found {n}" for what, stated, n in pairs if stated is not None and stated != n]
