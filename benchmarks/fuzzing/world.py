"""The healthy data, run, scores and files that commands get, before something in them is damaged."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from benchmarks.fuzzing.associations import image
from benchmarks.fuzzing.child import run_command


def tiny_network(steps: int) -> tuple[str, ...]:
    """Return the options of ``usvit cv`` for a training of a second."""
    settings = ("model.image_size=160", "train.batch_size=8", f"train.steps={steps}", f"train.eval_every={steps}")
    network = ("--model", "timm:test_vit", "--weights", "scratch", "--device", "cpu", "--precision", "fp32")
    return (*network, *(word for setting in settings for word in ("--set", setting)))


SHORT = {
    "CV": ["cv", *tiny_network(steps=1), "--set", "split.folds=2"],
    "DATA": ["--dataset", "phantom", "--data-root", "{data}"],
    "SCORE": ["score", "--model", "{run}", "--fold", "0", "--workers", "1", "--out", "{out}"],
    "EVALUATE": ["evaluate", "{scores}", "--labels", "{root}/labels.csv"],
}
"""Word of a command -> the words that it stands for."""


@dataclass(frozen=True)
class World:
    """Paths of the healthy inputs, and of the case that is run."""

    root: Path

    @property
    def case(self) -> Path:
        """Return the folder of the case, which the next case replaces."""
        return self.root / "case"

    def arguments(self, command: str, file: Path, out: Path | None = None) -> list[str]:
        """Return the arguments of a command: words with ``SHORT`` and the fields ``{file}``, ``{out}`` and others.

        Args:
            command: The words.
            file: The file or folder that the command is given.
            out: The new folder of the output; None for one in the folder of the case.
        """
        fields: dict[str, Path | None] = {
            "file": file,
            "folder": file.parent,
            "out": out or self.case / "out",
            "root": self.root,
        }
        fields |= {"data": self.data, "run": self.run, "scores": self.scores, "image": self._image}
        return [word.format_map(fields) for short in command.split() for word in SHORT.get(short, [short])]

    @property
    def _image(self) -> Path | None:
        return min((self.root / "new").rglob("*.png"), default=None)

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def scores(self) -> Path:
        return self.root / "scores"

    @property
    def outside(self) -> Path:
        """Return the folder of the files that no command may change or show."""
        return self.root / "outside"


def make_world(root: Path) -> World:
    """Train on 36 phantoms for a few steps, explain, score, and write the files that nothing may change.

    What an earlier suite made in the same folder is used again: each case works on a copy.
    """
    from usvit.data.phantom import PhantomSpec, write_phantom

    import_everything()
    world = World(root)
    if (last := root / "fit.json").is_file():
        return world
    write_phantom(PhantomSpec(n=36, seed=3, size=64), world.data, workers=1)
    data = ["--data-root", str(world.data)]
    tiny = (*tiny_network(steps=2), "--set", "split.folds=2")
    _must(["cv", "--dataset", "phantom", *data, *tiny, "--out", str(world.run)])
    _must(["explain", str(world.run), "--images", "1", *data])
    write_phantom(PhantomSpec(n=24, seed=4, size=64), root / "new", workers=1)
    _must(["score", "--input", str(root / "new"), "--model", str(world.run), "--fold", "0", "--out", str(world.scores)])
    outside = world.outside
    outside.mkdir()
    (outside / "profile").write_text("the user's own\n")
    shutil.copytree(world.data, outside / "pictures")
    shutil.copyfile(world.run / "metrics.json", outside / "metrics.json")
    (outside / "folder").mkdir()
    (outside / "folder" / "report.html").write_text("the user's own page\n")
    pd.read_csv(root / "new" / "phantom.csv")[["path", "label"]].to_csv(root / "labels.csv", index=False)
    (root / "dicom").mkdir()
    image(1).save_as(root / "dicom" / "i.dcm", enforce_file_format=True)
    last.write_text("{}")
    return world


def _must(arguments: list[str]) -> None:
    ended = run_command(arguments, seconds=600, memory_gb=20, address_gb=None)
    if ended.bad or ended.status == 2:
        raise SystemExit(f"usvit {' '.join(arguments)} ended with {ended.status}:\n{ended.text}")


def import_everything() -> None:
    """Import once the modules that the children need."""
    import torch

    torch.set_num_threads(1)
    import usvit.cli
    import usvit.experiments.cross_validation
    import usvit.explaining.explanation
    import usvit.exporting
    import usvit.reports.comparison
    import usvit.scoring.external.evaluation
    import usvit.scoring.external.recalibration
    import usvit.scoring.job  # noqa: F401
