"""Explanation of any weights: a run of ``usvit pretrain`` or ``transfer``, the hub's, or a file."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from usvit.errors import UsvitError, unknown
from usvit.explaining.images import ChosenImages, choose_images
from usvit.explaining.mask_agreement import is_blank
from usvit.explaining.methods import (
    BATCH,
    MAPS,
    MEANS,
    N_IMAGES,
    N_MEAN,
    OF_A_CLASS,
    PLAIN,
    SOURCES,
    MethodMaps,
    choose_method,
    explains_a_class,
    find_maps,
    maps_by_class,
)
from usvit.explaining.network_methods import ExplainedNetwork, ImageBatches, show_means, show_parameters
from usvit.explaining.output import ExplainWriter, Explanation, file_name
from usvit.explaining.pictures import Panel, fitted_to, write_maps
from usvit.explaining.request import ExplainRequest
from usvit.files import refuse_linked_folders
from usvit.models import UPSTREAM, FixedNetwork, resolve_networks
from usvit.progress import task
from usvit.records import ExplainedImage, ExplainRecord, ExplanationRecord
from usvit.wording import plural

_N_TOP = 5
"""Number of the most probable classes that are recorded."""
_N_MAPS = 3
"""Number of classes whose maps are shown by a network with a query for each class, as in Touvron (2022), Fig. 5.6."""


def explain_weights(choice: str, request: ExplainRequest) -> Explanation:
    """Explain images of a folder or source by weights that come without test images; see ``explain``."""
    network = next(itertools.islice(resolve_networks(choice, need_classifier=False), 1))
    model = network.network().eval()
    name = network.spec.name
    method = choose_method(request.settings, model, name)
    if explains_a_class(method, model) and not network.classes:
        raise UsvitError(
            f"The method {method} explains the score of a class. {network.classes_origin} The methods rollout, "
            "attention, distance, filters and positions do not need a classifier."
        )
    if request.settings.target is not None and request.settings.target not in network.classes:
        raise unknown("class", request.settings.target, network.classes)
    images = choose_images(request, N_MEAN if method in MEANS else N_IMAGES) if method in (*MAPS, *MEANS) else None
    record = ExplainWriter(_folder(choice, network, request), _head(network))
    if images is not None and method in MAPS:
        with record.opened():
            return _Maps(network, model, images, record, request).draw(method)
    origin = network.name.partition("=")[2] or network.name
    subject = ExplainedNetwork(model, name, origin, None, network.view.image_size)
    with record.opened():
        if images is not None:
            told = f"{plural(len(images.rows), 'image')} of {images.label}"
            inputs = (tensor for _, _, tensor in images.batches(network.view, BATCH))
            batches = ImageBatches(inputs, len(images.rows), told)
            shown = show_means(method, subject, record.folder, batches, request.progress)
            shown = shown.model_copy(update={"images_of": images.label, "n_images": len(images.rows)})
        else:
            shown = show_parameters(method, subject, record.folder, request.settings.layers)
        return Explanation(record.folder, method, record.put(method, shown))


def _folder(choice: str, network: FixedNetwork, request: ExplainRequest) -> Path:
    """Return the folder to write: that of the request, one in the run, or one in ``runs`` named after the weights."""
    if request.settings.out is not None:
        return request.settings.out
    if (path := Path(choice)).is_dir():
        refuse_linked_folders(path)
        metadata = network.weights.metadata
        tested = metadata is None or metadata.stage != UPSTREAM  # its explain is for the images that it was tested on
        return path / ("explain-images" if tested else "explain")
    return Path("runs") / re.sub("[=:/]", "-", f"explain-{network.name}")


def _head(network: FixedNetwork) -> ExplainRecord:
    return ExplainRecord(
        run=network.name,
        model=network.spec.name,
        classes=list(network.classes),
        positive_class=None,
        image_size=network.view.image_size,
        weights_sha256={"0": network.weights.sha256 or ""},
        preprocessing=network.view,
        methods={},
    )


class _Maps:
    """Pictures of the maps of some images."""

    def __init__(
        self,
        network: FixedNetwork,
        model: nn.Module,
        images: ChosenImages,
        record: ExplainWriter,
        request: ExplainRequest,
    ):
        self.network, self.model, self.images = network, model, images
        self.record, self.request = record, request
        self.shows = request.settings.include_images or images.may_show

    def draw(self, method: str) -> Explanation:
        entries: list[ExplainedImage] = []
        found: MethodMaps | None = None
        with task(self.request.progress, PLAIN[method], len(self.images.rows), "images") as advance:
            for row, pixels, probabilities, found in self._maps(method):
                entries.append(self._picture(method, row, pixels, probabilities, found))
                advance(len(entries))
        assert found is not None
        entry = ExplanationRecord(
            source=SOURCES[method],
            images_of=self.images.label,
            layer=found.layer,
            shown_layers=None if found.layers is None else list(found.layers),
            grid=list(found.maps.shape[-2:]),
            images=entries,
            against_masks=None,
        )
        hidden = () if self.shows else (self.images.label,)
        return Explanation(self.record.folder, method, self.record.put(method, entry), hidden)

    def _maps(self, method: str) -> Iterator[tuple[int, Any, dict[str, float], MethodMaps]]:
        """Yield row, pixels, probabilities of the most probable classes, and maps of each image."""
        size = 1 if method in OF_A_CLASS else BATCH
        for rows, pixels, tensor in self.images.batches(self.network.view, size):
            top = self._most_probable(tensor)
            index = self._class_index(method, top)
            layers = self.request.settings.layers
            maps = find_maps(method, self.model, self.network.spec.name, tensor, index, layers)
            yield from zip(rows, pixels, top, maps, strict=True)

    def _most_probable(self, tensor: Tensor) -> list[dict[str, float]]:
        """Return the probabilities of the most probable classes of each image, in descending order."""
        if not self.network.classes:
            return [{} for _ in tensor]
        with torch.no_grad():
            probabilities = self.model(tensor).double().softmax(dim=1)
        values, places = probabilities.topk(min(_N_TOP, probabilities.shape[1]), dim=1)
        return [
            {self.network.classes[at]: min(value, 1.0) for at, value in zip(*one, strict=True)}
            for one in zip(places.tolist(), values.tolist(), strict=True)
        ]

    def _class_index(self, method: str, top: list[dict[str, float]]) -> Tensor:
        """Return the (B, C) classes of the maps of each image."""
        names = [self._classes_of(method, one) for one in top]
        return torch.tensor([[self.network.classes.index(name) for name in one] for one in names], dtype=torch.long)

    def _classes_of(self, method: str, top: dict[str, float]) -> list[str]:
        if not explains_a_class(method, self.model):
            return []
        if self.request.settings.target is not None:
            return [self.request.settings.target]
        return list(top)[: _N_MAPS if method == "attention" and maps_by_class(self.model) else 1]

    def _picture(self, method: str, row: int, pixels: Any, top: dict[str, float], found: MethodMaps) -> ExplainedImage:
        """Draw the picture of one image and return its entry of explain.json."""
        network, images = self.network, self.images
        image_id, label = images.name(row), images.class_of(row)
        of_classes = self._classes_of(method, top)
        fitted = [fitted_to(one, network.view.image_size) for one in found.maps]
        blank = is_blank(fitted[found.scored])
        predicted = next(iter(top), None)
        told = [] if label is None else [f"label {label}"]
        told += [] if predicted is None else [f"predicted {predicted} with {top[predicted]:.2f}"]
        heading = [
            f"{images.label}: {image_id}",
            ", ".join([*told, f"by {network.name}"]),
            *(["The map is the same everywhere."] if blank else []),
        ]
        titles = found.titles
        if len(of_classes) > 1:
            titles = tuple(f"{PLAIN[method]} for {name}" for name in of_classes)
        elif len(fitted) == 1:
            titles = (PLAIN[method] + "".join(f" for {name}" for name in of_classes),)
        panels = [Panel(title, one) for title, one in zip(titles, fitted, strict=True)]
        name = file_name(method, images.label.replace(":", "-"), image_id)
        write_maps(self.record.folder / name, heading, pixels if self.shows else None, None, panels, found.per_row)
        return ExplainedImage(
            dataset=images.label,
            image_id=image_id,
            group_id=None,
            fold=None,
            label=label,
            predicted=predicted,
            probabilities=top,
            class_=of_classes[0] if of_classes else None,
            file=name,
            shows_image=self.shows,
            blank=blank,
            mask=None,
        )
