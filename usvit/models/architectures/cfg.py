"""Configuration that timm needs for an architecture without released weights."""


def untrained(
    first_conv: str, classifier: str | tuple[str, ...] = "head", *, fixed_input_size: bool = True
) -> dict[str, object]:
    """Return a timm ``pretrained_cfg`` without weights, for images of 224 pixels that are normalised to [-1, 1].

    Args:
        first_conv: Name of the layer that reads the image.
        classifier: Name of the layer that computes the logits, or of each such layer.
        fixed_input_size: True if the network is built for one image size.
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
