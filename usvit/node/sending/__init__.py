"""Sending of results to archives: C-STORE and STOW-RS, a durable queue, and storage commitment."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
