"""The page of the commands is made from the commands."""

import re

from tests.conftest import REPOSITORY
from tests.settings_tables import check_page
from usvit.cli.commands import all_commands, import_command

PAGE = REPOSITORY / "docs" / "reference" / "commands.md"
INTRODUCTION = """# Commands

Every command with its arguments and options, as `usvit COMMAND --help-all` shows them. `tests/cli/test_reference.py`
makes this page from the commands. What they do from start to end is in the [first run](../tutorial/first-run.md) and
the how-to pages; the settings behind `--set` are in [configuration.md](configuration.md).
"""


def cell(text):
    return re.sub(r"\s+", " ", text or "").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").strip()


def prose(text):
    return "\n\n".join(cell(paragraph) for paragraph in text.split("\n\n"))


def option_row(one):
    shown = one.default if one.default not in (None, False, True, (), "") and not callable(one.default) else None
    default = f" Default: `{cell(str(shown))}`." if shown is not None and "(default:" not in (one.help or "") else ""
    names = one.metavar or one.name.upper() if one.param_type_name == "argument" else ", ".join(one.opts)
    value = (
        ""
        if one.param_type_name == "argument" or one.is_flag
        else f" {one.metavar or one.type_descriptor.annotation.__name__.upper()}"
    )
    return f"| `{cell(names + value)}` | {cell(one.help)}{default} |"


def sections(name, command):
    if hasattr(command, "commands"):
        yield f"## usvit {name}\n\n{prose(command.help)}\n"
        for inner, one in command.commands.items():
            yield from sections(f"{name} {inner}", one)
        return
    yield f"{'###' if ' ' in name else '##'} usvit {name}\n\n{prose(command.help)}\n"
    shown = [one for one in command.params if one.name not in ("help", "help_all")]
    panels = dict.fromkeys(getattr(one, "rich_help_panel", None) for one in shown)
    for panel in sorted(panels, key=lambda panel: panel is not None):
        rows = [option_row(one) for one in shown if getattr(one, "rich_help_panel", None) == panel]
        yield f"| {panel or 'option'} | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def test_the_page_of_the_commands_is_that_of_the_source():
    fresh = "\n".join([INTRODUCTION, *(one for name in all_commands() for one in sections(name, import_command(name)))])
    check_page(PAGE, fresh, "tests/cli/test_reference.py")
