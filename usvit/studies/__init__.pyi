from .api import run_study as run_study
from .execution import StudyOutcome as StudyOutcome
from .formatters import terminal as terminal
