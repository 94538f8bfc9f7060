"""Small copies of a run's images, where they may be shown and can be found."""

import base64
import io
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from usvit.data.cards import DataCard, load_card, load_cards
from usvit.data.identities import Places
from usvit.data.images import pixel_sha256, read_image
from usvit.data.roots import open_places
from usvit.errors import UsvitError
from usvit.files import regular_file, within
from usvit.progress import NoProgress
from usvit.report.run import Run

SIDE, JPEG_QUALITY = 200, 80
"""Longer side in px. A thumbnail takes about 6 kB."""

OPEN_LICENCES = ("CC0-", "CC-BY-", "PDDL-", "ODC-BY-", "ODBL-", "APACHE-", "MIT", "BSD-")
"""How SPDX identifiers begin that let a small copy be passed on, with the source named (in capitals)."""


def may_show(licence: str) -> bool:
    """Whether a data set's licence allows small copies of its images in a report.

    "unclear" does not, nor does one that forbids changed copies (``ND``): a thumbnail is one.
    """
    name = licence.upper()
    return name.startswith(OPEN_LICENCES) and "-ND" not in name


class Pictures:
    """Thumbnails of the images of one run."""

    def __init__(self, run: Run, roots: dict[str, Path] | None, include: bool = False) -> None:
        """Find where the images lie.

        Args:
            run: whose manifest names the files.
            roots: data set -> folder, "" for all; None: no images are wanted.
            include: show images whatever the licences say; the user answers for it.

        Raises:
            UsvitError: a root was given and does not hold the data set.
        """
        self.cards = cards_of(run)
        self._rows: dict[tuple[str, str], Any] = {}
        self._folder: dict[str, Places] = {}
        self._why: dict[str, str] = {}
        self._forbidden: set[str] = set()
        if run.manifest is not None and {"path", "frame"} <= {*run.manifest.columns}:
            self._rows = {(str(row.dataset), str(row.image_id)): row for row in run.manifest.itertuples()}
        for dataset, card in self.cards.items():
            licence = card.license if card else "not known"
            if not include and not may_show(licence):
                self._forbidden.add(dataset)
                self._why[dataset] = (
                    f"the licence of {dataset} ({licence}) does not allow it; --include-images shows them all the same"
                )
            elif not self._rows:
                self._why[dataset] = "the run has no manifest.parquet"
            elif card is None:
                self._why[dataset] = f"there is no data card of {dataset}"
            elif roots is None:
                self._why[dataset] = "usvit report was not told where the images lie (--data-root)"
            else:
                self._folder[dataset] = open_places(card, roots, NoProgress())

    @property
    def reasons(self) -> list[str]:
        """Why images are not shown, once each."""
        return sorted(set(self._why.values()))

    @property
    def sources(self) -> list[str]:
        """Data sets whose images are shown, with licence and citation."""
        cards = [self.cards[name] for name in self._folder]
        return [f"{card.pretty_name}, licence {card.license}: {card.citation}" for card in cards if card]

    def allowed(self, dataset: str) -> bool:
        """Whether pictures that hold this data set's images may stand on the page, found or not."""
        return dataset in self.cards and dataset not in self._forbidden

    def thumbnail(self, dataset: str, image_id: str) -> tuple[str | None, str]:
        """A data URI and "", or None and why there is none. The pixels must be those that the run saw."""
        if dataset not in self._folder:
            return None, self._why.get(dataset, "not shown")
        row = self._rows.get((dataset, image_id))
        if row is None:
            return None, "not in the manifest"
        try:
            places = self._folder[dataset]
            path = within(places.root, places.file(str(row.path)).relative_to(places.root).as_posix())
            regular_file(path).close()
            pixels = read_image(path, int(row.frame))
        except (UsvitError, ValueError, TypeError, OverflowError):
            return None, "the file is not there, or cannot be read"
        recorded = getattr(row, "sha256", None)
        if isinstance(recorded, str) and recorded and pixel_sha256(pixels) != recorded:
            return None, "the file has changed since the run"
        return jpeg_uri(Image.fromarray(pixels)), ""


def jpeg_uri(image: Image.Image, size: tuple[int, int] = (SIDE, SIDE)) -> str:
    """A small JPEG as a data URI, at most (width, height) of ``size``; never enlarged."""
    small = image.convert("RGB")
    small.thumbnail(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def cards_of(run: Run) -> dict[str, DataCard | None]:
    """Data set -> its card, None where there is none (a card of the user's that has moved, another tool's table)."""
    names = (run.record.get("data") or {}).get("datasets") or pd.unique(run.test["dataset"]).tolist()
    asked = ((run.record.get("config") or {}).get("data") or {}).get("dataset")
    try:
        known = {card.name: card for card in load_cards(asked)} if isinstance(asked, str) else {}
    except UsvitError:
        known = {}
    return {str(name): known.get(name) or _shipped(str(name)) for name in names}


def _shipped(name: str) -> DataCard | None:
    try:
        return None if name.endswith(".md") else load_card(name)
    except UsvitError:
        return None
