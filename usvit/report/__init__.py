"""Run directories in; a self-contained HTML page, Markdown and figures out."""

from usvit.report.content import Options
from usvit.report.page import write_report
from usvit.report.write import write_reports

__all__ = ["Options", "write_report", "write_reports"]
