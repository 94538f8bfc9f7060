"""The commands of the page of the sources are executed, at a tiny scale, in this process.

A command gets what its reader has to bring: ``RUN`` is a run, ``FILE`` a file, ``DIR`` a folder, and the settings of
``usvit study --scale tiny`` (``usvit/upstream/studies/tiny.py``) shrink its network, its images, its length and its
sweep. Named sets of photographs become fractals, except in ``source.exclude``; weights of the hub become a run;
networks of ``usvit bench`` become small ones that are measured in this process. All else is executed as it is printed.
``test_what_is_not_executed_is_known`` lists the rows whose commands are not executed, and
``PREPARED`` those that stop before they train.
"""

import itertools
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from tests.data.conftest import write_b, write_busi
from tests.test_sources_covered import DATA, built, parsed
from tests.upstream.sources.layouts import write_cifar, write_pets
from usvit.cli import main
from usvit.config.run import flattened
from usvit.models import find_model
from usvit.plain_yaml import parse_yaml
from usvit.training import resolve_device
from usvit.upstream import api
from usvit.upstream.bench import execution, find_protocol, measure, preflight
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.scaling import example_sweep
from usvit.upstream.sources.open import open_source
from usvit.upstream.studies.tiny import MAX_CELLS, tiny_network, tiny_settings
from usvit.upstream.transfer_learning.experiment import Transfer

ROWS = [row for row in parse_yaml(DATA.read_text(encoding="utf-8"), str(DATA)) if row["command"]]
PLANNED = (
    14, 16, 17, 18, 19, 40, 42, 43, 45, 46, 47, 48, 49, 51, 76, 77, 78, 80, 81, 82, 83, 86, 90, 97, 102, 124, 130,
    131, 132, 134, 136, 140, 141, 154, 155, 157, 159, 161, 163, 165, 168, 169, 175, 179, 181, 182, 183, 184, 186,
    187, 200, 202, 203, 205, 207, 215, 217, 218, 223, 225, 226, 239, 240, 242, 243, 245, 246, 247, 248, 249, 250,
    251, 253, 255, 256, 257, 264, 265, 267, 269, 277,
)  # fmt: skip
"""Rows whose command is a study. tests/upstream/studies/test_shipped.py plans all of them at both scales and executes
one of each kind; ``usvit study all --scale tiny`` executes them all."""
NEEDS_FILE = (129,)
"""It needs ``data.noun`` of WordNet 3.0, whose result is compared with a published hash, so that no other file will do.
tests/upstream/sources/test_wordnet.py calls its function where that file is installed."""
TRANSLATION = (206,)
"""Its two trainings take minutes; tests/upstream/translation trains with fewer steps."""
PREPARED = (38, 67, 185)
"""Rows whose trainings take 15 s and more: they end once images, weights, network and task are ready."""
FRACTALS = ("--set", "source.size=48", "--set", "source.classes=4", "--set", "source.image_size=64")
CPU = ("--device", "cpu", "--precision", "fp32")


def executed(row: dict) -> bool:
    return not row["command"].startswith("usvit study") and row["row"] not in NEEDS_FILE


def chosen() -> list:
    """Return each command once, with its first row as the name of the test."""
    first: dict[str, dict] = {}
    for row in ROWS:
        if executed(row):
            first.setdefault(row["command"], row)
    return [pytest.param(command, id=f"row{row['row']}") for command, row in first.items()]


def test_what_is_not_executed_is_known():
    assert [row["row"] for row in ROWS if not executed(row)] == sorted({*PLANNED, *NEEDS_FILE, *TRANSLATION})


