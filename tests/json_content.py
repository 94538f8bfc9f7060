"""Plain JSON of what a statistic returns, for tests that hold whole results."""

from typing import Any

from pydantic import BaseModel

from usvit.estimate import Estimate


def content_of(value: Any) -> Any:
    """Convert nested dictionaries and sequences to those of JSON: estimates to their content, and tuples to lists."""
    if isinstance(value, BaseModel):
        return content_of(value.content() if isinstance(value, Estimate) else value.model_dump(exclude_unset=True))
    if isinstance(value, dict):
        return {key: content_of(one) for key, one in value.items()}
    return [content_of(one) for one in value] if isinstance(value, (list, tuple)) else value
