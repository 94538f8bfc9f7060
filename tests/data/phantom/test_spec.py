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


def test_a_scanner_is_written_in_one_way_and_names_the_folder():
    spec = PhantomSpec(scanner=" gain_db = 6.0, frequency_mhz=7")
    assert spec == PhantomSpec(scanner="frequency_mhz=7,gain_db=6")
    assert spec.key == f"{PhantomSpec().key}-frequency_mhz7-gain_db6"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gain=6", "Nearest: gain_db"),
        ("gain_db=60", "gain_db=60; it must be a number, -20 to 20"),
        ("gain_db", r"gain_db=\(nothing\)"),
        ("gain_db=loud", "gain_db=loud"),
        ("looks=2.5", "a whole number, 1 to 8"),
        ("gain_db=1,gain_db=2", "twice"),
    ],
)
def test_a_wrong_scanner_is_refused(text, says):
    with pytest.raises(UsvitError, match=says):
        PhantomSpec(scanner=text)