class Desk:
    """What a reader has: runs, files and data sets, made when a command first needs them."""

    def __init__(self, root: Path):
        self.root = root
        self.made: dict[str, Path] = {}

    def call(self, *words: object) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.root)
            patch.setattr(sys, "argv", ["usvit", *map(str, words)])
            try:
                main()
            except SystemExit as stop:
                assert not stop.code, shlex.join(map(str, words))

    def once(self, key: str, make: Callable[[Path], Path]) -> Path:
        if key not in self.made:
            self.made[key] = make(self.root / f"made-{len(self.made)}")
        return self.made[key]

    def run(self, model: str, vit: dict, image_size: int, seed: int = 0) -> Path:
        """Train the tiny network that stands for another."""
        name, parts, side = tiny_network(model, vit, image_size)
        more = settings({"model": {"image_size": side, "vit": {**vit, **parts}}, "optim": {"warmup_steps": 0}})
        few = settings({"train": {"steps": 1, "batch_size": 8}, "seed": seed})
        arguments = ("--recipe", "fractals", "--model", name, *FRACTALS, *more, *few, *CPU)
        return self.pretrained(arguments)

    def tokenizer(self) -> Path:
        tiny = tiny_settings("pretrain", built("pretrain", {"recipe": "beit_tokenizer"}), None, {})
        return self.pretrained(("--recipe", "beit_tokenizer", *settings(tiny), *CPU))

    def pretrained(self, arguments: tuple[str, ...]) -> Path:
        """Train once with the same arguments."""

        def make(out: Path) -> Path:
            self.call("pretrain", *arguments, "--out", out)
            return out

        return self.once(shlex.join(arguments), make)


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    return Desk(tmp_path_factory.mktemp("rows"))


@pytest.mark.slow
@pytest.mark.parametrize("command", chosen())
def test_the_command_of_a_row_runs(command, desk, tmp_path, monkeypatch):
    if command in [row["command"] for row in ROWS if row["row"] in PREPARED]:
        stop_before_training(monkeypatch)
    desk.call(*TINY[parsed(shlex.split(command))[0][0]](shlex.split(command)[1:], desk, tmp_path, monkeypatch))


def stop_before_training(monkeypatch) -> None:
    """End a transfer with success once it is ready to train."""
    prepare = Transfer.prepare

    def prepared(self):
        prepare(self)
        raise SystemExit(0)

    monkeypatch.setattr(Transfer, "prepare", prepared)


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
    for name in ("cells", "choose_cells"):
        monkeypatch.setattr(api, name, first_cells(getattr(api, name)))
    roots = []
    if names[0] in ("cv", "train") or "segment" in tiny:
        tiny.pop("data")
        monkeypatch.setattr("usvit.reports.write_report", lambda path: None)  # half the time, and nobody reads it
        roots = ["--data-root", f"busi={desk.once('busi', write_busi)}", "--data-root", f"b={desk.once('b', write_b)}"]
    if names[0] == "pretrain" and config.source.exclude:
        assert config.source.exclude == ("cifar10", "pets")
        write_cifar(tmp_path / "cifar10", "cifar10", monkeypatch)
        write_pets(tmp_path / "pets")
        roots = ["--data-root", f"cifar10={tmp_path / 'cifar10'}", "--data-root", f"pets={tmp_path / 'pets'}"]
    if "RUN" in words:
        tiny["model"] = {key: value for key, value in tiny["model"].items() if key != "weights"}
        network = (config.model.name, config.model.vit.model_dump(exclude_none=True), config.model.image_size)
        runs = {name: str(desk.run(*network, seed)) for seed, name in enumerate(("RUN", "RUN2")) if name in words}
        words = [runs.get(word, word) for word in words]
        if names[0] == "transfer":
            tiny.pop("model")
    if "beit.tokenizer=RUN" in words:
        words = [f"beit.tokenizer={desk.tokenizer()}" if word == "beit.tokenizer=RUN" else word for word in words]
    if "source.path=FILE" in words:  # a file of images, which become fractals
        words = without(words, "--set")
    if "source.labels=FILE" in words:
        file = labels(tiny["source"], tmp_path)
        words = [f"source.labels={file}" if word == "source.labels=FILE" else word for word in words]
    if names[0] == "pretrain" and config.flexi.patches:
        tiny["model"]["image_size"] = config.model.image_size  # every size of patch fits
    out = [] if "DIR" in words else ["--out", str(tmp_path / "out")]
    words = [str(tmp_path / "out") if word == "DIR" else word for word in words]
    return [*words, *settings(tiny), *roots, *CPU, *out]


def first_cells(function: Callable[..., dict]) -> Callable[..., dict]:
    """Keep the cells of a sweep that a tiny study trains; tests/upstream/config checks them all."""
    return lambda *arguments: dict(itertools.islice(function(*arguments).items(), MAX_CELLS))


