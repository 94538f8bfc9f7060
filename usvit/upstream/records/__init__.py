"""Files of upstream trainings, transfers, tests, measurements of speed, shapes and studies."""

from usvit.records import CsvRow, FileRecord
from usvit.upstream.records.bench import BenchRecord
from usvit.upstream.records.best import BestRecord
from usvit.upstream.records.scaling import ScalingRecord, ShapeRecord
from usvit.upstream.records.shift import ShiftRecord
from usvit.upstream.records.study import StudyRecord
from usvit.upstream.records.test import TestRecord, TestRow
from usvit.upstream.records.training import PretrainRecord, TransferRecord
from usvit.upstream.records.translation import TranslationRecord

FILE_RECORDS: tuple[type[FileRecord], ...] = (
    BenchRecord,
    BestRecord,
    PretrainRecord,
    ScalingRecord,
    ShapeRecord,
    ShiftRecord,
    StudyRecord,
    TestRecord,
    TransferRecord,
    TranslationRecord,
)
TABLE_ROWS: tuple[type[CsvRow], ...] = (TestRow,)
