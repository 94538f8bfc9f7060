"""``usvit explain``: show where a trained network looks."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.explaining import ExplainSettings

if TYPE_CHECKING:
    from usvit.records import ExplanationRecord


@takes_options()
def explain(
    settings: ExplainSettings,
    run: Annotated[
        str | None,
        typer.Argument(
            help="A finished run (runs/x), or one fold of it (runs/x/fold-2); MODEL (the hub's recommended weights); "
            "or MODEL=WEIGHTS, the weights being hub, hub:UPSTREAM or a file.",
            metavar="[RUN|MODEL[=WEIGHTS]]",
        ),
    ] = None,
    data_root: o.DataRoot = None,
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Show where a network looks, and compare the maps with lesion masks.

    Each test image of a run of usvit cv or train is explained by the network of the fold that tested it, which was not
    trained on it. Other weights, such as those of usvit pretrain or of the hub, need --source or --path.
    """
    from usvit.explaining import explain as explain_run
    from usvit.progress import make_progress

    explained = explain_run(run, settings=settings, data_root=o.data_roots(data_root), progress=make_progress())
    entry = explained.entry
    if json_:
        content = {"out": str(explained.folder), "method": explained.method, **entry.content()}
        print(json.dumps(content, indent=2, ensure_ascii=False))
        return
    for line in _lines(explained.method, entry):
        print(line)
    if explained.hidden:
        print(
            f"The pictures do not show the images of {', '.join(explained.hidden)}, whose licence does not clearly "
            "allow it. Pass --include-images to show them."
        )
    print(f"Written: {explained.folder}")
    print("A map shows where a network looks, not why it decides. For research use, not a medical device.")


def _lines(method: str, entry: "ExplanationRecord") -> list[str]:
    from usvit.estimate_text import BRACKETS, estimate_text

    fold = "" if entry.fold is None else f", fold {entry.fold}"
    what = "test images" if entry.images_of is None else f"images of {entry.images_of}"
    groups = "" if entry.n_groups is None else f" ({entry.n_groups} groups)"
    if method == "distance":
        return [
            f"Mean attention distance in pixels, {entry.n_images} {what}{groups}{fold}; if all patches were attended "
            f"equally: {entry.uniform:.1f}",
            *(f"  {one.layer}: {', '.join(f'{head:.1f}' for head in one.heads or ())}" for one in entry.layers or ()),
        ]
    if method == "residuals":
        return [
            f"Mean norm of the residual branches over the norm of their input, {entry.n_images} {what}{groups}{fold}:",
            *(f"  {one.layer}: attention {one.attention:.3g}, MLP {one.mlp:.3g}" for one in entry.residuals or ()),
        ]
    if method == "positions":
        told = {"same row": entry.same_row, "same column": entry.same_column, "others": entry.others}
        shown = ", ".join(f"{key} {value:.3f}" for key, value in told.items() if value is not None)
        return [f"Mean cosine similarity of position embeddings{fold}: {shown}"]
    if method == "filters":
        shown = ", ".join(f"{100 * share:.1f}%" for share in (entry.explained or [])[:5])
        return [f"{entry.n_filters} filters ({entry.layer}){fold}; the first components: {shown}"]
    if method == "mixing":
        return [
            f"Share of weights below {entry.threshold:.0%} of the maximum{fold}: A over patches; B and C of the MLP",
            *(
                f"  {one.layer}: {one.sparsity:.3f}; {', '.join(f'{share:.3f}' for share in one.mlp_sparsity)}"
                for one in entry.mixing or ()
            ),
        ]
    lines = [f"{method}: {len(entry.images or [])} {what}"]
    if entry.images_of is not None:
        return lines
    masks = entry.against_masks
    if masks is None:
        return [*lines, "No image has a lesion mask, so the maps are not scored."]
    lines.append(
        f"Against the masks of {masks.n_images} images ({masks.n_groups} groups"
        + (f"; {masks.n_blank} more maps are blank)" if masks.n_blank else ")")
    )
    if masks.n_images:
        pointing, centre, share, area = (
            estimate_text(one, BRACKETS) for one in (masks.pointing, masks.centre, masks.share, masks.area)
        )
        lines += [
            f"  pointing game {pointing}; for the image centre {centre}",
            f"  share of the map in the mask {share}; area of the mask {area}",
        ]
        warnings = {one.warning for one in (masks.pointing, masks.share) if one.warning is not None}
        lines += [f"  Warning: {warning}" for warning in sorted(warnings)]
    return lines
