"""Prediction on images in Python: what ``usvit score`` computes, returned as a table instead of written to files."""

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from PIL import Image, ImageOps

from usvit.arguments import checked_arguments
from usvit.config.keywords import takes_settings
from usvit.config.scoring import BATCH_SIZE, NetworkSettings
from usvit.data.io import BadImage, UInt8, refusing
from usvit.errors import UsvitError
from usvit.plain_data import Json
from usvit.progress import Progress, shown_progress
from usvit.pseudonyms import Pseudonyms, default_key_path
from usvit.representation import Summarised
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import FAILURES, Done, Failure, ItemFacts, ReadSettings, Row, ScoringItem, score_columns
from usvit.scoring.leakage import marked
from usvit.scoring.pipeline import Describer, scored
from usvit.scoring.reading.item_reader import parse_frames, read_item
from usvit.scoring.reading.prepare import Prepare
from usvit.scoring.reading.workers import End, Message
from usvit.scoring.tables.cells import typed

logger = logging.getLogger(__name__)

ImageInput = str | os.PathLike[str] | Image.Image | UInt8


class Predictor(Summarised):
    """The networks of a run, ready for prediction; ``load_model`` creates it.

    Example:
        See ``load_model``.
    """

    def __init__(self, ensemble: Ensemble):
        self._ensemble = ensemble

    def _facts(self) -> dict[str, object]:
        return {
            "networks": self._ensemble.n_members,
            "classes": self.classes,
            "positive_class": self.positive_class,
            "threshold": self._ensemble.threshold,
            "device": self._ensemble.device_name,
        }

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes, in the order of the networks' outputs."""
        return self._ensemble.classes

    @property
    def positive_class(self) -> str:
        """The class of ``calibrated_*``, ``spread_*`` and ``decision``."""
        return self._ensemble.positive

    @cached_property
    def metadata(self) -> Json:
        """The key ``model`` of the ``summary.json`` that ``usvit score`` writes: networks, preprocessing, threshold."""
        return self._ensemble.record().content()

    @checked_arguments
    def predict(
        self,
        inputs: ImageInput | Sequence[ImageInput],
        *,
        frames: str = "all",
        batch_size: int = BATCH_SIZE,
        keep_ids: bool = False,
        progress: Progress | None = None,
    ) -> pd.DataFrame:
        """Predict the class of images.

        The columns and numbers are those of the ``scores.csv`` that ``usvit score`` writes for the same inputs with the
        same settings, and before them the column ``source``. The last bits also depend on ``batch_size``. The
        pseudonyms are made with the user's key, which is created if it is missing. Files are decoded in this process,
        one after the other: use ``usvit.score`` for many or untrusted files, because it decodes in worker processes
        with limits on time and memory.

        Args:
            inputs: one of the following, or a list that holds either only paths or only images:

                * path of an image, a DICOM file or a folder (whatever ``usvit score --input`` accepts);
                * ``PIL.Image.Image``;
                * array of shape (H, W) or (H, W, 3), uint8: a whole frame, 8-bit grey or RGB.
            frames: frames of a multi-frame file to predict: ``all``, ``middle``, ``every:K``, or ``top:K`` by quality.
            batch_size: number of images that the networks process at once.
            keep_ids: also fill the columns ``path``, ``sop_instance_uid``, ``study_instance_uid``,
                ``original_patient_id`` and ``device``. The table is then as private as the input.
            progress: shows how many files are done.

        Returns:
            One row for each frame, in the order of the inputs. ``source`` is the path of the file, or ``image-3`` for
            the fourth image in memory. Leave this column out before you pass the table on, if names of files may
            identify patients. Files of a folder that hold no image, and links that form a loop, are left out with a
            warning in the log.

        Raises:
            BadImage: a file, or one of its frames, cannot be read.
            UsvitError: an input does not exist, is of another type, or has another shape.
        """
        if batch_size < 1:
            raise UsvitError(f"batch_size is {batch_size}. Pass a whole number from 1 on.")
        parse_frames(frames)
        given = [inputs] if isinstance(inputs, (str, os.PathLike, Image.Image, np.ndarray)) else list(inputs)
        if all(isinstance(one, (str, os.PathLike)) for one in given):
            paths = [os.fspath(one) for one in given]  # type: ignore[arg-type]
            items, images = list(discover(paths)), None
        else:
            images = [image_pixels(one, f"image-{number}") for number, one in enumerate(given)]
            paths, items = [], [ScoringItem(f"image-{number}", "") for number in range(len(images))]
        describer = Describer(self._ensemble, self._pseudonyms, keep_ids, abstain=False)
        settings = self._ensemble.read_settings(frames)
        messages = _read(items, settings) if images is None else _prepared(items, images, settings)
        named = {os.path.realpath(path) for path in paths if Path(path).is_file()}
        rows: list[Row] = []
        sources: list[str] = []
        done = skipped = 0
        shown = shown_progress(progress)
        shown.start("prediction", len(items), "files")
        try:
            with closing(scored(messages, describer, batch_size=batch_size, known=lambda _: Done())) as batches:
                for batch in batches:
                    for seq, failure, _ in batch.failures:
                        _raise_unless_other_file(items[seq], failure, named)
                        skipped += 1
                    rows += [row for _, _, row, _ in batch.rows]
                    sources += [items[seq].source for seq, *_ in batch.rows]
                    done += len(batch.ended)
                    shown.update(done)
        finally:
            shown.finish()
        if skipped:
            logger.warning(f"{skipped} files of the input hold no image, or are links that form a loop: left out.")
        if pooling := self._ensemble.view_pooling(abstain=False):
            pooling.pool_all(rows)
        (table,) = marked([rows], self._ensemble.copies_of_seen)
        sides, weights = any(row.get("side") for row in rows), self._ensemble.attends
        scores = typed(table, score_columns(self.classes, self.positive_class, sides=sides, weights=weights))
        scores.insert(0, "source", pd.Series(sources, dtype=object))
        return scores

    @cached_property
    def _pseudonyms(self) -> Pseudonyms:
        return Pseudonyms.of_key(default_key_path())


