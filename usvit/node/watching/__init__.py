"""Watching a node: its status, its status page and metrics, retention, and checks of its configuration."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
