from .accuracy import plan_accuracy as plan_accuracy
from .comparing import plan_comparison as plan_comparison
from .document import plan_document as plan_document
from .validation import plan_validation as plan_validation
