"""A user's own DICOM files, with a table of labels.

The table's rows find their files by the first of these columns that it has (or that the card maps): ``path``,
``sop_instance_uid``, ``accession_number``, ``study_instance_uid``, ``patient_id``. With the last three a row speaks
of all files of its examination or patient. Every DICOM file needs a row, and every row a file.

Of the header, the manifest takes the scanner's model and the pixel spacing (where the table has none) and a hash of
the PatientID. No PatientID is ever written: where the table's own ``patient_id`` is the file's, it is hashed, too.
"""

from dataclasses import replace
from pathlib import Path

from usvit.data.cards import DataCard
from usvit.data.dicom import DicomFacts, read_facts
from usvit.data.images import BadImage, is_dicom
from usvit.data.readers import ImageRecord
from usvit.data.readers.sheets import SHEET_SUFFIXES, sheets_in
from usvit.data.readers.table import Row, default_id, labelled_rows, refuse_doubles
from usvit.errors import UsvitError

KEYS = ("path", "sop_instance_uid", "accession_number", "study_instance_uid", "patient_id")
_ONE_FILE = KEYS[:2]
_CLEARLY_NO_IMAGE = frozenset(
    {".txt", ".md", ".pdf", ".html", ".htm", ".xml", ".json", ".yaml", ".yml", ".log", ".ini", ".inf", ".db", ".zip"}
    | {".xls", ".tsv", ".md5", ".sha256", ".exe", ".css", ".js", *SHEET_SUFFIXES}
)


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / card.table).is_file() if card.table else bool(sheets_in(root))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """The images of the table; of a cine loop the frame that the column ``frame`` names, else the middle one.

    Raises:
        UsvitError: the table or a column is missing; a row has no file or a file no row; a file is neither DICOM nor
            clearly no image, is damaged, or has no pixels or no such frame; two rows name one image.
    """
    rows = labelled_rows(root, card, required=(), extra=KEYS)
    key = next((name for name in KEYS if name in rows[0].values), None)
    if key is None:
        raise UsvitError(
            f"no column of the table tells the file of a row; the data card may map one of {', '.join(KEYS)}"
        )
    files = {path: _facts(root, path) for path in _dicom_files(root)}
    files = {path: facts for path, facts in files.items() if not facts.is_directory}
    if reports := [path for path, facts in files.items() if not facts.has_pixels]:
        raise UsvitError(f"the DICOM file {reports[0].as_posix()} has no pixels; move it out of the folder")
    records, sources = [], []
    for row, path in _matched(root, rows, key, files):
        records.append(_record(root, row, path, files[path]))
        sources.append(row)
    refuse_doubles((record.image_id for record in records), sources, "the id")
    refuse_doubles((f"{record.path.as_posix()}#{record.frame}" for record in records), sources, "the image")
    return records


def _dicom_files(root: Path) -> list[Path]:
    """From the root, in the order of their paths; hidden files and those of clearly other kinds are left out."""
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith((".", "__MACOSX")) for part in relative.parts) or not path.is_file():
            continue
        if is_dicom(path):
            found.append(relative)
        elif path.suffix.lower() not in _CLEARLY_NO_IMAGE and path.name.upper() not in ("README", "LICENSE"):
            raise UsvitError(f"{relative.as_posix()} is no DICOM file; move it out of the folder")
    return found


def _facts(root: Path, path: Path) -> DicomFacts:
    try:
        return read_facts(root / path)
    except BadImage as bad:
        raise UsvitError(f"the DICOM file {path.as_posix()} cannot be used: {bad.reason}") from bad


def _matched(root: Path, rows: list[Row], key: str, files: dict[Path, DicomFacts]) -> list[tuple[Row, Path]]:
    by_key: dict[str, list[Path]] = {}
    for path, facts in files.items():
        by_key.setdefault(path.as_posix() if key == "path" else getattr(facts, key), []).append(path)
    pairs: list[tuple[Row, Path]] = []
    used: set[str] = set()
    for row in rows:
        text = row.text(key)
        if not text:
            raise UsvitError(f"{row.where} has no {key}, by which the rows find their files")
        name = row.path(root, text).as_posix() if key == "path" else text
        shown = f"the {key} '{text}'" if key in _ONE_FILE else f"its {key}"  # the others tell of a patient
        if name not in by_key:
            raise UsvitError(f"{row.where}: no DICOM file has {shown}")
        if key not in _ONE_FILE and name in used:
            raise UsvitError(f"{row.where} is the second one with {shown}")
        used.add(name)
        pairs.extend((row, path) for path in by_key[name])
    if forgotten := sorted(set(by_key) - used):
        path = by_key[forgotten[0]][0]
        raise UsvitError(f"the DICOM file {path.as_posix()} has no row in the table (matched by {key})")
    return pairs


def _record(root: Path, row: Row, path: Path, facts: DicomFacts) -> ImageRecord:
    frame = row.frame()
    if frame is not None and frame >= facts.frames:
        raise UsvitError(f"{row.where}: {path.as_posix()} has no frame {frame}; it holds {facts.frames}, from 0")
    if row.text("patient_id") == facts.patient_id:
        row = replace(row, values={**row.values, "patient_id": ""})  # the hash stands in for it
    return row.record(
        row.text("image_id") or default_id(path, frame),
        path,
        root,
        frame=facts.frames // 2 if frame is None else frame,
        patient_id=facts.patient,
        device=facts.device,
        pixel_spacing_mm=facts.pixel_spacing_mm,
    )
