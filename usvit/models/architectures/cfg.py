"""Configuration that timm needs for an architecture without weights of its own."""

from typing import Any


def untrained(first_conv: str, classifier: str = "head", *, fixed_input_size: bool = True) -> dict[str, Any]:
    """Return timm's ``pretrained_cfg`` without weights; images of 224 pixels, normalised to [-1, 1].

    Args:
        first_conv: the name of the layer that reads the image.
        classifier: of the one that gives the logits.
        fixed_input_size: whether the size of images is built in.
    """
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": None,
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "fixed_input_size": fixed_input_size,
        "mean": (0.5, 0.5, 0.5),
        "std": (0.5, 0.5, 0.5),
        "first_conv": first_conv,
        "classifier": classifier,
        "license": "apache-2.0",
    }
