from .audit_dataset import Audit as Audit
from .audit_dataset import find_faults as find_faults
from .flags import MEANINGS as MEANINGS
from .flags import pixel_flags as pixel_flags
from .frame_quality import quality as quality
from .policy_preview import write_preview as write_preview
