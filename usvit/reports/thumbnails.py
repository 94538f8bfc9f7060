"""Thumbnails of the images of a run, if the licence allows them and the files are found."""

import base64
import io
from pathlib import Path
from typing import Any

import pandas as pd
from PIL import Image

from usvit.data.datasets import DataCard, OwnTable, Places, load_card, load_cards, open_places
from usvit.data.io import pixel_sha256, read_image
from usvit.errors import UsvitError
from usvit.files import regular_file, within
from usvit.progress import NO_PROGRESS
from usvit.reports.run_files import Run

SIDE, JPEG_QUALITY = 200, 80
"""Longer side in px, and JPEG quality. A thumbnail takes about 6 kB."""

_OPEN_LICENCES = ("CC0-", "CC-BY-", "PDDL-", "ODC-BY-", "ODBL-", "APACHE-", "MIT", "BSD-")
"""Beginnings of SPDX identifiers (in capitals) whose licences allow a thumbnail to be shared if the source is named."""


def may_show(licence: str) -> bool:
    """Return whether a data set's licence allows thumbnails of its images in a report.

    An "unclear" licence does not, nor does one that forbids adaptations (``ND``), because a thumbnail is one.
    """
    name = licence.upper()
    return name.startswith(_OPEN_LICENCES) and "-ND" not in name


class Pictures:
    """Thumbnails of the images of one run."""

    def __init__(self, run: Run, roots: dict[str, Path] | None, include: bool = False) -> None:
        """Locate the images.

        Args:
            run: its manifest names the files.
            roots: data set -> folder, "" for all; None shows no images.
            include: show images whatever the licences say; the user is responsible.

        Raises:
            UsvitError: a root was given but does not contain the data set.
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
            if run.evaluated is not None and card is None:
                self._why[dataset] = "an evaluation reads predictions, not images"
            elif not include and not may_show(licence):
                self._forbidden.add(dataset)
                self._why[dataset] = (
                    f"the licence of {dataset} ({licence}) does not allow it; use --include-images to show them anyway"
                )
            elif not self._rows:
                self._why[dataset] = "the run has no manifest.parquet"
            elif card is None:
                self._why[dataset] = f"there is no data card of {dataset}"
            elif roots is None:
                self._why[dataset] = "the folder with the images was not given (--data-root)"
            else:
                self._folder[dataset] = open_places(card, roots, NO_PROGRESS)

    @property
    def reasons(self) -> list[str]:
        """The reasons why images are not shown, without repetition."""
        return sorted(set(self._why.values()))

    @property
    def sources(self) -> list[str]:
        """Data sets whose images are shown, with licence and citation."""
        cards = [self.cards[name] for name in self._folder]
        return [f"{card.pretty_name}, licence {card.license}: {card.citation}" for card in cards if card]

    def allowed(self, dataset: str) -> bool:
        """Return whether the page may show pictures with this data set's images."""
        return dataset in self.cards and dataset not in self._forbidden

    def thumbnail(self, dataset: str, image_id: str) -> tuple[str | None, str]:
        """Return (data URI, ""), or (None, reason). The pixels must be those that the run used."""
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
            return None, "the file does not exist or cannot be read"
        recorded = getattr(row, "sha256", None)
        if isinstance(recorded, str) and recorded and pixel_sha256(pixels) != recorded:
            return None, "the file has changed since the run"
        return jpeg_uri(Image.fromarray(pixels)), ""


def jpeg_uri(image: Image.Image, size: tuple[int, int] = (SIDE, SIDE)) -> str:
    """Encode a JPEG of at most (width, height) ``size`` as a data URI; the image is never enlarged."""
    small = image.convert("RGB")
    small.thumbnail(size, Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, "JPEG", quality=JPEG_QUALITY)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def cards_of(run: Run) -> dict[str, DataCard | None]:
    """Map each data set to its card; None if there is none (a user's card that was moved, another tool's table)."""
    data, config = run.record.data, run.record.config
    names = (data and data.datasets) or pd.unique(run.test["dataset"]).tolist()
    asked = config.data.dataset if config and config.data else None
    try:
        own = OwnTable.of(config.data.content()) if config and config.data else OwnTable()
        known = {card.name: card for card in load_cards(asked, own)} if asked is not None else {}
    except UsvitError:
        known = {}
    return {str(name): known.get(name) or _shipped(str(name)) for name in names}


def _shipped(name: str) -> DataCard | None:
    try:
        return None if name.endswith(".md") else load_card(name)
    except UsvitError:
        return None
