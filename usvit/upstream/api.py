"""The public functions of upstream training, transfer and tests of classifiers.

Settings come in the same layers as those of ``usvit.experiments.api``.
"""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.arguments import checked_arguments
from usvit.config import build, merge, nested
from usvit.config.keywords import takes_settings
from usvit.data.datasets import DataRoot, roots_from
from usvit.errors import UsvitError
from usvit.experiments import Settings, call_text, given_settings, name_in
from usvit.progress import Progress
from usvit.resources import process_rank, said_once
from usvit.upstream.config.pretrain import PretrainArguments, PretrainConfig
from usvit.upstream.config.sweep import (
    cells,
    choose_cells,
    for_dataset,
    read_recipe,
    settings_for,
    size_note,
    yielding,
)
from usvit.upstream.config.test import TestArguments, TestConfig
from usvit.upstream.config.transfer import TransferArguments, TransferConfig
from usvit.upstream.sources.open import check_source

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.upstream.records.test import TestRecord
    from usvit.upstream.records.training import PretrainRecord, TransferRecord

logger = logging.getLogger(__name__)


@checked_arguments
def pretrain(
    recipe: str | Path = "fractals",
    model: str | None = None,
    *,
    source: str | None = None,
    cell: str | None = None,
    out: str | Path | None = None,
    **arguments: Any,
) -> "RunResult[PretrainRecord]":
    """Pre-train a network: supervised, distilled or self-supervised.

    Args:
        recipe: Name or YAML file of a recipe of ``usvit recipes``.
        model: Name of a model of ``usvit models list``, or ``timm:NAME``. Default: the model of the recipe.
        source: The training images: a name of ``usvit pretrain --list-sources``, or several joined by ``+``.
        cell: A cell of the recipe's sweep, or ``recommended``.
        out: The run directory. Default: ``runs/pretrain-<source>-<model>-<recipe>-seed<n>``.
        **arguments: Further arguments of ``pretrain_sweep``: ``dataset``, ``weights``, ``folds``, ``data_root``,
            ``seed``, ``progress``, ``command``, ``overrides``, and settings with double underscores.

    Returns:
        The run; ``result`` is the content of ``pretrain.json``.

    Raises:
        UsvitError: A setting, the images or the weights cannot be used, or ``cell`` stands for several trainings.

    Example:
        >>> import tempfile
        >>> from usvit import pretrain
        >>> with tempfile.TemporaryDirectory() as out:
        ...     run = pretrain(
        ...         "fractals", out=out, model__image_size=32, model__vit={"depth": 1, "width": 24, "heads": 2},
        ...         source__size=24, source__image_size=32, source__classes=3, train__batch_size=8, train__steps=1,
        ...         workers=0, device="cpu",
        ...     )
        >>> run.result.kept[0].step
        1
    """
    if cell == "all":
        raise UsvitError("cell='all' stands for all cells of a sweep. Name one, or call pretrain_sweep.")
    (run,) = pretrain_sweep(recipe, model, source=source, cell=cell, out=out, **arguments).values()
    return run


