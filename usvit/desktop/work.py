"""The work of the page: what was chosen, what the folder of results holds, and the steps that can be started.

Everything that was computed is read from the folder of results, so that the page goes on where it was after a reload,
or when the same images and model are chosen again later.
"""

import functools
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from usvit.desktop.cases import case_table, cases_workbook
from usvit.desktop.folders import describe_images, describe_model, find_models, folder_at
from usvit.desktop.runner import StepRunner
from usvit.desktop.settings import AppSettings
from usvit.desktop.steps import (
    AppStep,
    LabelChoice,
    answers_step,
    read_step,
    recalibrate_step,
    score_step,
    test_step,
)
from usvit.errors import UsvitError
from usvit.estimate_text import BRACKETS, estimate_text
from usvit.files import for_the_owner_alone, make_folder, read_bytes, write_bytes, write_text
from usvit.records import CalibrationRecord, MetricsRecord, SummaryRecord, load_record
from usvit.reviewing import review_status

MOST_LABEL_BYTES = 50_000_000
"""Size of a table of diagnoses."""
_LARGEST = 500_000_000
"""Size of a file that is read back, in bytes."""
_MOST_CASES = 500
"""Most cases on the page; the workbook holds all."""
_MOST_VIEWS = 6
"""Most files of a study that are shown side by side as one case."""


