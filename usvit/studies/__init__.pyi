from .api import run_study as run_study
from .best import best_of_study as best_of_study
from .execution import StudyOutcome as StudyOutcome
from .formatters import aligned as aligned
from .formatters import terminal as terminal
from .listing import ListedStudy as ListedStudy
from .listing import list_studies as list_studies
from .listing import select_studies as select_studies
