"""What the names in the commands of the documentation stand for: runs, images, scores and tables of the phantom."""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import filelock
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.cli.runs import make_run
from tests.command_blocks.blocks import Command, blocks
from tests.conftest import REPOSITORY, TINY, succeed
from tests.data.conftest import write_b, write_busi, write_dicom
from tests.evaluation.test_reader_answers import answers
from tests.monitoring.months import write_month
from tests.publishing.conftest import write_keys
from usvit.data.phantom import PhantomSpec, write_phantom

_BESIDE = ("runs/b", "runs/y", "runs/other")
"""Runs of the second network; the others are of the first."""


class Places:
    """Makes what a command names, in the folder of a page.

    Args:
        shared: Folder in which runs, images and scores are made once.
        home: Folder in which the commands of the page run.
    """

    def __init__(self, shared: Path, home: Path):
        self._shared, self._home = shared / "command-blocks", home
        self._shared.mkdir(exist_ok=True)

    def provide(self, command: Command) -> None:
        """Make every file and folder that a command reads and that is not there."""
        outputs = {command.words[k + 1] for k, word in enumerate(command.words[:-1]) if word in ("--out", "--link")}
        for word in command.words:
            for name in {word, word.partition("=")[2]} - outputs:
                for pattern, make in _PLACES:
                    found = re.fullmatch(pattern, name.rstrip("/"))
                    if found and not (self._home / found[1]).exists():
                        make(self, found[1], command)

    @property
    def phantom(self) -> Path:
        """The images of the runs: views of lesions, in exams."""
        spec = PhantomSpec(n=72, seed=3, size=64, views=4, lesions=2, exams=2, near_duplicates=0.2)
        return self._once("phantom", lambda out: write_phantom(spec, out, workers=1))

    @property
    def _other(self) -> Path:
        """Images that no network was trained on."""
        spec = PhantomSpec(n=120, seed=5, size=64, views=2)
        return self._once("other", lambda out: write_phantom(spec, out, workers=1))

    def run(self, name: str, command: Command) -> None:
        """A run of a tiny network; for readers and plans, one whose predictions are drawn, and without networks."""
        home = self._home / name
        if "--like" in command.words or "--readers" in command.words:
            make_run(home, seed=sum(map(ord, name)), skill=0.8, n=600)
            rows = pd.read_parquet(home / "manifest.parquet")
            rows.assign(birads=np.where(rows.label == "malignant", "5", "3")).to_parquet(home / "manifest.parquet")
        elif command.words[:2] == ("models", "export") and not command.words[2].rpartition("/")[2].startswith("fold-"):
            shutil.copytree(self._trained("train"), home)
        else:
            shutil.copytree(self._trained("cv", "timm:test_resnet" if name in _BESIDE else "timm:test_vit"), home)

    @property
    def an_image(self) -> str:
        """An image on which the network of fold 2 was tested."""
        return str(
            pd.read_csv(self._trained("cv") / "fold-2" / "predictions.csv").query("part == 'test'").image_id.iloc[0]
        )

    def pretraining(self, name: str, command: Command) -> None:
        small = ("model.vit={depth: 1, width: 24, heads: 2}", "model.image_size=32", "source.size=24")
        small = (*small, "source.image_size=32", "source.classes=3", "train.batch_size=8", "train.steps=1")
        words = [part for one in small for part in ("--set", one)]
        succeed("pretrain", "--workers", 0, "--device", "cpu", "--out", self._home / name, *words)

    def images(self, name: str, command: Command) -> None:
        """DICOM files of a hospital; with options for a table, pictures and their table."""
        if "--path-col" not in command.words:
            shutil.copytree(self._exported, self._home / name)
            return
        shutil.copytree(self.phantom, self._home / name)
        for file in ("phantom.csv", "phantom.json", "texts.csv"):
            (self._home / name / file).unlink()
        own = {"path": "File", "label": "Diagnosis", "patient_id": "Case", "lesion_id": "Lesion", "exam_id": "Exam"}
        rows = pd.read_csv(self.phantom / "phantom.csv").replace({"label": {"malignant": "cancer"}})
        table = rows.rename(columns={**own, "side": "Side"})[[*own.values(), "Side"]]
        table.to_csv(self._home / name / "table.csv", index=False)

    def scores(self, name: str, command: Command) -> None:
        def write(out: Path) -> None:
            succeed("score", "--model", self._trained("cv"), "--input", self._exported, "--out", out)

        shutil.copytree(self._once("scores", write), self._home / name)

    def labels(self, name: str, command: Command) -> None:
        rows = pd.read_csv(self._other / "phantom.csv")
        second = rows.patient_id.astype("category").cat.codes % 2 == 1
        rows = rows[~second] if name == "half.csv" else rows[second] if name == "other-half.csv" else rows
        table = pd.DataFrame({"path": [f"{one}.dcm" for one in rows.image_id], "label": rows.label})
        table.to_csv(self._home / name, index=False)

    def months(self, name: str, command: Command) -> None:
        for month in ("2026-01", "2026-02", "2026-03"):
            write_month(self._home / "scores" / month, month)

    def predictions(self, name: str, command: Command) -> None:
        """A table of another tool: that of the page, or, beside a run, its images and a probability."""
        rng, n = np.random.default_rng(0), 120
        truth = np.arange(n) // 2 % 2
        share = np.clip(rng.normal(0.35 + 0.3 * truth, 0.2), 0.01, 0.99)
        if command.words[0] == "compare" or "--passport" in command.words:
            rows = pd.read_csv((self.phantom if command.words[0] == "compare" else self._other) / "phantom.csv")
            prob = rng.dirichlet(np.ones(3), len(rows))
            classes = {f"prob_{name}": prob[:, k] for k, name in enumerate(("benign", "malignant", "normal"))}
            table = rows[["image_id", "label"]].assign(**classes)
        else:
            names = np.where(truth, "malignant", "benign")
            table = pd.DataFrame({"image_id": [f"{k}.png" for k in range(n)], "truth": names, "score": share})
            table = table.assign(case_no=np.arange(n) // 2)
            table = table.assign(fold=np.arange(n) // 2 % 5, p0=0.8 * (1 - share), p1=share, p2=0.2 * (1 - share))
            if "--repeats" in command.words:
                own = {"truth": "label", "case_no": "patient", "score": "prob_malignant"}
                table = table.rename(columns=own).assign(lesion_id=np.arange(n) // 2, prob_benign=1 - share)
        table.to_csv(self._home / name, index=False)

    def manifest(self, name: str, command: Command) -> None:
        succeed("data", "prepare", "phantom", "--data-root", self._other, "--out", self._home / name)

    def readings(self, name: str, command: Command) -> None:
        answers(60, "ABC").to_csv(self._home / name, index=False)

    def categories(self, name: str, command: Command) -> None:
        rows = pd.read_parquet(self._home / command.words[1] / "manifest.parquet")
        two = {f"reader {one}": np.where(rows.label == "malignant", "4c", "4a") for one in "AB"}
        rows[["dataset", "image_id"]].assign(**two).to_excel(self._home / name, index=False)

    def data_sets(self, name: str, command: Command) -> None:
        """The releases of BUSI and of data set B in small, as they are unpacked."""
        write_busi(self._home / name / "Dataset_BUSI_with_GT")
        write_b(self._home / name / "BUS")

    def recipe(self, name: str, command: Command) -> None:
        self._copy(REPOSITORY / "configs" / "finetune" / "gheflati2022_cnn.yaml", name)

    def study(self, name: str, command: Command) -> None:
        (self._home / name).write_text(_yaml("docs/how-to/study.md", "grid:"))

    def answers_of_authors(self, name: str, command: Command) -> None:
        (self._home / name).write_text(_yaml("docs/how-to/report.md", "claim_2024:"))

    def keys(self, name: str, command: Command) -> None:
        for made, wanted in zip(write_keys(self._home, "made"), ("key.pem", "key.pub"), strict=True):
            made.rename(self._home / wanted)

    def _copy(self, file: Path, name: str) -> None:
        (self._home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, self._home / name)

    def _trained(self, kind: str, network: str = "timm:test_vit") -> Path:
        def train(out: Path) -> None:
            first = self._trained("cv") / "folds.csv" if kind == "cv" and network != "timm:test_vit" else None
            folds = [] if first is None else ["--folds", first]
            succeed(
                kind,
                "--dataset",
                "phantom",
                "--data-root",
                self.phantom,
                "--out",
                out,
                *TINY,
                "--model",
                network,
                *folds,
            )

        return self._once(f"{kind}-{network.partition(':')[2]}", train)

    @property
    def _exported(self) -> Path:
        def write(out: Path) -> None:
            for row in pd.read_csv(self._other / "phantom.csv").itertuples():
                pixels = np.asarray(Image.open(self._other / row.path).convert("L"))
                write_dicom(out / f"{row.image_id}.dcm", pixels, PatientID=f"MRN-{row.patient_id}")

        return self._once("export", write)

    def _once(self, name: str, make: Callable[[Path], object]) -> Path:
        path = self._shared / name
        with filelock.FileLock(f"{path}.lock"), pytest.MonkeyPatch.context() as patch:
            if not path.exists():
                patch.setattr("usvit.reports.write_report", lambda path: None)
                making = path.with_name(f"{name}-{os.getpid()}")
                make(making)
                making.rename(path)
        return path


def _yaml(page: str, word: str) -> str:
    return next(text for language, text in blocks(page) if language == "yaml" and word in text)


_PLACES: list[tuple[str, Callable[[Places, str, Command], None]]] = [
    (r"(GRAFIT_RUN)", Places.pretraining),
    (r"(runs/[\w.-]+|RUN\w*|CV_RUN|teacher|model)(/.*)?", Places.run),
    (r"(export|images|IMAGES|next-month|next)", Places.images),
    (r"(scores)", Places.scores),
    (r"(scores/2026-03|scores/2026-\*|scores/\*)", Places.months),
    (r"((?:\w+-)?(?:labels|half|all)\.csv)", Places.labels),
    (r"((?:scores|sklearn|external)\.csv)", Places.predictions),
    (r"(answers\.csv)", Places.readings),
    (r"(categories\.xlsx)", Places.categories),
    (r"((?:manifests/)?[\w+]+\.parquet)", Places.manifest),
    (r"(my_cnn\.yaml)", Places.recipe),
    (r"(my_study\.yaml)", Places.study),
    (r"(answers\.yaml)", Places.answers_of_authors),
    (r"(key\.(?:pem|pub))", Places.keys),
    (r"(/?data|DIR|DATA)(/.*)?", Places.data_sets),
]
"""Pattern of a name -> what makes it. The file or folder of the pattern's first group is made."""
