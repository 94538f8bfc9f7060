"""The experiment of a transfer, by its method."""

from typing import Any

from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.segmentation.experiment import Segmentation
from usvit.upstream.transfer_learning.experiment import Transfer, UpstreamSelection


def transfer_of(
    config: TransferConfig, *, model_named: bool = False, **arguments: Any
) -> Transfer | UpstreamSelection | Segmentation:
    """Create a transfer, a choice among several upstream weights, or a segmentation.

    Args:
        config: The complete configuration.
        model_named: Use the network ``config.model.name``; otherwise the metadata of the weights names the network.
        **arguments: Those of ``Experiment``.
    """
    made = Segmentation if config.how == "segment" else UpstreamSelection if config.upstream else Transfer
    return made(config, model_named=model_named, **arguments)
