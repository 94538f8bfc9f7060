"""The table of the commands, and a group that imports the module of a command only in order to run it.

Typer builds every option of every command before it parses the command line. With the table, ``usvit --help`` lists the
commands without their modules, and ``usvit cv --help`` imports one of them.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup

from usvit.cli.parameters import with_parameters
from usvit.plugins import CommandEntry, plugin_commands

_PANELS = {
    "Data and training": {
        "data": CommandEntry(
            "usvit.cli.data", "app", "Show, check, audit and split data sets, and write the phantom data set."
        ),
        "cv": CommandEntry(
            "usvit.cli.cv",
            "cv",
            "Cross-validate a model: make folds that separate patients and near-duplicates, train, and report metrics.",
        ),
        "train": CommandEntry(
            "usvit.cli.cv",
            "train",
            "Train once on a 70/15/15 hold-out; files and report are the same as those of 'usvit cv'.",
        ),
        "ensemble": CommandEntry(
            "usvit.cli.ensemble",
            "ensemble",
            "Average runs with the same folds: each test image by the networks that were not trained on it.",
        ),
        "models": CommandEntry(
            "usvit.cli.models",
            "app",
            "List, describe, export, sign and share networks, and pin their weights.",
            private=False,
        ),
        "recipes": CommandEntry(
            "usvit.cli.listings", "recipes", "List the recipes of trainings, or show one.", private=False
        ),
        "settings": CommandEntry(
            "usvit.cli.listings",
            "settings",
            "List the settings of a training: key, default and meaning.",
            private=False,
        ),
    },
    "Evaluation": {
        "evaluate": CommandEntry(
            "usvit.cli.evaluate",
            "evaluate",
            "Compute all metrics with intervals from a run, or from any table of predictions, also of another tool.",
        ),
        "report": CommandEntry(
            "usvit.cli.report",
            "report",
            "Write the report of a run: report.html (a single file that works offline), report.md, and figures for a "
            "paper.",
        ),
        "compare": CommandEntry(
            "usvit.cli.compare",
            "compare",
            "Compare runs on the same images and folds with paired, patient-clustered tests, corrected for several "
            "pairs.",
            private=False,
        ),
        "explain": CommandEntry(
            "usvit.cli.explain", "explain", "Show where a network looks, and compare the maps with lesion masks."
        ),
        "retest": CommandEntry(
            "usvit.cli.retest",
            "retest",
            "Change the test images of a run in controlled ways, and score them again with its networks.",
        ),
        "mrmc": CommandEntry(
            "usvit.cli.mrmc",
            "mrmc",
            "Analyse a reader study: figures of readers and modalities, with intervals that count readers and "
            "patients.",
        ),
        "plan": CommandEntry(
            "usvit.cli.plan", "app", "Plan the size of a study: how many patients it needs, and what other sizes give."
        ),
    },
    "Scoring and reading": {
        "score": CommandEntry(
            "usvit.cli.score",
            "score",
            "Score every image in the inputs, and list what cannot be scored with the reason.",
        ),
        "recalibrate": CommandEntry(
            "usvit.cli.recalibrate",
            "recalibrate",
            "Fit temperature, thresholds and conformal sets on local labels, and print their uncertainty.",
        ),
        "watch": CommandEntry(
            "usvit.cli.watch",
            "watch",
            "Watch a model in use: compare scores, images, failures and decisions of each month with a baseline.",
        ),
    },
    "Help": {
        "doctor": CommandEntry(
            "usvit.cli.doctor",
            "doctor",
            "Check packages, decoders, device, memory, disk and folders, and say what is missing and how to mend it.",
            private=False,
        ),
        "kit": CommandEntry("usvit.cli.kit", "app", "Build, verify and install air-gap kits.", private=False),
        "docs": CommandEntry(
            "usvit.cli.docs", "docs", "Show a page of the documentation, or list the pages.", private=False
        ),
    },
}
CORE = {name: entry._replace(panel=panel) for panel, entries in _PANELS.items() for name, entry in entries.items()}
"""Commands of the core: name -> command, in the order of ``usvit --help``."""


@functools.cache
def all_commands() -> dict[str, CommandEntry]:
    """Return the commands of the core and, after them, those of plug-ins; of two with one name, the core's."""
    added = plugin_commands()
    return CORE | {name: entry for name, entry in added.items() if name not in CORE and " " not in name}


