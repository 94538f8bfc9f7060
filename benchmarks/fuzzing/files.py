"""Something that is not a plain file, in place of every file that a user names on the command line.

Each command of ``PLACES`` gets, in place of a file that the user names, a FIFO, a sparse file of 30 GB, a link to a
device, to nothing, to itself or to a file whose reading gives EIO, a folder, nothing, an empty file, bytes that are not
text, and one line of 50 MB.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzzing.child import Ended, run_command
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.special_files import SPECIAL_FILES
from benchmarks.fuzzing.world import World, make_world, tiny_network


@dataclass(frozen=True)
class Place:
    """A file that a user names: its name, and the command that reads it."""

    file: str
    command: Callable[[World, Path, Path], list[str]]
    """(world, the file, a new folder for the output) -> arguments."""


def _cv(*more: str) -> list[str]:
    return ["cv", *tiny_network(steps=1), "--set", "split.folds=2", *more]


def _data(w: World) -> list[str]:
    return ["--dataset", "phantom", "--data-root", str(w.data)]


def _image(w: World) -> str:
    return str(min((w.root / "new").rglob("*.png")))


def _score(w: World, out: Path, *more: str) -> list[str]:
    base = ["score", "--model", str(w.run), "--fold", "0", "--workers", "1", "--out", str(out)]
    return [*base, *([] if "--input" in more else ["--input", _image(w)]), *more]


def _labels(command: str) -> Callable[[World, Path, Path], list[str]]:
    target = "out.json" if command == "recalibrate" else "out"
    return lambda w, f, out: [command, str(w.scores), "--labels", str(f), "--out", str(out / target)]


_TO = ("--to", "A@127.0.0.1:9")
_STOW = ("--stow", "https://127.0.0.1:9/dicom-web")
PLACES: dict[str, Place] = {
    "cv --recipe": Place("r.yaml", lambda w, f, out: _cv(*_data(w), "--recipe", str(f), "--out", str(out))),
    "cv --keep-list": Place("keep.csv", lambda w, f, out: _cv(*_data(w), "--keep-list", str(f), "--out", str(out))),
    "cv --folds": Place("folds.csv", lambda w, f, out: _cv(*_data(w), "--folds", str(f), "--out", str(out))),
    "cv --manifest": Place(
        "m.parquet", lambda w, f, out: _cv("--manifest", str(f), "--data-root", str(w.data), "--out", str(out))
    ),
    "cv --dataset CARD": Place(
        "own.md", lambda w, f, out: _cv("--dataset", str(f), "--data-root", str(w.data), "--out", str(out))
    ),
    "cv, table of the data set": Place(
        "phantom.csv",
        lambda w, f, out: _cv("--dataset", "phantom", "--data-root", str(f.parent), "--out", str(out)),
    ),
    "cv --weights .safetensors": Place(
        "w.safetensors", lambda w, f, out: _cv(*_data(w), "--weights", str(f), "--out", str(out))
    ),
    "cv --weights .pth": Place("w.pth", lambda w, f, out: _cv(*_data(w), "--weights", str(f), "--out", str(out))),
    "cv --weights .npz": Place("w.npz", lambda w, f, out: _cv(*_data(w), "--weights", str(f), "--out", str(out))),
    "pretrain --recipe": Place("r.yaml", lambda w, f, out: ["pretrain", "--recipe", str(f), "--out", str(out)]),
    "pretrain source.coarse": Place(
        "coarse.csv",
        lambda w, f, out: [
            *("pretrain", "--recipe", "mae2022_vit", "--source", "folder", "--path", str(w.data)),
            *("--set", f"source.coarse={f}", "--out", str(out)),
        ],
    ),
    "pretrain --source shards": Place(
        "a-000000.tar",
        lambda w, f, out: [
            *("pretrain", "--recipe", "mae2022_vit", "--source", "shards", "--path", str(f), "--out", str(out)),
        ],
    ),
    "transfer --recipe": Place("r.yaml", lambda w, f, out: ["transfer", "--recipe", str(f), "--out", str(out)]),
    "study FILE": Place("s.yaml", lambda w, f, out: ["study", "run", str(f), "--dry-run", "--out", str(out)]),
    "shape fit TABLE": Place("t.csv", lambda w, f, out: ["shape", "fit", str(f), "--out", str(out)]),
    "shape predict FIT": Place("f.json", lambda w, f, out: ["shape", "predict", str(f), "--flops", "1e15"]),
    "shape predict --like": Place(
        "s.yaml", lambda w, f, out: ["shape", "predict", str(w.root / "fit.json"), "--flops", "1e15", "--like", str(f)]
    ),
    "data info CARD": Place("own.md", lambda w, f, out: ["data", "info", str(f)]),
    "data split --keep-list": Place(
        "keep.csv", lambda w, f, out: ["data", "split", *_data(w), "--keep-list", str(f), "--out", str(out / "f.csv")]
    ),
    "data split --manifest": Place(
        "m.parquet", lambda w, f, out: ["data", "split", "--manifest", str(f), "--out", str(out / "f.csv")]
    ),
    "data coarse --wordnet": Place(
        "data.noun", lambda w, f, out: ["data", "coarse", "--wordnet", str(f), "--out", str(out / "c.csv")]
    ),
    "models pin --file": Place("pins.yaml", lambda w, f, out: ["models", "pin", "vit_b16", "--file", str(f)]),
    "models export --base": Place(
        "w.safetensors",
        lambda w, f, out: [
            *("models", "export", f"{w.run}/fold-0", "--format", "safetensors", "--out", str(out), "--base", str(f)),
        ],
    ),
    "report --answers": Place("a.yaml", lambda w, f, out: ["report", str(w.run), "--answers", str(f)]),
    "evaluate TABLE": Place("t.csv", lambda w, f, out: ["evaluate", str(f), "--out", str(out)]),
    "evaluate TABLE.parquet": Place("t.parquet", lambda w, f, out: ["evaluate", str(f), "--out", str(out)]),
    "evaluate --manifest": Place(
        "m.csv", lambda w, f, out: ["evaluate", str(w.run), "--manifest", str(f), "--out", str(out)]
    ),
    "evaluate --manifest .parquet": Place(
        "m.parquet", lambda w, f, out: ["evaluate", str(w.run), "--manifest", str(f), "--out", str(out)]
    ),
    "evaluate --metadata": Place(
        "model.json",
        lambda w, f, out: [
            *("evaluate", str(w.scores), "--labels", str(w.root / "labels.csv"), "--metadata", str(f)),
            *("--out", str(out)),
        ],
    ),
    "evaluate --calibration": Place(
        "c.json",
        lambda w, f, out: [
            *("evaluate", str(w.scores), "--labels", str(w.root / "labels.csv"), "--calibration", str(f)),
            *("--out", str(out)),
        ],
    ),
    "evaluate --labels .csv": Place("l.csv", _labels("evaluate")),
    "evaluate --labels .xlsx": Place("l.xlsx", _labels("evaluate")),
    "evaluate --labels .parquet": Place("l.parquet", _labels("evaluate")),
    "evaluate --key": Place(
        "k.key",
        lambda w, f, out: [
            *("evaluate", str(w.scores), "--labels", str(w.root / "labels.csv"), "--key", str(f)),
            *("--join", "name=path", "--out", str(out)),
        ],
    ),
    "recalibrate --labels .csv": Place("l.csv", _labels("recalibrate")),
    "compare RUN TABLE": Place("t.csv", lambda w, f, out: ["compare", str(w.run), str(f), "--out", str(out)]),
    "plan validation --like": Place(
        "t.csv", lambda w, f, out: ["plan", "validation", "--like", str(f), "--out", str(out)]
    ),
    "score --input FILE": Place("i.png", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --input FOLDER": Place("i.png", lambda w, f, out: _score(w, out, "--input", str(f.parent))),
    "score --input .dcm": Place("i.dcm", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --input LIST.csv": Place("l.csv", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --input LIST.xlsx": Place("l.xlsx", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --input ZIP": Place("a.zip", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --input DICOMDIR": Place("DICOMDIR", lambda w, f, out: _score(w, out, "--input", str(f))),
    "score --calibration": Place("c.json", lambda w, f, out: _score(w, out, "--calibration", str(f))),
    "score --key": Place("k.key", lambda w, f, out: _score(w, out, "--key", str(f))),
    "score --link": Place("link.csv", lambda w, f, out: _score(w, out, "--link", str(f))),
    "score --audit-log": Place("log.jsonl", lambda w, f, out: _score(w, out, "--audit-log", str(f))),
    "score --model FILE": Place(
        "m.safetensors",
        lambda w, f, out: ["score", "--model", str(f), "--input", _image(w), "--out", str(out), "--workers", "1"],
    ),
    "dicom send FILE": Place("i.dcm", lambda w, f, out: ["dicom", "send", str(f), "--to", "A@127.0.0.1:9"]),
    "dicom send FOLDER": Place("i.dcm", lambda w, f, out: ["dicom", "send", str(f.parent), "--to", "A@127.0.0.1:9"]),
    "dicom send --record": Place(
        "sent.csv", lambda w, f, out: ["dicom", "send", str(w.root / "dicom"), *_TO, "--record", str(f)]
    ),
    "dicom send --tls-ca": Place(
        "ca.pem", lambda w, f, out: ["dicom", "send", str(w.root / "dicom"), *_TO, "--tls-ca", str(f)]
    ),
    "dicom send --token-file": Place(
        "token", lambda w, f, out: ["dicom", "send", str(w.root / "dicom"), *_STOW, "--token-file", str(f)]
    ),
    "node doctor": Place("node.yaml", lambda w, f, out: ["node", "doctor", str(f)]),
    "node status": Place("node.yaml", lambda w, f, out: ["node", "status", str(f)]),
    "node mercure task": Place(
        "task.json",
        lambda w, f, out: ["node", "mercure", "--in", str(f.parent), "--out", str(out), "--model", str(w.run)],
    ),
    "explain RUN/run.json": Place("run.json", lambda w, f, out: ["explain", str(f), "--out", str(out)]),
    "test MODEL=FILE": Place(
        "w.pth",
        lambda w, f, out: ["test", f"vit_b16={f}", "--source", "folder", "--path", str(w.data), "--out", str(out)],
    ),
}
"""Name -> a file that a command reads."""


def files(root: Path, options: Options) -> Iterator[Ended]:
    world = make_world(root)
    pairs = [(name, special) for special in SPECIAL_FILES for name in options.chosen(PLACES)]
    for number in options.numbers:
        name, special = pairs[number % len(pairs)]
        file = new_file(world, PLACES[name])
        SPECIAL_FILES[special](file)
        yield run_on_file(world, PLACES[name], file, options, name, special)


def new_file(world: World, place: Place) -> Path:
    """Return the path of the file of a new case, in an empty folder."""
    shutil.rmtree(world.case, ignore_errors=True)
    (world.case / "given").mkdir(parents=True)
    return world.case / "given" / place.file


def run_on_file(world: World, place: Place, file: Path, options: Options, kind: str, name: str) -> Ended:
    """Run the command of a place; the data, the scores and the files of others must not change."""
    arguments = place.command(world, file, world.case / "out")
    outside = (world.outside, world.data, world.scores)
    return run_command(arguments, folder=world.case, outside=outside, kind=kind, name=name, **options.limits)
