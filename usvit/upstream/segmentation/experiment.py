"""Segmentation: images with masks and a network -> a head trained and tested in each fold (``usvit transfer``)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from usvit.experiments import Experiment, RunDirectory, new_record, run_sections
from usvit.files import for_the_owner_alone, read_csv, sha256_of_text, write_csv
from usvit.records import RunRecord, save_record
from usvit.training import torch_threads
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.segment import SegmentationRecord, SegmentedHead
from usvit.upstream.records.training import (
    Chosen,
    Dropped,
    TransferEstimate,
    TransferImages,
    TransferRecord,
    TransferRow,
)
from usvit.upstream.reports.training_page import report_upstream
from usvit.upstream.segmentation.figures import PooledHead, differences, folders_of
from usvit.upstream.segmentation.images import SegmentStore
from usvit.upstream.segmentation.network import parameters_of
from usvit.upstream.segmentation.overlays import write_overlays
from usvit.upstream.segmentation.setup import SegmentationSetup, prepare_segmentation
from usvit.upstream.segmentation.training import MASKS, TIMES, FoldSegmenter
from usvit.upstream.transfer_learning import metrics
from usvit.upstream.transfer_learning.transfer_setup import default_out
from usvit.upstream.transfer_learning.upstream_selection import upstream_figures


class Segmentation(Experiment[SegmentationSetup, list[PooledHead], TransferRecord]):
    """A segmentation in folds, or on the folders of the data set ``masks``.

    Args:
        config: The complete configuration.
        model_named: Use the network ``config.model.name``; otherwise the metadata of the weights names the network.
        **arguments: Those of ``Experiment``.
    """

    result_model = TransferRecord

    def __init__(self, config: TransferConfig, *, model_named: bool = True, **arguments: Any):
        super().__init__(**arguments)
        self.config, self.model_named = config, model_named

    def prepare(self) -> SegmentationSetup:
        return prepare_segmentation(self.config, self.roots, self.progress, model_named=self.model_named)

    def default_out(self, setup: SegmentationSetup) -> Path:
        return default_out(setup.config)

    def new_record(self, setup: SegmentationSetup) -> RunRecord:
        data, sections = run_sections(setup.base)
        read = str((data.manifest_sha256, setup.images.classes, setup.masks_sha256))
        own = {"manifest_sha256": None, "sha256": sha256_of_text(read), "classes": list(setup.classes)}
        data = data.model_copy(update=own)
        out, device = self.default_out(setup), setup.base.device
        return new_record("transfer", out, setup.config, device, self.command, data, **sections)

    @contextmanager
    def opened(self, setup: SegmentationSetup) -> Iterator[RunDirectory]:
        with for_the_owner_alone(setup.manifest.is_private), super().opened(setup) as run:
            yield run

    def train(self, setup: SegmentationSetup, run: RunDirectory) -> list[PooledHead]:
        write_csv(run.path / "folds.csv", setup.base.folds)
        todo = [
            (head, fold, folder)
            for number, head in enumerate(setup.heads)
            for fold, folder in enumerate(folders_of(run, setup.base.n_folds, peer=number > 0))
            if not (folder / MASKS).is_file()
        ]
        if todo:
            with torch_threads(run.record.folds.threads or 1):
                inputs = setup.base.config.input
                store = SegmentStore.build(setup.images, setup.inputs, inputs.cache_gb, run.path, self.progress)
                trainer = FoldSegmenter(setup, run, store, self.progress)
                for head, fold, folder in todo:
                    trainer.train(head, fold, folder)
        return [
            PooledHead.read(run.path, folders_of(run, setup.base.n_folds, peer=number > 0))
            for number in range(len(setup.heads))
        ]

    def conclude(self, setup: SegmentationSetup, run: RunDirectory, trained: list[PooledHead]) -> None:
        base, first = setup.base, trained[0]
        heads = [_of_head(setup, run, number, pooled) for number, pooled in enumerate(trained)]
        found = SegmentationRecord(
            n_folds=base.n_folds,
            n_images=len(first.masks),
            n_groups=int(first.masks.group_id.nunique()),
            n_lesions=None if first.lesions is None else int(first.lesions.is_lesion.sum()),
            n_without_mask=setup.n_without_mask,
            heads=heads,
            differences=differences(*trained) if len(trained) > 1 else [],
            overlays=write_overlays(setup, run.path, first.masks),
        )
        summary = [
            TransferRow(
                name=one.head,
                accuracy=TransferEstimate.of(one.pixel_accuracy),
                mean_class_accuracy=one.mean_class_accuracy.value or 0.0,
            )
            for one in heads
        ]
        rows: list[metrics.Row] = [
            {
                "how": "segment",
                "cell": line.name,
                "part": "test",
                "n_images": len(first.masks),
                "accuracy": line.accuracy.value,
                "mean_class_accuracy": line.mean_class_accuracy,
                "chosen": number == 0,
            }
            for number, line in enumerate(summary)
        ]
        write_csv(run.path / "results.csv", metrics.results_table(rows))
        weights = setup.config.model.weights if setup.weights.source != "scratch" else "scratch"
        result = TransferRecord(
            how="segment",
            images=_images(setup, len(first.masks)),
            dropped=Dropped(seen_by_weights=0, in_training=0),
            model="unet" if setup.heads[0] == "unet" else setup.spec.name,
            tune=base.config.model.tune,
            image_size=base.config.model.image_size,
            weights=setup.weights.record(),
            upstream=upstream_figures(weights),
            summary=summary,
            chosen=Chosen(),
            predictions=None,
            predictions_missing="masks are in masks.csv and in the folders masks of the folds",
            recommended=None,
            segment=found,
            contamination=list(base.contamination) or None,
        )
        save_record(run.path / "transfer.json", result)

    def report(self, run: RunDirectory) -> None:
        report_upstream(run.path)


def _of_head(setup: SegmentationSetup, run: RunDirectory, number: int, pooled: PooledHead) -> SegmentedHead:
    """Write the tables of a head over all folds, and compute its figures."""
    head, folders = setup.heads[number], folders_of(run, setup.base.n_folds, peer=number > 0)
    pooled.write(run.path if number == 0 else run.path / "peer")
    seconds = sum(float(read_csv(folder / TIMES, text=False).seconds.sum()) for folder in folders)
    return pooled.record(head, parameters_of(setup.network(head, 0)), seconds, setup.classes)


def _images(setup: SegmentationSetup, n_test: int) -> TransferImages:
    folds = range(setup.base.n_folds)
    n_train, n_val = (
        round(sum(len(setup.rows(part, fold)) for fold in folds) / len(folds)) for part in ("train", "val")
    )
    return TransferImages(
        source="+".join(setup.manifest.roots),
        classes=list(setup.classes),
        chosen_on="inner validation part of each fold, which chose the step",
        n_train=n_train,
        n_val=n_val,
        n_test=n_test,
    )
