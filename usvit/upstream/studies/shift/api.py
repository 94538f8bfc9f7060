"""The public function of a measurement of shift. PyTorch is imported after the arguments have been checked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.config.keywords import takes_settings
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError
from usvit.progress import Progress, shown_progress
from usvit.upstream.config.study import ShiftSettings

if TYPE_CHECKING:
    from usvit.upstream.studies.shift.measurement import ShiftOutcome


@takes_settings
def measure_shift(
    *sets: str | Path,
    settings: ShiftSettings,
    data_root: DataRoot = None,
    progress: Progress | None = None,
    command: str = "usvit.measure_shift",
    overrides: Mapping[str, Any] | None = None,
    **run_settings: Any,
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
        settings: See ``ShiftSettings``.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the record.
        overrides: Settings of the trainings by dotted key, as in ``cross_validate``.
        **run_settings: The same settings with double underscores for dots: ``train__steps=20``.

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
    _check_arguments(sets, settings)
    from usvit.experiments import run_config
    from usvit.metrics.prevalence import check_prevalence
    from usvit.scoring import parse_rule
    from usvit.upstream.studies.shift.measurement import ShiftRequest, measure
    from usvit.upstream.studies.shift.sets import open_sets, parse_sources

    rule = parse_rule(settings.rule)
    if settings.prevalence is not None:
        check_prevalence(settings.prevalence)
    config = run_config(
        "phantom" if all(_is_phantom(str(one)) for one in sets) else "busi",  # it decides on the default recipe alone
        settings.model,
        recipe=settings.recipe,
        weights=settings.weights,
        seed=settings.seed,
        overrides=overrides,
        sections=run_settings,
    )
    if config.data.manifest is not None:
        raise UsvitError("data.manifest does not go with 'usvit study shift': name the manifest as one of the sets.")
    shown = shown_progress(progress)
    data = config.data.model_copy(update={"manifest": None, "keep_list": None})
    sources = parse_sources([str(one) for one in sets], data, roots_from(data_root))
    joined = open_sets(sources, settings.by, shown, keep_list=config.data.keep_list)
    name = "+".join(joined.names) if settings.by is None else f"by-{settings.by}"
    out = settings.out or Path("studies") / f"shift-{name}"
    request = ShiftRequest(joined, config, rule, settings, out, command)
    return measure(request, shown)


def _check_arguments(sets: Sequence[str | Path], settings: ShiftSettings) -> None:
    if not sets:
        raise UsvitError("No set is named. Name at least two: usvit study shift A B, or one with --by device.")
    if settings.by is None and len(sets) < 2:
        raise UsvitError(
            "Shift is measured between sets, and only one is named. Name at least two (usvit study shift A B), or a "
            "column whose values are the sets (--by device)."
        )
    if bad := [one for one in settings.sizes if one < 2]:
        raise UsvitError(f"A recalibration on {bad[0]} patients is impossible: give whole numbers from 2 on (--sizes).")


def _is_phantom(text: str) -> bool:
    source = text.partition("=")[2] or text
    return source == "phantom" or (Path(source) / "phantom.csv").is_file()
