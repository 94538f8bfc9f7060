"""Work on files that are not trusted, in processes with bounds on time and memory; nothing of a person is kept here."""

from usvit.limited.calls import LimitedCalls, LimitReached

__all__ = ["LimitReached", "LimitedCalls"]
