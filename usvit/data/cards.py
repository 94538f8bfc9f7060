"""Data cards: what is known of a data set, beside its images.

A card is a Markdown file with YAML front matter (the Hugging Face data-set card
convention) in ``data_cards/``. Readers and errors take their facts from it.
"""

from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from usvit.errors import UsvitError, unknown
from usvit.resources import data_cards_dir


class DataCard(BaseModel):
    """The front matter of one card. Unknown keys are kept: cards may carry Hugging Face's own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    """The name on the command line."""
    pretty_name: str
    license: str
    """SPDX identifier, or ``unclear``."""
    citation: str
    classes: dict[str, int | None]
    """Class -> number of images in the release (None: not fixed), in the order of the outputs."""
    positive_class: str
    """The class that sensitivity speaks of."""
    patient_ids: Literal["yes", "no"]
    layout: str
    """What the folders look like, as shown in errors."""
    how_to_get: str

    @model_validator(mode="after")
    def _positive_is_a_class(self) -> "DataCard":
        if self.positive_class not in self.classes:
            raise ValueError(f"positive_class '{self.positive_class}' is none of the classes")
        return self


def card_names() -> list[str]:
    """Names of the shipped cards."""
    return sorted(path.stem for path in data_cards_dir().glob("*.md"))


def load_card(name: str) -> DataCard:
    """The card of one data set.

    Raises:
        UsvitError: there is no such data set, or its card is not valid (the key is named).
    """
    if name not in card_names():
        raise unknown("data set", name, card_names(), "'usvit data list' shows all; join several with '+'.")
    return read_card(data_cards_dir() / f"{name}.md")


def read_card(path: Path) -> DataCard:
    """Parse and check one card file.

    Raises:
        UsvitError: no front matter, or a field is missing or wrong.
    """
    parts = path.read_text(encoding="utf-8").split("---\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise UsvitError(f"The data card {path} does not begin with YAML front matter between two lines of '---'.")
    try:
        return DataCard.model_validate(yaml.safe_load(parts[1]))
    except (ValidationError, yaml.YAMLError) as error:
        raise UsvitError(f"The data card {path} is not valid: {' '.join(str(error).split())}") from error
