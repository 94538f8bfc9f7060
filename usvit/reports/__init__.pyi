from .audit_page import AuditResult as AuditResult
from .audit_page import audit as audit
from .comparison import compare
from .comparison_document import comparison_document as comparison_document
from .content import Options
from .formatting import p_words as p_words
from .formatting import usefulness as usefulness
from .node_page import node_page as node_page
from .node_page import size_in_words as size_in_words
from .page import write_report
from .patients import patient_figures as patient_figures
from .patients import patients_headline_sentence as patients_headline_sentence
from .patients import patients_sentence as patients_sentence
from .remarks import headline_remarks as headline_remarks
from .remarks import point_remarks as point_remarks
from .repeatability_page import repeatability_document as repeatability_document
from .repeatability_page import write_repeatability_page as write_repeatability_page
from .report_document import headline_document as headline_document
from .report_document import metrics_document as metrics_document
from .scores_page import write_scores_page as write_scores_page
from .templating import LOADERS as LOADERS
from .templating import environment as environment
from .test_page import report_test as report_test
from .thumbnails import may_show as may_show
from .upstream_page import report_upstream as report_upstream
from .writer import Written, report, write_reports

__all__ = ["Options", "Written", "compare", "report", "write_report", "write_reports"]
