"""``usvit explain``: choose images, compute maps, draw them, and compare them with lesion masks."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError, unknown
from usvit.explaining.attention import Distances, attention_distances, patch_distances
from usvit.explaining.cases import (
    CaseImages,
    ExplainedCase,
    PredictionSource,
    choose,
    choose_errors,
    choose_named,
    open_source,
)
from usvit.explaining.mask_agreement import Map, Mask, MaskScore, is_blank, score, summary
from usvit.explaining.methods import MethodMaps, find_maps
from usvit.explaining.output import ExplainWriter, file_name
from usvit.explaining.parameters import filter_components, position_similarity
from usvit.explaining.pictures import Panel, write_distances, write_filters, write_maps, write_similarity
from usvit.explaining.saliency import refuse_without_monai
from usvit.explaining.token_layout import anatomy_of
from usvit.files import refuse_linked_folders, sha256_of_file
from usvit.models import TrainedModel, load_trained
from usvit.progress import NO_PROGRESS, Progress, task
from usvit.records import ExplanationRecord
from usvit.reports import may_show

SOURCES = {
    "rollout": "Abnar & Zuidema (2020), arXiv:2005.00928; Dosovitskiy et al. (2021), appendix D.8",
    "attention": "Dosovitskiy et al. (2021), section 4.5; of pooling: Touvron (2022), thesis, section 5.2",
    "gradcam": "Selvaraju et al. (2017), arXiv:1610.02391; monai.visualize.GradCAM",
    "occlusion": "Zeiler & Fergus (2014), arXiv:1311.2901, section 4.2",
    "distance": "Dosovitskiy et al. (2021), section 4.5 and appendix D.7",
    "positions": "Dosovitskiy et al. (2021), section 4.5, Fig. 7 (centre)",
    "filters": "Dosovitskiy et al. (2021), section 4.5, Fig. 7 (left)",
}
METHODS = tuple(SOURCES)
MAPS = ("rollout", "attention", "gradcam", "occlusion")
OF_A_CLASS = ("gradcam", "occlusion")
N_IMAGES, N_DISTANCE = 6, 128
"""Default numbers of images: a few to look at, and for distances as many as appendix D.7 averages over."""
BATCH = 8

PLAIN = {
    "rollout": "attention rollout",
    "attention": "attention of each head",
    "gradcam": "Grad-CAM",
    "occlusion": "occlusion",
}


@dataclass(frozen=True)
class Explanation:
    """Result of ``explain``."""

    folder: Path
    method: str
    entry: ExplanationRecord
    """Entry of the method in explain.json."""
    hidden: tuple[str, ...] = ()
    """Data sets whose images are not shown because of their licences."""


def explain(
    run: str | Path,
    *,
    method: str | None = None,
    images: int | None = None,
    image_ids: Sequence[str] = (),
    errors: int | None = None,
    target: str | None = None,
    out: str | Path | None = None,
    include_images: bool = False,
    data_root: DataRoot = None,
    progress: Progress | None = None,
) -> Explanation:
    """Show where the networks of a run look, on images that they have not been trained on.

    At most one of ``images``, ``image_ids`` and ``errors`` may be given.

    Args:
        run: folder of a finished run, or of one of its folds. For a run, each image is explained by the network of the
            fold that tested it; ``distance``, ``positions`` and ``filters`` describe the network of its first fold.
        method: one of ``METHODS``; None: ``rollout``, or the closest method that the architecture supports.
        images: number of images, taken from the classes in turn; all images if there are fewer.
        image_ids: ids of the images.
        errors: explain this many of the most confident errors.
        target: class whose score ``gradcam`` and ``occlusion`` explain; None: the predicted class of each image.
        out: folder to write; None: ``explain`` in ``run``.
        include_images: show the images whatever their licence allows; keep the pictures to yourself.
        data_root: folder of the data set, or a mapping of the names of data sets to folders; None: ``$USVIT_DATA``.
        progress: shows how many images are done.

    Returns:
        The folder of the pictures, and the entry of the method in ``explain.json``.

    Raises:
        UsvitError: an argument is wrong, or the method does not support the network; nothing has been written.

    Example:
        >>> import usvit
        >>> explanation = usvit.explain("runs/small", method="occlusion", images=2)
        >>> len(explanation.entry.images)
        2
    """
    path, roots, progress = Path(run), roots_from(data_root), progress or NO_PROGRESS
    if method is not None and method not in METHODS:
        raise unknown("method", method, METHODS)
    if sum((images is not None, bool(image_ids), errors is not None)) > 1:
        raise UsvitError("Pass only one of --images, --image-id and --errors: each selects the images to explain.")
    source = open_source(path)
    first = load_trained(next(iter(source.folds.values())))
    if target is not None and target not in first.classes:
        raise unknown("class", target, first.classes)
    method = method or _default_method(first)
    if method == "gradcam":
        refuse_without_monai()
    if target is not None and method not in OF_A_CLASS and not (method == "attention" and _maps_by_class(first)):
        raise UsvitError(f"The method {method} does not explain a class. --class requires {' or '.join(OF_A_CLASS)}.")
    if method in ("positions", "filters") and (images is not None or image_ids or errors is not None):
        raise UsvitError(
            f"The method {method} shows the network itself, not images. Leave out --images, --image-id and --errors."
        )
    if method not in MAPS:
        number = next(iter(source.folds))
        mine = tuple(case for case in source.cases if case.fold == number)
        source = dataclasses.replace(source, folds={number: source.folds[number]}, cases=mine)
    if image_ids:
        cases = choose_named(source, image_ids)
    elif errors is not None:
        cases = choose_errors(source, errors)
        if not cases:
            raise UsvitError(f"{path} has no wrong prediction in its test split. Use --images instead of --errors.")
    else:
        cases = choose(source, images or (N_DISTANCE if method == "distance" else N_IMAGES))
    used = {case.fold for case in cases} if method in MAPS else set(source.folds)
    if out is None:
        refuse_linked_folders(path)
    record = ExplainWriter(Path(out) if out else path / "explain", _head(source, first, used))
    work = _ExplainWork(source, first, record, roots, progress, include_images)
    if method in MAPS:
        return work.maps(method, cases, target)
    if method == "distance":
        return work.distance(cases)
    return work.positions() if method == "positions" else work.filters()


def _default_method(trained: TrainedModel) -> str:
    if hasattr(trained.model, "attention_maps"):
        return "attention"
    try:
        anatomy_of(trained.model, trained.spec.name)
        return "rollout"
    except UsvitError:
        return "gradcam"


def _maps_by_class(trained: TrainedModel) -> bool:
    return hasattr(trained.model, "attention_maps") and getattr(trained.model, "queries", "one") == "class"


def _head(source: PredictionSource, trained: TrainedModel, folds: set[int]) -> dict[str, Any]:
    return {
        "run": source.name,
        "model": trained.spec.name,
        "classes": list(trained.classes),
        "positive_class": trained.positive,
        "image_size": trained.preprocessing.image_size,
        "weights_sha256": {
            str(fold): sha256_of_file(source.folds[fold] / "model.safetensors") for fold in sorted(folds)
        },
    }


class _ExplainWork:
    def __init__(
        self,
        source: PredictionSource,
        first: TrainedModel,
        record: ExplainWriter,
        roots: dict[str, Path],
        progress: Progress,
        include_images: bool,
    ):
        self.source, self.first, self.record = source, first, record
        self.roots, self.progress, self.include_images = roots, progress, include_images
        self.name = first.spec.name

    def maps(self, method: str, cases: list[ExplainedCase], target: str | None) -> Explanation:
        """Draw a picture of each image, and score its map against the lesion mask."""
        pixels = CaseImages(self.source, self.roots, self.progress)
        licences = self.first.metadata.data_licenses or {}
        entries: dict[tuple[str, str], dict[str, Any]] = {}
        scores: dict[tuple[str, str], MaskScore] = {}
        hidden: set[str] = set()
        layer, grid, done = None, None, 0
        with task(self.progress, PLAIN[method], len(cases), "images") as advance:
            for trained, batch in self._batches(cases, 1 if method in OF_A_CLASS else BATCH):
                read = [pixels.read(case) for case in batch]
                inputs = [trained.preprocessing.resized(image) for image, _ in read]
                tensor = trained.preprocessing.normalised(torch.from_numpy(np.stack(inputs)))
                explained = [self._class(method, trained, case, target) for case in batch]
                index = [
                    trained.classes.index(name or case.predicted) for name, case in zip(explained, batch, strict=True)
                ]
                for at, found in enumerate(find_maps(method, trained, tensor, index)):
                    case, mask = batch[at], read[at][1]
                    fitted = None if mask is None else trained.preprocessing.resized_mask(mask)
                    if fitted is not None and not fitted.any():  # smaller than a pixel of the input
                        fitted = None
                    shows = self.include_images or may_show(str(licences.get(case.dataset, "unclear")))
                    hidden |= set() if shows else {case.dataset}
                    key = (case.dataset, case.image_id)
                    entry, scored = self._picture(
                        method, case, explained[at], found, inputs[at] if shows else None, fitted
                    )
                    entries[key] = entry
                    if scored is not None:
                        scores[key] = scored
                    layer, grid = found.layer, list(found.maps.shape[-2:])
                    done += 1
                    advance(done)
        order = [(case.dataset, case.image_id) for case in cases]
        entry = {
            "source": SOURCES[method],
            "part": "test",
            "layer": layer,
            "grid": grid,
            "images": [entries[key] for key in order],
            "against_masks": summary([scores[key] for key in order if key in scores]),
        }
        written = self.record.put(method, entry)
        return Explanation(self.record.folder, method, written, tuple(sorted(hidden)))

    def _batches(self, cases: list[ExplainedCase], size: int) -> Iterator[tuple[TrainedModel, list[ExplainedCase]]]:
        """Yield batches of images with the network that tested them."""
        for number, folder in self.source.folds.items():
            mine = [case for case in cases if case.fold == number]
            if not mine:
                continue
            trained = self.first if folder == next(iter(self.source.folds.values())) else load_trained(folder)
            self._refuse_other_classes(trained, mine[0], folder)
            for start in range(0, len(mine), size):
                yield trained, mine[start : start + size]

    @staticmethod
    def _refuse_other_classes(trained: TrainedModel, case: ExplainedCase, folder: Path) -> None:
        if list(trained.classes) != list(case.probabilities):
            raise UsvitError(
                f"In {folder}, model.json has the classes {', '.join(trained.classes)} and predictions.csv "
                f"{', '.join(case.probabilities)}. Copy both from the same fold."
            )

    @staticmethod
    def _class(method: str, trained: TrainedModel, case: ExplainedCase, target: str | None) -> str | None:
        """Return the class that a map explains; None if it explains no class."""
        of_a_class = method in OF_A_CLASS or (method == "attention" and _maps_by_class(trained))
        return (target or case.predicted) if of_a_class else None

    def _picture(
        self,
        method: str,
        case: ExplainedCase,
        of_class: str | None,
        found: MethodMaps,
        image: Any,
        mask: Mask | None,
    ) -> tuple[dict[str, Any], MaskScore | None]:
        size = self.first.preprocessing.image_size
        fitted = [_fitted(one, size) for one in found.maps]
        scored = None if mask is None else score(fitted[0], mask, case.group_id)
        heads = [] if found.heads is None else [_fitted(one, size) for one in found.heads]
        what = PLAIN[method] + (f" for {of_class}" if of_class else "")
        blank = is_blank(fitted[0])
        heading = [
            f"{case.dataset}: {case.image_id}",
            f"label {case.label}, predicted {case.predicted} with {case.probabilities[case.predicted]:.2f}, "
            f"by fold-{case.fold}, which has not learnt from it",
            *(["The map is the same everywhere."] if blank else []),
        ]
        name = file_name(method, case.dataset, case.image_id)
        titles = (what if len(fitted) == 1 else found.titles[0], *found.titles[1:])
        panels = [Panel(title, one) for title, one in zip(titles, fitted, strict=True)]
        write_maps(self.record.folder / name, heading, image, mask, panels)
        entry: dict[str, Any] = {
            "dataset": case.dataset,
            "image_id": case.image_id,
            "group_id": case.group_id,
            "fold": case.fold,
            "label": case.label,
            "predicted": case.predicted,
            "probabilities": case.probabilities,
            "class": of_class,
            "file": name,
            "shows_image": image is not None,
            "blank": blank,
            "mask": scored and {"area": scored.area, "pointing": scored.pointing, "share": scored.share},
        }
        if heads and mask is not None:
            of_heads = [score(one, mask, case.group_id) for one in heads]
            entry["heads"] = [{"pointing": one.pointing, "share": one.share} for one in of_heads]
        return entry, scored

    def distance(self, cases: list[ExplainedCase]) -> Explanation:
        """Compute the attention distance of the heads of the first fold's network."""
        anatomy = anatomy_of(self.first.model, self.name)
        pixels = CaseImages(self.source, self.roots, self.progress)
        parts: list[list[Distances]] = []
        with task(self.progress, "attention distance", len(cases), "images") as advance:
            for trained, batch in self._batches(cases, BATCH):
                inputs = [trained.preprocessing.resized(pixels.read(case)[0]) for case in batch]
                tensor = trained.preprocessing.normalised(torch.from_numpy(np.stack(inputs)))
                parts.append(attention_distances(trained.model, tensor, self.name))
                advance(sum(len(part[0].distance) for part in parts))
        layers = [
            Distances(
                of_layer[0].layer,
                torch.cat([one.distance for one in of_layer]),
                torch.cat([one.prefix_share for one in of_layer]),
            )
            for of_layer in zip(*parts, strict=True)
        ]
        size = self.first.preprocessing.image_size
        uniform = float(patch_distances(anatomy, size).mean())
        name, fold = "distance.png", next(iter(self.source.folds))
        title = f"{self.name}, fold {fold}: {len(cases)} test images"
        write_distances(self.record.folder / name, layers, uniform, title)
        entry = {
            "source": SOURCES["distance"],
            "part": "test",
            "fold": fold,
            "n_images": len(cases),
            "n_groups": len({case.group_id for case in cases}),
            "uniform": uniform,
            "image_size": size,
            "layers": [
                {
                    "layer": layer.layer,
                    "heads": layer.distance.double().mean(dim=0).tolist(),
                    "prefix_share": layer.prefix_share.double().mean(dim=0).tolist(),
                }
                for layer in layers
            ],
            "file": name,
        }
        written = self.record.put("distance", entry)
        return Explanation(self.record.folder, "distance", written)

    def positions(self) -> Explanation:
        """Compute the similarity of the position embeddings of the first fold's network."""
        similarity = position_similarity(self.first.model, self.name)
        name, fold = "positions.png", next(iter(self.source.folds))
        write_similarity(self.record.folder / name, similarity, f"{self.name}, fold {fold}: position embeddings")
        same_row, same_column, others = similarity.mean_of_pairs()
        entry = {
            "source": SOURCES["positions"],
            "fold": fold,
            "grid": list(similarity.grid),
            "same_row": same_row,
            "same_column": same_column,
            "others": others,
            "file": name,
        }
        written = self.record.put("positions", entry)
        return Explanation(self.record.folder, "positions", written)

    def filters(self) -> Explanation:
        """Compute the principal components of the first-layer filters of the first fold's network."""
        filters = filter_components(self.first.model, self.name)
        name, fold = "filters.png", next(iter(self.source.folds))
        title = f"{self.name}, fold {fold}: components of {filters.n_filters} filters ({filters.layer})"
        write_filters(self.record.folder / name, filters, title)
        entry = {
            "source": SOURCES["filters"],
            "fold": fold,
            "layer": filters.layer,
            "n_filters": filters.n_filters,
            "size": list(filters.components.shape[1:3]),
            "explained": filters.explained.tolist(),
            "file": name,
        }
        written = self.record.put("filters", entry)
        return Explanation(self.record.folder, "filters", written)


def _fitted(saliency: Tensor, size: int) -> Map:
    """Resize (H, W) on the network's grid to (S, S) float64 in the pixels of its input, bilinearly."""
    large = F.interpolate(saliency[None, None].double(), size=(size, size), mode="bilinear", align_corners=False)
    return np.asarray(large[0, 0].numpy())
