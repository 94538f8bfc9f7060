"""A segmentation, resolved and checked before anything is written: the folds and the leak guard of ``usvit cv``."""

import hashlib
import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config import RunConfig, build
from usvit.config.sections import ModelConfig, TrainConfig
from usvit.data.datasets import Manifest
from usvit.data.splits import SPLITS, check_folds, rows_of_split
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.experiments import CrossValidationSetup, new_model_with_report, prepare
from usvit.models import ModelSpec, Weights
from usvit.progress import Progress, task
from usvit.seeding import derive_seed
from usvit.training import seed_everything
from usvit.upstream.config.segment import SegmentHead
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.segmentation.images import MaskClasses, MaskedImages
from usvit.upstream.segmentation.network import SegmentationNetwork, make_segmenter, refuse_without_monai
from usvit.upstream.transfer_learning.transfer_setup import with_model_of

logger = logging.getLogger(__name__)

Rows = NDArray[np.int64]
_SHARED = ("recipe", "seed", "device", "precision", "workers", "data", "optim", "split", "allow_contaminated")


@dataclass(frozen=True)
class SegmentationSetup:
    """Everything that the run needs, resolved and checked."""

    config: TransferConfig
    base: CrossValidationSetup
    """The same images and folds as those of ``usvit cv``."""
    images: MaskedImages
    n_without_mask: int
    masks_sha256: str
    """Hash of all labels: other masks make another run."""

    @property
    def heads(self) -> tuple[SegmentHead, ...]:
        """The head and, if there is one, its peer."""
        settings = self.config.segment
        return (settings.head,) if settings.peer is None else (settings.head, settings.peer)

    @property
    def spec(self) -> ModelSpec:
        return self.base.spec

    @property
    def weights(self) -> Weights:
        return self.base.weights

    @property
    def classes(self) -> tuple[str, ...]:
        return self.images.classes.names

    @property
    def manifest(self) -> Manifest:
        return self.images.manifest

    @property
    def inputs(self) -> Preprocessing:
        return self.base.preprocessing

    def rows(self, part: str, fold: int) -> Rows:
        """Return the images of a part of a fold that have masks."""
        at = rows_of_split(self.base.folds, self.images.rows, part, fold)
        return at[self.images.masked[at]]

    def network(self, head: SegmentHead, fold: int) -> SegmentationNetwork:
        """Build the network with which a fold begins; the same seed and fold give the same network."""
        config, network = self.base.config, None
        if head != "unet":
            network, _ = new_model_with_report(config, self.spec, self.weights, len(self.classes), fold)
            network.requires_grad_(config.model.tune == "full")
        seed_everything(config.seed, "head", fold)
        size, settings = config.model.image_size, self.config.segment
        return make_segmenter(network, head, len(self.classes), size, settings, self.spec.name)


def prepare_segmentation(
    config: TransferConfig, roots: dict[str, Path], progress: Progress, *, model_named: bool = True
) -> SegmentationSetup:
    """Resolve and check everything, the cheapest checks first.

    Raises:
        UsvitError: The images, masks, weights or settings cannot be used.
        LeakageError: The network has seen test images, or a group is in two parts of a fold.
    """
    settings = config.segment
    if settings.loss == "dice_ce":
        refuse_without_monai("segment.loss=dice_ce")
    classes = MaskClasses.read(settings.table)
    config = with_model_of(config, config.model.weights, named=model_named)
    base = prepare("cv", _run_config(config), roots, progress, labelled=False)
    images = MaskedImages(base.manifest, classes)
    if not images.masked.any():
        raise UsvitError(
            f"No image of {config.data.dataset} has a mask file. Choose a data set with masks (usvit data info NAME), "
            "or put images and masks into the folders images and annotations (--dataset masks)."
        )
    if without := int((~images.masked).sum()):
        logger.info(f"{without} of {len(images.rows)} images have no mask file and are left out.")
    if settings.test is not None:
        base = replace(base, folds=_by_folder(base, settings.test))
    setup = SegmentationSetup(config, base, images, without, _hash_of_masks(images, progress))
    for fold in range(base.n_folds):
        for part in SPLITS:
            if not len(setup.rows(part, fold)):
                raise UsvitError(f"Fold {fold + 1} has no image with a mask in its {part} part: use fewer folds.")
    for head in setup.heads:
        setup.network(head, 0)
    return setup


def _run_config(config: TransferConfig) -> RunConfig:
    """Return the configuration of the cross-validation on whose folds the heads are trained."""
    settings = config.segment
    shared: dict[str, Any] = config.model_dump(mode="json", include=set(_SHARED))
    for name, schema in (("model", ModelConfig), ("train", TrainConfig)):  # without the keys of upstream trainings
        shared[name] = getattr(config, name).model_dump(mode="json", include=set(schema.model_fields))
    if {settings.head, settings.peer} <= {"unet", None}:  # no other network is used
        shared["model"] |= {"name": "usvit_small", "weights": "scratch", "tune": "full", "vit": {}}
    own = {"input": {"augment": settings.augment, "resize": settings.resize}, "folds_at_once": 1}
    return build(RunConfig, shared, own)


def _by_folder(base: CrossValidationSetup, tested: str) -> pd.DataFrame:
    """Return one fold: the images of a folder of ``images`` for the test, and a share of the others for validation.

    Raises:
        UsvitError: There is no such folder, or no others.
        LeakageError: Near-duplicates are in the test and in the training.
    """
    rows = base.manifest.usable
    parents = [Path(path).parent for path in rows.path]
    folders = np.array(["" if one.as_posix() in (".", "images") else one.name for one in parents])
    if tested not in folders or (folders == tested).all():
        there = ", ".join(sorted(set(folders) - {""})) or "no folders"
        raise UsvitError(
            f"segment.test={tested} names a folder of images beside others, as in the data sets masks and coco, and "
            f"here are: {there}. Name one of several folders, or leave segment.test out for folds."
        )
    config = base.config
    part = np.where(folders == tested, "test", "train").astype(object)
    groups = rows.group_id[part == "train"].unique()
    drawn = np.random.default_rng(derive_seed(config.split_seed, "val")).permutation(len(groups))
    share = max(1, round(config.split.val_fraction * len(groups)))
    part[(part == "train") & rows.group_id.isin(groups[drawn[:share]]).to_numpy()] = "val"
    folds = rows[["dataset", "image_id"]].assign(fold=0, part=part)
    check_folds(folds, rows, f"The folders of segment.test={tested}")
    return folds


def _hash_of_masks(images: MaskedImages, progress: Progress) -> str:
    """Read every mask once, so that one that cannot be used is found before anything is written; return their hash.

    Raises:
        UsvitError: A mask cannot be used, or all are empty.
    """
    at, any_lesion, total = np.flatnonzero(images.masked), False, hashlib.sha256()
    with task(progress, "checking masks", len(at), "masks") as advance:
        for done, index in enumerate(at.tolist(), start=1):
            labels = images.labels(index)
            any_lesion = any_lesion or bool((labels > 0).any())
            total.update(str(labels.shape).encode() + labels.tobytes())
            advance(done)
    if not any_lesion:
        raise UsvitError(
            f"All masks of {'+'.join(images.manifest.roots)} are empty: there is nothing to learn. Check the mask "
            "files: the lesion is white on black."
        )
    return total.hexdigest()
