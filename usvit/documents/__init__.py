"""Documents: what a page, a text or a terminal says, built once, and rendered as HTML, Markdown, LaTeX or text."""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
