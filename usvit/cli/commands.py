"""The table of the commands, and a group that imports the module of a command only in order to run it.

Typer builds every option of every command before it parses the command line. With the table, ``usvit --help`` lists the
commands without their modules, and ``usvit cv --help`` imports one of them.
"""

import inspect
from importlib import import_module
from typing import Any, NamedTuple

import typer
import typer.main
from typer.core import TyperCommand, TyperGroup


class CommandEntry(NamedTuple):
    """Where a command is, and what the list of commands says about it."""

    module: str
    """Module below ``usvit.cli``."""
    attribute: str
    """A function, or a ``typer.Typer`` for a group of commands."""
    help: str
    """First paragraph of the help text of the command; ``tests/cli/test_commands.py`` compares the two."""
    private: bool = True
    """Whether the input may contain names of patients, so that a traceback must not quote values."""


COMMANDS = {
    "cv": CommandEntry(
        "cv",
        "cv",
        "Cross-validate a model: make folds that separate patients and near-duplicates, train, and report metrics.",
    ),
    "train": CommandEntry(
        "cv", "train", "Train once on a 70/15/15 hold-out; files and report are the same as those of 'usvit cv'."
    ),
    "pretrain": CommandEntry(
        "pretrain",
        "pretrain",
        "Pre-train a network: supervised, distilled or self-supervised, on one CPU, or on many GPUs with torchrun.",
    ),
    "transfer": CommandEntry(
        "transfer",
        "transfer",
        "Transfer upstream weights to other images by a few-shot, linear or nearest-neighbour probe, or by "
        "fine-tuning.",
    ),
    "test": CommandEntry(
        "test",
        "test",
        "Test fixed classifiers on labelled images, such as ImageNet, ReaL, ImageNet-V2, -A, -R, -Sketch and "
        "ObjectNet.",
    ),
    "ensemble": CommandEntry(
        "ensemble",
        "ensemble",
        "Average runs with the same folds: each test image by the networks that were not trained on it.",
    ),
    "evaluate": CommandEntry(
        "evaluate",
        "evaluate",
        "Compute all metrics with intervals from a run, or from any table of predictions, also of another tool.",
    ),
    "recalibrate": CommandEntry(
        "recalibrate",
        "recalibrate",
        "Fit temperature, thresholds and conformal sets on local labels, and print their uncertainty.",
    ),
    "compare": CommandEntry(
        "compare",
        "compare",
        "Compare runs on the same images and folds with paired, patient-clustered tests, corrected for several pairs.",
        private=False,
    ),
    "report": CommandEntry(
        "report",
        "report",
        "Write the report of a run: report.html (a single file that works offline), report.md, and figures for a "
        "paper.",
    ),
    "score": CommandEntry(
        "score", "score", "Score every image in the inputs, and list what cannot be scored with the reason."
    ),
    "explain": CommandEntry(
        "explain", "explain", "Show where a network looks, and compare the maps with lesion masks."
    ),
    "retest": CommandEntry(
        "retest",
        "retest",
        "Change the test images of a run in controlled ways, and score them again with its networks.",
    ),
    "bench": CommandEntry(
        "bench",
        "bench",
        "Measure images/s and peak memory of networks with the protocols of the papers.",
        private=False,
    ),
    "data": CommandEntry("data", "app", "Show, check, audit and split data sets, and write the phantom data set."),
    "docs": CommandEntry("docs", "docs", "Show a page of the documentation, or list the pages.", private=False),
    "dicom": CommandEntry("dicom", "app", "Send DICOM files to archives."),
    "models": CommandEntry(
        "models", "app", "List, describe and export networks, and pin their weights.", private=False
    ),
    "node": CommandEntry("node", "app", "A DICOM service that scores studies and sends the results back."),
    "plan": CommandEntry(
        "plan", "app", "Plan the size of a study: how many patients it needs, and what other sizes give."
    ),
    "shape": CommandEntry(
        "shape",
        "app",
        "Find the best depth, width and MLP width for a compute budget (Alabdulmohsin et al. 2023).",
        private=False,
    ),
    "study": CommandEntry("study", "app", "Run the runs of a table, pick the best, or measure shift."),
}
"""Name -> command, in the order of ``usvit --help``."""


class LazyGroup(TyperGroup):
    """The group of all commands: it lists them by the table, and imports the command that is run.

    ``commands`` holds a stand-in with the name and the help text until a command is imported.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = {name: TyperCommand(name, help=entry.help) for name, entry in COMMANDS.items()}

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # the types of Typer's Click are private
        """Return the command of the first argument, which Click runs, or whose options it completes."""
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None:
            command = self.commands[name] = import_command(name)
        return name, command, rest

    def import_all(self) -> "LazyGroup":
        """Import every command, for a caller that walks through ``commands``, and return the group itself."""
        self.commands = {name: import_command(name) for name in COMMANDS}
        return self


def import_command(name: str) -> Any:
    """Import a command or group of commands and return it as Typer builds it, with all its options."""
    entry = COMMANDS[name]
    found = getattr(import_module(f"usvit.cli.{entry.module}"), entry.attribute)
    parent = typer.Typer()
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    for app in (parent, found):
        for command in getattr(app, "registered_commands", ()):
            command.help = unfolded(command.help or command.callback.__doc__ or "")
    return typer.main.get_group(parent).commands[name]


def unfolded(text: str) -> str:
    """Join the lines of each paragraph of a docstring; Typer keeps the line breaks after the first paragraph."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))
