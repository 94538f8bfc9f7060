"""Process untrusted files in worker processes with limits on time and memory."""

from usvit.limited.calls import LimitedCalls, LimitReached

__all__ = ["LimitReached", "LimitedCalls"]
