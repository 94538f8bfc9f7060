from .of_changes import retest as retest
from .of_repeats import repeatability as repeatability
