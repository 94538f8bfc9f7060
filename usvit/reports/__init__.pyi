from .audit_page import AuditResult as AuditResult
from .audit_page import audit as audit
from .claims import claim_lines as claim_lines
from .claims import claims_title as claims_title
from .comparison import compare
from .content import Options
from .formatting import p_words as p_words
from .formatting import plural as plural
from .formatting import usefulness as usefulness
from .node_page import node_page as node_page
from .node_page import size_in_words as size_in_words
from .page import write_report
from .patients import patient_figures as patient_figures
from .patients import patients_headline_sentence as patients_headline_sentence
from .patients import patients_sentence as patients_sentence
from .remarks import headline_remarks as headline_remarks
from .remarks import point_remarks as point_remarks
from .repeatability_page import write_repeatability_page as write_repeatability_page
from .scores_page import write_scores_page as write_scores_page
from .svg import LegendEntry as LegendEntry
from .svg import Pens as Pens
from .svg import Plot as Plot
from .templating import environment as environment
from .test_page import report_test as report_test
from .thumbnails import may_show as may_show
from .upstream_page import report_upstream as report_upstream
from .writer import Written, report, write_reports

__all__ = ["Options", "Written", "compare", "report", "write_report", "write_reports"]
