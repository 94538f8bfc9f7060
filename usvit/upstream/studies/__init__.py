"""Studies: a grid of runs in one YAML file, with one resumable state and one table, compared with that of a paper.

``specification`` is the schema of the file, ``plan`` expands it to runs, ``engines`` make them here or by Ray,
``execution`` runs the study, and ``state`` keeps its progress. The results are shown by
``tables``, ``formatters`` and ``pages``.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .api import run_study as run_study
    from .best import best_of_study as best_of_study
    from .estimate import SUSTAINED_FLOPS as SUSTAINED_FLOPS
    from .execution import StudyOutcome as StudyOutcome
    from .formatters import terminal as terminal
    from .listing import ListedStudy as ListedStudy
    from .listing import list_studies as list_studies
    from .listing import select_studies as select_studies
    from .shift.api import measure_shift as measure_shift
    from .shift.measurement import ShiftOutcome as ShiftOutcome
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
