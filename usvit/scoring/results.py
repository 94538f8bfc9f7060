"""Tables, summary and page of a scoring job, written from its journal."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import pandas as pd

import usvit
from usvit.config.scoring import ScoringSettings
from usvit.files import write_csv
from usvit.records import AbstentionZone, ProductRecord, Reason
from usvit.reports import write_scores_page
from usvit.scoring.dicom_out.products import PRODUCT_FAILURES
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import Row
from usvit.scoring.job_directory import JobDirectory
from usvit.scoring.journal import Journal, batched
from usvit.scoring.leakage import marked
from usvit.scoring.tables.summary import JobFacts
from usvit.scoring.tables.writer import write_tables

logger = logging.getLogger(__name__)

PORTION = 2000
"""Number of table rows in memory at once."""
_RECORDED = {
    "folds": "folds",
    "frames": "frames",
    "operating_point": "rule",
    **{name: name for name in ("flip", "abstain", "abstain_at", "keep_ids", "thumbnails", "pictures")},
    **{name: name for name in ("timeout", "batch_size", "engine")},
}
"""Settings recorded in ``summary.json`` and their keys. Paths are left out, because they may name a person."""
_LIBRARIES = ("torch", "timm", "pydicom", "highdicom", "python-gdcm", "pylibjpeg-openjpeg", "pillow", "numpy")


def write_results(
    settings: ScoringSettings,
    folder: JobDirectory,
    journal: Journal,
    ensemble: Ensemble,
    zone: AbstentionZone | None,
    pooled: Mapping[str, float | None] | None,
    *,
    lesions: bool,
) -> None:
    """Write tables, summary and page from the journal; ``pooled`` and ``lesions``: see ``write_tables``."""
    logger.info("Writing tables.")
    rows = [one | {"reason": PRODUCT_FAILURES.get(one["error"], "")} for one in journal.products()]
    if settings.products:
        columns = ["item_id", "kind", "file", "error", "reason"]
        write_csv(folder.path / "products.csv", pd.DataFrame(rows, columns=columns))
    now = datetime.now(UTC)
    job = JobFacts(
        model=ensemble.record(),
        settings={key: getattr(settings, name) for name, key in _RECORDED.items()}
        | {"products": sorted(settings.products)},
        versions={name: version(name) for name in _LIBRARIES} | {"usvit": usvit.__version__},
        started=folder.record.started,
        finished=now.isoformat(timespec="seconds"),
        seconds=folder.seconds_until(now),
        products={kind: _product(kind, rows) for kind in sorted(settings.products)},
    )
    sides, own = journal.has_sides(), ensemble.unit_point
    if own is not None and own.unit == "breast" and not sides:
        logger.warning(
            "The model's threshold is for breasts, but no image states its side (laterality in DICOM, or column side "
            "of a table of inputs): there is no breasts.csv. Studies and patients are decided by the mean of their "
            "images, at the threshold of a single image."
        )
    write_tables(
        folder.path,
        marked(batched(journal.rows(), PORTION), ensemble.copies_of_seen),
        batched(journal.failures(), PORTION),
        job,
        classes=ensemble.classes,
        positive=ensemble.positive,
        threshold=ensemble.threshold,
        threshold_origin=ensemble.threshold_origin,
        abstain=settings.abstain,
        zone=zone,
        sides=sides,
        pooled=pooled,
        lesions=lesions,
        concepts=ensemble.concept_names,
    )
    if settings.thumbnails and (n_without := journal.without_thumbnail()):
        logger.info(
            f"{n_without} images are not shown on the page: their tissue region is not known, so that they may show a "
            "name"
            + (", and text was found in them." if settings.pictures else ". --pictures shows those without text.")
        )
    write_scores_page(folder.path, journal.thumbnails())


def _product(kind: str, rows: Sequence[Row]) -> ProductRecord:
    own = [one for one in rows if one["kind"] == kind]
    errors = {one["error"]: one["reason"] for one in own if one["error"]}
    count = Counter(one["error"] for one in own if one["error"])
    return ProductRecord(
        written=len(own) - count.total(),
        failed=count.total(),
        reasons={code: Reason(rows=count[code], reason=why) for code, why in errors.items()},
    )
