"""The page of a run of ``usvit test``."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from usvit.files import write_text
from usvit.records import RunRecord, TestRecord, fitting, load_record
from usvit.reports.content import config_text
from usvit.reports.run_files import read_csv
from usvit.reports.templating import environment

HARDEST = 5
"""Classes that the page names for each classifier and source."""


@dataclass(frozen=True)
class TestContent:
    """Content of the page in addition to ``run.json`` and ``test.json``."""

    config: str | None
    hardest: dict[tuple[str, str], tuple[tuple[str, float, int], ...]]
    """(classifier, source) -> class, accuracy and number of images of those with the lowest accuracy."""


def report_test(run_dir: Path) -> None:
    """Call ``write_test_report`` unless the page exists."""
    if not (run_dir / "report.html").is_file():
        write_test_report(run_dir)


def write_test_report(run_dir: Path) -> Path:
    """Write ``report.html`` into the directory of a finished test.

    One file without script or network access. The same files give the same bytes.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, or the page cannot be written.
    """
    record = load_record(run_dir / "run.json", RunRecord)
    result = load_record(run_dir / "test.json", TestRecord)
    with fitting(run_dir):
        table = read_csv(run_dir / "per_class.csv", text=False, needed=["classifier", "source", "class", "accuracy"])
        values = {
            "c": TestContent(config_text(record), _hardest(table)),
            "run": record,
            "result": result,
            "title": record.name or run_dir.resolve().name,
        }
        page = environment().get_template("test.html.j2").render(values)
    path = run_dir / "report.html"
    write_text(path, page)
    return path


def _hardest(table: pd.DataFrame) -> dict[tuple[str, str], tuple[tuple[str, float, int], ...]]:
    found = {}
    for (classifier, source), rows in table.groupby(["classifier", "source"], sort=False):
        lowest = rows.sort_values(["accuracy", "n_images", "class"], ascending=[True, False, True]).head(HARDEST)
        listed = zip(lowest["class"].astype(str), lowest["accuracy"], lowest["n_images"], strict=True)
        found[str(classifier), str(source)] = tuple((name, float(share), int(n)) for name, share, n in listed)
    return found
