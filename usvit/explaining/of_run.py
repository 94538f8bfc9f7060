"""Explanation of a run of ``usvit cv`` or ``train``: on the images that its networks have not been trained on."""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from usvit.errors import UsvitError, unknown
from usvit.explaining.cases import (
    CaseImages,
    ExplainedCase,
    PredictionSource,
    choose,
    choose_errors,
    choose_named,
    open_source,
)
from usvit.explaining.mask_agreement import Mask, MaskScore, is_blank, score, summary
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
)
from usvit.explaining.network_methods import ExplainedNetwork, ImageBatches, show_means, show_parameters
from usvit.explaining.output import ExplainWriter, Explanation, file_name
from usvit.explaining.pictures import Panel, fitted_to, write_maps
from usvit.explaining.request import ExplainRequest
from usvit.files import refuse_linked_folders, sha256_of_file
from usvit.models import TrainedModel, load_trained
from usvit.progress import task
from usvit.records import ExplainedImage, ExplainRecord, ExplanationRecord
from usvit.records.explain import MaskAgreement, MaskScores
from usvit.reports import may_show


def explain_run(path: Path, request: ExplainRequest) -> Explanation:
    """Explain test images of a run by the network of the fold that tested each; see ``explain``."""
    source = open_source(path)
    first = load_trained(next(iter(source.folds.values())))
    target, errors = request.settings.target, request.settings.errors
    if target is not None and target not in first.classes:
        raise unknown("class", target, first.classes)
    method = choose_method(request.settings, first.model, first.spec.name)
    if method not in MAPS:
        number = next(iter(source.folds))
        mine = tuple(case for case in source.cases if case.fold == number)
        source = dataclasses.replace(source, folds={number: source.folds[number]}, cases=mine)
    if request.settings.image_ids:
        cases = choose_named(source, request.settings.image_ids)
    elif errors is not None:
        cases = choose_errors(source, errors)
        if not cases:
            raise UsvitError(f"{path} has no wrong prediction in its test split. Use --images instead of --errors.")
    else:
        cases = choose(source, request.settings.images or (N_MEAN if method in MEANS else N_IMAGES))
    used = {case.fold for case in cases} if method in MAPS else set(source.folds)
    if request.settings.out is None:
        refuse_linked_folders(path)
    record = ExplainWriter(request.settings.out or path / "explain", _head(source, first, used))
    work = _RunWork(source, first, record, request)
    with record.opened():
        if method in MAPS:
            return work.maps(method, cases, target, request.settings.layers)
        return work.network(method, cases)


def _head(source: PredictionSource, trained: TrainedModel, folds: set[int]) -> ExplainRecord:
    return ExplainRecord(
        run=source.name,
        model=trained.spec.name,
        classes=list(trained.classes),
        positive_class=trained.positive,
        image_size=trained.preprocessing.image_size,
        weights_sha256={str(fold): sha256_of_file(source.folds[fold] / "model.safetensors") for fold in sorted(folds)},
        methods={},
    )


