"""The public function of the studies. PyTorch is imported after the file and the engine have been checked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.config import nested
from usvit.config.keywords import takes_settings
from usvit.config.run import flattened
from usvit.data.datasets import DataRoot, roots_from
from usvit.progress import Progress, shown_progress
from usvit.upstream.config.study import StudySettings
from usvit.upstream.studies.specification import load_study

if TYPE_CHECKING:
    from usvit.upstream.studies.execution import StudyOutcome


@takes_settings
def run_study(
    study: str | Path,
    *,
    settings: StudySettings,
    data_root: DataRoot = None,
    progress: Progress | None = None,
    command: str = "usvit.run_study",
    overrides: Mapping[str, Any] | None = None,
    **run_settings: Any,
) -> "StudyOutcome":
    """Run, or resume, the runs of a table of rows and seeds, and compare it with the table of a paper.

    A row is made by one or several runs: cross-validations, pre-trainings, transfers, tests of classifiers and
    measurements of speed, of which one may need another. Runs that rows share are made once. A run that fails is listed
    with its error, and the others continue. The same call resumes a stopped study: it keeps finished runs and tries
    failed ones again.

    Args:
        study: YAML file of a study (docs/how-to/study.md), or the name of a shipped one.
        settings: See ``StudySettings``.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the records.
        overrides: Settings, by dotted key, of all runs that have them: ``{"train.steps": 20}``.
        **run_settings: The same settings with double underscores for dots: ``train__steps=20``.

    Returns:
        The content of ``study.json`` (``record``), the folder, the page, and the runs that failed. After a dry run,
        ``record`` is the one with which the study would begin.

    Raises:
        UsvitError: The file, an option or a setting is wrong, the folder holds another study, or the engine cannot
            start. Errors of single runs are not raised.

    Example:
        >>> import usvit
        >>> study = usvit.run_study("gheflati2022_table4", dataset="phantom", dry_run=True, train__steps=20)
        >>> study.record.runs[0].id, study.record.changed
        ('phantom-vit_b32-gheflati2022_vit-seed0', ['train.steps=20'])
        >>> tiny = usvit.run_study("touvron2022_thesis_table3_8", scale="tiny", dry_run=True)
        >>> tiny.record.scale, sorted({run.kind for run in tiny.record.runs})
        ('tiny', ['pretrain', 'test'])
    """
    config = load_study(str(study))
    changes = nested({**run_settings, **(overrides or {})})
    options = {"device": settings.device, "precision": settings.precision, "workers": settings.workers}

    from usvit.upstream.studies.execution import StudyOutcome, default_out, execute
    from usvit.upstream.studies.plan import make_plan
    from usvit.upstream.studies.state import new_record

    plan = make_plan(
        config,
        dataset=settings.dataset,
        n_seeds=settings.seeds,
        options={key: value for key, value in options.items() if value is not None},
        overrides=changes,
        changed=tuple(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flattened(changes)
        ),
        scale=settings.scale,
    )
    folder = default_out(plan) if settings.out is None else settings.out
    if settings.dry_run:
        return StudyOutcome(folder, new_record(plan, command), folder / "study.html")
    from usvit.upstream.studies.engines import make_engine

    chosen = make_engine(
        settings.engine,
        address=settings.address,
        cpus=settings.cpus or config.resources.cpus,
        gpus=config.resources.gpus if settings.gpus is None and settings.engine == "ray" else settings.gpus,
        device=settings.device,
    )
    return execute(
        plan,
        engine=chosen,
        roots=roots_from(data_root),
        out=folder,
        command=command,
        progress=shown_progress(progress),
        runs=settings.runs,
    )
