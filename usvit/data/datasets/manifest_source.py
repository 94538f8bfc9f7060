"""The images of a manifest as upstream images, such as the training split of a fold, usually without labels."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets.labelled_images import Indices, UpstreamDataset
from usvit.data.datasets.manifest import Manifest, decode_unchanged
from usvit.data.io import BadImage, UInt8
from usvit.data.near_duplicates import CompactDescriptions
from usvit.data.transforms import cropped
from usvit.progress import NO_PROGRESS, Progress

UNLABELLED = -1


class ManifestSource(UpstreamDataset):
    """Some images of a manifest at their original size, decoded as in a training.

    Args:
        manifest: the images.
        rows: (N,) rows of ``manifest.usable``, in this order.
        crop: ``tissue`` or ``whole`` (``Preprocessing.crop``).
        labelled: keep the classes; otherwise the images are unlabelled.
        memory_gb: limit of the cache of decoded images in GB, per process; other images are decoded each time.
    """

    def __init__(
        self,
        manifest: Manifest,
        rows: Indices,
        crop: str = "tissue",
        labelled: bool = False,
        memory_gb: float = 1.0,
    ):
        table = manifest.usable.iloc[np.asarray(rows, dtype=np.int64)]
        classes = manifest.classes if labelled else ()
        codes = [classes.index(label) if labelled else UNLABELLED for label in table.label]
        super().__init__("+".join(manifest.roots), classes, np.array(codes, dtype=np.int64))
        self._crop, self._memory = crop, memory_gb * 1e9
        self._paths = [manifest.image_path(row) for _, row in table.iterrows()]
        self._told = manifest.told
        self._frames: list[int] = table.frame.astype(int).tolist()
        self._sha256: list[str] = table.sha256.tolist()
        self._ids = [f"{dataset}/{name}" for dataset, name in zip(table.dataset, table.image_id, strict=True)]
        self._described = {key: one for key in self._sha256 if (one := manifest.descriptions.get(key)) is not None}
        self._kept: dict[int, UInt8] = {}
        self._used = 0

    def image(self, index: int) -> Image.Image:
        if index not in self._kept:
            pixels = self._decoded(index)
            if self._used + pixels.nbytes > self._memory:
                return Image.fromarray(pixels)
            self._used += pixels.nbytes
            self._kept[index] = pixels
        return Image.fromarray(self._kept[index])

    def __getstate__(self) -> dict[str, object]:
        # Pixels and descriptions are not sent to worker processes.
        return {**self.__dict__, "_kept": {}, "_used": 0, "_described": {}}

    def _decoded(self, index: int) -> UInt8:
        path = self._paths[index]
        try:
            frame, tissue, _ = decode_unchanged(path, self._frames[index], self._sha256[index])
        except BadImage as bad:
            raise self._told(bad) from bad
        return cropped(frame, tissue, self._crop)

    def image_name(self, index: int) -> str:
        return self._ids[index]

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str]:
        """Return the hashes of the whole frames, as in the manifest, even if images are cropped."""
        return self._sha256 if indices is None else [self._sha256[index] for index in indices]

    def descriptions(self, indices: Indices) -> dict[str, CompactDescriptions]:
        """Map pixel hashes to the near-duplicate descriptions in the manifest, for some images."""
        return {key: self._described[key] for key in self.hashes(NO_PROGRESS, indices) if key in self._described}

    def listing(self) -> Iterable[NDArray[Any]]:
        text = "\n".join([self._crop, *self._sha256, *self._ids])
        return (np.frombuffer(text.encode("utf-8"), dtype=np.uint8),)
