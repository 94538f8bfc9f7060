"""Training and test of one head in one fold. Test images are read after the training alone."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

from usvit.data.datasets import ManifestSource
from usvit.data.io import UInt8
from usvit.data.loading import Batch, InfiniteLoader
from usvit.data.splits import write_seen
from usvit.data.transforms import make_augment
from usvit.experiments import Learnt, RunDirectory, tensor_bytes, write_model
from usvit.explaining import file_name
from usvit.files import sha256_of_text, write_atomic, write_bytes, write_csv
from usvit.metrics.box_precision import EDGES
from usvit.metrics.lesion_detection import detect
from usvit.metrics.overlap import class_pixels, mask_agreement
from usvit.models import SEGMENTER_FILE
from usvit.progress import Progress
from usvit.records import ModelMetadata
from usvit.records.weights_origin import WeightsRecord
from usvit.seeding import derive_seed
from usvit.training import Figures, FitResult, Trainer, TrainingTask, seed_everything
from usvit.upstream.config.segment import SegmentHead
from usvit.upstream.model_metadata import upstream_metadata
from usvit.upstream.segmentation.images import RowsWithLabels, SegmentStore
from usvit.upstream.segmentation.network import IGNORED, SegmentationNetwork, dense_loss
from usvit.upstream.segmentation.setup import SegmentationSetup

MASKS, LESIONS, BOXES, PIXELS, TIMES = "masks.csv", "lesions.csv", "boxes.csv", "pixels.csv", "times.csv"
KEYS = ["dataset", "image_id", "group_id", "label"]
_UNET: dict[str, Any] = {
    **dict.fromkeys(("architecture", "timm"), "unet"),
    **{"vit": {}, "features": None, "upstream": WeightsRecord(source="scratch")},
}
"""Entries of the metadata of a U-Net, which has no other network and random initial weights."""
_THRESHOLD = 0.5
"""Probability of the lesion above which a pixel belongs to it."""


class SegmentationTask(TrainingTask):
    """The loss of the class of each pixel (``dense_loss``), or that of a head with its own.

    Args:
        module: Maps (B, 3, S, S) to (B, K, S, S) logits.
        prepare: Maps images (B, S, S, 3) uint8 to the input of the module.
        kind: ``segment.loss``.
    """

    def __init__(self, module: SegmentationNetwork, prepare: Any, kind: str):
        self.module, self._prepare, self._kind = module, prepare, kind

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        images, labels = self._prepare(portion["images"]), portion["labels"].long()
        if self.module.has_own_loss:
            own: torch.Tensor = module(images, labels)
            return own
        return dense_loss(module(images), labels, self._kind)


class FoldSegmenter:
    """Trains and tests heads in the folds of a run.

    Args:
        setup: The resolved run.
        run: Its directory.
        store: The images.
        progress: Shows the progress.
    """

    def __init__(self, setup: SegmentationSetup, run: RunDirectory, store: SegmentStore, progress: Progress):
        self._setup, self._run, self._store, self._progress = setup, run, store, progress
        self._config = setup.base.config
        self._fabric = setup.base.device.fabric()

    def train(self, head: SegmentHead, fold: int, folder: Path) -> None:
        """Train and test one head; its folder is complete once it holds ``masks.csv``."""
        setup, config = self._setup, self._config
        train, val = setup.rows("train", fold), setup.rows("val", fold)
        module = setup.network(head, fold)
        examples = RowsWithLabels(self._store, train, make_augment(config.input.augment), setup.images.classes.outside)
        stream = InfiniteLoader(
            examples,
            batch_size=config.train.batch_size,
            seed=derive_seed(config.seed, "batches", fold),
            workers=config.workers,
        )
        seed_everything(config.seed, "train", fold)
        kind = setup.config.segment.loss
        record, checkpoint = self._run.record, folder / "state.pt"
        result = Trainer(
            SegmentationTask(module, setup.inputs.normalised, kind),
            self._fabric,
            stream,
            lambda wrapped: self._validate(wrapped, val, kind),
            train=config.train.model_copy(update={"batch_norm": config.batch_norm}),
            optim=config.optim,
            checkpoint=checkpoint,
            name=f"{setup.base.fold_name(fold)}, {head}",
            progress=self._progress,
            identity=sha256_of_text(str((record.config_sha256, record.data.sha256, head, fold))),
        ).fit()
        write_csv(folder / "history.csv", result.history)
        write_csv(folder / TIMES, pd.DataFrame([{"phase": "training", "seconds": round(result.seconds, 1)}]))
        if module.network is not None:
            write_bytes(folder / SEGMENTER_FILE, tensor_bytes(module.decoder.state_dict()))
        self._write_network(module, fold, folder, result)
        self._test(module, fold, folder)
        if head == setup.heads[0]:
            self._run.enter(result.record(fold))
        checkpoint.unlink(missing_ok=True)

    def _write_network(self, module: SegmentationNetwork, fold: int, folder: Path, result: FitResult) -> None:
        """Write the network without its segmentation head, as initial weights of other trainings, or the U-Net."""
        setup, rows = self._setup, self._setup.images.rows
        train = setup.rows("train", fold)
        source = ManifestSource(setup.manifest, train)

        def metadata(weights_sha256: str) -> ModelMetadata:
            seen = write_seen(
                folder,
                {part: rows.sha256.iloc[setup.rows(part, fold)].tolist() for part in ("train", "val")},
                None if module.network is None else setup.weights.of_fold(fold),
                described=setup.manifest.descriptions,
                name=source.name,
            )
            found = upstream_metadata(setup, fold, source, Learnt(result, weights_sha256, seen))
            own = {"objective": "segment", "preprocessing": setup.inputs.record()}
            return found.model_copy(update=own if module.network is not None else own | _UNET)

        write_model(folder, (module.network or module.decoder).state_dict(), metadata)

    @torch.no_grad()
    def _validate(self, wrapped: nn.Module, at: NDArray[np.int64], kind: str) -> Figures:
        loss, right, known = 0.0, 0, 0
        for batch in self._store.batches(at, self._setup.base.inference_batch):
            logits = self._logits(wrapped, batch)
            labels = torch.from_numpy(self._store.labels[batch]).to(logits.device).long()
            loss += float(dense_loss(logits, labels, kind))
            right += int((logits.argmax(1) == labels).sum())
            known += int((labels != IGNORED).sum())
        mean = loss / len(at)
        return {"val_loss": mean if np.isfinite(mean) else None, "val_accuracy": right / max(1, known), "val_auc": None}

    def _logits(self, module: nn.Module, at: NDArray[np.int64]) -> torch.Tensor:
        pixels = torch.from_numpy(np.ascontiguousarray(self._store.pixels[at])).to(self._fabric.device)
        logits: torch.Tensor = module(self._setup.inputs.normalised(pixels))
        return logits

    @torch.inference_mode()
    def _test(self, module: nn.Module, fold: int, folder: Path) -> None:
        """Predict the masks of the fold's test images, and compare them with the true ones at the original size."""
        setup, at = self._setup, self._setup.rows("test", fold)
        binary = setup.images.classes.values is None
        wrapped = self._fabric.setup_module(module.to(self._fabric.device)).eval()
        found: list[dict[str, Any]] = []
        lesions: list[dict[str, Any]] = []
        boxes: list[dict[str, Any]] = []
        pixels: list[dict[str, Any]] = []
        for batch in self._store.batches(at, setup.base.inference_batch):
            shares = self._logits(wrapped, batch).softmax(1).cpu().numpy()
            for index, share in zip(batch.tolist(), shares, strict=True):
                row = setup.images.rows.iloc[index]
                key: dict[str, Any] = {name: str(row[name]) for name in KEYS} | {"fold": fold}
                shape, tissue = self._store.frames[index]
                true = setup.images.labels(index)
                wanted = share[1:] if binary else share
                restored = [setup.inputs.restored(one, shape, tissue) for one in wanted]
                of_lesion = restored[0] > _THRESHOLD
                decided: UInt8 = (of_lesion if binary else np.argmax(restored, 0)).astype(np.uint8)
                name = file_name("mask", key["dataset"], key["image_id"])
                _write_mask(folder / "masks" / name, decided, setup.images.classes.values)
                line = {**key, "file": f"masks/{name}"}
                if binary:
                    line |= {"lesion_pixels": int(true.sum()), "predicted_pixels": int(decided.sum())}
                    line |= asdict(mask_agreement(decided > 0, true > 0)) | {"pixel_spacing_mm": row.pixel_spacing_mm}
                    seen = detect(restored[0], true > 0)
                    lesions += [
                        {**key, "is_lesion": int(is_lesion), "pixels": size, "confidence": confidence}
                        for is_lesion, those in ((True, seen.lesions), (False, seen.false))
                        for size, confidence in those
                    ]
                    boxes += [
                        {**key, "is_lesion": int(confidence is None), "confidence": confidence}
                        | dict(zip(EDGES, box, strict=True))
                        for box, confidence in [*((one, None) for one in seen.lesion_boxes), *seen.candidate_boxes]
                    ]
                found.append(line)
                counts = class_pixels(decided, true, len(setup.classes))
                pixels += [
                    {**key, "class": setup.classes[k], "both": both, "predicted": mine, "true": real}
                    for k, (both, mine, real) in enumerate(counts.T.tolist())
                    if mine or real
                ]
        write_csv(folder / PIXELS, pd.DataFrame(pixels))
        if binary:
            of_each = [*KEYS, "fold", "is_lesion", "confidence"]
            write_csv(folder / LESIONS, pd.DataFrame(lesions, columns=[*of_each, "pixels"]))
            write_csv(folder / BOXES, pd.DataFrame(boxes, columns=[*of_each, *EDGES]))
        write_csv(folder / MASKS, pd.DataFrame(found))  # the last file: it marks the folder as complete


def _write_mask(path: Path, decided: UInt8, values: tuple[int, ...] | None) -> None:
    write_png(path, decided * np.uint8(255) if values is None else np.array(values, dtype=np.uint8)[decided])


def write_png(path: Path, picture: UInt8) -> None:
    """Write a picture, (H, W) or (H, W, 3) uint8, and make its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, lambda file: Image.fromarray(picture).save(file, format="PNG", optimize=True))
