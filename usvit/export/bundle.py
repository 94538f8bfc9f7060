"""What a MONAI bundle's ``inference.json`` calls: usvit's own reading, preprocessing and network.

MONAI is not imported here: it builds these from the configuration, and gives them what they need.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn

from usvit.data.dicom import read_facts
from usvit.data.images import DICOM_SUFFIXES, IMAGE_SUFFIXES, BadImage, decode, is_dicom
from usvit.data.preprocessing import Preprocessing
from usvit.errors import EXIT_PARTLY, UsvitError
from usvit.files import write_csv
from usvit.models.build import build_model
from usvit.models.weights import Weights, read_state_dict
from usvit.models.zoo import find_model

SCORES, FAILURES = "scores.csv", "failures.csv"


def network(architecture: str, n_classes: int, image_size: int, vit: dict[str, Any] | None = None) -> nn.Module:
    """A network of the zoo without its weights, in eval mode: (B, 3, S, S) float32 -> (B, K) logits.

    Args:
        architecture: the zoo's name.
        n_classes: K.
        image_size: S.
        vit: the parts of its shape that were exchanged.
    """
    with torch.random.fork_rng(devices=[]):
        spec = find_model(architecture, vit)
        return build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size).eval()


def with_weights(network: nn.Module, file: str | Path, device: torch.device | str) -> nn.Module:
    """A network with the weights of a safetensors file, on a device, in eval mode.

    Raises:
        UsvitError: the file is missing, damaged, or of another network.
    """
    path = Path(file)
    if not path.is_file():
        raise UsvitError(f"There is no {path}. Pass --bundle_root, the bundle's folder.")
    try:
        network.load_state_dict(read_state_dict(path))
    except RuntimeError as error:
        raise UsvitError(f"{path} is of another network: {' '.join(str(error).split())[:300]}") from error
    return network.to(device).eval()


def find_images(source: str | Path | None) -> list[dict[str, Any]]:
    """Every picture in a file or under a folder.

    Args:
        source: an image or a DICOM file, or a folder of them; hidden files and files of other kinds in it are
            passed over.

    Returns:
        Dictionaries with ``image`` (the path), ``frame`` (from 0; above it in DICOM alone) and ``name`` (the path
        below ``source``), sorted by name.

    Raises:
        UsvitError: there is no such file or folder, or no picture in it.
    """
    if source is None or str(source) == "":
        raise UsvitError("Which image? Pass --input IMAGE_OR_FOLDER.")
    top = Path(str(source))
    if not top.exists():
        raise UsvitError(f"--input {top}: there is no such file or folder.")
    files = sorted(path for path in top.rglob("*") if _is_picture(path, top)) if top.is_dir() else [top]
    if not files:
        kinds = ", ".join(sorted(IMAGE_SUFFIXES | DICOM_SUFFIXES))
        raise UsvitError(f"--input {top}: no image in it ({kinds}).")
    return [
        {"image": str(path), "frame": frame, "name": path.relative_to(top).as_posix() if path != top else path.name}
        for path in files
        for frame in range(_frames(path))
    ]


class Preprocess:
    """One picture of ``find_images`` -> the same dictionary with ``image`` as (3, S, S) float32, normalised.

    Args:
        image_size, resize, mean, std, crop: as ``usvit.data.preprocessing.Preprocessing`` has them.
    """

    def __init__(self, image_size: int, resize: str, mean: Sequence[float], std: Sequence[float], crop: str = "tissue"):
        red, green, blue = mean
        of_red, of_green, of_blue = std
        self.preprocessing = Preprocessing(image_size, resize, (red, green, blue), (of_red, of_green, of_blue), crop)

    def __call__(self, picture: dict[str, Any]) -> dict[str, Any]:
        pixels = self.preprocessing.resized(*decode(Path(picture["image"]), picture["frame"]))
        # Copied: the array of a picture that had the size already cannot be written to.
        return {**picture, "image": self.preprocessing.normalised(torch.tensor(pixels)[None])[0]}


class Probabilities:
    """(B, K) logits -> (B, K) float64 probabilities; the temperature is the passport's."""

    def __init__(self, temperature: float = 1.0):
        self.temperature = temperature

    def __call__(self, logits: Tensor) -> Tensor:
        return (logits.double() / self.temperature).softmax(1)


class PartlyScored(UsvitError):
    """The work is done, but some pictures could not be read."""

    exit_code = EXIT_PARTLY


class Scorer:
    """Reads, infers and writes: the bundle's evaluator.

    Args:
        source: a picture, or a folder of them (``find_images``); they are read batch by batch, so that memory does
            not grow with their number.
        preprocessing: from one picture to one with (3, S, S) float32.
        network: in eval mode, on ``device``.
        inferer: MONAI's; called with a batch and the network.
        postprocessing: from logits to probabilities.
        classes: names of the K outputs.
        device: where the network is.
        output_dir: folder of ``scores.csv``, and of ``failures.csv`` where a picture could not be read.
        batch_size: pictures at once.
    """

    def __init__(
        self,
        source: str | Path | None,
        preprocessing: Callable[[dict[str, Any]], dict[str, Any]],
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
        self.failures: list[dict[str, Any]] = []

    def run(self) -> pd.DataFrame:
        """Score every picture.

        Returns:
            What ``scores.csv`` holds: name, frame, then logit_<class> and prob_<class> in the order of the classes.

        Raises:
            PartlyScored: pictures could not be read; all others have been scored and written by then.
            UsvitError: there is no picture.
        """
        rows: list[dict[str, Any]] = []
        self.failures = []
        for batch in self._batches():
            with torch.inference_mode():
                images = torch.stack([picture["image"] for picture in batch]).to(self.device)
                logits = self.inferer(images, self.network).float().cpu()
            for picture, logit, prob in zip(
                batch, logits.double().tolist(), self.postprocessing(logits).tolist(), strict=True
            ):
                row = {"name": picture["name"], "frame": picture["frame"]}
                row |= {f"logit_{name}": value for name, value in zip(self.classes, logit, strict=True)}
                rows.append(row | {f"prob_{name}": value for name, value in zip(self.classes, prob, strict=True)})
        return self._written(rows)

    def main(self) -> pd.DataFrame:
        """``run`` for the command line: an error of the user's is one paragraph and an exit code, as usvit's own.

        MONAI would wrap it into three of its own, the last of which says nothing.
        """
        try:
            return self.run()
        except UsvitError as error:
            print(f"Error: {error}", file=sys.stderr)
            sys.exit(error.exit_code)

    def _batches(self) -> Iterator[list[dict[str, Any]]]:
        batch: list[dict[str, Any]] = []
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

    def _written(self, rows: list[dict[str, Any]]) -> pd.DataFrame:
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
    """How many pictures a file holds; one for a damaged file, which is refused when it is read."""
    try:
        return max(read_facts(path).frames, 1) if is_dicom(path) else 1
    except (BadImage, OSError):
        return 1
