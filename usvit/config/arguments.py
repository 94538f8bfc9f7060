"""Arguments of cross-validations, hold-outs and measurements of shift that stand for settings of their trainings."""

from typing import Annotated

from usvit.config.fields import Option, TextOrPath
from usvit.config.sections import Section


class TrainingArguments(Section):
    """What a training starts from; None: as the recipe says."""

    recipe: Annotated[TextOrPath, Option(metavar="NAME|FILE")] = None
    """Name of a recipe, or a YAML file. (default: the 2022 study's recipe for the model, ``demo`` for the phantom)"""
    weights: Annotated[TextOrPath, Option(metavar="W")] = None
    """Initial weights: hub, hub:UPSTREAM[=FILE], package, scratch, a file, or a run. (default: the recipe's)"""
    seed: int | None = None
    """Seed of folds, weights, order and augmentation, at least 0. (default: 0)"""


class RunArguments(TrainingArguments):
    """What a cross-validation or hold-out starts from; None: as the recipe says."""

    manifest: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """Manifest that 'usvit data prepare' wrote, instead of a data set."""
    folds: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """Fixed folds, as 'usvit data split' writes them."""
