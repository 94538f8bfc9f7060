"""Configuration: every setting, its permitted values and its meaning.

A configuration is built in three layers; later layers take precedence: a recipe (YAML in ``configs/``), the command
line's own options, and ``--set key=value``. The result is complete: every default is written into ``run.json``, so
that a run never depends on the defaults of a later version. ``RunConfig`` (fine-tuning) and ``PretrainConfig``
(upstream) share their sections.
"""

from usvit.config.pretrain import (
    BeitConfig,
    DistillConfig,
    GrafitConfig,
    MaeConfig,
    MaskedPatchConfig,
    MixConfig,
    PretrainConfig,
    SourceConfig,
    TokenizerConfig,
    ViewsConfig,
)
from usvit.config.run import RunConfig, Training, identity
from usvit.config.sections import (
    Attention,
    ClassKeys,
    DataConfig,
    EarlyStoppingConfig,
    Head,
    InputConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    Pool,
    Position,
    PositionAt,
    SplitConfig,
    Stem,
    TrainConfig,
    Tune,
    ViTConfig,
)
from usvit.config.settings import (
    Stage,
    build,
    build_config,
    config_keys,
    load_recipe,
    merge,
    nested,
    parse_overrides,
    recipe_names,
)
from usvit.config.sweep import Recipe, cells, choose_cells, for_dataset, read_recipe, settings_for, size_note
from usvit.config.transfer import TransferConfig

__all__ = [
    "Attention",
    "BeitConfig",
    "ClassKeys",
    "DataConfig",
    "DistillConfig",
    "EarlyStoppingConfig",
    "GrafitConfig",
    "Head",
    "InputConfig",
    "LossConfig",
    "MaeConfig",
    "MaskedPatchConfig",
    "MixConfig",
    "ModelConfig",
    "OptimConfig",
    "Pool",
    "Position",
    "PositionAt",
    "PretrainConfig",
    "Recipe",
    "RunConfig",
    "SourceConfig",
    "SplitConfig",
    "Stage",
    "Stem",
    "TokenizerConfig",
    "TrainConfig",
    "Training",
    "TransferConfig",
    "Tune",
    "ViTConfig",
    "ViewsConfig",
    "build",
    "build_config",
    "cells",
    "choose_cells",
    "config_keys",
    "for_dataset",
    "identity",
    "load_recipe",
    "merge",
    "nested",
    "parse_overrides",
    "read_recipe",
    "recipe_names",
    "settings_for",
    "size_note",
]
