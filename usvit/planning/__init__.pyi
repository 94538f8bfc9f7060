from .accuracy import plan_accuracy as plan_accuracy
from .comparing import plan_comparison as plan_comparison
from .pages import aim_in_words as aim_in_words
from .pages import in_words as in_words
from .validation import plan_validation as plan_validation