class _RunWork:
    def __init__(self, source: PredictionSource, first: TrainedModel, record: ExplainWriter, request: ExplainRequest):
        self.source, self.first, self.record, self.request = source, first, record, request
        self.include_images = request.settings.include_images

    def maps(self, method: str, cases: list[ExplainedCase], target: str | None, layers: Sequence[str]) -> Explanation:
        """Draw a picture of each image, and score its map against the lesion mask."""
        pixels = CaseImages(self.source, self.request.roots, self.request.progress)
        licences = self.first.metadata.data_licenses
        entries: dict[tuple[str, str], ExplainedImage] = {}
        scores: dict[tuple[str, str], MaskScore] = {}
        hidden: set[str] = set()
        layer, grid, shown, done = None, None, None, 0
        with task(self.request.progress, PLAIN[method], len(cases), "images") as advance:
            for trained, batch in self._batches(cases, 1 if method in OF_A_CLASS else BATCH):
                read = [pixels.read(case) for case in batch]
                inputs = [trained.preprocessing.resized(image) for image, _ in read]
                tensor = trained.preprocessing.normalised(torch.from_numpy(np.stack(inputs)))
                of_class = explains_a_class(method, trained.model)
                explained = [(target or case.predicted) if of_class else None for case in batch]
                index = torch.tensor(
                    [
                        [trained.classes.index(name or case.predicted)]
                        for name, case in zip(explained, batch, strict=True)
                    ]
                )
                maps = find_maps(method, trained.model, trained.spec.name, tensor, index, layers)
                for at, found in enumerate(maps):
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
                    layer, grid, shown = found.layer, list(found.maps.shape[-2:]), found.layers
                    done += 1
                    advance(done)
        order = [(case.dataset, case.image_id) for case in cases]
        shown_maps = ExplanationRecord(
            source=SOURCES[method],
            part="test",
            layer=layer,
            shown_layers=None if shown is None else list(shown),
            grid=grid,
            images=[entries[key] for key in order],
            against_masks=summary([scores[key] for key in order if key in scores]),
        )
        written = self.record.put(method, shown_maps)
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

    def _picture(
        self,
        method: str,
        case: ExplainedCase,
        of_class: str | None,
        found: MethodMaps,
        image: Any,
        mask: Mask | None,
    ) -> tuple[ExplainedImage, MaskScore | None]:
        size = self.first.preprocessing.image_size
        fitted = [fitted_to(one, size) for one in found.maps]
        scored = None if mask is None else score(fitted[found.scored], mask, case.group_id)
        heads = [] if found.heads is None else [fitted_to(one, size) for one in found.heads]
        what = PLAIN[method] + (f" for {of_class}" if of_class else "")
        blank = is_blank(fitted[found.scored])
        heading = [
            f"{case.dataset}: {case.image_id}",
            f"label {case.label}, predicted {case.predicted} with {case.probabilities[case.predicted]:.2f}, "
            f"by fold-{case.fold}, which was not trained on it",
            *(["The map is the same everywhere."] if blank else []),
        ]
        name = file_name(method, case.dataset, case.image_id)
        titles = (what,) if len(fitted) == 1 else found.titles
        panels = [Panel(title, one) for title, one in zip(titles, fitted, strict=True)]
        write_maps(self.record.folder / name, heading, image, mask, panels, found.per_row)
        of_heads = [score(one, mask, case.group_id) for one in heads] if mask is not None else []
        entry = ExplainedImage(
            dataset=case.dataset,
            image_id=case.image_id,
            group_id=case.group_id,
            fold=case.fold,
            label=case.label,
            predicted=case.predicted,
            probabilities=case.probabilities,
            class_=of_class,
            file=name,
            shows_image=image is not None,
            blank=blank,
            mask=None
            if scored is None
            else MaskAgreement(area=scored.area, pointing=scored.pointing, share=scored.share),
            heads=[MaskScores(pointing=one.pointing, share=one.share) for one in of_heads] or None,
        )
        return entry, scored

    def network(self, method: str, cases: list[ExplainedCase]) -> Explanation:
        """Show the network of the first fold by its parameters, or by means over its test images."""
        fold = next(iter(self.source.folds))
        size = self.first.preprocessing.image_size
        subject = ExplainedNetwork(self.first.model, self.first.spec.name, f"fold {fold}", fold, size)
        if method in MEANS:
            n = len(cases)
            images = ImageBatches(self._inputs(cases), n, f"{n} test images")
            groups = {"n_images": n, "n_groups": len({case.group_id for case in cases})}
            shown = show_means(method, subject, self.record.folder, images, self.request.progress)
            shown = shown.model_copy(update={"part": "test", "fold": fold, **groups})
        else:
            shown = show_parameters(method, subject, self.record.folder, self.request.settings.layers)
        return Explanation(self.record.folder, method, self.record.put(method, shown))

    def _inputs(self, cases: list[ExplainedCase]) -> Iterator[torch.Tensor]:
        """Yield batches of inputs of the first fold's network."""
        pixels = CaseImages(self.source, self.request.roots, self.request.progress)
        for trained, batch in self._batches(cases, BATCH):
            inputs = [trained.preprocessing.resized(pixels.read(case)[0]) for case in batch]
            yield trained.preprocessing.normalised(torch.from_numpy(np.stack(inputs)))
