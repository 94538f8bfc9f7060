"""The commands of ``usvit review``."""