def as_printed(words, desk, tmp_path, monkeypatch):
    return words


def with_files(words, desk, tmp_path, monkeypatch):
    """data, shape, evaluate: a small file or data set for each name."""
    if words[:2] == ["data", "preview"]:
        return [*words, "--data-root", desk.once("busi", write_busi), "--n", "1", "--variants", "1", "--size", "64"]
    if words[0] == "shape":
        (tmp_path / "study.csv").write_text(example_sweep(0.0005))
        fit = ["shape", "fit", tmp_path / "study.csv", "--draws", "50"]
        if words[1] == "fit":
            return fit
        desk.call(*fit)
        return [tmp_path / "shape-fit" / "scaling.json" if word == "FILE" else word for word in words]
    if words[0] == "evaluate":
        table = "image_id,label,prob_benign,prob_malignant\n"
        rows = [f"i{i},{('benign', 'malignant')[i % 2]},{0.1 + 0.02 * i:.2f},{0.9 - 0.02 * i:.2f}\n" for i in range(30)]
        (tmp_path / "scores.csv").write_text(table + "".join(rows))
        words = [str(tmp_path / "scores.csv") if word == "FILE" else word for word in words]
        return [*words, "--out", tmp_path / "out"]
    return words


def labels(source: dict, folder: Path) -> Path:
    """Write a label for each image of a generated source."""
    images = open_source(SourceConfig(**source), {}, split="train", seed=0)
    table = pd.DataFrame({"image_id": [images.image_name(at) for at in range(len(images))]})
    table.assign(label=table.index % 3).to_csv(folder / "clusters.csv", index=False)
    return folder / "clusters.csv"


def of_a_run(words, desk, tmp_path, monkeypatch):
    """test, explain: a tiny run for RUN and for weights of the hub, fractals for photographs."""
    _, given = parsed(["usvit", *words])
    model = given.get("model") or next((name for name in given.get("classifiers", ()) if name != "RUN"), None)
    if "--head" in words:
        model = "deit_ti_distilled"
    run = desk.run(model or "vit_b16", {}, 224)
    sources = words.count("--source") or words[0] == "test"
    words = [word for word in without(words, "--source", "--model", "--weights") if word != model]
    words = [str(run) if word == "RUN" else word for word in words]
    if str(run) not in words:
        words += ["--weights", str(run)] if words[0] == "explain" else [str(run)]
    more = ["--source", "fractals:test"] if sources or words[0] == "explain" else []
    return [*words, *more, *FRACTALS[: 6 if words[0] == "test" else 0], "--out", str(tmp_path / "out")]


def measured(words, desk, tmp_path, monkeypatch):
    """bench: small networks and images, one repetition, without a process of its own for each measurement."""
    _, given = parsed(["usvit", *words])
    small = {name: small_name(name) for name in given["models"]}
    words = [small.get(word, word) for word in without(words, "--image-size")]
    search = find_protocol(given["protocol"]).search != "none"
    sizes = ["--image-size", "32", "--batch", "2", *(["--max-batch", "2"] if search else [])]
    monkeypatch.setattr(measure, "prepare_process", lambda case: resolve_device("cpu", case.hardware.precision))
    monkeypatch.setattr(measure, "_alarm", lambda seconds: None)
    here = {"measure": measure.measure, "look": preflight.probe}
    monkeypatch.setattr(execution.run_bench, "__kwdefaults__", {**execution.run_bench.__kwdefaults__, **here})
    return [*words, *sizes, "--repeats", "1", "--seconds", "1", "--device", "cpu", "--out", str(tmp_path / "out")]


def small_name(model: str) -> str:
    """Return the small network that stands for another in a measurement."""
    spec = find_model(model)
    if spec.family == "parallel":
        return "vit_ti2x2"
    return "vit_ti16" if spec.shape is not None else tiny_network(model, {}, 224)[0]


TINY = {
    "cv": training, "train": training, "pretrain": training, "transfer": training, "models": as_printed,
    "data": with_files, "shape": with_files, "evaluate": with_files, "test": of_a_run, "explain": of_a_run,
    "bench": measured,
}  # fmt: skip
