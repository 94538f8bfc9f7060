"""Every JSON file and table that usvit writes and reads: one pydantic model each, with bounds.

``load_record`` opens a file with the bounds of ``usvit.files.read`` and returns an instance of its model, and
``save_record`` writes one. ``read_record`` and ``write_record`` do the same with the dictionary of a file that is
continued. Keys that a model does not name are kept. ``usvit.records.schemas`` generates docs/reference/*.schema.json.
"""

from usvit.records.audit import AuditRecord
from usvit.records.base import (
    FileRecord,
    Record,
    check_record,
    fitting,
    load_record,
    read_record,
    save_record,
    write_record,
)
from usvit.records.calibration import CalibrationRecord, ConformalFit, CorrectedShare, FittedThreshold
from usvit.records.compare import BothWays, CompareRecord, EquivalenceClaim, Pair
from usvit.records.ensemble import EnsembleFoldRecord, EnsembleRecord, MemberNetwork, MemberRun
from usvit.records.explain import ExplainedImage, ExplainRecord, ExplanationRecord
from usvit.records.export import ExportRecord
from usvit.records.folds import FoldsRecord
from usvit.records.guarantees import ConformalRecord, RiskCoverageRecord, RuleOutPoint, SelectiveRecord
from usvit.records.integrity import refuse_changed, refuse_changed_run, run_hashes
from usvit.records.metrics import MetricsRecord
from usvit.records.metrics_calibration import BinRecord, ClassCalibration
from usvit.records.metrics_decisions import (
    AtPrevalence,
    DecisionCurveRecord,
    OperatingPointRecord,
    OutcomeRecord,
    ProcedureRecord,
)
from usvit.records.metrics_external import External, WorstCase
from usvit.records.metrics_figures import Headline, MainFigures, OneFigure
from usvit.records.model import (
    AdapterRecord,
    ClassifierMetadata,
    ContaminationRecord,
    ExportedMetadata,
    ListedSet,
    ModelMetadata,
    PreprocessingRecord,
    SeenCollectionRecord,
    SeenFileRecord,
    SeenGap,
    SeenHashes,
    ThresholdRecord,
    UpstreamRecord,
)
from usvit.records.models_info import ModelsInfoRecord
from usvit.records.phantom import PhantomRecord
from usvit.records.plan import PlanAssumptions, PlanCriterion, PlanDesign, PlanPoint, PlanRecord
from usvit.records.repeatability import (
    AgreementRecord,
    ChangeRecord,
    FlipRecord,
    RepeatabilityRecord,
    RepeatsRecord,
)
from usvit.records.run import RunRecord, load_run_record, read_run_record
from usvit.records.scores import JobRecord, ModelSeen, SummaryRecord
from usvit.records.tables import CsvRow, FailureRow, FoldRow, PredictionRow, ScoreRow
from usvit.records.values import MeanSd

FILE_RECORDS: tuple[type[FileRecord], ...] = (
    AuditRecord,
    CalibrationRecord,
    CompareRecord,
    EnsembleRecord,
    ExplainRecord,
    ExportRecord,
    FoldsRecord,
    JobRecord,
    MetricsRecord,
    ModelMetadata,
    ModelsInfoRecord,
    PhantomRecord,
    PlanRecord,
    RepeatabilityRecord,
    RunRecord,
    SummaryRecord,
)
"""Models of all JSON files."""
TABLE_ROWS: tuple[type[CsvRow], ...] = (FailureRow, FoldRow, PredictionRow, ScoreRow)
"""Models of the rows of CSV tables."""

__all__ = [
    "FILE_RECORDS",
    "TABLE_ROWS",
    "AdapterRecord",
    "AgreementRecord",
    "AtPrevalence",
    "AuditRecord",
    "BinRecord",
    "BothWays",
    "CalibrationRecord",
    "ChangeRecord",
    "ClassCalibration",
    "ClassifierMetadata",
    "CompareRecord",
    "ConformalFit",
    "ConformalRecord",
    "ContaminationRecord",
    "CorrectedShare",
    "CsvRow",
    "DecisionCurveRecord",
    "EnsembleFoldRecord",
    "EnsembleRecord",
    "EquivalenceClaim",
    "ExplainRecord",
    "ExplainedImage",
    "ExplanationRecord",
    "ExportRecord",
    "ExportedMetadata",
    "External",
    "FailureRow",
    "FileRecord",
    "FittedThreshold",
    "FlipRecord",
    "FoldRow",
    "FoldsRecord",
    "Headline",
    "JobRecord",
    "ListedSet",
    "MainFigures",
    "MeanSd",
    "MemberNetwork",
    "MemberRun",
    "MetricsRecord",
    "ModelMetadata",
    "ModelSeen",
    "ModelsInfoRecord",
    "OneFigure",
    "OperatingPointRecord",
    "OutcomeRecord",
    "Pair",
    "PhantomRecord",
    "PlanAssumptions",
    "PlanCriterion",
    "PlanDesign",
    "PlanPoint",
    "PlanRecord",
    "PredictionRow",
    "PreprocessingRecord",
    "ProcedureRecord",
    "Record",
    "RepeatabilityRecord",
    "RepeatsRecord",
    "RiskCoverageRecord",
    "RuleOutPoint",
    "RunRecord",
    "ScoreRow",
    "SeenCollectionRecord",
    "SeenFileRecord",
    "SeenGap",
    "SeenHashes",
    "SelectiveRecord",
    "SummaryRecord",
    "ThresholdRecord",
    "UpstreamRecord",
    "WorstCase",
    "check_record",
    "fitting",
    "load_record",
    "load_run_record",
    "read_record",
    "read_run_record",
    "refuse_changed",
    "refuse_changed_run",
    "run_hashes",
    "save_record",
    "write_record",
]
