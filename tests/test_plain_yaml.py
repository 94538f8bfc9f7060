import os

import pytest
import yaml

from usvit.errors import UsvitError
from usvit.plain_yaml import MAX_BYTES, parse_yaml, read_yaml
from usvit.resources import configs_dir

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{before}'] * 20)}]}}\n"
    for before, name in zip("abcde", "bcdef", strict=True)
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BOMB, "more than 50,000 values"),
        (MERGED, "more than 50,000 values"),
        ("a: &a [*a]", "contains itself"),
        ("steps: " + "9" * 5000, "number of 5,000 characters"),
        ("steps: 0x" + "f" * 5000, "number of 5,002 characters"),
        ("steps: " + ":".join(["59"] * 3000), "number of 8,999 characters"),
        ("a: " + "[" * 60 + "]" * 60, "nested too deeply"),
        ("[" * 5000, "nested too deeply"),
        ("a: 2001-99-99", "not valid YAML"),
        ("{[1]: 2}", "not valid YAML"),
        ("!!python/object/apply:os.system [x]", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ('a: "\\ud800"', "half of a surrogate pair"),
        ("a: {b: 1, c: 2, b: 3}", "key 'b' twice"),
        ("a: [", "not valid YAML"),
        ("#" * (MAX_BYTES + 1), "characters, and 200,000 are read"),
    ],
)
def test_what_is_beyond_the_bounds_is_refused_by_name(text, says):
    with pytest.raises(UsvitError, match=f"^The recipe x .*{says}"):
        parse_yaml(text, "The recipe x")


def test_plain_yaml_with_an_anchor_is_as_yaml_reads_it():
    text = "base: &b {lr: 1.0e-3, steps: 10}\nrun: {<<: *b, steps: 20}\nwhen: 2026-01-02\nnone:\n"
    assert parse_yaml(text, "x") == yaml.safe_load(text)
    assert parse_yaml("", "x") is None


@pytest.mark.slow
def test_every_shipped_recipe_is_far_below_the_bounds():
    for path in configs_dir().rglob("*.yaml"):
        assert parse_yaml(path.read_text(), str(path)) == yaml.safe_load(path.read_text())


def test_a_file_that_never_ends_is_refused(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(30 * 10**9)
    for name, why in (("fifo", "not a regular file"), ("sparse", "30,000,000,000 bytes"), ("none", "does not exist")):
        with pytest.raises(UsvitError, match=rf"The recipe .*{name} cannot be read: .*{why}"):
            read_yaml(tmp_path / name, "recipe")
