"""``usvit data``: one module per command."""

import typer

from usvit.cli.data import audit, cards, link, phantom, prepare, preview, split

app = typer.Typer(help="Show, check, audit and split data sets, and write the phantom data set.", no_args_is_help=True)
app.command("list")(cards.list_)
app.command("info")(cards.info)
app.command("prepare")(prepare.prepare)
app.command("audit")(audit.audit)
app.command("link")(link.link)
app.command("split")(split.split)
app.command("preview")(preview.preview)
app.command("phantom")(phantom.phantom)
