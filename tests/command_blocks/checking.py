"""Whether a command is understood: its options, the types of their values, its settings, and the names that it uses."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.command_blocks.blocks import Command
from tests.test_api import COMMANDS
from usvit.data.datasets import load_card
from usvit.models import find_model
from usvit.upstream.sources.catalog import SOURCES
from usvit.upstream.studies import list_studies

TRAININGS = ("cv", "train", "pretrain", "transfer", "test")
"""Commands that build a whole configuration, by recipe and settings, before an experiment begins."""


class Reached(BaseException):
    """The command was understood, and its work would begin."""


@contextlib.contextmanager
def without_work(verb: str) -> Iterator[None]:
    """Stop a command where its work would begin: at the experiment of a training, else at its public function."""

    def begin(*_: Any, **__: Any) -> None:
        raise Reached

    with pytest.MonkeyPatch.context() as patch:
        if verb in TRAININGS:
            patch.setattr("usvit.experiments.api.check_images", lambda *_: None)  # they are the user's
            patch.setattr("usvit.experiments.base.Experiment.run", begin)
        else:
            patch.setattr(COMMANDS[verb], begin)
            for other in ("usvit.reviewing.write_demo", "usvit.retesting.repeatability"):
                patch.setattr(other, begin)
        yield


def verb_of(command: Command) -> str:
    """The key of a command in ``COMMANDS``: ``cv``, ``data audit``; the default of a group is said, too."""
    first = command.words[0]
    if first in COMMANDS:
        return first
    two = " ".join(command.words[:2])
    return two if two in COMMANDS else {"study": "study run", "review": "review serve"}[first]


def understood(usvit: Callable[..., Any], command: Command) -> None:
    """Assert that a command reaches its work."""
    with without_work(verb_of(command)):
        try:
            answer = usvit(*command.words)
        except Reached:
            pass
        else:
            pytest.fail(f"{command.text}\n{answer.err or answer.out}")
    check_names(command)


def check_names(command: Command) -> None:
    """Look up the networks, data cards, sources and studies of a command; each lookup refuses an unknown name."""
    verb, words = verb_of(command), command.words
    options = list(itertools.pairwise(words))
    if verb in (*TRAININGS, "explain", "bench", "models export"):
        for name in (part for option, value in options if option == "--model" for part in value.split("+")):
            find_model(name)
    for name in (part for option, value in options if option == "--dataset" for part in value.split("+")):
        load_card(name)
    for name in (value.partition(":")[0] for option, value in options if option == "--source"):
        assert {*name.split("+")} <= {*SOURCES}, command.text
    first = itertools.takewhile(lambda word: not word.startswith("--"), words[1:])
    if verb == "bench":
        for name in first:
            find_model(name)
    if verb == "study run" and words[1] not in ("list", "all"):
        names = {study.name for study in list_studies()}
        assert all(name in names or name.endswith(".yaml") for name in first), command.text
