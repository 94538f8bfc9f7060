"""Studies: a grid of runs in one YAML file, with one resumable state and one table, compared with that of a paper.

``specification`` is the schema of the file, ``plan`` expands it to runs, ``engines`` make them here or by Ray,
``execution`` runs the study, ``state`` keeps its progress, ``tables`` collects the results, and ``document`` shows
them.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .api import run_study as run_study
    from .best import best_of_study as best_of_study
    from .best_document import best_document as best_document
    from .document import study_document as study_document
    from .estimate import SUSTAINED_FLOPS as SUSTAINED_FLOPS
    from .execution import StudyOutcome as StudyOutcome
    from .listing import ListedStudy as ListedStudy
    from .listing import list_studies as list_studies
    from .listing import select_studies as select_studies
    from .shift.api import measure_shift as measure_shift
    from .shift.document import shift_document as shift_document
    from .shift.measurement import ShiftOutcome as ShiftOutcome
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
