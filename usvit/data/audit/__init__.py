"""The audit of a data set: what is wrong with it before any model has seen it."""

from usvit.data.audit.run import Audit, audit

__all__ = ["Audit", "audit"]
