"""The names that the ``inference.json`` of an older MONAI bundle calls."""

from usvit.exporting.bundle import Preprocess, Probabilities, Scorer, find_images, network, with_weights

__all__ = ["Preprocess", "Probabilities", "Scorer", "find_images", "network", "with_weights"]
