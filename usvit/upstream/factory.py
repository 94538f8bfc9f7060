"""Create the experiment of a complete configuration."""

from typing import TYPE_CHECKING, Any, Literal

from usvit.config import RunConfig, Training
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig

if TYPE_CHECKING:
    from usvit.experiments import Experiment


def make_experiment(
    kind: Literal["cv", "train", "pretrain", "transfer", "test"], config: Training | TestConfig, **arguments: Any
) -> "Experiment[Any, Any, Any]":
    """Create the experiment of a complete configuration, without running it.

    Args:
        kind: ``cv``, ``train``, ``pretrain``, ``transfer`` or ``test``.
        config: Its configuration. The network of a transfer is that of its weights, if usvit trained them.
        **arguments: Those of ``Experiment``: ``roots``, ``out``, ``command``, ``progress``.
    """
    if isinstance(config, TransferConfig):
        from usvit.upstream.transfer_learning.experiment import Transfer, UpstreamSelection

        return (UpstreamSelection if config.upstream else Transfer)(config, model_named=False, **arguments)
    if isinstance(config, PretrainConfig):
        from usvit.upstream.pretraining_run.experiment import Pretraining

        return Pretraining(config, **arguments)
    if isinstance(config, TestConfig):
        from usvit.upstream.classifier_test.experiment import ClassifierTest

        return ClassifierTest(config, **arguments)
    from usvit.experiments import CrossValidation

    assert isinstance(config, RunConfig) and kind in ("cv", "train")
    return CrossValidation(kind, config, **arguments)