@takes_settings
def load_model(run: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], settings: NetworkSettings) -> Predictor:
    """Load the networks of a run for prediction.

    Args:
        run: folder of a run (``runs/x``), of one of its folds (``runs/x/fold-0``), of an export as safetensors, or of
            an ensemble; or several of them, whose networks are averaged with equal weights.
        settings: see ``NetworkSettings``.

    Returns:
        The predictor, with its networks on the device.

    Raises:
        UsvitError: the folder holds no networks of usvit, the networks cannot be averaged, or there is no such fold or
            device.

    Example:
        >>> import usvit
        >>> predictor = usvit.load_model("runs/small", device="cpu")
        >>> table = predictor.predict("images")
        >>> predictor.positive_class, bool(table["prob_malignant"].between(0, 1).all())
        ('malignant', True)
    """
    paths = [Path(run)] if isinstance(run, (str, os.PathLike)) else [Path(one) for one in run]
    return Predictor(Ensemble.load(paths, settings=settings))


def image_pixels(image: Any, name: str) -> UInt8:
    """Convert an image in memory to (H, W, 3) uint8.

    Args:
        image: ``PIL.Image.Image``, or array (H, W) or (H, W, 3) uint8.
        name: name of the image in errors.

    Raises:
        BadImage: it has more than 8 bits, or cannot be decoded.
        UsvitError: it is of another type or shape.
    """
    if isinstance(image, Image.Image):
        if image.mode.startswith(("I", "F")):
            reason = f"its pixels (mode {image.mode}) have more than 8 bits. Pass the path of its file, or convert it"
            raise BadImage(Path(name), reason, "unsupported_pixels")
        with refusing(Path(name)):
            return np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
    if not isinstance(image, np.ndarray):
        kind = type(image).__name__
        raise UsvitError(f"Input {name} is of type {kind}. Pass paths only, or PIL images and arrays only.")
    grey = image.ndim == 2
    if image.dtype != np.uint8 or not image.size or not (grey or (image.ndim == 3 and image.shape[2] == 3)):
        raise UsvitError(
            f"Input {name} is an array of type {image.dtype} and shape {image.shape}. Pass uint8 of shape (H, W) or "
            "(H, W, 3), with values from 0 to 255."
        )
    return np.repeat(image[..., None], 3, axis=2) if grey else image


def _read(items: list[ScoringItem], settings: ReadSettings) -> Iterator[tuple[int, ScoringItem, Message]]:
    """Read files in this process; the messages are those of ``Readers.read``."""
    for seq, item in enumerate(items):
        for message in read_item(item, settings):
            if message is not None:
                yield seq, item, message
        yield seq, item, End()


def _prepared(
    items: list[ScoringItem], images: list[UInt8], settings: ReadSettings
) -> Iterator[tuple[int, ScoringItem, Message]]:
    """Prepare images in memory as ``_read`` does the frames of a file."""
    prepare = Prepare(settings)
    for seq, (item, pixels) in enumerate(zip(items, images, strict=True)):
        yield seq, item, ItemFacts("picture", "", 1, None, (), "", "", "", "")
        with refusing(Path(item.name)):
            frame = prepare(0, pixels, None, ())
        yield seq, item, frame
        yield seq, item, End()


def _raise_unless_other_file(item: ScoringItem, failure: Failure, named: set[str]) -> None:
    """Raise ``BadImage``, except for a file without an image that merely lies in a folder of the input."""
    found = item.member is not None or os.path.realpath(item.location) not in named
    if found and failure.code in ("not_an_image", "no_pixels", "loop"):
        return
    place = "" if failure.frame is None else f"frame {failure.frame}: "
    reason = f"{place}{FAILURES[failure.code]}" + (f" ({failure.detail})" if failure.detail else "")
    raise BadImage(Path(item.location) / (item.member or ""), reason, failure.code)
