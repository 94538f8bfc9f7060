"""The public functions of cross-validation and hold-out: from a recipe and settings to a finished run.

Settings come in three layers, of which the later win: the recipe, the arguments, and ``overrides``. Every setting of
docs/reference/configuration.md can be given as a keyword with double underscores, ``train__steps=20``, or in
``overrides``, ``{"train.steps": 20}``. PyTorch is imported after the settings have been checked.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from usvit.config import RunConfig, build_config, load_recipe, merge, nested, refuse_unknown_settings
from usvit.config.arguments import RunArguments
from usvit.config.keywords import takes_settings
from usvit.data.datasets import DataRoot, OwnTable, check_images, load_cards, roots_from
from usvit.experiments.arguments import Settings, call_text, given_settings
from usvit.progress import Progress, shown_progress

if TYPE_CHECKING:
    from usvit.experiments.run_directory import RunResult
    from usvit.records import MetricsRecord


@takes_settings
def cross_validate(
    dataset: str | None = None,
    model: str | None = None,
    *,
    settings: RunArguments,
    data_root: DataRoot = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **sections: Any,
) -> "RunResult[MetricsRecord]":
    """Cross-validate a model: train one network per fold and measure the pooled predictions of the test images.

    No patient, and no group of near-duplicates, is in two splits of a fold. A run that was interrupted is resumed by
    the same call. The default recipe is that of Gheflati and Rivaz (2022) for CNNs or for other networks, and ``demo``
    for the phantom without ``model``; networks of timm that are not CNNs then get images of their own size.

    Args:
        dataset: Name of a data set, or several joined by ``+``: ``busi+b``. Default: the embedded phantom.
        model: Name of a model of ``usvit models list``, or ``timm:NAME``. Default: the model of the recipe.
        settings: See ``RunArguments``.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        out: The run directory. Default: ``runs/<data>-<model>-<recipe>-seed<n>``.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook, and nothing elsewhere;
            ``usvit.progress.NO_PROGRESS`` shows nothing.
        command: What the user called, for ``run.json``. Default: this call.
        overrides: Settings by dotted key, which win over all others.
        **sections: Settings with double underscores for dots.

    Returns:
        The run: its ``path``, its metrics (``result``, the content of ``metrics.json`` with keys as attributes) and its
        ``record`` (that of ``run.json``).

    Raises:
        UsvitError: A setting, the data or the weights cannot be used. Nothing has been written then.
        LeakageError: The initial weights have seen test images.

    Example:
        >>> import usvit
        >>> run = usvit.cross_validate(
        ...     "phantom", "timm:test_resnet", recipe="demo", out="runs/small",
        ...     model__image_size=32, split__folds=2, train__steps=2, device="cpu",
        ... )
        >>> len(run.result.folds), run.path.name
        (2, 'small')
    """
    command = command or call_text("cross_validate", locals())
    config = run_config(dataset, model, settings=settings, overrides=overrides, sections=sections)
    return _fine_tune("cv", config, data_root=data_root, out=out, progress=progress, command=command)


@takes_settings
def train(
    dataset: str | None = None,
    model: str | None = None,
    *,
    settings: RunArguments,
    data_root: DataRoot = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **sections: Any,
) -> "RunResult[MetricsRecord]":
    """Train one network on a 70/15/15 hold-out and measure its predictions of the test images.

    Args:
        dataset, model, data_root, progress, command, overrides, sections: As in ``cross_validate``.
        settings: See ``RunArguments``.
        out: The run directory. Default: ``runs/<data>-<model>-<recipe>-seed<n>-train``.

    Returns:
        The run, as ``cross_validate`` returns it.

    Raises:
        UsvitError: A setting, the data or the weights cannot be used. Nothing has been written then.
        LeakageError: The initial weights have seen test images.

    Example:
        >>> import usvit
        >>> run = usvit.train(
        ...     "phantom", "timm:test_resnet", recipe="demo", out="runs/hold-out",
        ...     model__image_size=32, train__steps=2, device="cpu",
        ... )
        >>> run.record.kind, run.record.state
        ('train', 'finished')
    """
    command = command or call_text("train", locals())
    config = run_config(dataset, model, settings=settings, overrides=overrides, sections=sections)
    return _fine_tune("train", config, data_root=data_root, out=out, progress=progress, command=command)


def _fine_tune(
    kind: Literal["cv", "train"],
    config: RunConfig,
    *,
    data_root: DataRoot,
    out: str | Path | None,
    progress: Progress | None,
    command: str,
) -> "RunResult[MetricsRecord]":
    roots = roots_from(data_root)
    check_images(config.data, roots, shown_progress(progress))  # before PyTorch is imported and weights are sought
    from usvit.experiments.cross_validation import CrossValidation

    folder = None if out is None else Path(out)
    return CrossValidation(kind, config, roots=roots, out=folder, command=command, progress=progress).run()


@takes_settings
def run_config(
    dataset: str | None = None,
    model: str | None = None,
    *,
    settings: RunArguments,
    overrides: Mapping[str, Any] | None = None,
    sections: Mapping[str, Any] | None = None,
) -> RunConfig:
    """Return the complete configuration of the run that ``cross_validate`` makes with these arguments.

    Raises:
        UsvitError: A setting is unknown or invalid, or the manifest cannot be read.
    """
    # What the user typed is checked before a recipe is chosen, for which networks are imported.
    typed = merge(nested(sections or {}), nested(overrides or {}))
    refuse_unknown_settings(RunConfig, typed)
    recipe, manifest = settings.recipe, settings.manifest
    if dataset is not None and manifest is None:
        load_cards(dataset, OwnTable.of(typed.get("data", {})))
    own: Settings = {}
    if recipe is None:
        recipe = _default_recipe(dataset if manifest is None else manifest, model)
        own = _own_size(model)
    if manifest is not None:
        from usvit.data.datasets import dataset_or_manifest  # imports pandas, which other settings do not need

        dataset = dataset_or_manifest(dataset, manifest)
    given = given_settings(
        {"data__dataset": dataset, "data__manifest": manifest, "split__file": settings.folds}
        | {"model__name": model, "model__weights": settings.weights, "seed": settings.seed},
        sections or {},
    )
    return build_config(load_recipe(recipe), own, given, nested(overrides or {}))


def _default_recipe(dataset: str | None, model: str | None) -> str:
    """Return ``demo`` for the bare phantom, otherwise the recipe of the 2022 study for CNNs or for other networks."""
    if model is None:
        return "demo" if dataset in (None, "phantom") else "gheflati2022_vit"
    from usvit.models import find_model

    return "gheflati2022_cnn" if find_model(model).family == "cnn" else "gheflati2022_vit"


def _own_size(model: str | None) -> Settings:
    """Return the image size of one of timm's networks, if it is built for one size; otherwise nothing."""
    if model is None or not model.startswith("timm:"):
        return {}
    from usvit.models import find_model

    spec = find_model(model)
    return {} if spec.family == "cnn" else {"model": {"image_size": spec.image_size}}
