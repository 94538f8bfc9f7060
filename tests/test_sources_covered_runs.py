"""The commands of the page of the sources are executed, at a tiny scale, in this process.

A command gets what its reader has to bring: ``RUN`` is a run, ``FILE`` a file, ``DIR`` a folder, and the settings of
``usvit study --scale tiny`` (``usvit/studies/tiny.py``) shrink its network, its images and its length. Named sets of
photographs become fractals, except in ``source.exclude``. All else is executed as it is printed.

Commands of one shape, which differ in their network alone, are executed once. Of the studies a few are run, and all are
planned at both scales by ``tests/studies/test_shipped.py``; ``test_what_is_not_executed_is_known`` lists the rest.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.data.conftest import write_b, write_busi
from tests.data.datasets.upstream.layouts import write_cifar, write_pets
from tests.test_sources_covered import DATA, built, parsed
from usvit.cli import main
from usvit.config.run import flattened
from usvit.experiments.cross_validation import CrossValidation
from usvit.experiments.pretraining import Pretraining
from usvit.experiments.transfer_learning.experiment import Transfer, UpstreamSelection
from usvit.models import find_model
from usvit.plain_yaml import parse_yaml
from usvit.studies.tiny import tiny_network, tiny_settings

pytestmark = pytest.mark.slow

ROWS = [row for row in parse_yaml(DATA.read_text(encoding="utf-8"), str(DATA)) if row["command"]]
STUDIES = ("alabdulmohsin2023_figure6", "gheflati2022_table3")
FRACTALS = ("--set", "source.size=48", "--set", "source.classes=4", "--set", "source.image_size=64")
CPU = ("--device", "cpu", "--precision", "fp32")


def shape(command: str) -> str:
    """Return what two commands have in common that differ in their network alone."""
    words = shlex.split(command)
    names, given = parsed(words)
    if names == ["models", "info"]:
        return "usvit models info"
    if names[0] == "study":
        return command if given["names"][0] in STUDIES else "usvit study"
    if names[0] == "pretrain" and given.get("model"):
        return command.replace(f"--model {given['model']}", f"--model {find_model(given['model']).family}")
    return command


def chosen() -> list:
    """Return one command of each shape, with its first row as the name of the test."""
    first: dict[str, dict] = {}
    for row in ROWS:
        if shape(row["command"]) != "usvit study":
            first.setdefault(shape(row["command"]), row)
    return [pytest.param(row["command"], id=f"row{row['row']}") for row in first.values()]


class Bench:
    """What a reader has: runs, files and data sets, made when a command first needs them."""

    def __init__(self, root: Path):
        self.root = root
        self.made: dict[str, Path] = {}

    def call(self, *words: object, check: bool = True) -> int:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.setattr(sys, "argv", ["usvit", *map(str, words)])
            try:
                main()
            except SystemExit as stop:
                code = int(stop.code or 0)
            else:
                code = 0
        assert not check or code == 0, shlex.join(map(str, words))
        return code

    def once(self, key: str, make) -> Path:
        if key not in self.made:
            self.made[key] = make(self.root / f"made-{len(self.made)}")
        return self.made[key]

    def run(self, model: str, vit: dict, image_size: int, seed: int = 0) -> Path:
        """Train the tiny network that stands for another."""
        name, parts, side = tiny_network(model, vit, image_size)
        more = settings({"model": {"image_size": side, "vit": {**vit, **parts}}, "optim": {"warmup_steps": 0}})
        few = settings({"train": {"steps": 1, "batch_size": 8}, "seed": seed})
        arguments = ("--recipe", "fractals", "--model", name, *FRACTALS, *more, *few, *CPU)
        return self.once(
            f"run {name} {parts} {vit} {side} {seed}", lambda out: self.call("pretrain", *arguments, "--out", out) or out
        )

    def tokenizer(self, out: Path) -> Path:
        tiny = tiny_settings("pretrain", built("pretrain", {"recipe": "beit_tokenizer"}), None, {})
        self.call("pretrain", "--recipe", "beit_tokenizer", *settings(tiny), *CPU, "--out", out)
        return out


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Bench(tmp_path_factory.mktemp("rows"))


@pytest.mark.parametrize("command", chosen())
def test_the_command_of_a_row_runs(command, desk, tmp_path, monkeypatch):
    desk.call(*TINY[parsed(shlex.split(command))[0][0]](shlex.split(command)[1:], desk, tmp_path, monkeypatch))


def settings(config: dict) -> list[str]:
    return [word for key, value in flattened(config) for word in ("--set", f"{key}={json.dumps(value)}")]


def without(words: list[str], *options: str) -> list[str]:
    """Leave out options with their values."""
    left, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word in options:
            skip = True
        else:
            left.append(word)
    return left


def training(words, desk, tmp_path, monkeypatch):
    """cv, train, pretrain, transfer: the tiny settings of a study, above the printed ones."""
    names, given = parsed(["usvit", *words])
    if given.get("list_cells"):
        return words
    config = built(names[0], given)
    tiny = tiny_settings(names[0], config, given.get("model"), {})
    roots = []
    if names[0] in ("cv", "train"):
        tiny.pop("data")
        roots = ["--data-root", f"busi={desk.once('busi', write_busi)}", "--data-root", f"b={desk.once('b', write_b)}"]
    if names[0] == "pretrain" and config.source.exclude:
        assert config.source.exclude == ("cifar10", "pets")
        write_cifar(tmp_path / "cifar10", "cifar10", monkeypatch)
        write_pets(tmp_path / "pets")
        roots = ["--data-root", f"cifar10={tmp_path / 'cifar10'}", "--data-root", f"pets={tmp_path / 'pets'}"]
    if "RUN" in words:
        tiny["model"] = {key: value for key, value in tiny["model"].items() if key != "weights"}
        run = desk.run(config.model.name, config.model.vit.model_dump(exclude_none=True), config.model.image_size)
        again = desk.run(config.model.name, config.model.vit.model_dump(exclude_none=True), config.model.image_size, 1)
        words = [{"RUN": str(run), "RUN2": str(again)}.get(word, word) for word in words]
        if names[0] == "transfer":
            tiny.pop("model")
    for word in [word for word in words if word.endswith("=RUN")]:
        tokenizer = desk.once("tokenizer", lambda out: desk.tokenizer(out))
        words = [f"beit.tokenizer={tokenizer}" if each == word else each for each in words]
    if any(word.endswith("=FILE") for word in words):
        words = [word for word in without(words, "--set") if word]
    if given.get("cell") == "all" or not trained_whole(names[0], config):
        stop_before_training(monkeypatch)
    out = [] if "DIR" in words else ["--out", str(tmp_path / "out")]
    words = [str(tmp_path / "out") if word == "DIR" else word for word in words]
    return [*words, *settings(tiny), *roots, *CPU, *out]


DONE = set()


def trained_whole(command: str, config) -> bool:
    """Return True for the first command of each kind of training."""
    kind = (command, config.objective if command == "pretrain" else getattr(config, "how", ""))
    first = kind not in DONE
    DONE.add(kind)
    return first


def stop_before_training(monkeypatch) -> None:
    """End a command once its images, weights, network and task are ready."""
    for experiment in (Pretraining, Transfer, UpstreamSelection, CrossValidation):
        prepare = experiment.prepare

        def prepared(self, prepare=prepare):
            prepare(self)
            raise SystemExit(0)

        monkeypatch.setattr(experiment, "prepare", prepared)


def as_printed(words, desk, tmp_path, monkeypatch):
    return words


def with_files(words, desk, tmp_path, monkeypatch):
    """data, shape, evaluate: a small file or data set for each name."""
    if words[:2] == ["data", "preview"]:
        return [*words, "--data-root", desk.once("busi", write_busi), "--n", "1", "--variants", "1", "--size", "64"]
    if words[:2] == ["data", "coarse"]:
        return [str(noun_file(tmp_path)) if word == "FILE" else word for word in words]
    if words[0] == "evaluate":
        table = "image_id,label,prob_benign,prob_malignant\n"
        rows = [f"i{i},{('benign', 'malignant')[i % 2]},{0.1 + 0.02 * i:.2f},{0.9 - 0.02 * i:.2f}\n" for i in range(30)]
        (tmp_path / "scores.csv").write_text(table + "".join(rows))
        return [*(str(tmp_path / "scores.csv") if word == "FILE" else word for word in words), "--out", tmp_path / "out"]
    return words


def noun_file(folder):
    raise NotImplementedError


def of_a_run(words, desk, tmp_path, monkeypatch):
    """test, explain: a tiny run for RUN and for weights of the hub, fractals for photographs."""
    _, given = parsed(["usvit", *words])
    model = given.get("model") or next((name for name in given.get("classifiers", ()) if name != "RUN"), None)
    if "--head" in words:
        model = "deit_ti_distilled"
    run = desk.run(model or "vit_b16", {}, 224)
    sources = words.count("--source") or words[0] == "test"
    words = [word for word in without(words, "--source", "--model", "--weights", "--set") if word != model]
    words = [str(run) if word == "RUN" else word for word in words]
    if str(run) not in words:
        words += ["--weights", str(run)] if words[0] == "explain" else [str(run)]
    more = ["--source", "fractals:test"] if sources or words[0] == "explain" else []
    return [*words, *more, *FRACTALS[: 6 if words[0] == "test" else 0], "--out", str(tmp_path / "out")]


def measured(words, desk, tmp_path, monkeypatch):
    """bench: small networks and images, one repetition."""
    _, given = parsed(["usvit", *words])
    names = [name for name in words if name in given["models"]]
    words = [{name: "vit_ti16" for name in names}.get(word, word) for word in without(words, "--image-size")]
    seen: list[str] = []
    words = [word for word in words if word != "vit_ti16" or (seen.append(word) or len(seen) == 1)]
    size = ["--image-size", "32", "--repeats", "1", "--seconds", "1", "--device", "cpu", "--out", str(tmp_path / "out")]
    return [*words, *size]


def study(words, desk, tmp_path, monkeypatch):
    return [*words, "--scale", "tiny", "--cpus", "1", "--out", str(tmp_path / "out")]


TINY = {
    "cv": training, "train": training, "pretrain": training, "transfer": training, "models": as_printed,
    "data": with_files, "shape": with_files, "evaluate": with_files, "test": of_a_run, "explain": of_a_run,
    "bench": measured, "study": study,
}  # fmt: skip