@takes_settings
def pretrain_sweep(
    recipe: str | Path = "fractals",
    model: str | None = None,
    *,
    settings: PretrainArguments,
    data_root: DataRoot = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **sections: Any,
) -> "dict[str, RunResult[PretrainRecord]]":
    """Pre-train one network for each cell of a recipe's sweep, one after the other.

    Args:
        recipe, model: As in ``pretrain``.
        settings: See ``PretrainArguments``.
        out: The run directory, or the folder of the runs if there are several.
        data_root, progress, command, overrides, sections: As in ``cross_validate``.

    Returns:
        Name of each cell -> its run; the name is "" if ``cell`` is None.

    Raises:
        UsvitError: A setting, the images or the weights cannot be used, or several runs have no folder ``out``.
    """
    command = command or call_text("pretrain", locals())
    source, dataset, folds, cell = settings.source, settings.dataset, settings.folds, settings.cell
    with said_once():
        read = read_recipe(str(recipe), "pretrain")
        over = nested(overrides or {})
        given = given_settings(
            {"data__dataset": dataset, "split__file": folds, "source__name": source, "model__name": model}
            | {"model__weights": settings.weights, "seed": settings.seed},
            sections,
        )
        chosen = name_in(over, "model") or name_in(given, "model")
        variants = {"": {}} if cell is None else choose_cells(read, cell, chosen)
        variants = yielding(variants, merge(given, over))  # cells that become equal are trained once
        if len(variants) > 1 and out is None:
            raise UsvitError("A whole sweep needs a folder for its runs: pass --out DIR.")
        base = settings_for(read, chosen)
        configs = {name: build(PretrainConfig, base, variant, given, over) for name, variant in variants.items()}
        used = next(iter(configs.values())).source.name
        if (dataset or folds) and "data" not in used.split("+"):
            raise UsvitError(
                f"--dataset and --folds belong to the source data, and the images are those of {used}. Pass --source "
                f"data, or --source {used}+data for both without labels, or leave them out. To keep a data set's "
                f"images out: --set source.exclude=[NAME]."
            )
    for config in configs.values():
        check_source(config.source)  # before PyTorch is imported and weights are sought
    if process_rank() == 0 and (note := size_note(read, chosen)):
        logger.info(note)
    from usvit.upstream.pretraining_run.experiment import Pretraining

    runs = {}
    for name, config in configs.items():
        folder = None if out is None else Path(out, name) if len(configs) > 1 else Path(out)
        experiment = Pretraining(config, roots=roots_from(data_root), out=folder, command=command, progress=progress)
        runs[name] = experiment.run()
    return runs


@takes_settings
def transfer(
    how: str | None = None,
    weights: str | Path | Sequence[str] | None = None,
    *,
    settings: TransferArguments,
    data_root: DataRoot = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **sections: Any,
) -> "RunResult[TransferRecord]":
    """Transfer upstream weights to other images: a probe of frozen features, or fine-tuning.

    Strengths of regularisation and cells are chosen on validation images; the test images are used once.

    Args:
        how: ``fewshot``, ``linear``, ``knn``, ``retrieval`` or ``text`` (on frozen features), ``segment`` (a head for
            the class of each pixel, in folds), or ``finetune``. Default: as the recipe says, otherwise ``fewshot``.
        weights: A run of ``pretrain``, ``hub``, ``hub:UPSTREAM``, ``scratch`` or a file; or several of them, of which
            one is chosen by upstream validation and by adapting all.
        settings: See ``TransferArguments``.
        out: The run directory. Default: a folder of ``runs`` that is named after the settings.
        data_root, progress, command, overrides, sections: As in ``cross_validate``.

    Returns:
        The run; ``result`` is the content of ``transfer.json``.

    Raises:
        UsvitError: A setting, the images or the weights cannot be used. Nothing has been written then.
        LeakageError: The network has seen, or is trained on, test images.

    Example:
        >>> import usvit
        >>> run = usvit.transfer(
        ...     "knn", "scratch", dataset="phantom", model="timm:test_resnet", out="runs/knn",
        ...     model__image_size=32, device="cpu",
        ... )
        >>> run.result.how
        'knn'
    """
    command = command or call_text("transfer", locals())
    source = "data" if settings.dataset is not None and settings.source is None else settings.source
    several = () if weights is None else (str(weights),) if isinstance(weights, str | Path) else tuple(weights)
    over = nested(overrides or {})
    given = given_settings(
        {"how": how, "data__dataset": settings.dataset, "source__name": source}
        | {"model__name": settings.model, "seed": settings.seed}
        | {"model__weights": several[0] if len(several) == 1 else None}
        | {"upstream": list(several) if len(several) > 1 else None},
        sections,
    )
    wanted = name_in(over, "model") or name_in(given, "model")
    images = name_in(over, "source") or name_in(given, "source")
    base: Settings = {}
    if settings.recipe is not None:
        base = transfer_settings(settings.recipe, images, wanted, settings.cell)
        if note := size_note(read_recipe(settings.recipe, "transfer"), wanted):
            logger.info(note)
        if given.get("how", base.get("how")) != "finetune":
            base.pop("cells", None)
        if "cells" in base:
            base["cells"] = yielding(base["cells"], merge(given, over))
    elif "retrieval" in (how, over.get("how")) and len(several) == 1 and images is None:
        from usvit.upstream.transfer_learning.run_source import own_images

        base = own_images(several[0])
    config = build(TransferConfig, base, given, over)
    from usvit.upstream.transfer_learning.factory import transfer_of

    experiment = transfer_of(
        config,
        model_named=wanted is not None,
        roots=roots_from(data_root),
        out=None if out is None else Path(out),
        command=command,
        progress=progress,
    )
    return experiment.run()


