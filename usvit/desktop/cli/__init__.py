"""The command ``usvit app``."""
