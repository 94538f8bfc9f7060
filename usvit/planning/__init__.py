"""Sample sizes of studies: how many patients an external validation or a comparison of two models needs.

``validation``, ``accuracy`` and ``comparing`` have one public function each. ``assumptions`` collects what is expected
of the study, from the user or from an existing run; ``building`` makes the record, and ``pages`` writes ``plan.html``.
The statistics are in ``usvit.metrics.sample_size``.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
