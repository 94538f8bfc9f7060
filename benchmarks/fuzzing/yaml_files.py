"""Hostile values in YAML files: recipes, studies, cards, answers and configurations of the node.

One value becomes one of another type, size, depth or place, or the whole text is damaged (bombs of anchors, NULs,
encodings, keys twice, tabs).
"""

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from benchmarks.fuzzing import lists
from benchmarks.fuzzing.child import Ended
from benchmarks.fuzzing.damage import Raw, dumped, json_value
from benchmarks.fuzzing.files import PLACES, Place, new_file, run_on_file
from benchmarks.fuzzing.harness import Options, Rng
from benchmarks.fuzzing.world import World, make_world

ROOT = Path(__file__).parents[2]
YAML_VALUES = (
    *(Raw("0x" + "f" * 5000), Raw("1:1:1"), Raw("2001-01-01"), Raw("2001-99-99"), Raw("!!binary x"), Raw("!!set {a}")),
    *(
        Raw("!!python/object/apply:os.system [id]"),
        Raw("*nowhere"),
        Raw("&a [*a]"),
        Raw(".nan"),
        Raw("-.inf"),
        Raw("~"),
    ),
    *("\u202e\u2066\ufeff", "\ud800", "a/../../b", "~/x", "$HOME/x", "-", "--help", "%s{0}", "a\nb", " ", "1e-400"),
    *("A" * 5_000, "A/" * 3_000, "9" * 500, "%s.yaml" % ("A" * 300), list(range(10_000))),
)
"""Values that only YAML has, or that are hostile where a text is a path, an option or a format."""


def yaml_text(content: str, rng: Rng) -> tuple[bytes, str]:
    """Damage the whole text of a YAML file."""
    lines = content.splitlines()
    bombs = {name: write for name, (kind, write) in lists.attacks().items() if kind == "recipe"}
    plain = content.encode()
    options: dict[str, bytes] = {
        "keys twice": plain + b"\n" + plain,
        "two documents": plain + b"\n---\n" + plain,
        "tabs": plain.replace(b"  ", b"\t"),
        "NUL inside": plain.replace(b":", b":\0", 1),
        "utf-16": content.encode("utf-16"),
        "latin-1": plain.replace(b"a", b"\xe4", 5),
        "BOM": b"\xef\xbb\xbf" + plain,
        "line ends of old Macs": plain.replace(b"\n", b"\r"),
        "controls": plain.replace(b":", b":\x1b[2J\x07", 3),
        "a line of a million": plain + b"\nx: " + b"y" * 1_000_000,
        "a key of a million": plain + b"\n" + b"y" * 1_000_000 + b": x",
        "a key that is a list": plain + b"\n? [a, b]\n: c\n",
        "a merge of a number": plain + b"\n<<: 3\n",
        "cut": plain[: int(rng.integers(len(plain)))],
        "lines in another order": "\n".join(np.array(lines)[rng.permutation(len(lines))]).encode(),
    }
    name = [*options, *bombs][rng.integers(len(options) + len(bombs))]
    if name in options:
        return options[name], name
    with tempfile.TemporaryDirectory() as folder:
        return bombs[name](Path(folder)).read_bytes(), name


def _yaml(path: str) -> Callable[[World], Any]:
    return lambda w: yaml.safe_load((ROOT / path).read_text().split("\n---")[0].removeprefix("---"))


def _config(w: World) -> Any:
    return json.loads((w.run / "run.json").read_text())["config"]


def _node(w: World) -> Any:
    told = _yaml("deploy/node.yaml")(w)
    told["folder"], told["models"]["main"]["path"] = "node", str(w.run)
    return told


def _answers(w: World) -> Any:
    return {"summary": "s", "limits": ["a"], "watts": 100, "watts_source": "x", "claim_2024": {"1": "a"}}


_PRETRAIN = Place(
    "r.yaml",
    "pretrain --recipe {file} --source folder --path {data} --device cpu --set train.batch_size=4 --set train.steps=1 "
    "--out {out}",
)
YAML: dict[str, tuple[Place, Callable[[World], Any]]] = {
    "cv --recipe": (PLACES["cv --recipe"], _config),
    "cv --dataset CARD": (PLACES["cv --dataset CARD"], _yaml("data_cards/busi.md")),
    "data info CARD": (PLACES["data info CARD"], _yaml("data_cards/bus_uclm.md")),
    "pretrain --recipe": (_PRETRAIN, _yaml("configs/pretrain/mae_phantom.yaml")),
    "transfer --recipe": (PLACES["transfer --recipe"], _yaml("configs/transfer/vit.yaml")),
    "study FILE": (PLACES["study FILE"], _yaml("configs/studies/gheflati2022_table1.yaml")),
    "study FILE of sizes": (PLACES["study FILE"], _yaml("configs/studies/dosovitskiy2021_figure3.yaml")),
    "node doctor": (PLACES["node doctor"], _node),
    "node status": (PLACES["node status"], _node),
    "report --answers": (PLACES["report --answers"], _answers),
}
"""Name -> (the file and the command that reads it, its healthy content)."""


def damage_yaml(path: Path, healthy: Any, rng: Rng) -> str:
    """Write a damaged YAML file, or a card with a damaged header; return what is wrong."""
    if rng.random() < 0.25:
        raw, what = yaml_text(yaml.safe_dump(healthy, sort_keys=False), rng)
    else:
        path.write_text(json.dumps(healthy, default=str))
        what = "; ".join(json_value(path, rng, YAML_VALUES) for _ in range(rng.choice([1, 1, 2])) if _is_json(path))
        raw = path.read_bytes()
    path.write_bytes(b"---\n" + raw + b"\n---\n\n# Card\n" if path.suffix == ".md" else raw)
    return what


def _is_json(path: Path) -> bool:
    """Return whether a file holds JSON that can be damaged once more, which very deep values cannot."""
    try:
        return bool(dumped(json.loads(path.read_text())))
    except (ValueError, RecursionError):
        return False


def yaml_files(root: Path, options: Options) -> Iterator[Ended]:
    world = make_world(root)
    names = options.chosen(YAML)
    for number in options.numbers:
        name = names[number % len(names)]
        place, content = YAML[name]
        file = new_file(world, place)
        what = damage_yaml(file, content(world), options.rng(number))
        yield run_on_file(world, place, file, options, name, what)
