"""``usvit data``: one file a command."""

import typer

from usvit.cli.data import cards, phantom

app = typer.Typer(help="Data sets: cards, checks, copies, frozen folds, the phantom.", no_args_is_help=True)
app.command("list")(cards.list_)
app.command("info")(cards.info)
app.command("phantom")(phantom.phantom)
