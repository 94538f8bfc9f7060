"""What is added to a classifier for its training, and left out of the saved network."""

from torch import nn


class TrainingAddition(nn.Module):
    """A classifier with a further part; the parts of the classifier are found as without it.

    Args:
        network: The classifier.
    """

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    @property
    def hidden(self) -> nn.Module | None:
        """The hidden layer of the network's head, if it has one (``usvit.models.trainable.head_parts``)."""
        return getattr(self.network, "hidden", None)

    def get_classifier(self) -> nn.Module:
        """Return the classifier of the network, as timm's networks do."""
        found: nn.Module = self.network.get_classifier()  # type: ignore[operator]
        return found
