"""``usvit recipes`` and ``usvit settings``: what can be trained, and what can be set."""

import json
from typing import Annotated

import typer

from usvit.cli import options as o


def recipes(
    name: Annotated[
        str | None, typer.Argument(help="Recipe whose file is shown. (default: list all)", metavar="NAME")
    ] = None,
    json_: o.Json = False,
) -> None:
    """List the recipes of trainings, or show one."""
    from usvit.config.listing import list_recipes, recipe_facts
    from usvit.config.settings import COMMANDS
    from usvit.errors import unknown
    from usvit.files import read_text
    from usvit.resources import configs_dir

    listed = list_recipes()
    if name is not None:
        names = {one for titles in listed.values() for one in titles}
        if name not in names:
            raise unknown("recipe", name, sorted(names))
        for file in (configs_dir() / stage / f"{name}.yaml" for stage in COMMANDS):
            print(read_text(file) if file.is_file() else "", end="")
    elif json_:
        print(json.dumps(listed, indent=2, ensure_ascii=False))
    else:
        for (stage, _), (command, titles) in zip(COMMANDS.items(), listed.items(), strict=True):
            print(f"{command} --recipe")
            for one, title in titles.items():
                print(f"  {one:24} {title}")
                if facts := recipe_facts(one, stage):
                    print(f"  {'':24} {', '.join(facts)}")
        print("'usvit recipes NAME' shows all settings of a recipe, its source and its result.")


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
        raise unknown("setting", key, [*every, *({one.rpartition(".")[0] for one in every} - {""})])
    if json_:
        print(json.dumps({one: said._asdict() for one, said in found.items()}, indent=2, ensure_ascii=False))
        return
    for one, said in found.items():
        print(f"{one}={said.default}\n    {said.meaning}")
