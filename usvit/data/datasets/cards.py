"""Data cards: the documented facts about a data set.

A card is a Markdown file with YAML front matter (the Hugging Face data-set card convention).
The shipped ones are in ``data_cards/``; users write one for their own images and pass its path as the name of the data
set. Readers, checks, errors and documentation take their facts from it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from usvit.config.own_table import COLUMN_OPTIONS
from usvit.config.sections import Unit
from usvit.errors import LeakageError, UsvitError, unknown
from usvit.plain_yaml import parse_yaml, yaml_text
from usvit.resources import data_cards_dir


class FetchFile(BaseModel):
    """One file that may be downloaded: its address, length and checksum."""

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
    """Source of ``usvit data prepare --fetch``; only for direct addresses of licensed data."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    zenodo: int | None = None
    """Number of a Zenodo record, whose list of files has names, sizes and MD5 sums."""
    files: tuple[FetchFile, ...] = ()

    @model_validator(mode="after")
    def _says_where(self) -> "Fetch":
        if (self.zenodo is None) == (not self.files):
            raise ValueError("fetch needs either a zenodo record or files")
        return self


class DataCard(BaseModel):
    """Front matter of one card. Unknown keys are kept, because cards may have keys of Hugging Face."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")]
    """Name on the command line and in the column ``dataset``."""
    pretty_name: str
    license: str
    """SPDX identifier, or ``unclear``."""
    citation: str
    host: str
    """Source of the images: a web address, or whom to ask."""
    how_to_get: str
    layout: str
    """Layout of the folders, as shown in errors."""
    reader: str | None
    """Reader that lists its images (``usvit.data.datasets.readers``); if null, ``no_reader`` says why."""
    no_reader: str | None = None
    classes: dict[str, Annotated[int, Field(ge=0)] | None]
    """Class -> number of images in the release (null if not fixed), in the order of the outputs. If empty, the classes
    are those of the folder or table, in alphabetical order."""
    labels: dict[str, str] = {}
    """Label in the release -> class, if they differ (``{B: benign, M: malignant}``)."""
    positive_class: str | None
    """The class that sensitivity refers to. Only null if ``classes`` is empty: then ``malignant`` if that exists."""
    label_level: Unit = "image"
    """Unit at which the labels were made: ``image``, ``lesion``, ``breast``, ``exam`` or ``patient``. All images of
    such a unit must have the same label."""
    patient_ids: Literal["yes", "no", "partly"]
    patient_ids_from: str
    """Identification of patients, or the reason why there is none."""
    public_ids: bool = False
    """For a user's own card: file names and patient ids are public and need no pseudonyms
    (``usvit.data.datasets.identities``)."""
    n_patients: Annotated[int, Field(gt=0)] | None = None
    n_masks: Annotated[int, Field(ge=0)] | None = None
    """Number of mask files in the release."""
    table: str | None = None
    """For the readers ``table`` and ``dicom``: path of the table from the data root; null for the only table there. For
    ``coco``: path of the annotation file; null for all that have the layout's names."""
    columns: dict[str, str] = {}
    """For the readers ``table`` and ``dicom``: usvit's name of a column -> name in the table, if they differ. For
    ``coco``: the same for the keys of an entry of ``images``."""
    fetch: Fetch | None = None
    same_images_as: tuple[str, ...] = ()
    """Data sets with (some of) the same images, which must not be external test sets of this one."""

    @field_validator("license")
    @classmethod
    def _is_spdx_or_unclear(cls, value: str) -> str:
        if not re.fullmatch(r"unclear|[A-Za-z0-9][A-Za-z0-9.+-]*", value):
            raise ValueError(f"'{value}' is neither an SPDX identifier nor 'unclear'")
        return value

    @field_validator("patient_ids", mode="before")
    @classmethod
    def _yes_and_no_are_words(cls, value: Any) -> Any:
        # YAML reads an unquoted yes as a boolean.
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
            raise ValueError(f"positive_class '{self.positive_class}' is not one of the classes")
        if self.classes and (strange := set(self.labels.values()) - set(self.classes)):
            raise ValueError(f"labels lead to '{min(strange)}', which is not one of the classes")
        if self.reader is None and not self.no_reader:
            raise ValueError("a card without a reader must say why in no_reader")
        if self.fetch and self.license == "unclear":
            raise ValueError("fetch is only allowed for data sets with a clear licence")
        return self


def card_names() -> list[str]:
    """Return the names of the shipped cards."""
    return sorted(path.stem for path in data_cards_dir().glob("*.md"))