def find_command(name: str) -> CommandEntry | None:
    """Return the command of this name, without looking for plug-ins if it is one of the core."""
    return CORE.get(name) or all_commands().get(name)


class LazyGroup(TyperGroup):
    """The group of all commands: it lists them by the table, and imports the command that is run.

    ``commands`` holds a stand-in with the name and the help text until a command is imported.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = _stand_ins(CORE)

    def list_commands(self, ctx: Any) -> list[str]:  # the types of Typer's Click are private
        """Return the names of all commands, those of plug-ins last."""
        self._add_plugins()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return the stand-in of a command; plug-ins are looked for only if it is none of the core."""
        if cmd_name not in self.commands:
            self._add_plugins()
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command of the first argument, which Click runs, or whose options it completes."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = self.commands[name] = import_command(name)
        return name, command, rest

    def import_all(self) -> "LazyGroup":
        """Import every command, for a caller that walks through ``commands``, and return the group itself."""
        self.commands = {name: import_command(name) for name in all_commands()}
        return self

    def _add_plugins(self) -> None:
        self.commands = {**_stand_ins(all_commands()), **self.commands}


def _with_help_all(call: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the option ``--help-all``, if it has options that ``--help`` does not show."""
    parameters = list(inspect.signature(call).parameters.values())
    n_hidden = sum(getattr(one.default, "hidden", False) for one in parameters)
    if not n_hidden or "help_all" in [one.name for one in parameters]:  # a group that was imported before has it
        return call

    def show_all(ctx: typer.Context, asked: bool) -> None:
        if asked:
            for one in ctx.command.params:
                one.hidden = False  # type: ignore[attr-defined]  # of options; no argument is hidden
            ctx.get_help()
            ctx.exit()

    option = typer.Option(
        False,
        "--help-all",
        is_eager=True,
        callback=show_all,
        help=f"Show {n_hidden} more options, which are seldom needed, and stop.",
    )
    more = inspect.Parameter("help_all", inspect.Parameter.KEYWORD_ONLY, default=option, annotation=bool)

    @functools.wraps(call)
    def without(*, help_all: bool, **values: Any) -> None:
        call(**values)

    return with_parameters(without, [*parameters, more])


def _stand_ins(entries: Mapping[str, CommandEntry]) -> dict[str, Any]:
    return {name: TyperCommand(name, help=entry.help, rich_help_panel=entry.panel) for name, entry in entries.items()}


def import_command(name: str) -> Any:
    """Import a command or group of commands and return it as Typer builds it, with all its options.

    A group gets the commands that plug-ins add to it.
    """
    entry = all_commands()[name] if name not in CORE else CORE[name]
    found = getattr(import_module(entry.module), entry.attribute)
    parent = typer.Typer()
    if isinstance(found, typer.Typer):
        known = {command.name for command in found.registered_commands}
        for whole, added in plugin_commands().items():
            group, _, inner = whole.partition(" ")
            if group == name and inner and inner not in known:
                found.command(inner)(getattr(import_module(added.module), added.attribute))
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    for app in (parent, found):
        for command in getattr(app, "registered_commands", ()):
            command.help = unfolded(command.help or command.callback.__doc__ or "")
            if command.callback is not None:
                command.callback = _with_help_all(command.callback)
    made: Any = typer.main.get_group(parent).commands[name]
    made.rich_help_panel = entry.panel
    return made


def unfolded(text: str) -> str:
    """Join the lines of each paragraph of a docstring; Typer keeps the line breaks after the first paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
