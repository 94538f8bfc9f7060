"""Sample sizes of studies: how many patients an external validation or a comparison of two models needs.

``validation``, ``accuracy`` and ``comparing`` have one public function each. ``assumptions`` collects what is expected
of the study, from the user or from an existing run; ``building`` makes the record, and ``pages`` writes ``plan.html``.
The statistics are in ``usvit.metrics.sample_size``.
"""

from .accuracy import plan_accuracy as plan_accuracy
from .comparing import plan_comparison as plan_comparison
from .document import plan_document as plan_document
from .validation import plan_validation as plan_validation