def load_card(name_or_file: str) -> DataCard:
    """Load the card of one data set.

    Args:
        name_or_file: a name of ``card_names()``, or the path of a card (it ends in ``.md``).

    Raises:
        UsvitError: There is no such data set or file, or its card is invalid; the error names the key.
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


@dataclass(frozen=True)
class OwnTable:
    """What the user says of his or her own table instead of writing a card."""

    table: str | None = None
    """The file, absolute or from the data root; None: that of the card, or the only table there."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """usvit's name of a column -> name in the table."""
    positive: str | None = None
    """The positive class, of any data set; None: that of the card."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "OwnTable":
        """Return what the section ``data`` of a configuration says; keys that it lacks are not said."""
        return cls(settings.get("table"), settings.get("columns") or {}, settings.get("positive"))

    def adapt(self, cards: Sequence[DataCard]) -> list[DataCard]:
        """Return the cards with these names in place of their own.

        Raises:
            UsvitError: a table or columns are named but no data set is read from a table; several are; or the positive
                class is not a class of a card.
        """
        found = list(cards)
        if self.table or self.columns:
            own = [card for card in cards if card.reader in _TABLE_READERS]
            if len(own) != 1:
                raise UsvitError(
                    f"A table and its columns (--table, {', '.join(COLUMN_OPTIONS.values())}) can be named "
                    f"for one data set that is read from a table ('table', 'dicom' or 'coco'); {len(own)} of "
                    f"{'+'.join(card.name for card in cards)} are. Pass --dataset table, or write a card for each."
                )
            changes: dict[str, object] = {"columns": {**own[0].columns, **self.columns}}
            changes |= {"table": self.table} if self.table else {}
            found = [card.model_copy(update=changes) if card is own[0] else card for card in cards]
        if self.positive is None:
            return found
        for card in found:
            if card.classes and self.positive not in card.classes:
                raise unknown("positive class", self.positive, card.classes, f"The data card '{card.name}' has these.")
        return [card.model_copy(update={"positive_class": self.positive}) for card in found]


NOTHING_SAID = OwnTable()
_TABLE_READERS = ("table", "dicom", "coco")


def load_cards(datasets: str, own: OwnTable = NOTHING_SAID) -> list[DataCard]:
    """Load the cards of one data set, or of several joined by '+'.

    Args:
        datasets: names or files of cards.
        own: what the user says of his or her own table.

    Raises:
        LeakageError: By their cards, two data sets have the same images (BreastMNIST is BUSI at another size).
        UsvitError: See ``load_card``; or two data sets have the same name.
    """
    cards = [load_card(name) for name in datasets.split("+")]
    names = [card.name for card in cards]
    if double := next((name for name in names if names.count(name) > 1), None):
        raise UsvitError(f"The data set '{datasets}' contains '{double}' twice. Remove one of them.")
    for card in cards:
        if again := sorted(set(card.same_images_as) & set(names)):
            raise LeakageError(
                f"{card.name} and {again[0]} contain the same images (data card '{card.name}'), so one is not a test "
                "set of the other. Use only one of them."
            )
    return own.adapt(cards)


def same_images(datasets: str) -> dict[str, tuple[str, ...]]:
    """Return each data set of ``busi+b`` -> others with the same images, by its card; names without a card are absent.

    The names of a user's own manifest may be those of no card.
    """
    found = {}
    for name in datasets.split("+"):
        try:
            card = load_card(name)
        except UsvitError:
            continue
        found[card.name] = card.same_images_as
    return found


def read_card(path: Path) -> DataCard:
    """Parse and check one card file.

    Raises:
        UsvitError: There is no such file, it has no front matter, or a field is missing or wrong.
    """
    front, _ = _parts(path)
    try:
        return DataCard.model_validate(parse_yaml(front, f"The data card {path}"))
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, one['loc'])) or 'front matter'}: {one['msg'].removeprefix('Value error, ')}"
            for one in error.errors()
        ]
        raise UsvitError(f"The data card {path} is not valid: {'; '.join(problems)}.") from error


def read_prose(name_or_file: str) -> str:
    """Return the Markdown text below the front matter of a card.

    Raises:
        UsvitError: See ``load_card``.
    """
    path = Path(name_or_file) if name_or_file.endswith(".md") else data_cards_dir() / f"{name_or_file}.md"
    return _parts(path)[1].strip() + "\n"


def card_facts(card: DataCard) -> list[tuple[str, str]]:
    """Return the front matter of a card as pairs of heading and text, as terminal and documentation show them."""
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
        ("Labels", f"made for each {card.label_level}"),
        ("Licence", card.license),
        ("Host", card.host),
        ("How to get it", card.how_to_get),
        ("Download", fetch),
        ("Reader", card.reader or f"none: {card.no_reader}"),
        ("Same images as", ", ".join(card.same_images_as) or "none known"),
        ("Citation", card.citation),
        ("Layout", card.layout),
    ]


def _parts(path: Path) -> tuple[str, str]:
    """Return front matter and text."""
    parts = yaml_text(path, "data card").split("---\n", 2)
    if len(parts) != 3 or parts[0].strip():
        raise UsvitError(f"The data card {path} does not begin with YAML front matter between two lines of '---'.")
    return parts[1], parts[2]
