"""``usvit study shift``: leave one data set, or one device, out."""

import json
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_config, takes_options
from usvit.config import RunConfig
from usvit.plain_data import Settings
from usvit.upstream.config.study import ShiftSettings


@takes_options()
@takes_config(
    RunConfig,
    "device",
    "precision",
    "workers",
    "data.skip_bad",
    "data.keep_ids",
    "data.keep_list",
    "allow_contaminated",
)
def shift(
    *,
    sets: Annotated[
        list[str],
        typer.Argument(
            help="Data cards, manifests (.parquet) or folders of images, each of which is left out once; NAME=SET "
            "names one.",
            metavar="[NAME=]SET...",
        ),
    ],
    settings: ShiftSettings,
    data_root: o.DataRoot = None,
    overrides: Settings,
    json_: o.Json = False,
) -> None:
    """Measure shift: train without one set, test on it with frozen thresholds, and compare with the other sets.

    For each left-out set, the command prints AUC, sensitivity, specificity and calibration inside (on held-out images
    of the other sets) and outside (on the left-out set) with the difference, PPV and NPV at one prevalence, and the
    effect of a recalibration on some of its patients. The same command resumes a stopped
    measurement.
    """
    from usvit.documents import terminal_text
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream.studies import measure_shift, shift_document

    with o.resumable():
        outcome = measure_shift(
            *sets,
            settings=settings,
            data_root=o.data_roots(data_root),
            progress=make_progress(),
            command=o.command_line(),
            overrides=overrides,
        )
    if json_:
        print(json.dumps(read_json(outcome.path / "shift.json"), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{terminal_text(shift_document(outcome.record))}\n\npage: {outcome.page}")
