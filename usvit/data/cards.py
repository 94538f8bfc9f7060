"""Data cards: what is known of a data set, beside its images.

A card is a Markdown file with YAML front matter (the Hugging Face data-set card convention).
The shipped ones lie in ``data_cards/``; a user writes one for images of his own and gives its
path as the data set's name. Readers, checks, errors and documentation take their facts from it.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from usvit.errors import LeakageError, UsvitError, unknown
from usvit.plain_yaml import parse_yaml
from usvit.resources import data_cards_dir

SECTIONS = ("Known faults", "Licence", "Errata of papers")
"""Headings that the prose of every shipped card must have."""


class FetchFile(BaseModel):
    """One file that may be downloaded: where it lies and how to tell that it arrived whole."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/")]
    bytes: Annotated[int, Field(gt=0)] | None = None
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    md5: Annotated[str, Field(pattern="^[0-9a-f]{32}$")] | None = None

    @model_validator(mode="after")
    def _has_a_checksum(self) -> "FetchFile":
        if not (self.sha256 or self.md5):
            raise ValueError(f"the file {self.url} needs a sha256 or md5")
        return self


class Fetch(BaseModel):
    """Where ``usvit data prepare --fetch`` downloads from; only for direct, licensed addresses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zenodo: int | None = None
    """A Zenodo record: its own list of files holds names, sizes and MD5 sums."""
    files: tuple[FetchFile, ...] = ()

    @model_validator(mode="after")
    def _says_where(self) -> "Fetch":
        if (self.zenodo is None) == (not self.files):
            raise ValueError("fetch needs either a zenodo record or files")
        return self


class DataCard(BaseModel):
    """The front matter of one card. Unknown keys are kept: cards may carry Hugging Face's own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """The name on the command line, and in the column ``dataset``."""
    pretty_name: str
    license: str
    """SPDX identifier, or ``unclear``."""
    citation: str
    host: str
    """Where the images come from: a web address, or whom to ask."""
    how_to_get: str
    layout: str
    """What the folders look like, as shown in errors."""
    reader: str | None
    """Which reader lists its images (``usvit.data.readers``); null: none can, and ``no_reader`` says why."""
    no_reader: str | None = None
    classes: dict[str, Annotated[int, Field(ge=0)] | None]
    """Class -> number of images in the release (null: not fixed), in the order of the outputs. Empty: whatever
    classes the folder or table holds, in alphabetical order."""
    labels: dict[str, str] = {}
    """The release's words -> class, where they differ (``{B: benign, M: malignant}``)."""
    positive_class: str | None
    """The class that sensitivity speaks of. null only with open classes: ``malignant`` if there is one."""
    label_level: Literal["image", "patient"] = "image"
    """``patient``: all images of a patient must carry one label."""
    patient_ids: Literal["yes", "no", "partly"]
    patient_ids_from: str
    """How patients are known, or why not."""
    public_ids: bool = False
    """Of a card of one's own: names of files and patient ids are public, so that no pseudonym stands for them
    (``usvit.data.identities``)."""
    n_patients: Annotated[int, Field(gt=0)] | None = None
    n_masks: Annotated[int, Field(ge=0)] | None = None
    """Mask files in the release."""
    table: str | None = None
    """For the readers ``table`` and ``dicom``: the table's file, from the data root. null: the only one in there."""
    columns: dict[str, str] = {}
    """For the readers ``table`` and ``dicom``: usvit's name of a column -> the table's, where they differ."""
    fetch: Fetch | None = None
    same_images_as: tuple[str, ...] = ()
    """Data sets that hold (some of) the same images: never one's external test."""

    @field_validator("license")
    @classmethod
    def _is_spdx_or_unclear(cls, value: str) -> str:
        if not re.fullmatch(r"unclear|[A-Za-z0-9][A-Za-z0-9.+-]*", value):
            raise ValueError(f"'{value}' is neither an SPDX identifier nor 'unclear'")
        return value

    @field_validator("patient_ids", mode="before")
    @classmethod
    def _yes_and_no_are_words(cls, value: Any) -> Any:
        # In YAML a bare yes is a truth value.
        return {True: "yes", False: "no"}[value] if isinstance(value, bool) else value

    @field_validator("labels", mode="before")
    @classmethod
    def _words_are_text(cls, value: Any) -> Any:
        # {0: benign} means what {"0": benign} says.
        if not isinstance(value, dict):
            return value
        return {str(word) if type(word) in (int, float) else word: label for word, label in value.items()}

    @model_validator(mode="after")
    def _fits_together(self) -> "DataCard":
        if self.classes and self.positive_class not in self.classes:
            raise ValueError(f"positive_class '{self.positive_class}' is none of the classes")
        if self.classes and (strange := set(self.labels.values()) - set(self.classes)):
            raise ValueError(f"labels lead to '{min(strange)}', which is none of the classes")
        if self.reader is None and not self.no_reader:
            raise ValueError("a card without a reader must say why in no_reader")
        if self.fetch and self.license == "unclear":
            raise ValueError("what has no clear licence must not be fetched")
        return self


