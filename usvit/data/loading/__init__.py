"""Loading: decoded pixels, batches for training, and data sets for use from Python."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .array_cache import ArrayCache as ArrayCache
    from .augmented_dataset import AugmentedDataset as AugmentedDataset
    from .augmented_dataset import readable as readable
    from .device_batches import train_batches as train_batches
    from .device_store import fits_on as fits_on
    from .device_store import place_pixels as place_pixels
    from .image_store import ImageStore as ImageStore
    from .image_store import StoredSource as StoredSource
    from .image_store import store_bytes as store_bytes
    from .infinite_loader import Batch as Batch
    from .infinite_loader import InfiniteLoader as InfiniteLoader
    from .infinite_loader import LoaderArguments as LoaderArguments
    from .pixel_store import AugmentedRows as AugmentedRows
    from .pixel_store import PixelStore as PixelStore
    from .pixel_store import Store as Store
    from .pixel_store import UnitsOfRows as UnitsOfRows
    from .pixel_store import eval_batches as eval_batches
    from .pixel_store import pixel_array as pixel_array
    from .prefetch import copied_ahead as copied_ahead
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
