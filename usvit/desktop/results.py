"""The folder of results of one piece of work: its scores, tests, calibrations and answers, in short and as files."""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.desktop.cases import case_table, cases_workbook
from usvit.desktop.records import (
    AppResults,
    CaseList,
    DiagnosisTest,
    FigureText,
    FittedCalibration,
    GivenAnswers,
    ScoredImages,
)
from usvit.errors import UsvitError
from usvit.estimate_text import BRACKETS, estimate_text
from usvit.files import read_bytes
from usvit.records import CalibrationRecord, MetricsRecord, SummaryRecord, load_record
from usvit.reviewing import review_status

_LARGEST = 500_000_000
"""Size of a file that is read back, in bytes."""
_MOST_CASES = 500
"""Most cases on the page; the workbook holds all."""
_MOST_VIEWS = 6
"""Most files of a study that are shown side by side as one case."""


@dataclass(frozen=True)
class ResultsFolder:
    """What the steps have written into a folder, as far as it exists."""

    path: Path

    @property
    def study(self) -> Path:
        """The file of the reading of the cases."""
        return self.path / "reading.yaml"

    @property
    def calibration(self) -> Path | None:
        """The last calibration."""
        return next(iter(self._numbered("calibration", ".json")), None)

    def scores(self, calibration: Path | None = None) -> tuple[Path, Path]:
        """Return the folder of the scores, or of those with a calibration, and their private table of ids and files."""
        end = "" if calibration is None else f"-{calibration.stem}"
        return self.path / f"scores{end}", self.path / f"files{end}.csv"

    def finished_scores(self) -> Path:
        """Return the folder of the scores.

        Raises:
            UsvitError: There are none yet.
        """
        scores, _ = self.scores()
        if not (scores / "summary.json").is_file():
            raise UsvitError("Score the images first.")
        return scores

    def summary(self) -> AppResults:
        """Return what there is in short; what is damaged is among the problems."""
        calibration, problems = self.calibration, []
        found: dict[str, Any] = {"tests": []}
        parts: dict[str, Callable[[], Any]] = {
            "scores": lambda: _of_file(_scored_images, self.scores()[0] / "summary.json"),
            "rescored": lambda: (
                (c := self.calibration) and _of_file(_scored_images, self.scores(c)[0] / "summary.json")
            ),
            "tests": lambda: [_of_file(_diagnosis_test, one / "metrics.json") for one in self._tests("report.html")],
            "calibration": lambda: calibration and _of_file(_fitted_calibration, calibration),
            "answers": self._answers,
        }
        for name, read in parts.items():
            try:
                found[name] = read()
            except UsvitError as error:
                problems.append(str(error))
        return AppResults(**found, problems=problems)

    def cases(self) -> CaseList:
        """Return the first cases as a table; see ``case_table``."""
        header, *rows = case_table(*self._case_files(self.finished_scores()))
        return CaseList(header=[*header], rows=[[*row] for row in rows[:_MOST_CASES]], n=len(rows))

    def documents(self) -> dict[str, Path]:
        """Return the pages of the results, by their address on the page."""
        folders = [self.scores()[0], *([self.scores(c)[0]] if (c := self.calibration) else [])]
        found = {one.name: one / "scores.html" for one in folders}
        found |= {one.name: one / "report.html" for one in self._tests()}
        return {name: path for name, path in found.items() if path.is_file()}

    def workbook(self, name: str) -> bytes | None:
        """Return an Excel file of the results by its address; None if there is none."""
        if name in self.documents() and name.startswith("scores"):
            return cases_workbook(*self._case_files(self.path / name))
        files = {one.name: one / "report.xlsx" for one in self._tests()} | {"answers": self._exported_answers}
        path = files.get(name)
        return read_bytes(path, _LARGEST) if path is not None and path.is_file() else None

    def case_unit(self) -> str:
        """Return what a case is: a study, if all files name theirs and none has many files; else an image."""
        counts = load_record(self.finished_scores() / "summary.json", SummaryRecord).counts
        few = counts.files_scored <= _MOST_VIEWS * counts.studies
        return "exam" if counts.studies and not counts.files_without_study and few else "image"

    def _case_files(self, scores: Path) -> tuple[Path, Path, Path | None]:
        link = self.path / f"{scores.name.replace('scores', 'files', 1)}.csv"
        return scores, link, next(iter(self._tests("predictions.csv")), None)

    def _tests(self, with_file: str = "") -> list[Path]:
        return [one for one in self._numbered("test") if (one / with_file).exists()]

    @property
    def _exported_answers(self) -> Path:
        return self.path / "review-reading" / "export" / "readings.xlsx"

    def _answers(self) -> GivenAnswers | None:
        if not (self.path / "review-reading" / "review.sqlite").is_file():
            return None
        reader = review_status(self.study).readers[0]
        return GivenAnswers(done=reader.done, total=reader.total, exported=self._exported_answers.is_file())

    def _numbered(self, stem: str, ending: str = "") -> list[Path]:
        """Return ``stem``, ``stem-2`` and so on, as far as they exist, the last one first."""
        name = re.compile(rf"{re.escape(stem)}(?:-(\d{{1,6}}))?{re.escape(ending)}")
        entries = self.path.iterdir() if self.path.is_dir() else ()
        found = [(int(match[1] or 1), one) for one in entries if (match := name.fullmatch(one.name))]
        return [one for _, one in sorted(found, reverse=True)]


def free_path(path: Path, content: bytes | None = None) -> Path:
    """Return a path that does not exist, or holds the same content: the path itself, or with ``-2`` and so on."""
    number, free = 1, path
    while free.exists() and (content is None or not free.is_file() or read_bytes(free, _LARGEST) != content):
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free


def _of_file(read: Callable[[Path, int], Any], path: Path) -> Any:
    """Return what a file says, read again only if it has changed; None without the file."""
    return read(path, path.stat().st_mtime_ns) if path.is_file() else None


@functools.lru_cache(maxsize=16)
def _scored_images(path: Path, changed: int) -> ScoredImages:
    record = load_record(path, SummaryRecord)
    counts = record.counts
    return ScoredImages(
        name=path.parent.name,
        images=counts.frames_scored,
        files=counts.files_scored,
        positive_class=record.positive_class,
        positive=counts.frames_positive,
        negative=counts.frames_negative,
        undecided=counts.frames_undecided,
        unusual=counts.frames_unusual,
        seen=counts.frames_seen,
        failed=counts.failures,
    )


@functools.lru_cache(maxsize=16)
def _diagnosis_test(path: Path, changed: int) -> DiagnosisTest:
    record = load_record(path, MetricsRecord)
    figures = [(f"AUC, {record.positive_class} against the rest", record.headline.auc)]
    frozen = next((one for one in record.operating_points if one.rule.startswith("frozen")), None)
    if frozen is not None and frozen.pooled is not None:
        figures.append(("Sensitivity at the model's threshold", frozen.pooled.sensitivity))
        figures.append(("Specificity at the model's threshold", frozen.pooled.specificity))
    return DiagnosisTest(
        name=path.parent.name,
        figures=[FigureText(name=name, text=estimate_text(figure, BRACKETS)) for name, figure in figures],
        warnings=record.warnings,
    )


@functools.lru_cache(maxsize=16)
def _fitted_calibration(path: Path, changed: int) -> FittedCalibration:
    record = load_record(path, CalibrationRecord)
    return FittedCalibration(name=path.name, images=record.n_images, said=record.said)
