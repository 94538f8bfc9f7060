"""The JSON records that are read back: one pydantic model for each file, with bounds: a stranger may have made it.

``read_record`` opens a file with the bounds of ``usvit.files.read``, checks it against its model, and returns the plain
dictionary. Keys that a model does not name are kept: newer versions add some. Keys that older versions lacked are
optional.
"""

from usvit.records.audit import AuditRecord
from usvit.records.base import Record, check_record, fitting, read_record
from usvit.records.calibration import CalibrationRecord
from usvit.records.integrity import refuse_changed, refuse_changed_run, run_hashes
from usvit.records.metrics import MetricsRecord
from usvit.records.model import ModelRecord
from usvit.records.run import RunRecord, read_run_record
from usvit.records.small import ExplainRecord, JobRecord, SummaryRecord, UpstreamRecord
from usvit.records.study import StudyRecord

__all__ = [
    "AuditRecord",
    "CalibrationRecord",
    "ExplainRecord",
    "JobRecord",
    "MetricsRecord",
    "ModelRecord",
    "Record",
    "RunRecord",
    "StudyRecord",
    "SummaryRecord",
    "UpstreamRecord",
    "check_record",
    "fitting",
    "read_record",
    "read_run_record",
    "refuse_changed",
    "refuse_changed_run",
    "run_hashes",
]
