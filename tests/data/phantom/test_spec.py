import math

import pytest

from usvit.data.phantom import GENERATOR_VERSION, PhantomSpec
from usvit.errors import UsvitError


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 2),
        ("n", -1),
        ("n", 24.0),
        ("n", True),
        ("seed", -1),
        ("seed", "0"),
        ("size", 63),
        ("size", 1025),
        ("near_duplicates", -0.1),
        ("near_duplicates", 1.1),
        ("text", math.nan),
        ("calipers", "half"),
        ("ablate", "label"),
    ],
)
def test_a_bad_value_is_refused_and_named(field, value):
    with pytest.raises(UsvitError, match=rf"{field} is {value!r}"):
        PhantomSpec(**{field: value})


def test_every_difference_in_the_spec_changes_the_key():
    specs = [
        PhantomSpec(),
        PhantomSpec(n=241),
        PhantomSpec(seed=1),
        PhantomSpec(size=128),
        PhantomSpec(near_duplicates=0.1),
        PhantomSpec(text=0.1),
        PhantomSpec(text=0.10000001),
        PhantomSpec(calipers=0.1),
        PhantomSpec(ablate="signs"),
        PhantomSpec(ablate="lesion"),
    ]
    assert len({spec.key for spec in specs}) == len(specs)


def test_key_is_a_plain_folder_name_that_holds_the_generator_version():
    assert PhantomSpec().key == f"n240-seed0-size256-v{GENERATOR_VERSION}"
    assert str(PhantomSpec(text=1)) == str(PhantomSpec(text=1.0))
    assert not set(PhantomSpec(text=1e-7, ablate="signs").key) & set("/\\ :")
