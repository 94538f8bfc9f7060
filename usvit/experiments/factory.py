"""Make the experiment of a complete configuration, without running it."""

from typing import TYPE_CHECKING, Any

from usvit.plugins import load
from usvit.records import run_kinds

if TYPE_CHECKING:
    from pydantic import BaseModel

    from usvit.config import RunConfig
    from usvit.experiments.base import Experiment


def make_experiment(kind: str, config: "BaseModel", **arguments: Any) -> "Experiment[Any, Any, Any]":
    """Create the experiment of a complete configuration, without running it.

    Args:
        kind: A kind of run that has an experiment: ``cv``, ``train``, or one of a plug-in.
        config: Its configuration. The network of a transfer is that of its weights, if usvit trained them.
        **arguments: Those of ``Experiment``: ``roots``, ``out``, ``command``, ``progress``.
    """
    place = run_kinds()[kind].experiment
    assert place is not None, kind
    experiment: Experiment[Any, Any, Any] = load(place)(config, **arguments)
    return experiment


def cross_validation(config: "RunConfig", **arguments: Any) -> "Experiment[Any, Any, Any]":
    """Create a cross-validation; arguments as for ``make_experiment``."""
    from usvit.experiments.cross_validation import CrossValidation

    return CrossValidation("cv", config, **arguments)


def hold_out(config: "RunConfig", **arguments: Any) -> "Experiment[Any, Any, Any]":
    """Create a training with a hold-out; arguments as for ``make_experiment``."""
    from usvit.experiments.cross_validation import CrossValidation

    return CrossValidation("train", config, **arguments)
