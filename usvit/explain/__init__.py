"""What a trained network looks at: attention, saliency, and how both agree with lesion masks."""

from usvit.explain.run import METHODS, Explained, explain

__all__ = ["METHODS", "Explained", "explain"]
