"""Configuration: every setting, its permitted values and its meaning.

A configuration is built in three layers; later layers take precedence: a recipe (YAML in ``configs/``), the command
line's own options, and ``--set key=value``. The result is complete: every default is written into ``run.json``, so
that a run never depends on the defaults of a later version. ``RunConfig`` (fine-tuning) and ``PretrainConfig``
(upstream) share their sections.
"""

from usvit.config.run import RunConfig, Training, identity
from usvit.config.sections import (
    Attention,
    ClassKeys,
    DataConfig,
    EarlyStoppingConfig,
    Head,
    InputConfig,
    LoraConfig,
    LoraTarget,
    LossConfig,
    ModelConfig,
    OptimConfig,
    Pool,
    Position,
    PositionAt,
    Refinement,
    Residual,
    SplitConfig,
    Stem,
    TrainConfig,
    Tune,
    Unit,
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
    refuse_unknown_settings,
)
from usvit.config.views import HOST_POLICIES, MixConfig, ViewsConfig
from usvit.config.vit_shape import ViTShape

__all__ = [
    "HOST_POLICIES",
    "Attention",
    "ClassKeys",
    "DataConfig",
    "EarlyStoppingConfig",
    "Head",
    "InputConfig",
    "LoraConfig",
    "LoraTarget",
    "LossConfig",
    "MixConfig",
    "ModelConfig",
    "OptimConfig",
    "Pool",
    "Position",
    "PositionAt",
    "Refinement",
    "Residual",
    "RunConfig",
    "SplitConfig",
    "Stage",
    "Stem",
    "TrainConfig",
    "Training",
    "Tune",
    "Unit",
    "ViTConfig",
    "ViTShape",
    "ViewsConfig",
    "build",
    "build_config",
    "config_keys",
    "identity",
    "load_recipe",
    "merge",
    "nested",
    "parse_overrides",
    "recipe_names",
    "refuse_unknown_settings",
]
