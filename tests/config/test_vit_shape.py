"""A complete shape and the changes of a shape have the same parts."""

from dataclasses import fields
from typing import get_args

from usvit.config import ViTConfig, ViTShape


def test_every_part_of_a_shape_can_be_exchanged_for_the_same_values():
    parts = {field.name: field.type for field in fields(ViTShape)}
    assert list(parts) == list(ViTConfig.model_fields)
    for name, kind in parts.items():
        changed = ViTConfig.model_fields[name].annotation
        if choices := [one for one in get_args(kind) if isinstance(one, str)]:
            assert set(choices) <= {one for part in get_args(changed) for one in get_args(part)}, name
