"""Something that is not a plain file, in place of every file that a user names on the command line.

Each command of ``PLACES`` gets, in place of a file that the user names, a FIFO, a sparse file of 30 GB, a link to a
device, to nothing, to itself or to a file whose reading gives EIO, a folder, nothing, an empty file, bytes that are not
text, and one line of 50 MB.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fuzzing.child import Ended, run_command
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.special_files import SPECIAL_FILES
from benchmarks.fuzzing.world import World, make_world


@dataclass(frozen=True)
class Place:
    """A file that a user names: its name, and the command that reads it (``World.arguments``)."""

    file: str
    command: str


PLACES = {
    "cv --recipe": Place("r.yaml", "CV DATA --recipe {file} --out {out}"),
    "cv --keep-list": Place("keep.csv", "CV DATA --keep-list {file} --out {out}"),
    "cv --folds": Place("folds.csv", "CV DATA --folds {file} --out {out}"),
    "cv --manifest": Place("m.parquet", "CV --manifest {file} --data-root {data} --out {out}"),
    "cv --dataset CARD": Place("own.md", "CV --dataset {file} --data-root {data} --out {out}"),
    "cv, table of the data set": Place("phantom.csv", "CV --dataset phantom --data-root {folder} --out {out}"),
    "cv --weights .safetensors": Place("w.safetensors", "CV DATA --weights {file} --out {out}"),
    "cv --weights .pth": Place("w.pth", "CV DATA --weights {file} --out {out}"),
    "cv --weights .npz": Place("w.npz", "CV DATA --weights {file} --out {out}"),
    "pretrain --recipe": Place("r.yaml", "pretrain --recipe {file} --out {out}"),
    "pretrain source.coarse": Place(
        "coarse.csv",
        "pretrain --recipe mae2022_vit --source folder --path {data} --set source.coarse={file} --out {out}",
    ),
    "pretrain --source shards": Place(
        "a-000000.tar", "pretrain --recipe mae2022_vit --source shards --path {file} --out {out}"
    ),
    "transfer --recipe": Place("r.yaml", "transfer --recipe {file} --out {out}"),
    "study FILE": Place("s.yaml", "study run {file} --dry-run --out {out}"),
    "shape fit TABLE": Place("t.csv", "shape fit {file} --out {out}"),
    "shape predict FIT": Place("f.json", "shape predict {file} --flops 1e15"),
    "shape predict --like": Place("s.yaml", "shape predict {root}/fit.json --flops 1e15 --like {file}"),
    "data info CARD": Place("own.md", "data info {file}"),
    "data split --keep-list": Place("keep.csv", "data split DATA --keep-list {file} --out {out}/f.csv"),
    "data split --manifest": Place("m.parquet", "data split --manifest {file} --out {out}/f.csv"),
    "data coarse --wordnet": Place("data.noun", "data coarse --wordnet {file} --out {out}/c.csv"),
    "models pin --file": Place("pins.yaml", "models pin vit_b16 --file {file}"),
    "models export --base": Place(
        "w.safetensors", "models export {run}/fold-0 --format safetensors --out {out} --base {file}"
    ),
    "report --answers": Place("a.yaml", "report {run} --answers {file}"),
    "evaluate TABLE": Place("t.csv", "evaluate {file} --out {out}"),
    "evaluate TABLE.parquet": Place("t.parquet", "evaluate {file} --out {out}"),
    "evaluate --manifest": Place("m.csv", "evaluate {run} --manifest {file} --out {out}"),
    "evaluate --manifest .parquet": Place("m.parquet", "evaluate {run} --manifest {file} --out {out}"),
    "evaluate --metadata": Place("model.json", "EVALUATE --metadata {file} --out {out}"),
    "evaluate --calibration": Place("c.json", "EVALUATE --calibration {file} --out {out}"),
    "evaluate --labels .csv": Place("l.csv", "evaluate {scores} --labels {file} --out {out}/out"),
    "evaluate --labels .xlsx": Place("l.xlsx", "evaluate {scores} --labels {file} --out {out}/out"),
    "evaluate --labels .parquet": Place("l.parquet", "evaluate {scores} --labels {file} --out {out}/out"),
    "evaluate --key": Place("k.key", "EVALUATE --key {file} --join name=path --out {out}"),
    "recalibrate --labels .csv": Place("l.csv", "recalibrate {scores} --labels {file} --out {out}/out.json"),
    "compare RUN TABLE": Place("t.csv", "compare {run} {file} --out {out}"),
    "plan validation --like": Place("t.csv", "plan validation --like {file} --out {out}"),
    "score --input FILE": Place("i.png", "SCORE --input {file}"),
    "score --input FOLDER": Place("i.png", "SCORE --input {folder}"),
    "score --input .dcm": Place("i.dcm", "SCORE --input {file}"),
    "score --input LIST.csv": Place("l.csv", "SCORE --input {file}"),
    "score --input LIST.xlsx": Place("l.xlsx", "SCORE --input {file}"),
    "score --input ZIP": Place("a.zip", "SCORE --input {file}"),
    "score --input DICOMDIR": Place("DICOMDIR", "SCORE --input {file}"),
    "score --calibration": Place("c.json", "SCORE --input {image} --calibration {file}"),
    "score --key": Place("k.key", "SCORE --input {image} --key {file}"),
    "score --link": Place("link.csv", "SCORE --input {image} --link {file}"),
    "score --audit-log": Place("log.jsonl", "SCORE --input {image} --audit-log {file}"),
    "score --model FILE": Place("m.safetensors", "score --model {file} --input {image} --out {out} --workers 1"),
    "dicom send FILE": Place("i.dcm", "dicom send {file} --to A@127.0.0.1:9"),
    "dicom send FOLDER": Place("i.dcm", "dicom send {folder} --to A@127.0.0.1:9"),
    "dicom send --record": Place("sent.csv", "dicom send {root}/dicom --to A@127.0.0.1:9 --record {file}"),
    "dicom send --tls-ca": Place("ca.pem", "dicom send {root}/dicom --to A@127.0.0.1:9 --tls-ca {file}"),
    "dicom send --token-file": Place(
        "token", "dicom send {root}/dicom --stow https://127.0.0.1:9/dicom-web --token-file {file}"
    ),
    "node doctor": Place("node.yaml", "node doctor {file}"),
    "node status": Place("node.yaml", "node status {file}"),
    "node mercure task": Place("task.json", "node mercure --in {folder} --out {out} --model {run}"),
    "explain RUN/run.json": Place("run.json", "explain {file} --out {out}"),
    "test MODEL=FILE": Place("w.pth", "test vit_b16={file} --source folder --path {data} --out {out}"),
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
    arguments = world.arguments(place.command, file)
    outside = (world.outside, world.data, world.scores)
    return run_command(arguments, folder=world.case, outside=outside, kind=kind, name=name, **options.limits)
