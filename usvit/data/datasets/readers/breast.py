"""BrEaST (Breast-Lesions-USG): a workbook that names the image and the masks of each case.

Layout: data_cards/breast.md. The columns, and '&' between the names of several masks, are as in public
programs that read the release; some users keep the images beside the workbook, which is accepted, too.
``Pixel_size`` is not used because its unit is not known. Source: Pawlowska et al. 2024, Scientific Data 11:148.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, image_files, required_class, subfolders
from usvit.data.datasets.readers.spreadsheets import match_rows, read_sheet
from usvit.errors import UsvitError

_WORKBOOK = "BrEaST-Lesions-USG*.xlsx"


def looks_like(root: Path, card: DataCard) -> bool:
    return any(root.glob(_WORKBOOK))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all cases of the workbook in its order.

    Raises:
        UsvitError: there are two workbooks; a column is missing; a row has no image, an image no row, or a
            named mask no file.
    """
    workbooks = sorted(root.glob(_WORKBOOK))
    if len(workbooks) > 1:
        raise UsvitError(
            f"there are two workbooks: {', '.join(path.name for path in workbooks)}; keep only one of them"
        )
    sheet = read_sheet(workbooks[0])
    files = {path.name: path for folder in (root, *subfolders(root)) for path in image_files(folder)}
    outlines = {name for name in files if "_tumor" in name or "_other" in name}
    pictures = {name: path for name, path in files.items() if name not in outlines}
    images = match_rows(sheet, sheet.column("Image_filename"), pictures, "the folder")
    names = ("CaseID", "Classification", "Mask_tumor_filename", "BIRADS", "Verification")
    columns = zip(*(sheet.column(name) for name in names), strict=True)
    records = []
    for position, (path, (case, label, masks, birads, verification)) in enumerate(zip(images, columns, strict=True)):
        where = sheet.where(position)
        named = [name.strip() for name in masks.split("&") if name.strip()]
        if missing := [name for name in named if name not in files]:
            raise UsvitError(f"{where} names the mask '{missing[0]}', which does not exist")
        records.append(
            ImageRecord(
                image_id=path.stem,
                path=path.relative_to(root),
                label=required_class(label, where, card),
                mask_paths=tuple(files[name].relative_to(root) for name in named),
                patient_id=case or None,
                label_source=_source(verification),
                birads=birads or None,
            )
        )
    return records


def _source(verification: str) -> str:
    """Translate a verification such as 'confirmed by biopsy' to the manifest's terms."""
    text = verification.lower()
    return "biopsy" if "biops" in text else "follow-up" if "follow" in text else "dataset"
