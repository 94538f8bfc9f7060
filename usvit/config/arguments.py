"""Arguments of a cross-validation or hold-out that stand for settings of its configuration."""

from typing import Annotated

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section


class RunArguments(Section):
    """What a cross-validation or hold-out starts from; None: as the recipe says."""

    recipe: Annotated[TextOrPath, Option(metavar="NAME|FILE")] = None
    """Name of a recipe, or a YAML file. (default: the 2022 study's recipe for the model, ``demo`` for the phantom)"""
    weights: Annotated[TextOrPath, Option(metavar="W")] = None
    """Initial weights: hub, hub:UPSTREAM[=FILE], scratch, a file, or a run. (default: the recipe's)"""
    manifest: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """Manifest that 'usvit data prepare' wrote, instead of a data set."""
    folds: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """Fixed folds, as 'usvit data split' writes them."""
    seed: int | None = None
    """Seed of folds, weights, order and augmentation, at least 0. (default: 0)"""
