"""One run directory in, one self-contained HTML page out."""

from usvit.report.page import write_report

__all__ = ["write_report"]
