"""Every objective, by the name that a recipe gives it."""

import importlib

from usvit.config import PretrainConfig
from usvit.pretrain.plan import MakeObjective

UNLABELLED = ("mae", "beit", "tokenizer", "masked_patch")
"""Objectives that need no labels."""


def make_objective(config: PretrainConfig) -> MakeObjective:
    """What makes the objective of a recipe; each family's file is read when it is wanted."""
    name = "distill" if config.objective == "supervised" and config.distill.kind != "none" else config.objective
    make: MakeObjective = importlib.import_module(f"usvit.pretrain.{name}").make
    return make