@takes_settings
def test(
    *classifiers: str | Path,
    settings: TestArguments,
    data_root: DataRoot = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    **sections: Any,
) -> "RunResult[TestRecord]":
    """Test fixed classifiers on labelled images; nothing is trained or chosen.

    Preprocessing is that of the weights: from the metadata of a run, or from timm's configuration. All classifiers are
    tested on the same images.

    Args:
        classifiers: Each is a run of usvit (all of its folds, one by one), the folder of a fold, ``MODEL`` (the hub's
            recommended weights) or ``MODEL=WEIGHTS`` with the weights ``hub``, ``hub:UPSTREAM`` or a file.
        settings: See ``TestArguments``.
        data_root, progress, command, overrides, sections: As in ``cross_validate``.
        out: The run directory. Default: a folder of ``runs`` that is named after sources and classifier.

    Returns:
        The run; ``result`` is the content of ``test.json``.

    Raises:
        UsvitError: A classifier or the images cannot be used, or the classes do not match. Nothing has been written
            then.
        LeakageError: A classifier was trained on some of the images.

    Example:
        >>> import usvit
        >>> trained = usvit.pretrain(
        ...     "fractals", out="runs/fractals", model__image_size=32, source__size=64, source__classes=4,
        ...     model__vit={"depth": 1, "width": 24, "heads": 2}, train__steps=2, train__batch_size=8, device="cpu",
        ... )
        >>> run = usvit.test(trained.path, source="fractals", source__size=16, source__classes=4, device="cpu")
        >>> run.result.results[0].n_images
        16
    """
    command = command or call_text("test", locals())
    model, sources = settings.model, settings.source
    named = tuple(one if model is None else f"{model}={one}" for one in settings.weights)
    if model is not None and not named:
        named = (model,)
    chosen = (*map(str, classifiers), *named)
    if settings.dataset is not None and "data" not in sources:
        sources = (*sources, "data")
    given = given_settings(
        {"classifiers": list(chosen) or None, "sources": list(sources) or None, "data__dataset": settings.dataset}
        | {"head": list(settings.head) or None},
        sections,
    )
    config = build(TestConfig, given, nested(overrides or {}))
    from usvit.upstream.classifier_test.experiment import ClassifierTest

    folder = None if out is None else Path(out)
    return ClassifierTest(config, roots=roots_from(data_root), out=folder, command=command, progress=progress).run()


test.__test__ = False  # type: ignore[attr-defined]  # keeps pytest from collecting it


def transfer_settings(name: str, source: str | None, model: str | None, cell: str | None) -> Settings:
    """Return the settings of a recipe of ``usvit transfer`` for these images and this model.

    Args:
        name: Name or YAML file of the recipe.
        source: The images; None for those of the recipe.
        model: The network; None for that of the recipe.
        cell: The only cell that is trained; None for all cells of the sweep, which are listed in ``cells``.

    Raises:
        UsvitError: There is no such recipe or cell.
    """
    recipe = read_recipe(name, "transfer")
    source = source or recipe.source
    recipe = recipe if source is None else for_dataset(recipe, source)
    chosen = cells(recipe) if cell is None else choose_cells(recipe, cell, model)
    return {**settings_for(recipe, model), **({"cells": chosen} if chosen else {})}
