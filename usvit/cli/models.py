"""``usvit models``: the zoo."""

import typer

from usvit.cli import options as o

app = typer.Typer(help="The zoo of networks.", no_args_is_help=True)


@app.command("list")
def list_(json_: o.Json = False) -> None:
    """Show the networks that usvit names; timm:NAME reaches every other of timm's."""
    import json
    from dataclasses import asdict

    from usvit.models.zoo import ZOO

    if json_:
        print(json.dumps([asdict(spec) for spec in ZOO.values()]))
        return
    for spec in ZOO.values():
        print(f"{spec.name:14} {spec.family:7} {spec.timm_name:40} {spec.upstream}")
