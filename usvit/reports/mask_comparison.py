"""Comparison of segmentations: one page, and the same content as JSON, Markdown and LaTeX."""

import re
from collections.abc import Sequence
from pathlib import Path

import usvit.documents as doc
from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.evaluation import compare_mask_tables
from usvit.files import OutputFolder
from usvit.records import CompareMasksRecord, save_record
from usvit.reports.comparison_files import write_document
from usvit.reports.formatting import p_words
from usvit.reports.sections.masks import MASK_TITLES
from usvit.wording import plural

FILES = ("compare-masks.json", "compare.md", "compare.tex", "compare.html")


@checked_arguments
def compare_masks(
    *runs: str | Path, names: Sequence[str] = (), out: str | Path | None = None
) -> tuple[CompareMasksRecord, Path]:
    """Compare two or more segmentations on the same images and folds, pair by pair, and write the page.

    Differences of Dice, IoU, 95 % Hausdorff distance, pixel accuracy, missed lesions and false alarms are means over
    the same images, with intervals and p-values that count groups, corrected by Holm's method.

    Args:
        runs: Folders of runs of a segmentation, or ``peer`` in one for its second head.
        names: A name for each; default: the name of its folder.
        out: The folder to write; None takes ``compare-<run>-<run>...`` in the current folder.

    Returns:
        The content of compare-masks.json (docs/reference/compare-masks.schema.json), and the folder with ``FILES``.

    Raises:
        UsvitError: Fewer than two runs or one twice; a run is not finished or segments other classes; images, groups,
            folds or true masks differ; or ``out`` holds other files.

    Example:
        >>> import usvit
        >>> other = usvit.transfer(
        ...     "segment", "scratch", dataset="phantom", model="timm:test_resnet", out="runs/segment2",
        ...     device="cpu", model__image_size=64, segment__head="segmenter", split__folds=2,
        ...     train__steps=2, train__eval_every=2,
        ... )
        >>> record, folder = usvit.compare_masks("runs/segment", other.path, out="compared-masks")
        >>> [one.figure for one in record.differences][:3]
        ['dice', 'iou', 'hd95']
    """
    paths = [Path(run) for run in runs]
    if len({path.resolve() for path in paths}) < max(2, len(paths)):
        raise UsvitError("Name at least two different segmentations to compare.")
    usual = [path.name if path.name != "peer" else f"{path.absolute().parent.name}-peer" for path in paths]
    chosen = list(names) or (usual if len(set(usual)) == len(usual) else [path.as_posix() for path in paths])
    if len(chosen) != len(paths) or len(set(chosen)) < len(chosen):
        raise UsvitError(f"{len(paths)} segmentations need {len(paths)} different names (--name, once for each).")
    folder = Path(out) if out else Path("compare-" + re.sub(r"[^\w.+-]+", "-", "-".join(chosen)))
    output = OutputFolder(folder, "a comparison", files=FILES)
    output.refuse_other_files()
    record = compare_mask_tables(paths, chosen)
    with output.opened():
        save_record(folder / "compare-masks.json", record)
        document = mask_comparison_document(record)
        write_document(folder, "compare", document)
    return record, folder


def mask_comparison_document(record: CompareMasksRecord) -> doc.Document:
    """Build the document of a comparison of segmentations."""
    names = [one.name for one in record.runs]
    titles = {name: title for name, title in MASK_TITLES.items() if name != "hd95_mm"}
    figures: list[tuple[doc.Cell, ...]] = [
        (title, *(getattr(one, name) for one in record.runs)) for name, title in titles.items()
    ]
    lines: list[tuple[doc.Cell, ...]] = [
        (
            *(f"{one.a} less {one.b}", titles[one.figure], one.n_images, one.difference),
            *(p_words(one.difference.p), p_words(one.p_holm)),
        )
        for one in record.differences
    ]
    heads: list[str | doc.Column] = ["Pair", "Figure", *doc.numbers("Images", "Difference", "p", "p, Holm")]
    caption = "Paired means over the same images. Intervals and p-values count groups and take the networks as given."
    return doc.Document(
        title=", ".join(names),
        kind=f"Comparison of segmentations on the same {plural(record.n_images, 'image')} in "
        f"{plural(record.n_groups, 'group')}, {plural(record.n_folds, 'fold')}.",
        sections=[
            doc.DocumentSection("Runs", [doc.Table("Runs", ["Figure", *doc.numbers(*names)], figures)], "runs"),
            doc.DocumentSection("Differences", [doc.Table("Differences", heads, lines, caption)], "differences"),
        ],
        made_from="masks.csv of the runs only. All files hold the same numbers: compare-masks.json, compare.md, "
        "compare.tex",
        name="usvit comparison",
    )
