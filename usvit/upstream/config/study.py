"""Settings of studies, of the choice of their winner, and of measurements of shift."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from usvit.config.arguments import TrainingArguments
from usvit.config.fields import Option
from usvit.config.scoring import Device, Precision
from usvit.config.sections import Section
from usvit.errors import UsvitError


class StudySettings(Section):
    """Settings of a study."""

    scale: Literal["paper", "tiny"] = "paper"
    """``paper``, or ``tiny``: the same runs with tiny networks on generated images, which shows that the study works,
    in minutes; its figures say nothing about the paper."""
    out: Path | None = None
    """Folder of the study; on the command line with several, the folder of their folders. (default: studies/<name>)"""
    runs: Path | None = None
    """Folder of the runs. Studies with the same folder share equal runs. (default: runs, in the folder of the study; on
    the command line with several studies, in the folder of their folders)"""
    dataset: Annotated[str | None, Option(metavar="D[+D]")] = None
    """Use this data set in cross-validations and hold-outs instead of the file's, such as phantom."""
    seeds: Annotated[int | None, Field(ge=1)] = None
    """Number of seeds, counted up from the file's first seed; the table shows their spread. (default: the file's)"""
    engine: Literal["sequential", "ray"] = "sequential"
    """``sequential``, or ``ray``, which starts as many runs at once as CPUs and GPUs allow."""
    address: Annotated[str | None, Option(metavar="A")] = None
    """Address of the Ray cluster: HOST:PORT, or auto. (default: a new cluster on this machine)"""
    cpus: Annotated[int | None, Field(ge=1)] = None
    """Number of CPU threads of each run. (default: the file's, or PyTorch's choice)"""
    gpus: Annotated[float | None, Field(ge=0)] = None
    """Number of GPUs of each run, with Ray. (default: the file's, or 1 if there are any)"""
    device: Device | None = None
    """Device of the runs: ``auto``, ``cpu`` or ``cuda``. (default: the recipes')"""
    precision: Precision | None = None
    """Precision of the runs: ``auto``, ``fp32`` or ``bf16``. (default: the recipes')"""
    workers: int | None = None
    """Number of processes that prepare batches. It never changes the result. (default: the recipes')"""
    dry_run: bool = False
    """Check everything and list the runs without starting them or writing anything."""


def _numbers(given: str | Sequence[int | str]) -> tuple[int, ...]:
    """Return numbers; a text lists them with commas, or is ``none``."""
    texts = [given] if isinstance(given, str) else given
    parts = [part for one in texts for part in (one.split(",") if isinstance(one, str) else [one])]
    if parts == ["none"]:
        return ()
    try:
        return tuple(int(part) for part in parts)
    except ValueError:
        raise UsvitError(
            f"--sizes {','.join(map(str, parts))}: give whole numbers, such as 10,20,50, or none."
        ) from None


class ShiftSettings(TrainingArguments):
    """Settings of a measurement of shift."""

    by: Annotated[str | None, Option(metavar="COLUMN")] = None
    """Column whose values are left out, such as device, instead of whole sets."""
    model: Annotated[str | None, Option(metavar="M")] = None
    """Network of the trainings: a name from 'usvit models list', or timm:NAME. (default: vit_b32; for the phantom, the
    demo's)"""
    hold_out: bool = False
    """Train once for each left-out set, instead of a cross-validation. The held-out images are then few."""
    rule: Annotated[str, Option(metavar="RULE")] = "sensitivity>=0.9"
    """Rule of the frozen thresholds: ``sensitivity>=S``, ``specificity>=S``, ``youden`` or a number."""
    prevalence: Annotated[float | None, Option(metavar="P")] = None
    """Share of positives for PPV and NPV. (default: that of all sets together)"""
    sizes: Annotated[
        tuple[int, ...],
        BeforeValidator(_numbers, json_schema_input_type=str | Sequence[int | str]),
        Option(metavar="N,...|none"),
    ] = (10, 20, 50, 100)
    """Numbers of patients of the left-out set to recalibrate on, or none. (default: 10,20,50,100)"""
    draws: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Random draws of these patients for each number."""
    out: Path | None = None
    """Folder of the measurement. (default: studies/shift-<sets>)"""
    runs: Path | None = None
    """Folder of the trainings; measurements with the same one share equal trainings. (default: runs, in ``out``)"""
    engine: Literal["sequential", "ray"] = "sequential"
    """``sequential``, or ``ray``, which starts as many trainings at once as CPUs allow."""
    cpus: Annotated[int | None, Field(ge=1)] = None
    """Number of CPU threads of each training. (default: PyTorch's choice)"""


class ChoiceSettings(Section):
    """Settings of the choice of a study's winner."""

    figure: Annotated[str, Option(metavar="FIGURE")] = "auc"
    """``auc`` (positive class against the rest), ``auc_macro_ovr``, ``accuracy``, ``balanced_accuracy`` or
    ``brier``."""
    ensembles: Annotated[int, Field(ge=1), Option(metavar="K")] = 1
    """Let means of the best 2 to K candidates compete, too; 1 for none."""
