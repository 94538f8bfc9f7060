"""Functions and classes that ``inference.json`` of a MONAI bundle refers to: reading, preprocessing and network.

MONAI creates them from the configuration, so it is not imported here. Their dotted names must not change, because
exported bundles contain them.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from usvit.data.io import DICOM_SUFFIXES, IMAGE_SUFFIXES, BadImage, PictureFile, decode, is_dicom, read_facts
from usvit.data.transforms import Preprocessing
from usvit.errors import EXIT_PARTLY, UsvitError
from usvit.files import write_csv
from usvit.models import Weights, build_model, find_model, read_state_dict

SCORES, FAILURES = "scores.csv", "failures.csv"


Picture = dict[str, Any]
"""One picture, as MONAI passes it on: ``image`` (its file, then its pixels), ``frame`` and ``name``."""
Row = dict[str, str | int | float]
"""A row of a table."""


def network(
    architecture: str,
    n_classes: int,
    image_size: int,
    vit: dict[str, object] | None = None,
    features: dict[str, object] | None = None,
) -> nn.Module:
    """Build a network of the zoo without its weights, in eval mode: (B, 3, S, S) float32 -> (B, K) logits.

    Args:
        architecture: name in the zoo.
        n_classes: K.
        image_size: S.
        vit: changed settings of the architecture.
        features: which features of frozen networks a head sees (``features`` of ``model.json``).
    """
    with torch.random.fork_rng(devices=[]):
        spec = find_model(architecture, vit, features)
        return build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size).eval()


def with_weights(network: nn.Module, file: str | Path, device: torch.device | str) -> nn.Module:
    """Load the weights of a safetensors file into a network, and move it to a device, in eval mode.

    Raises:
        UsvitError: the file is missing, damaged, or belongs to another network.
    """
    path = Path(file)
    if not path.is_file():
        raise UsvitError(f"There is no file {path}. Pass the folder of the bundle with --bundle_root.")
    try:
        network.load_state_dict(read_state_dict(path))
    except RuntimeError as error:
        raise UsvitError(f"{path} belongs to another network: {' '.join(str(error).split())[:300]}") from error
    return network.to(device).eval()


def find_images(source: str | Path | None) -> list[Picture]:
    """Find all images in a file or folder.

    Args:
        source: an image, a DICOM file, or a folder; hidden files and other files in it are skipped.

    Returns:
        Dictionaries with ``image`` (the path), ``frame`` (from 0) and ``name`` (the path
        below ``source``), sorted by name.

    Raises:
        UsvitError: the file or folder does not exist, or holds no image.
    """
    if source is None or str(source) == "":
        raise UsvitError("No input was given. Pass --input IMAGE_OR_FOLDER.")
    top = Path(str(source))
    if not top.exists():
        raise UsvitError(f"--input {top}: there is no such file or folder.")
    files = sorted(path for path in top.rglob("*") if _is_picture(path, top)) if top.is_dir() else [top]
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES | DICOM_SUFFIXES))
        raise UsvitError(f"--input {top} holds no image ({kinds}).")
    return [
        {"image": str(path), "frame": frame, "name": path.relative_to(top).as_posix() if path != top else path.name}
        for path in files
        for frame in range(_frames(path))
    ]


class Preprocess:
    """Replaces ``image`` in a dictionary of ``find_images`` by its (3, S, S) float32 pixels, normalised.

    Args:
        image_size, resize, mean, std, crop: see ``usvit.data.transforms.preprocessing.Preprocessing``.
    """

    def __init__(self, image_size: int, resize: str, mean: Sequence[float], std: Sequence[float], crop: str = "tissue"):
        red, green, blue = mean
        of_red, of_green, of_blue = std
        self.preprocessing = Preprocessing(image_size, resize, (red, green, blue), (of_red, of_green, of_blue), crop)

    def __call__(self, picture: Picture) -> Picture:
        image, tissue, _ = decode(Path(picture["image"]), picture["frame"])
        pixels = self.preprocessing.resized(image, tissue)
        # Copied, because the array of an image that already has the size is read-only.
        return {**picture, "image": self.preprocessing.normalised(torch.tensor(pixels)[None])[0]}


class Probabilities:
    """Converts (B, K) logits to (B, K) float64 probabilities, with the temperature of the model metadata."""

    def __init__(self, temperature: float = 1.0):
        self.temperature = temperature

    def __call__(self, logits: Tensor) -> Tensor:
        return (logits.double() / self.temperature).softmax(1)


class PartlyScored(UsvitError):
    """The work is complete, but some images could not be read."""

    exit_code = EXIT_PARTLY


class Scorer:
    """The evaluator of a bundle: reads images, runs the network, and writes tables.

    Args:
        source: an image or a folder (``find_images``). Images are read in batches, so that memory does not grow with
            their number.
        preprocessing: converts the ``image`` of a dictionary to (3, S, S) float32.
        network: the network in eval mode, on ``device``.
        inferer: MONAI's inferer, called with a batch and the network.
        postprocessing: converts logits to probabilities.
        classes: names of the K outputs.
        device: device of the network.
        output_dir: folder for ``scores.csv``, and for ``failures.csv`` if an image cannot be read.
        batch_size: number of images that the network processes at once.
    """

    def __init__(
        self,
        source: str | Path | None,
        preprocessing: Callable[[Picture], Picture],
        network: nn.Module,
        inferer: Callable[[Tensor, nn.Module], Tensor],
        postprocessing: Callable[[Tensor], Tensor],
        classes: Sequence[str],
        device: torch.device | str,
        output_dir: str | Path,
        batch_size: int = 16,
    ):
        self.source, self.preprocessing, self.network = source, preprocessing, network
        self.inferer, self.postprocessing, self.classes = inferer, postprocessing, classes
        self.device, self.output_dir, self.batch_size = device, Path(str(output_dir)), batch_size
        self.failures: list[Row] = []

    def run(self) -> pd.DataFrame:
        """Score all images.

        Returns:
            The content of ``scores.csv``: name, frame, then logit_<class> and prob_<class> in the order of the classes.

        Raises:
            PartlyScored: images could not be read; all others have been scored and written.
            UsvitError: there is no image.
        """
        rows: list[Row] = []
        self.failures = []
        for batch in self._batches():
            with torch.inference_mode():
                images = torch.stack([picture["image"] for picture in batch]).to(self.device)
                logits = self.inferer(images, self.network).float().cpu()
            for picture, logit, prob in zip(
                batch, logits.double().tolist(), self.postprocessing(logits).tolist(), strict=True
            ):
                row: Row = {"name": picture["name"], "frame": picture["frame"]}
                row |= {f"logit_{name}": value for name, value in zip(self.classes, logit, strict=True)}
                rows.append(row | {f"prob_{name}": value for name, value in zip(self.classes, prob, strict=True)})
        return self._written(rows)

    def main(self) -> pd.DataFrame:
        """Call ``run`` from the command line: a ``UsvitError`` is printed as one paragraph and becomes an exit code.

        MONAI would wrap it in three other exceptions, the last of which has no useful message.
        """
        try:
            return self.run()
        except UsvitError as error:
            print(f"Error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)

    def _batches(self) -> Iterator[list[Picture]]:
        batch: list[Picture] = []
        for picture in find_images(self.source):
            try:
                batch.append(self.preprocessing(picture))
            except BadImage as error:
                self.failures.append({"name": picture["name"], "frame": picture["frame"], "reason": error.reason})
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch:
            yield batch

    def _written(self, rows: list[Row]) -> pd.DataFrame:
        columns = ["name", "frame", *(f"{kind}_{name}" for kind in ("logit", "prob") for name in self.classes)]
        scores = pd.DataFrame(rows, columns=columns)
        write_csv(self.output_dir / SCORES, scores)
        (self.output_dir / FAILURES).unlink(missing_ok=True)  # of an earlier run
        print(f"{len(scores)} pictures scored: {self.output_dir / SCORES}", file=sys.stderr)
        if self.failures:
            write_csv(self.output_dir / FAILURES, pd.DataFrame(self.failures))
            raise PartlyScored(
                f"{len(self.failures)} of {len(scores) + len(self.failures)} pictures could not be read; "
                f"{self.output_dir / FAILURES} says why. All others were scored."
            )
        return scores


def _is_picture(path: Path, top: Path) -> bool:
    if any(part.startswith(".") for part in path.relative_to(top).parts) or not path.is_file():
        return False
    if path.suffix.lower() in IMAGE_SUFFIXES | DICOM_SUFFIXES:
        return True
    return os.access(path, os.R_OK) and is_dicom(path)


def _frames(path: Path) -> int:
    """Return the number of frames in a file; 1 for a damaged file, which fails when it is read."""
    try:
        if is_dicom(path):
            return max(read_facts(path).frames, 1)
        with PictureFile(path) as picture:
            return picture.n_frames
    except (BadImage, OSError):
        return 1
