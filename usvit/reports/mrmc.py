"""A reader study: one page, and the same content as JSON, Markdown and LaTeX."""

import re
from pathlib import Path

from usvit.config.keywords import takes_settings
from usvit.config.reader_study import ReaderStudySettings
from usvit.evaluation import analyse_answers, read_answers
from usvit.files import OutputFolder
from usvit.records import MrmcRecord, StudyProtocol, fitting, load_record, save_record
from usvit.reports.comparison_files import write_document
from usvit.reports.mrmc_document import mrmc_document

FILES = ("mrmc.json", "mrmc.md", "mrmc.tex", "mrmc.html")


@takes_settings
def mrmc(
    answers: str | Path, settings: ReaderStudySettings, *, out: str | Path | None = None
) -> tuple[MrmcRecord, Path]:
    """Analyse a reader study, with intervals that count readers and patients, and write the page.

    Args:
        answers: a table (CSV, Excel or Parquet) with one row for each reader, modality and case; also in the long
            form of iMRMC or MRMCaov. Beside one of ``usvit review export``, ``protocol.json`` fills the checklist.
        settings: see ``ReaderStudySettings``.
        out: the folder to write; None takes ``mrmc-<table>`` in the current folder.

    Returns:
        The content of mrmc.json (docs/reference/mrmc.schema.json), and the folder with ``FILES``.

    Raises:
        UsvitError: the table is not one of a crossed reader study (each reader rates each case in each modality); a
            margin is out of range; ``out`` holds other files.

    Example:
        >>> import numpy as np, pandas as pd, usvit
        >>> rng, rows = np.random.default_rng(0), []
        >>> for case in range(80):
        ...     for reader in ("A", "B", "C"):
        ...         for gain, modality in ((1.0, "unaided"), (2.0, "aided")):
        ...             rating = rng.normal() + gain * (case % 2)
        ...             rows.append((reader, modality, case, case % 2, rating))
        >>> columns = ["reader", "modality", "case", "truth", "rating"]
        >>> pd.DataFrame(rows, columns=columns).to_csv("answers.csv", index=False)
        >>> record, folder = usvit.mrmc("answers.csv", out="study")
        >>> record.figures[0].differences[0].mean[0].estimate.value > 0, (folder / "mrmc.html").is_file()
        (True, True)
    """
    path = Path(answers)
    name = re.sub(r"[^\w.+-]+", "-", path.stem)
    folder = Path(out) if out else Path(f"mrmc-{name}")
    output = OutputFolder(folder, "an analysis of a reader study", files=FILES)
    output.refuse_other_files()
    with fitting(path):
        record = analyse_answers(read_answers(path, settings), settings, path.name, _protocol_of(path))
    with output.opened():
        save_record(folder / "mrmc.json", record)
        document = mrmc_document(record)
        write_document(folder, "mrmc", document)
    return record, folder


def _protocol_of(answers: Path) -> StudyProtocol | None:
    """Return the protocol beside a table of ``usvit review export``."""
    path = answers.parent / "protocol.json"
    is_export = answers.stem in ("answers", "readings") and path.is_file()
    return load_record(path, StudyProtocol) if is_export else None
