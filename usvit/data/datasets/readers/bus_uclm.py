"""BUS-UCLM: ``INFO.csv``, images, and coloured masks of the same names.

Layout: data_cards/bus_uclm.md. Columns and separator as in public programs that read the release; that the
first four letters of a file are the patient is how the authors' own program divides it. The class is the
column ``Label``; the masks' colours repeat it (any colour is lesion). The flags Doppler, Marks and Combined
have no column in a manifest. Source: Vallez et al. 2025, Scientific Data 12:242.
"""

from pathlib import Path

from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.readers import ImageRecord, files_in, required_class
from usvit.data.datasets.readers.spreadsheets import match_rows, read_sheet
from usvit.errors import UsvitError


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / "INFO.csv").is_file() and (root / "images").is_dir()


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of ``INFO.csv`` in its order.

    Raises:
        UsvitError: a file, folder or column is missing; a row has no image or an image no row; a mask has none.
    """
    sheet = read_sheet(root / "INFO.csv")
    images = match_rows(
        sheet, sheet.column("Image"), {path.name: path for path in files_in(root, "images")}, "'images'"
    )
    masks = {path.name: path for path in files_in(root, "masks")}
    if orphans := sorted(set(masks) - {path.name for path in images}):
        raise UsvitError(f"the mask '{orphans[0]}' has no image of the same name")
    return [
        ImageRecord(
            image_id=path.stem,
            path=path.relative_to(root),
            label=required_class(label, sheet.where(position), card),
            mask_paths=(masks[path.name].relative_to(root),) if path.name in masks else (),
            patient_id=path.stem[:4],
        )
        for position, (path, label) in enumerate(zip(images, sheet.column("Label"), strict=True))
    ]
