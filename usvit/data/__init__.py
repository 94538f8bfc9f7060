"""Images and their labels: reading, data sets, splits, near-duplicates, transforms, loading."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .loading.manifest_dataset import ManifestDataset as ManifestDataset
    from .loading.manifest_dataset import load_dataset as load_dataset
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