def card_names() -> list[str]:
    """Names of the shipped cards."""
    return sorted(path.stem for path in data_cards_dir().glob("*.md"))


def load_card(name_or_file: str) -> DataCard:
    """The card of one data set.

    Args:
        name_or_file: a name of ``card_names()``, or the path of a card (it ends in ``.md``).

    Raises:
        UsvitError: there is no such data set or file, or its card is not valid (the key is named).
    """
    if name_or_file.endswith(".md"):
        return read_card(Path(name_or_file))
    if name_or_file not in card_names():
        raise unknown(
            "data set",
            name_or_file,
            card_names(),
            "'usvit data list' shows all; join several with '+'. For images of your own: folder, table, dicom, "
            "or the path of a card that you wrote (.md).",
        )
    return read_card(data_cards_dir() / f"{name_or_file}.md")


def load_cards(datasets: str) -> list[DataCard]:
    """The cards of one data set, or of several joined by '+'.

    Raises:
        LeakageError: two hold the same images by their cards (BreastMNIST is BUSI at another size).
        UsvitError: as ``load_card``; or two have the same name.
    """
    cards = [load_card(name) for name in datasets.split("+")]
    names = [card.name for card in cards]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise UsvitError(f"The data set '{datasets}' names '{double}' twice.")
    for card in cards:
        if again := sorted(set(card.same_images_as) & set(names)):
            raise LeakageError(
                f"{card.name} and {again[0]} hold the same images (data card '{card.name}'): one is no test "
                "of the other. Use one of them."
            )
    return cards


def read_card(path: Path) -> DataCard:
    """Parse and check one card file.

    Raises:
        UsvitError: no such file, no front matter, or a field is missing or wrong.
    """
    front, _ = _parts(path)
    try:
        return DataCard.model_validate(parse_yaml(front, f"The data card {path}"))
    except ValidationError as error:
        problem = error.errors()[0]
        key = ".".join(str(part) for part in problem["loc"]) or "front matter"
        message = problem["msg"].removeprefix("Value error, ")
        raise UsvitError(f"The data card {path} is not valid: {key}: {message}.") from error


def read_prose(name_or_file: str) -> str:
    """What a card says below its front matter, as Markdown.

    Raises:
        UsvitError: as ``load_card``.
    """
    return _parts(_path_of(name_or_file))[1].strip() + "\n"


def card_facts(card: DataCard) -> list[tuple[str, str]]:
    """A card's front matter for people: pairs of a heading and its text, as the terminal and the documentation show."""
    positive = [label + (" (positive)" if label == card.positive_class else "") for label in card.classes]
    counts = [n if n is None else f"{n:,}" for n in card.classes.values()]
    classes = ", ".join(" ".join(filter(None, pair)) for pair in zip(counts, positive, strict=True))
    total = sum(n or 0 for n in card.classes.values())
    masks = f"{card.n_masks:,} masks" if card.n_masks is not None else ""
    n_patients = f"{card.n_patients:,} patients, ids: " if card.n_patients else "ids: "
    fetch = f"usvit data prepare {card.name} --fetch --data-root DIR" if card.fetch else "not by usvit"
    return [
        ("Classes", classes or "what the folders or the table hold"),
        ("Images", ", ".join(filter(None, [f"{total:,}" if total else "not fixed", masks]))),
        ("Patients", f"{n_patients}{card.patient_ids} ({card.patient_ids_from})"),
        ("Licence", card.license),
        ("Host", card.host),
        ("How to get it", card.how_to_get),
        ("Download", fetch),
        ("Reader", card.reader or f"none: {card.no_reader}"),
        ("Same images as", ", ".join(card.same_images_as) or "none that we know"),
        ("Citation", card.citation),
        ("Layout", card.layout),
    ]


def _path_of(name_or_file: str) -> Path:
    return Path(name_or_file) if name_or_file.endswith(".md") else data_cards_dir() / f"{name_or_file}.md"


def _parts(path: Path) -> tuple[str, str]:
    """Front matter and prose."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsvitError(f"The data card {path} cannot be read ({reason}).") from error
    parts = text.split("---\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise UsvitError(f"The data card {path} does not begin with YAML front matter between two lines of '---'.")
    return parts[1], parts[2]
