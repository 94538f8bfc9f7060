"""What products and third parties add to usvit: commands, models of files, kinds of runs, and sources of images.

The core knows neither ``usvit.upstream`` nor ``usvit.node``. They register themselves by a ``Plugin``, as a package of
a third party does by an entry point of the group ``usvit.plugins``::

    [project.entry-points."usvit.plugins"]
    mammography = "usvit_mammography.plugin:PLUGIN"

The modules of plug-ins are imported for ``usvit --help``, so they import nothing heavy.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, NamedTuple

logger = logging.getLogger(__name__)

GROUP = "usvit.plugins"
"""Group of the entry points."""
BUILT_IN = (
    "usvit.upstream.plugin:PLUGIN",
    "usvit.node.plugin:PLUGIN",
    "usvit.reviewing.plugin:PLUGIN",
    "usvit.desktop.plugin:PLUGIN",
)
"""Plug-ins of this distribution; they need no entry point, so that a bare checkout has them, too."""


class CommandEntry(NamedTuple):
    """Where a command is, and what the list of commands says about it."""

    module: str
    attribute: str
    """A function, or a ``typer.Typer`` for a group of commands."""
    help: str
    """First paragraph of the help text of the command."""
    private: bool = True
    """Whether the input may contain names of patients, so that a traceback must not quote values."""
    panel: str | None = None
    """Group of the command in ``usvit --help``; None: that of its plug-in."""


class RunKind(NamedTuple):
    """A kind of run, which ``run.json`` names: what it may be used for, and where its figures are.

    The default values are those of a run whose images are predicted in the folds of a cross-validation.
    """

    experiment: str | None = None
    """``module:function`` that makes the experiment of a configuration; None if the run trains and tests nothing."""
    of_folds: bool = True
    """Whether its images are predicted in folds, for reports and explanations. Other runs may have any number of
    classes."""
    figures: str = "metrics.json and predictions.csv"
    """Files of its figures, for the error of a command that needs a cross-validation."""
    gives_weights: bool = True
    """Whether a training may start from its weights."""
    has_predictions: bool = True
    """Whether ``usvit evaluate`` and ``usvit compare`` read its predictions."""


@dataclass(frozen=True)
class Plugin:
    """What one product or package adds.

    Example:
        >>> Plugin({"mammography": CommandEntry("usvit_mammography.cli", "app", "Read mammograms.")}).records is None
        True
    """

    commands: Mapping[str, CommandEntry] = field(default_factory=dict)
    """Name -> command; ``data coarse`` is the command ``coarse`` of the group ``data``."""
    panel: str = "More commands"
    """Group of its commands in ``usvit --help``."""
    records: str | None = None
    """Module with ``FILE_RECORDS``, the models of its JSON files, and ``TABLE_ROWS``, those of its CSV tables."""
    run_kinds: Mapping[str, RunKind] = field(default_factory=dict)
    """Name in ``run.json`` -> kind of run."""
    image_sources: str | None = None
    """``module:function`` that opens images by the name of a source: see ``usvit.explaining.images``."""
    companions: Mapping[str, str] = field(default_factory=dict)
    """Setting of ``usvit score``, such as ``seg_from`` -> ``module:function`` that loads its networks from the folder
    of a run: see ``usvit.scoring.companions``."""


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """Return the plug-ins of this distribution, then those of other packages by their names.

    A plug-in of another package that cannot be loaded is left out with a warning.
    """
    from importlib.metadata import entry_points

    found = [load(name) for name in BUILT_IN]
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            plugin = entry.load()
        except Exception as error:
            logger.warning(f"The plug-in {entry.name} ({entry.value}) cannot be loaded: {error}")
            continue
        if isinstance(plugin, Plugin):
            found.append(plugin)
        else:
            logger.warning(f"The plug-in {entry.name}: {entry.value} is not a usvit.plugins.Plugin.")
    return tuple(found)


def plugin_commands() -> dict[str, CommandEntry]:
    """Return the commands of all plug-ins; of two with one name, the first."""
    return {
        name: entry._replace(panel=entry.panel or plugin.panel)
        for plugin in reversed(plugins())
        for name, entry in plugin.commands.items()
    }


def plugin_run_kinds() -> dict[str, RunKind]:
    """Return the kinds of runs of all plug-ins; of two with one name, the first."""
    return {name: kind for plugin in reversed(plugins()) for name, kind in plugin.run_kinds.items()}


def record_modules() -> Iterator[Any]:
    """Import and yield the modules with the models of the files of all plug-ins."""
    return (import_module(plugin.records) for plugin in plugins() if plugin.records is not None)


def image_source() -> Callable[..., Any] | None:
    """Return the function that opens images by the name of a source; None if no plug-in has one."""
    return next((load(plugin.image_sources) for plugin in plugins() if plugin.image_sources is not None), None)


def companion_loader(option: str) -> Callable[..., Any] | None:
    """Return the function that loads what a setting of ``usvit score`` names; None if no plug-in has one."""
    return next((load(plugin.companions[option]) for plugin in plugins() if option in plugin.companions), None)


def load(name: str) -> Any:
    """Import what ``module:attribute`` names."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
