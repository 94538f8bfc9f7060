"""Batch scoring of images and DICOM files, prediction in Python, and external tests of the scores."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .calibration import group_of as group_of
    from .dicom_out.deidentify import IMAGE_CLASSES as IMAGE_CLASSES
    from .dicom_out.structured_report import Predecessor as Predecessor
    from .dicom_out.study_report import ReportedItem as ReportedItem
    from .dicom_out.study_report import write_study_report as write_study_report
    from .discovery.folders import natural as natural
    from .discovery.inputs import discover as discover
    from .engines import ModelChoice as ModelChoice
    from .external.evaluation import evaluate_scores as evaluate_scores
    from .external.labels import LabelTable as LabelTable
    from .external.recalibration import recalibrate as recalibrate
    from .external.scored_set import read_score_rows as read_score_rows
    from .external.scored_set import read_scores as read_scores
    from .item_scoring import ItemScorer as ItemScorer
    from .item_scoring import ItemScores as ItemScores
    from .items import FAILURES as FAILURES
    from .items import ReadSettings as ReadSettings
    from .items import ScoringItem as ScoringItem
    from .items import score_columns as score_columns
    from .job import ScoringResult as ScoringResult
    from .job import score as score
    from .manifest_predictions import RunNetworks as RunNetworks
    from .manifest_predictions import predict_manifest as predict_manifest
    from .operating_point import parse_rule as parse_rule
    from .predictor import ImageInput as ImageInput
    from .predictor import Predictor as Predictor
    from .predictor import image_pixels as image_pixels
    from .predictor import load_model as load_model
    from .reading.item_reader import file_sha256_of as file_sha256_of
    from .reading.item_reader import open_item as open_item
    from .reading.item_reader import parse_frames as parse_frames
    from .reading.workers import Readers as Readers
    from .reading.workers import WorkerFailure as WorkerFailure
    from .tables.writer import write_rows as write_rows
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
