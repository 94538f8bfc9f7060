"""The states that the server sends are those that the reference page lists and that the tests of the page use."""

import re
from typing import get_args

import pytest

from tests.conftest import REPOSITORY
from tests.reviewing.fake_server import AID, EVERY_KIND, MASKS, FakeServer, image, task
from usvit.records import Record
from usvit.reviewing.states import HostState, ReaderState, ReadingTask

PAGE = (REPOSITORY / "docs" / "reference" / "review-page.md").read_text()
STATE = PAGE[PAGE.index("## The state") :]


def parts(kind):
    """Records in an annotation."""
    if isinstance(kind, type) and issubclass(kind, Record):
        yield kind
    for one in get_args(kind):
        yield from parts(one)


def keys(model):
    """Keys of a record and of its parts."""
    yield from model.model_fields
    for field in model.model_fields.values():
        for part in parts(field.annotation):
            yield from keys(part)


@pytest.mark.parametrize("model", [ReaderState, HostState])
def test_the_reference_page_names_every_key(model):
    assert {*keys(model)} - {*re.findall(r"`(\w+)`", STATE)} == set()


def test_the_reference_page_names_no_other_key_of_a_task():
    rows = re.findall(r"^\| ((?:`\w+`,? ?)+) \|", STATE, re.MULTILINE)
    assert [word for row in rows for word in re.findall(r"\w+", row)] != []
    assert {word for row in rows for word in re.findall(r"\w+", row)} == {*ReadingTask.model_fields}


def test_the_made_up_server_speaks_as_the_real_one_does():
    server = FakeServer()
    earlier = [{"label": "Without the model", "answers": {"verdict": "benign"}}]
    server.begin([task([image("a")], EVERY_KIND, aid=AID, masks=MASKS, earlier=earlier), task([image("b")], [])])
    state = server.state()
    assert ReaderState.model_validate(state).content() == state
    assert {*nested(state)} - {"verdict"} <= {*keys(ReaderState)}


def nested(value):
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nested(one)
    yield from value if isinstance(value, dict) else ()
