"""The work of the page: what was chosen, and the steps that can be started.

Everything that was computed is read from the folder of results, so that the page goes on where it was after a reload,
or when the same images and model are chosen again later.
"""

import re
import threading
from pathlib import Path

import yaml

from usvit.desktop.folders import describe_images, describe_model, find_models, folder_at
from usvit.desktop.records import AppResults, AppState, ChosenLabels, FoundModel, ImageFolder
from usvit.desktop.results import ResultsFolder, free_path
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
from usvit.files import for_the_owner_alone, make_folder, write_bytes, write_text

MOST_LABEL_BYTES = 50_000_000
"""Size of a table of diagnoses."""
_STEPS = ("score", "test", "recalibrate", "rescore", "answers")


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
        self._images: ImageFolder | None = None
        self._model: FoundModel | None = None
        self._models: list[FoundModel] | None = None
        self._out: ResultsFolder | None = None
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
            if self._images and out.resolve().is_relative_to(self._images.path):
                raise UsvitError("The results cannot be inside the folder of the images. Choose another folder.")
            self._out, self._labels = ResultsFolder(out), None

    def keep_labels(self, name: str, content: bytes) -> None:
        """Write a table of diagnoses into the folder of results, under a name that is free."""
        name = re.sub(r"[^\w. -]", "_", name.replace("\\", "/").rpartition("/")[2])[-80:].lstrip(". ")
        folder = self.results().path / "labels"
        if not name or not content:
            raise UsvitError("The file is empty. Choose a table with a column for the image and one for the diagnosis.")
        path = free_path(folder / name, content)
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
            name = f"{Path(self._images.path).name or 'images'}-{Path(self._model.path).name}"
            self._out, self._labels = ResultsFolder(self._results / re.sub(r"[^\w.-]", "_", name)), None

    # ---- steps

    def start(self, name: str) -> None:
        """Start a step by its name.

        Raises:
            UsvitError: Something that it needs is missing, or another step is running.
        """
        step = self._step(name)
        self._refuse_running()
        with for_the_owner_alone(True):
            make_folder(self.results().path)
        self.steps.start(step)

    def read(self) -> None:
        """Serve the reading of the cases; the file of the study is written if it does not exist."""
        folder = self.results()
        scores = folder.finished_scores()
        if not folder.study.exists():
            assert self._images is not None
            source = {"images": [self._images.path], "scores": scores.name, "unit": folder.case_unit()}
            content = {"title": f"Reading of {Path(self._images.path).name}", "protocol": "triage", "source": source}
            with for_the_owner_alone(True):
                write_text(folder.study, yaml.safe_dump(content, sort_keys=False, allow_unicode=True))
        self.reading.start(read_step(folder.study))

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

    def _step(self, name: str) -> AppStep:
        folder = self.results()
        if name in ("score", "rescore"):
            if not self._images or not self._model:
                raise UsvitError("Choose the images and the model first.")
            calibration = None if name == "score" else folder.calibration
            if name == "rescore" and calibration is None:
                raise UsvitError("Recalibrate first.")
            images, model = Path(self._images.path), Path(self._model.path)
            return score_step(name, images, model, *folder.scores(calibration), calibration)
        if name == "answers":
            return answers_step(folder.study)
        if name not in ("test", "recalibrate"):
            raise UsvitError("There is no such step.")
        scores = folder.finished_scores()
        if self._labels is None:
            raise UsvitError("Choose a table of diagnoses first.")
        if name == "test":
            return test_step(scores, self._labels, free_path(folder.path / "test"))
        return recalibrate_step(scores, self._labels, free_path(folder.path / "calibration.json"))

    # ---- what there is

    def state(self) -> AppState:
        """Return everything that the page shows."""
        with self._lock:
            if self._models is None:
                self._models = find_models(self._searched)
            labels, out = self._labels, self._out
            return AppState(
                images=self._images,
                model=self._model,
                models=self._models,
                out=None if out is None else str(out.path),
                labels=None
                if labels is None
                else ChosenLabels(
                    name=labels.path.name,
                    label=labels.label,
                    image=labels.image,
                    words=labels.words,
                    drop_seen=labels.drop_seen,
                ),
                commands=self._commands(),
                job=self.steps.report(),
                reading=self.reading.report(),
                results=AppResults(tests=[], problems=[]) if out is None else out.summary(),
            )

    def results(self) -> ResultsFolder:
        """Return the folder of results that was chosen.

        Raises:
            UsvitError: There is none yet.
        """
        if self._out is None:
            raise UsvitError("Choose the images and the model first.")
        return self._out

    def _commands(self) -> dict[str, str]:
        found = {}
        for name in _STEPS:
            try:
                found[name] = self._step(name).command
            except UsvitError:
                continue
        if self._out is not None:
            found["read"] = read_step(self._out.study).command
        return found
