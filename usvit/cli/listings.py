"""``usvit recipes`` and ``usvit settings``: what can be trained, and what can be set."""

import json
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.config.settings import Stage


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Recipe whose file is shown. (default: list all)", metavar="NAME")
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the recipes of trainings, or show one."""
    from usvit.config.settings import COMMANDS, recipe_names
    from usvit.errors import unknown
    from usvit.files import read_text
    from usvit.resources import configs_dir

    stages: dict[Stage, list[str]] = {stage: recipe_names(stage) for stage in COMMANDS}
    if name is not None:
        found = [read_text(configs_dir() / stage / f"{name}.yaml") for stage, names in stages.items() if name in names]
        if not found:
            raise unknown("recipe", name, [one for names in stages.values() for one in names])
        return print("\n".join(found), end="")
    titles = {
        f"usvit {COMMANDS[stage]}": {
            one: read_text(configs_dir() / stage / f"{one}.yaml").partition("\n")[0].lstrip("# ") for one in names
        }
        for stage, names in stages.items()
    }
    if json_:
        return print(json.dumps(titles, indent=2, ensure_ascii=False))
    for command, ones in titles.items():
        print(f"{command} --recipe")
        for one, title in ones.items():
            print(f"  {one:24} {title}")
    return print("'usvit pretrain --list-recipes' also shows model, images and length.")


def settings(
    key: Annotated[
        str, typer.Argument(help="Key or section, such as train or optim.lr. (default: all)", metavar="KEY")
    ] = "",
    json_: o.Json = False,
) -> None:
    """List the settings of a training: key, default and meaning.

    They are set with --set KEY=VALUE in 'usvit cv' and 'usvit train', or in a recipe. 'usvit docs configuration' has
    those of 'usvit pretrain', 'transfer' and 'test', too.
    """
    from usvit.config import RunConfig
    from usvit.config.listing import list_settings
    from usvit.errors import unknown

    every = list_settings(RunConfig)
    found = {one: said for one, said in every.items() if not key or one == key or one.startswith(f"{key}.")}
    if not found:
        sections = {one.rpartition(".")[0] for one in every} - {""}
        raise unknown("setting", key, [*every, *sections])
    if json_:
        return print(json.dumps({one: said._asdict() for one, said in found.items()}, indent=2, ensure_ascii=False))
    for one, said in found.items():
        print(f"{one}={said.default}\n    {said.meaning}")
    return None
