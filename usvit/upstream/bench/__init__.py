"""Benchmarks: speed and memory of networks by the papers' protocols, each measured in its own process."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .api import benchmark as benchmark
    from .output import table as table
    from .protocols import find_protocol as find_protocol
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
