"""A user's own DICOM files, with a table of labels.

The table's rows find their files by the first of these columns that it has (or that the card maps): ``path``,
``sop_instance_uid``, ``accession_number``, ``study_instance_uid``, ``patient_id``. With the last three, a row applies
to all files of its examination or patient. Every DICOM file needs a row, and every row a file.

The manifest takes the PatientID, the StudyInstanceUID (as the exam), the laterality, the scanner's model and the pixel
spacing from the header if the table does not have them. A PatientID or StudyInstanceUID is written as a pseudonym
(``usvit.data.datasets.identities``), the same as in ``usvit score``.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, Public
from usvit.data.datasets.readers import ImageRecord
from usvit.data.datasets.readers.spreadsheets import SHEET_SUFFIXES, sheets_in
from usvit.data.datasets.readers.table import LabelledRow, default_id, labelled_rows, refuse_doubles
from usvit.data.io import BadImage, DicomFacts, is_dicom, read_facts

KEYS = ("path", "sop_instance_uid", "accession_number", "study_instance_uid", "patient_id")
_ONE_FILE = KEYS[:2]
_CLEARLY_NO_IMAGE = frozenset(
    {".txt", ".md", ".pdf", ".html", ".htm", ".xml", ".json", ".yaml", ".yml", ".log", ".ini", ".inf", ".db", ".zip"}
    | {".xls", ".tsv", ".md5", ".sha256", ".exe", ".css", ".js", *SHEET_SUFFIXES}
)


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / card.table).is_file() if card.table else bool(sheets_in(root))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List the images of the table; for a cine loop, the frame in the column ``frame``, or else the middle frame.

    Raises:
        UsvitError: the table or a column is missing; a row has no file or a file no row; a file is neither DICOM nor
            clearly no image, is damaged, or has no pixels or no such frame; two rows name one image.
    """
    rows = labelled_rows(root, card, required=(), extra=KEYS)
    key = next((name for name in KEYS if name in rows[0].values), None)
    if key is None:
        raise DataError(
            "the table has no column that identifies the file of a row; the data card may map one of {keys}",
            keys=Public(", ".join(KEYS)),
        )
    files = {path: _facts(root, path) for path in _dicom_files(root)}
    files = {path: facts for path, facts in files.items() if not facts.is_directory}
    if reports := [path for path, facts in files.items() if not facts.has_pixels]:
        raise DataError("the DICOM file {path} has no pixels; move it out of the folder", path=reports[0])
    records, sources = [], []
    for row, path in _matched(root, rows, key, files):
        records.append(_record(root, row, path, files[path]))
        sources.append(row)
    refuse_doubles((record.image_id for record in records), sources, "the id")
    refuse_doubles((f"{record.path.as_posix()}#{record.frame}" for record in records), sources, "the image")
    return records


def _dicom_files(root: Path) -> list[Path]:
    """List files below the root, sorted by path, without hidden files and files that are clearly of another type."""
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith((".", "__MACOSX")) for part in relative.parts) or not path.is_file():
            continue
        if is_dicom(path):
            found.append(relative)
        elif path.suffix.lower() not in _CLEARLY_NO_IMAGE and path.name.upper() not in ("README", "LICENSE"):
            raise DataError("{path} is not a DICOM file; move it out of the folder", path=relative)
    return found


def _facts(root: Path, path: Path) -> DicomFacts:
    try:
        return read_facts(root / path)
    except BadImage as bad:
        raise DataError("the DICOM file {path} cannot be used: {reason}", path=path, reason=bad) from bad


def _matched(
    root: Path, rows: list[LabelledRow], key: str, files: dict[Path, DicomFacts]
) -> list[tuple[LabelledRow, Path]]:
    by_key: dict[str, list[Path]] = {}
    for path, facts in files.items():
        by_key.setdefault(path.as_posix() if key == "path" else getattr(facts, key), []).append(path)
    pairs: list[tuple[LabelledRow, Path]] = []
    used: set[str] = set()
    for row in rows:
        text = row.text(key)
        if not text:
            said = "{where} has no {key}, by which rows are matched with files"
            raise DataError(said, where=row.where, key=Public(key))
        name = row.path(root, text).as_posix() if key == "path" else text
        if name not in by_key:
            said = "{where}: no DICOM file has the {key} '{text}'"
            raise DataError(said, where=row.where, key=Public(key), text=text)
        if key not in _ONE_FILE and name in used:
            said = "{where} is the second one with the {key} '{text}'"
            raise DataError(said, where=row.where, key=Public(key), text=text)
        used.add(name)
        pairs.extend((row, path) for path in by_key[name])
    if forgotten := sorted(set(by_key) - used):
        path = by_key[forgotten[0]][0]
        said = "the DICOM file {path} has no row in the table (matched by {key})"
        raise DataError(said, path=path, key=Public(key))
    return pairs


def _record(root: Path, row: LabelledRow, path: Path, facts: DicomFacts) -> ImageRecord:
    frame = row.frame()
    if frame is not None and frame >= facts.frames:
        raise DataError(
            "{where}: {path} has no frame {frame}; it has {n} frames, counted from 0",
            where=row.where,
            path=path,
            frame=frame,
            n=facts.frames,
        )
    shown = facts.frames // 2 if frame is None else frame
    return row.record(
        row.text("image_id") or default_id(path, frame),
        path,
        root,
        frame=shown,
        patient_id=facts.patient_id or None,
        side=facts.side(shown),
        exam_id=facts.study_instance_uid or None,
        device=facts.device,
        pixel_spacing_mm=facts.pixel_spacing_mm,
    )
