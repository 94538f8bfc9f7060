"""The training batches of a pre-training: from files, or from images that are decoded once before it."""

import logging
import os
from pathlib import Path

import torch

from usvit.config.views import HOST_POLICIES
from usvit.data.datasets import UpstreamDataset
from usvit.data.loading import (
    AugmentedDataset,
    ImageStore,
    InfiniteLoader,
    LoaderArguments,
    StoredSource,
    fits_on,
    store_bytes,
)
from usvit.data.transforms import Preprocessing, make_augment, make_views, resolve_on
from usvit.progress import Progress
from usvit.seeding import derive_seed
from usvit.training import World
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.loading.crop_batches import CropBatches
from usvit.upstream.loading.sign_batches import SignBatches, phantom_store
from usvit.upstream.sources.generated import PhantomSource

logger = logging.getLogger(__name__)


def views_on_device(config: PretrainConfig, device_type: str) -> bool:
    """Return whether flip, 3-Augment and jitter, and the crops of decoded images, are computed on the device."""
    if config.objective == "signs":  # images and masks are augmented together, on the host
        return False
    return config.source.decoded == "device" or resolve_on(config.views.on, device_type)


def training_batches(
    config: PretrainConfig, source: UpstreamDataset, fold: int, folder: Path, world: World, progress: Progress
) -> InfiniteLoader:
    """Make the endless training batches of a fold; if ``source.decoded`` asks for it, decode its images first.

    Args:
        config: The configuration.
        source: The training images.
        fold: Number of the fold, from 0.
        folder: Folder for memory-mapped pixels.
        world: The processes, each of which gets its share of every batch.
        progress: Shown while images are decoded.

    Raises:
        UsvitError: An image cannot be decoded, or the decoded images do not fit where they should be.
    """
    device = world.fabric.device
    if config.objective == "signs":
        return _sign_batches(config, source, fold, world, progress)
    on_device = views_on_device(config, device.type)
    views, local = make_views(config.views, config.model.image_size, on_device=on_device)
    store = _decoded_images(config, source, folder, world, progress)
    arguments: LoaderArguments = {
        "batch_size": config.train.batch_size,
        "seed": derive_seed(config.seed, "batches", fold),
        "workers": config.workers,
        "repeats": config.views.repeats,
        "rank": world.rank,
        "world": world.size,
    }
    if store is not None and on_device and config.views.policy not in HOST_POLICIES:
        return CropBatches(source, store, views, local, on=device, **arguments)
    examples = AugmentedDataset(source if store is None else StoredSource(source, store), *views, local=local)
    return InfiniteLoader(examples, **arguments)


def _sign_batches(
    config: PretrainConfig, source: UpstreamDataset, fold: int, world: World, progress: Progress
) -> SignBatches:
    """Render the phantoms and make batches that hold their signs and masks, too."""
    assert isinstance(source, PhantomSource)
    preprocessing = Preprocessing(config.model.image_size, "pad", (0.0,) * 3, (1.0,) * 3)
    return SignBatches(
        source,
        phantom_store(source, preprocessing, config.signs.least_height, config.seed, progress),
        batch_size=config.train.batch_size,
        augment=make_augment(config.signs.augment),
        seed=derive_seed(config.seed, "batches", fold),
        workers=config.workers,
        rank=world.rank,
        world=world.size,
    )


def _decoded_images(
    config: PretrainConfig, source: UpstreamDataset, folder: Path, world: World, progress: Progress
) -> ImageStore | None:
    """Decode the training images and put them where ``source.decoded`` says; None for ``files``.

    The processes of a machine share one copy on the host, a memory-mapped file that one of them fills.
    """
    side, device = config.decoded_size, world.fabric.device
    if side is None:
        return None
    size = store_bytes(len(source), side)
    placed = config.source.decoded == "device"
    if config.source.decoded == "auto" and config.views.policy not in HOST_POLICIES and config.views.on != "cpu":
        placed = not world.any(not fits_on(device, size))[0]
    if world.size == 1:
        store = ImageStore.build(source, side, memory_gb=config.source.decoded_gb, folder=folder, progress=progress)
    else:
        store = _shared(source, side, folder, world, progress)
    if placed:
        store = world.together(store.on, device)
    logger.info(f"{len(source)} decoded images of up to {side} px, {size / 1e9:.2f} GB, are {_place(placed, device)}")
    return store


def _place(placed: bool, device: torch.device) -> str:
    return f"on the device {device}" if placed else "on the host"


def _shared(source: UpstreamDataset, side: int, folder: Path, world: World, progress: Progress) -> ImageStore:
    """Decode the images in the first process of each machine, into a file that its other processes map."""
    path = folder / f".decoded.partial-{os.environ.get('GROUP_RANK', '0')}"
    first = os.environ.get("LOCAL_RANK", "0") == "0"
    try:
        if first:
            world.together(ImageStore.write, source, side, path, progress)
        else:
            world.together(lambda: None)
        store: ImageStore = world.together(ImageStore.open, path, len(source), side)
        return store
    finally:
        if first:
            path.unlink(missing_ok=True)  # all have mapped it, or the training ends
