"""Run directories in; self-contained HTML pages, Markdown and figures out."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .audit_document import audit_document as audit_document
    from .audit_page import AuditResult as AuditResult
    from .audit_page import audit as audit
    from .comparison import compare as compare
    from .comparison_document import comparison_document as comparison_document
    from .content import Options as Options
    from .content import best_steps as best_steps
    from .energy import energy_estimate as energy_estimate
    from .figures import loss_curves as loss_curves
    from .flow import flow_of_folder as flow_of_folder
    from .formatting import decimals as decimals
    from .formatting import duration as duration
    from .formatting import p_words as p_words
    from .formatting import usefulness as usefulness
    from .mask_comparison import compare_masks as compare_masks
    from .mask_comparison import mask_comparison_document as mask_comparison_document
    from .mrmc import mrmc as mrmc
    from .mrmc_document import mrmc_document as mrmc_document
    from .page import write_report as write_report
    from .patients import patient_figures as patient_figures
    from .patients import patients_headline_sentence as patients_headline_sentence
    from .patients import patients_sentence as patients_sentence
    from .readers import compare_readers as compare_readers
    from .readers_document import readers_document as readers_document
    from .remarks import headline_remarks as headline_remarks
    from .remarks import point_remarks as point_remarks
    from .repeatability_page import repeatability_document as repeatability_document
    from .repeatability_page import write_repeatability_page as write_repeatability_page
    from .report_document import headline_document as headline_document
    from .report_document import metrics_document as metrics_document
    from .run_files import read_csv as read_csv
    from .scores_document import units_sentence as units_sentence
    from .scores_page import write_scores_page as write_scores_page
    from .sections.masks import MASK_TITLES as MASK_TITLES
    from .sections.training import repeat_section as repeat_section
    from .sections.training import state_notes as state_notes
    from .sections.training import training_section as training_section
    from .thumbnails import jpeg_uri as jpeg_uri
    from .thumbnails import may_show as may_show
    from .writer import Written as Written
    from .writer import report as report
    from .writer import write_reports as write_reports
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