class AppWork:
    """What was chosen on the page, and what was done with it.

    Attributes:
        steps: runs the steps that write results.
        reading: serves the reading of the cases beside them.
    """

    def __init__(self, settings: AppSettings) -> None:
        self.steps, self.reading = StepRunner(), StepRunner()
        self._results = (settings.results or Path.home() / "usvit-results").absolute()
        self._searched = [*dict.fromkeys(one.absolute() for one in (*settings.models, Path.cwd(), self._results))]
        self._lock = threading.RLock()
        self._images: dict[str, Any] | None = None
        self._model: dict[str, Any] | None = None
        self._models: list[dict[str, Any]] | None = None
        self._out: Path | None = None
        self._labels: LabelChoice | None = None

    # ---- choices

    def choose_images(self, path: str) -> None:
        """Choose the folder of the images, and count its files."""
        self._refuse_busy()
        found = describe_images(folder_at(path))
        with self._lock:
            self._images = found
            self._suggest()

    def look_for_models(self, path: str) -> None:
        """Look for models below another folder, too."""
        folder = folder_at(path)
        with self._lock:
            self._searched = [folder, *(one for one in self._searched if one != folder)]
            self._models = None

    def choose_model(self, path: str) -> None:
        """Choose a model that was found."""
        self._refuse_busy()
        found = describe_model(folder_at(path))
        if found is None:
            raise UsvitError(f"{path} holds no finished model of usvit. Choose another folder.")
        with self._lock:
            self._model = found
            self._suggest()

    def choose_results(self, path: str) -> None:
        """Choose the folder of results; it need not exist."""
        out = Path(path).expanduser()
        if "\0" in path or not out.is_absolute() or (out.exists() and not out.is_dir()):
            raise UsvitError("Name a folder for the results with its whole path, from the root of the disk.")
        self._refuse_busy()
        with self._lock:
            if self._images and out.resolve().is_relative_to(self._images["path"]):
                raise UsvitError("The results cannot be inside the folder of the images. Choose another folder.")
            self._out, self._labels = out, None

    def keep_labels(self, name: str, content: bytes) -> None:
        """Write a table of diagnoses into the folder of results, under a name that is free."""
        name = re.sub(r"[^\w. -]", "_", name.replace("\\", "/").rpartition("/")[2])[-80:].lstrip(". ")
        folder = self._folder() / "labels"
        if not name or not content:
            raise UsvitError("The file is empty. Choose a table with a column for the image and one for the diagnosis.")
        path = _free(folder / name, content)
        with for_the_owner_alone(True):
            make_folder(folder)
            write_bytes(path, content)
        with self._lock:
            self._labels = LabelChoice(path)

    def describe_labels(self, label: str, image: str, words: str, drop_seen: bool) -> None:
        """Say how the table of diagnoses is read (``LabelChoice``)."""
        with self._lock:
            if self._labels is None:
                raise UsvitError("Choose a table of diagnoses first.")
            self._labels = LabelChoice(self._labels.path, label.strip(), image.strip(), words.strip(), drop_seen)

    def _suggest(self) -> None:
        """Name the folder of results after the images and the model."""
        if self._images and self._model:
            name = f"{Path(self._images['path']).name or 'images'}-{Path(self._model['path']).name}"
            self._out, self._labels = self._results / re.sub(r"[^\w.-]", "_", name), None

    # ---- steps

    def start(self, name: str) -> None:
        """Start a step by its name.

        Raises:
            UsvitError: Something that it needs is missing, or another step is running.
        """
        step = self._step(name)
        self._refuse_running()
        with for_the_owner_alone(True):
            make_folder(self._folder())
        self.steps.start(step)

    def read(self) -> None:
        """Serve the reading of the cases; the file of the study is written if it does not exist."""
        folder, scores = self._folder(), self._scores()
        study = folder / "reading.yaml"
        if not study.exists():
            assert self._images is not None
            content = {
                "title": f"Reading of {Path(self._images['path']).name}",
                "protocol": "triage",
                "source": {
                    "images": [self._images["path"]],
                    "scores": scores.name,
                    "unit": _unit(scores),
                },
            }
            with for_the_owner_alone(True):
                write_text(study, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        self.reading.start(read_step(study))

    def close(self) -> None:
        """Stop what is running."""
        self.steps.stop()
        self.reading.stop()

    def _refuse_busy(self) -> None:
        self._refuse_running()
        if self.reading.runs:
            raise UsvitError("The cases are being read. Stop the reading first; every answer is saved.")

    def _refuse_running(self) -> None:
        if self.steps.runs:
            raise UsvitError("Another step is running. Wait for it, or stop it first.")

    def _folder(self) -> Path:
        if self._out is None:
            raise UsvitError("Choose the images and the model first.")
        return self._out

    def _scores(self) -> Path:
        scores = self._folder() / "scores"
        if not (scores / "summary.json").is_file():
            raise UsvitError("Score the images first.")
        return scores

    def _step(self, name: str) -> AppStep:
        folder = self._folder()
        if name in ("score", "rescore"):
            if not self._images or not self._model:
                raise UsvitError("Choose the images and the model first.")
            images, model = Path(self._images["path"]), Path(self._model["path"])
            calibration = None if name == "score" else self._calibration()
            if name == "rescore" and calibration is None:
                raise UsvitError("Recalibrate first.")
            end = "" if calibration is None else f"-{calibration.stem}"
            return score_step(name, images, model, folder / f"scores{end}", folder / f"files{end}.csv", calibration)
        if name == "answers":
            return answers_step(folder / "reading.yaml")
        if name not in ("test", "recalibrate"):
            raise UsvitError("There is no such step.")
        scores = self._scores()
        if self._labels is None:
            raise UsvitError("Choose a table of diagnoses first.")
        if name == "test":
            return test_step(scores, self._labels, _free(folder / "test"))
        return recalibrate_step(scores, self._labels, _free(folder / "calibration.json"))

    def _calibration(self) -> Path | None:
        return next(iter(_numbered(self._folder(), "calibration", ".json")), None)

    # ---- what there is

    def content(self) -> dict[str, Any]:
        """Return everything that the page shows."""
        with self._lock:
            if self._models is None:
                self._models = find_models(self._searched)
            labels = self._labels
            state = {
                "images": self._images,
                "model": self._model,
                "models": self._models,
                "searched": [str(one) for one in self._searched],
                "out": None if self._out is None else str(self._out),
            }
        return {
            **state,
            "labels": None
            if labels is None
            else {
                "name": labels.path.name,
                "label": labels.label,
                "image": labels.image,
                "words": labels.words,
                "drop_seen": labels.drop_seen,
            },
            "commands": self._commands(),
            "job": self.steps.content(),
            "reading": self.reading.content(),
            "results": {} if self._out is None else self._found(self._out),
        }

    def _commands(self) -> dict[str, str]:
        found = {}
        for name in ("score", "test", "recalibrate", "rescore", "answers"):
            try:
                found[name] = self._step(name).command
            except UsvitError:
                continue
        if self._out is not None:
            found["read"] = read_step(self._out / "reading.yaml").command
        return found

    def _found(self, folder: Path) -> dict[str, Any]:
        """Return what the folder of results holds; what is damaged is an error of its own."""
        found: dict[str, Any] = {"problems": []}
        parts = {
            "scores": lambda: _summary(folder / "scores"),
            "rescored": lambda: None if (c := self._calibration()) is None else _summary(folder / f"scores-{c.stem}"),
            "tests": lambda: [_figures(one) for one in _numbered(folder, "test") if (one / "report.html").is_file()],
            "calibration": lambda: None if (c := self._calibration()) is None else _fit(c),
            "answers": lambda: _answers(folder),
        }
        for name, read in parts.items():
            try:
                found[name] = read()
            except UsvitError as error:
                found["problems"].append(str(error))
        return found

    def cases(self) -> dict[str, Any]:
        """Return the first cases as a table; see ``case_table``."""
        rows = case_table(*self._case_files(self._scores()))
        return {"header": rows[0], "rows": rows[1 : _MOST_CASES + 1], "n": len(rows) - 1}

    def _case_files(self, scores: Path) -> tuple[Path, Path, Path | None]:
        folder = self._folder()
        tests = [one for one in _numbered(folder, "test") if (one / "predictions.csv").is_file()]
        return scores, folder / f"{scores.name.replace('scores', 'files', 1)}.csv", next(iter(tests), None)

    def documents(self) -> dict[str, Path]:
        """Return the pages of the results, by their address on the page."""
        folder, found = self._folder(), {}
        for name in ("scores", *([f"scores-{c.stem}"] if (c := self._calibration()) else [])):
            found[name] = folder / name / "scores.html"
        found |= {one.name: one / "report.html" for one in _numbered(folder, "test")}
        if self._model:
            found["model"] = Path(self._model["path"]) / "report.html"
        return {name: path for name, path in found.items() if path.is_file()}

    def workbook(self, name: str) -> bytes | None:
        """Return an Excel file of the results by its address; None if there is none."""
        folder = self._folder()
        if name in self.documents() and name.startswith("scores"):
            return cases_workbook(*self._case_files(folder / name))
        files = {one.name: one / "report.xlsx" for one in _numbered(folder, "test")}
        files["answers"] = _review(folder) / "export" / "readings.xlsx"
        path = files.get(name)
        return read_bytes(path, _LARGEST) if path is not None and path.is_file() else None


def _numbered(folder: Path, stem: str, ending: str = "") -> list[Path]:
    """Return ``stem``, ``stem-2`` and so on, as far as they exist, the last one first."""
    name = re.compile(rf"{re.escape(stem)}(?:-(\d{{1,6}}))?{re.escape(ending)}")
    found = [(int(match[1] or 1), one) for one in _entries(folder) if (match := name.fullmatch(one.name))]
    return [one for _, one in sorted(found, reverse=True)]


def _entries(folder: Path) -> list[Path]:
    return [*folder.iterdir()] if folder.is_dir() else []


def _free(path: Path, content: bytes | None = None) -> Path:
    """Return a path that does not exist, or holds the same content: the path itself, or with ``-2`` and so on."""
    number, free = 1, path
    while free.exists() and (content is None or not free.is_file() or read_bytes(free, _LARGEST) != content):
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _unit(scores: Path) -> str:
    """Return what a case is: a study, if all files name theirs and none has many files; else an image."""
    counts = load_record(scores / "summary.json", SummaryRecord).counts
    few = counts.files_scored <= _MOST_VIEWS * counts.studies
    return "exam" if counts.studies and not counts.files_without_study and few else "image"


def _review(folder: Path) -> Path:
    return folder / "review-reading"


def _answers(folder: Path) -> Mapping[str, Any] | None:
    if not (_review(folder) / "review.sqlite").is_file():
        return None
    reader = review_status(folder / "reading.yaml").readers[0]
    exported = (_review(folder) / "export" / "readings.xlsx").is_file()
    return {"done": reader.done, "total": reader.total, "exported": exported}


def _summary(scores: Path) -> Mapping[str, Any] | None:
    path = scores / "summary.json"
    return _summary_of(path, path.stat().st_mtime_ns) if path.is_file() else None


@functools.lru_cache(maxsize=16)
def _summary_of(path: Path, changed: int) -> Mapping[str, Any]:
    record = load_record(path, SummaryRecord)
    counts = record.counts
    return {
        "name": path.parent.name,
        "images": counts.frames_scored,
        "files": counts.files_scored,
        "studies": counts.studies,
        "positive_class": record.positive_class,
        "positive": counts.frames_positive,
        "negative": counts.frames_negative,
        "undecided": counts.frames_undecided,
        "unusual": counts.frames_unusual,
        "seen": counts.frames_seen,
        "failed": counts.failures,
        "threshold": record.threshold.value,
        "threshold_origin": record.threshold.origin,
    }


def _figures(test: Path) -> Mapping[str, Any]:
    path = test / "metrics.json"
    return _figures_of(path, path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=16)
def _figures_of(path: Path, changed: int) -> Mapping[str, Any]:
    record = load_record(path, MetricsRecord)
    figures = [(f"AUC, {record.positive_class} against the rest", estimate_text(record.headline.auc, BRACKETS))]
    frozen = next((one for one in record.operating_points if one.rule.startswith("frozen")), None)
    if frozen is not None and frozen.pooled is not None:
        for name, figure in (("Sensitivity", frozen.pooled.sensitivity), ("Specificity", frozen.pooled.specificity)):
            figures.append((f"{name} at the model's threshold", estimate_text(figure, BRACKETS)))
    return {
        "name": path.parent.name,
        "images": record.n_images,
        "classes": record.class_counts,
        "figures": figures,
        "warnings": record.warnings,
    }


def _fit(path: Path) -> Mapping[str, Any]:
    record = load_record(path, CalibrationRecord)
    return {"name": path.name, "images": record.n_images, "said": record.said}
