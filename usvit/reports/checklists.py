"""Reporting checklists, each item filled from the run, from the authors' answers, or marked "not supplied"."""

import functools
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import Environment, StrictUndefined, Template, UndefinedError

from usvit.errors import unknown

CHECKLISTS = ("claim_2024", "tripod_ai", "stard_ai")
"""Files of ``usvit/reports/checklists/``, in the order of the page."""

AUTHORS, RUN, PARTLY, NOTHING = "answered", "from the run", "partly from the run", "not supplied"


@dataclass(frozen=True)
class _ChecklistItem:
    """One item of a checklist with its answer."""

    number: str
    section: str
    asks: str
    status: str
    """``AUTHORS``, ``RUN``, ``PARTLY`` or ``NOTHING``."""
    answer: str
    """Answer of the authors; empty if there is none."""
    run: str
    """Answer from the files of the run; empty if there is none."""
    change: str = ""
    """``new`` or ``modified``, compared with the guideline that this one extends."""


@dataclass(frozen=True)
class Checklist:
    """A checklist with its answers."""

    key: str
    name: str
    source: str
    items: tuple[_ChecklistItem, ...]

    def count(self, status: str) -> int:
        return sum(item.status == status for item in self.items)


def fill_checklists(facts: dict[str, str], answers: dict[str, dict[str, str]]) -> list[Checklist]:
    """Fill every checklist.

    Args:
        facts: facts from the files of the run (``statements.facts_of``).
        answers: checklist -> item number -> answer of the authors; "" counts as none.

    Raises:
        UsvitError: an answer names a checklist or an item that does not exist.
    """
    for key in answers:
        if key not in CHECKLISTS:
            raise unknown("checklist", key, CHECKLISTS)
    return [fill_checklist(key, facts, answers.get(key, {})) for key in CHECKLISTS]


@functools.cache
def _questions(key: str) -> dict[str, Any]:
    """Return a shipped checklist, which nobody changes; parsing one takes 0.03 s."""
    text = files("usvit.reports").joinpath("checklists", f"{key}.yaml").read_text(encoding="utf-8")
    found: dict[str, Any] = yaml.safe_load(text)
    return found


@functools.cache
def _template(text: str) -> Template:
    """Return a template of plain text: the page escapes it. It is ours; what users wrote is only ever a value."""
    return Environment(undefined=StrictUndefined, autoescape=False).from_string(text)


def fill_checklist(key: str, facts: dict[str, str], answers: dict[str, str]) -> Checklist:
    """Fill one checklist, such as ``reader_study``; as ``fill_checklists``."""
    told = _questions(key)
    numbers = [item["number"] for item in told["items"]]
    for number in answers:
        if number not in numbers:
            raise unknown(f"item of {told['name']}", number, numbers)
    items = []
    for item in told["items"]:
        try:
            from_run = _template(item.get("run", "")).render(facts)
        except UndefinedError:
            from_run = ""
        answer = answers.get(item["number"], "").strip()
        status = NOTHING
        if answer:
            status = AUTHORS
        elif from_run:
            status = PARTLY if item.get("partly") else RUN
        items.append(
            _ChecklistItem(
                item["number"], item["section"], item["asks"], status, answer, from_run, item.get("change", "")
            )
        )
    return Checklist(told["key"], told["name"], told["source"], tuple(items))
