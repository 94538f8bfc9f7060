"""``usvit node``: a DICOM service beside the PACS."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.node.cli.pull import pull
from usvit.node.cli.watching import doctor, mercure, status

app = typer.Typer(
    name="node", help="A DICOM service that scores studies and sends the results back.", no_args_is_help=True
)
Config = Annotated[Path, typer.Argument(help="Configuration of the node, a YAML file.", metavar="CONFIG")]

app.command("status")(status)
app.command("doctor")(doctor)
app.command("pull")(pull)
app.command("mercure")(mercure)


@app.command("serve")
def serve(config: Config) -> None:
    """Receive images, score studies and send the results back, until Ctrl-C or SIGTERM.

    The whole configuration is checked before anything listens. See 'usvit docs node'.
    """
    from usvit.node import serve_node

    serve_node(config)


@app.command("replay")
def replay(
    study: Annotated[str, typer.Argument(help="Pseudonym or StudyInstanceUID of the study.", metavar="STUDY")],
    config: Annotated[Path, typer.Option("--config", help="Configuration of the node, a YAML file.", metavar="CONFIG")],
) -> None:
    """Let the running node score a study again, and send the results as a new revision."""
    from usvit.node import replay_study

    print(f"study {replay_study(config, study)} is scored again")
