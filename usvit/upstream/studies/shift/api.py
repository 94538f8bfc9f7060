"""The public function of a measurement of shift. PyTorch is imported after the arguments have been checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.arguments import checked_arguments
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError
from usvit.progress import Progress, shown_progress

if TYPE_CHECKING:
    from usvit.upstream.studies.shift.measurement import ShiftOutcome

SIZES = (10, 20, 50, 100)
DRAWS = 200
MOST_DRAWS = 10_000
RULE = "sensitivity>=0.9"


@checked_arguments
def measure_shift(
    *sets: str | Path,
    by: str | None = None,
    model: str | None = None,
    recipe: str | Path | None = None,
    weights: str | Path | None = None,
    hold_out: bool = False,
    rule: str = RULE,
    prevalence: float | None = None,
    sizes: Sequence[int] = SIZES,
    draws: int = DRAWS,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    data_root: DataRoot = None,
    seed: int | None = None,
    engine: str = "sequential",
    cpus: int | None = None,
    progress: Progress | None = None,
    command: str = "usvit.measure_shift",
    overrides: Mapping[str, Any] | None = None,
    **settings: Any,
) -> "ShiftOutcome":
    """Leave each set out of the training, test on it with frozen thresholds, and compare with the other sets.

    The sets are data sets, or the devices of data sets (``by``). For each of them, networks are trained on the other
    sets by a cross-validation or a hold-out that keeps patients and near-duplicates together. Their thresholds and
    calibration are fixed on inner validation images. The figures on the left-out set are shown beside those on held-out
    images of the other sets, and beside those of networks that were trained with the set. Then the networks are
    recalibrated on some patients of the left-out set, drawn at random many times. An interrupted measurement is resumed
    by the same call.

    Args:
        sets: At least two, or at least one with ``by``: names of data cards (several joined by ``+`` are one set),
            files of cards or manifests, or folders of images. ``NAME=SET`` names a set.
        by: Column of the manifests whose values are the sets, such as ``device``.
        model, recipe, weights, seed, overrides, **settings: Settings of the trainings, as in ``cross_validate``.
        hold_out: Train one network for each left-out set, not a cross-validation. The held-out images are then few.
        rule: How thresholds are chosen: ``sensitivity>=0.9``, ``specificity>=0.9``, ``youden`` or a threshold.
        prevalence: Share of positives for which PPV and NPV are computed. Default: that of all sets together.
        sizes: Numbers of patients to recalibrate on.
        draws: Number of random draws of patients for each size.
        out: Folder of the measurement. Default: ``studies/shift-<sets>``.
        runs: Folder of the trainings. Measurements with the same folder share equal trainings. Default: ``runs`` in
            ``out``.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        engine: ``sequential``, or ``ray`` for as many trainings at once as its CPUs allow.
        cpus: Threads of each training. Default: as PyTorch chooses.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the record.

    Returns:
        The content of ``shift.json`` (``record``), the folder (``path``) and the page.

    Raises:
        UsvitError: A set or a setting cannot be used, or a training failed; the same call tries it again.
        LeakageError: Two sets share images, near-duplicates or patients, or the initial weights have seen some.

    Example:
        >>> import usvit
        >>> shift = usvit.measure_shift(
        ...     "near=scanners/near", "far=scanners/far", model="timm:test_resnet", recipe="demo", hold_out=True,
        ...     out="shift", sizes=[10], draws=5, model__image_size=32, train__steps=2, device="cpu",
        ... )
        >>> [row.left_out for row in shift.record.rows], shift.page.name
        (['near', 'far'], 'shift.html')
    """
    _check_arguments(sets, by, sizes, draws)
    from usvit.experiments import run_config
    from usvit.metrics.prevalence import check_prevalence
    from usvit.scoring import parse_rule
    from usvit.upstream.studies.shift.measurement import ShiftRequest, measure
    from usvit.upstream.studies.shift.sets import open_sets, parse_sources

    point = parse_rule(rule)
    if prevalence is not None:
        check_prevalence(prevalence)
    config = run_config(
        "phantom" if all(_is_phantom(str(one)) for one in sets) else "busi",  # it decides on the default recipe alone
        model,
        recipe=recipe,
        weights=weights,
        seed=seed,
        overrides=overrides,
        settings=settings,
    )
    if config.data.manifest is not None:
        raise UsvitError("data.manifest does not go with 'usvit study shift': name the manifest as one of the sets.")
    shown = shown_progress(progress)
    data = config.data.model_copy(update={"manifest": None, "keep_list": None})
    sources = parse_sources([str(one) for one in sets], data, roots_from(data_root))
    joined = open_sets(sources, by, shown, keep_list=config.data.keep_list)
    name = "+".join(joined.names) if by is None else f"by-{by}"
    request = ShiftRequest(
        sets=joined,
        by=by,
        config=config,
        kind="train" if hold_out else "cv",
        rule=point,
        prevalence=prevalence,
        sizes=tuple(dict.fromkeys(sizes)),
        draws=draws,
        out=Path("studies") / f"shift-{name}" if out is None else Path(out),
        runs=None if runs is None else Path(runs),
        engine=engine,
        cpus=cpus,
        command=command,
    )
    return measure(request, shown)


def _check_arguments(sets: Sequence[str | Path], by: str | None, sizes: Sequence[int], draws: int) -> None:
    if not sets:
        raise UsvitError("No set is named. Name at least two: usvit study shift A B, or one with --by device.")
    if by is None and len(sets) < 2:
        raise UsvitError(
            "Shift is measured between sets, and only one is named. Name at least two (usvit study shift A B), or a "
            "column whose values are the sets (--by device)."
        )
    if bad := [one for one in sizes if one < 2]:
        raise UsvitError(f"A recalibration on {bad[0]} patients is impossible: give whole numbers from 2 on (--sizes).")
    if not 1 <= draws <= MOST_DRAWS:
        raise UsvitError(f"--draws {draws}: give a whole number from 1 to {MOST_DRAWS:,}.")


def _is_phantom(text: str) -> bool:
    source = text.partition("=")[2] or text
    return source == "phantom" or (Path(source) / "phantom.csv").is_file()
