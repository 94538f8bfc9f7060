"""Tables, summary and page of a scoring job, written from its journal."""

import logging
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

import pandas as pd

import usvit
from usvit.config.scoring import ScoringSettings
from usvit.files import write_csv
from usvit.reports import write_scores_page
from usvit.scoring.abstention import Zone
from usvit.scoring.dicom_out.products import PRODUCT_FAILURES
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.job_directory import JobDirectory
from usvit.scoring.journal import Journal, batched
from usvit.scoring.leakage import marked
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
    settings: ScoringSettings, folder: JobDirectory, journal: Journal, ensemble: Ensemble, zone: Zone | None
) -> None:
    """Write tables, summary and page from the journal."""
    logger.info("Writing tables.")
    products: dict[str, dict[str, Any]] = {
        kind: {"written": 0, "failed": 0, "reasons": {}} for kind in sorted(settings.products)
    }
    rows = [one | {"reason": PRODUCT_FAILURES.get(one["error"], "")} for one in journal.products()]
    for one in rows:
        own = products[one["kind"]]
        own["failed" if one["error"] else "written"] += 1
        if one["error"]:
            own["reasons"].setdefault(one["error"], {"rows": 0, "reason": one["reason"]})["rows"] += 1
    if products:
        columns = ["item_id", "kind", "file", "error", "reason"]
        write_csv(folder.path / "products.csv", pd.DataFrame(rows, columns=columns))
    now = datetime.now(UTC)
    summary = {
        "model": ensemble.describe(),
        "settings": {key: getattr(settings, name) for name, key in _RECORDED.items()}
        | {"products": sorted(settings.products)},
        "versions": {name: version(name) for name in _LIBRARIES} | {"usvit": usvit.__version__},
        "started": folder.record["started"],
        "finished": now.isoformat(timespec="seconds"),
        "seconds": folder.seconds_until(now),
        "products": products,
    }
    write_tables(
        folder.path,
        marked(batched(journal.rows(), PORTION), ensemble.copies_of_seen),
        batched(journal.failures(), PORTION),
        summary,
        classes=ensemble.classes,
        positive=ensemble.positive,
        threshold=ensemble.threshold,
        threshold_origin=ensemble.threshold_origin,
        abstain=settings.abstain,
        zone=zone,
    )
    if settings.thumbnails and (n_without := journal.without_thumbnail()):
        logger.info(
            f"{n_without} images are not shown on the page: their tissue region is not known, so that they may show a "
            "name"
            + (", and text was found in them." if settings.pictures else ". --pictures shows those without text.")
        )
    write_scores_page(folder.path, journal.thumbnails())
