"""Read and write files: reads are limited, since files may be untrusted; writes are atomic and stay in their folder."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
