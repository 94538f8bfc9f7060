"""Run directories in; self-contained HTML pages, Markdown and figures out."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
