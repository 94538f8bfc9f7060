"""The public function of the studies. PyTorch is imported after the file and the engine have been checked."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.arguments import checked_arguments
from usvit.config import nested
from usvit.config.run import flattened
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError
from usvit.progress import Progress, shown_progress
from usvit.upstream.studies.specification import load_study

if TYPE_CHECKING:
    from usvit.upstream.studies.execution import StudyOutcome


@checked_arguments
def run_study(
    study: str | Path,
    *,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    dataset: str | None = None,
    seeds: int | None = None,
    engine: str = "sequential",
    address: str | None = None,
    cpus: int | None = None,
    gpus: float | None = None,
    data_root: DataRoot = None,
    device: str | None = None,
    precision: str | None = None,
    workers: int | None = None,
    scale: str = "paper",
    dry_run: bool = False,
    progress: Progress | None = None,
    command: str = "usvit.run_study",
    overrides: Mapping[str, Any] | None = None,
    **settings: Any,
) -> "StudyOutcome":
    """Run, or resume, the runs of a table of rows and seeds, and compare it with the table of a paper.

    A row is made by one or several runs: cross-validations, pre-trainings, transfers, tests of classifiers and
    measurements of speed, of which one may need another. Runs that rows share are made once. A run that fails is listed
    with its error, and the others continue. The same call resumes a stopped study: it keeps finished runs and tries
    failed ones again.

    Args:
        study: YAML file of a study (docs/how-to/study.md), or the name of a shipped one.
        out: Folder of the study. Default: ``studies/<name>``.
        runs: Folder of the runs. Studies with the same folder share runs that are equal. Default: ``runs`` in the
            folder of the study.
        dataset: Data set that replaces those of the cross-validations and hold-outs of the file.
        seeds: Number of seeds, counted up from the first one of the file. Default: the seeds of the file.
        engine: ``sequential``, or ``ray`` for as many runs at once as its CPUs and GPUs allow.
        address: Address of the Ray cluster, ``HOST:PORT`` or ``auto``. Default: a new cluster on this machine.
        cpus: Threads of each run. Default: as the file says, otherwise as PyTorch chooses.
        gpus: GPUs of each run, with Ray. Default: as the file says, otherwise 1 if there are any.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        device: ``auto``, ``cpu`` or ``cuda``. Default: as the recipes say; likewise ``precision`` and ``workers``.
        precision: ``auto``, ``fp32`` or ``bf16``.
        workers: Number of processes that prepare batches.
        scale: ``paper``, or ``tiny`` for the same runs with tiny networks on generated images: it shows in minutes that
            the study works, and its figures say nothing about the paper.
        dry_run: Check everything and plan the runs, but start none and write nothing.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the records.
        overrides: Settings, by dotted key, of all runs that have them: ``{"train.steps": 20}``.
        **settings: The same settings with double underscores for dots: ``train__steps=20``.

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
    if engine not in ("sequential", "ray"):
        raise UsvitError(f"Unknown engine '{engine}'. Known: sequential, ray.")
    changes = nested({**settings, **(overrides or {})})
    options = {"device": device, "precision": precision, "workers": workers}

    from usvit.upstream.records.study import StudyRecord
    from usvit.upstream.studies.execution import StudyOutcome, default_out, execute
    from usvit.upstream.studies.plan import make_plan
    from usvit.upstream.studies.state import new_record

    plan = make_plan(
        config,
        dataset=dataset,
        n_seeds=seeds,
        options={key: value for key, value in options.items() if value is not None},
        overrides=changes,
        changed=tuple(
            f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flattened(changes)
        ),
        scale=scale,
    )
    folder = default_out(plan) if out is None else Path(out)
    if dry_run:
        return StudyOutcome(folder, StudyRecord.model_validate(new_record(plan, command)), folder / "study.html")
    from usvit.upstream.studies.engines import make_engine

    chosen = make_engine(
        engine,
        address=address,
        cpus=cpus or config.resources.cpus,
        gpus=gpus if gpus is not None or engine == "sequential" else config.resources.gpus,
        device=device,
    )
    return execute(
        plan,
        engine=chosen,
        roots=roots_from(data_root),
        out=folder,
        command=command,
        progress=shown_progress(progress),
        runs=None if runs is None else Path(runs),
    )
