"""The steps of the page: each is a call of a public function in a child process, and the command that does the same."""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from usvit.config.evaluation import ExternalTestSettings, LabelTable
from usvit.progress import Progress


class StepChannel(Progress, Protocol):
    """Where a step tells how far it is, and the address of a page that it serves."""

    def link(self, address: str) -> None: ...


@dataclass(frozen=True)
class LabelChoice:
    """A table of diagnoses, and how it is read.

    Attributes:
        path: the file.
        label: column of the diagnosis; '' for ``label``.
        image: column of the file names; '' for the first column that names images.
        words: words of the table with their classes, such as ``b=benign, m=malignant``.
        drop_seen: whether to leave out patients with an image that was used in training.
    """

    path: Path
    label: str = ""
    image: str = ""
    words: str = ""
    drop_seen: bool = False

    @property
    def _pairs(self) -> list[str]:
        return [pair.strip() for pair in self.words.split(",") if pair.strip()]

    def table(self) -> LabelTable:
        """Return the table as the functions take it.

        Raises:
            UsvitError: ``words`` is not of that form.
        """
        given: dict[str, Any] = {"label": self.label or None, "words": self._pairs}
        return LabelTable(self.path, **given, join=f"path={self.image}" if self.image else None)

    def options(self) -> list[str]:
        """Return the same as options of the command line, but for the file."""
        found = ["--label", self.label] if self.label else []
        found += ["--join", f"path={self.image}"] if self.image else []
        found += [word for pair in self._pairs for word in ("--map", pair)]
        return found + (["--drop-seen"] if self.drop_seen else [])


@dataclass(frozen=True)
class AppStep:
    """A step that can be pickled.

    Attributes:
        name: what the page calls it.
        command: the command line that does the same.
        call: a function of this module, called with a ``StepChannel`` and ``arguments``.
    """

    name: str
    command: str
    call: Callable[..., None]
    arguments: Mapping[str, Any] = field(default_factory=dict)


def score_step(name: str, images: Path, model: Path, out: Path, link: Path, calibration: Path | None = None) -> AppStep:
    """Score the images of a folder into the folder ``out``; ``link`` is the private table of ids and files."""
    words: list[str | Path] = ["score", "--model", model, "--input", images, "--out", out, "--link", link]
    words += [] if calibration is None else ["--calibration", calibration]
    given = {"images": images, "model": model, "out": out, "link": link, "calibration": calibration}
    return AppStep(name, command(*words), _score, given)


def test_step(scores: Path, labels: LabelChoice, out: Path) -> AppStep:
    """Evaluate scores against diagnoses, with a report."""
    line = command("evaluate", scores, "--labels", labels.path, *labels.options(), "--out", out)
    hidden = command("evaluate", "SCORES", "--labels", "LABELS", *labels.options(), "--out", "OUT")
    return AppStep("test", line, _test, {"scores": scores, "labels": labels, "out": out, "command": hidden})


def recalibrate_step(scores: Path, labels: LabelChoice, out: Path) -> AppStep:
    """Fit thresholds and a temperature on diagnoses."""
    line = command("recalibrate", scores, "--labels", labels.path, *labels.options(), "--out", out)
    return AppStep("recalibrate", line, _recalibrate, {"scores": scores, "labels": labels, "out": out})


def read_step(study: Path) -> AppStep:
    """Serve the reading of the scored cases."""
    return AppStep("read", command("review", study), _read, {"study": study})


def answers_step(study: Path) -> AppStep:
    """Write the answers of the reading as tables."""
    return AppStep("answers", command("review", "export", study), _export_answers, {"study": study})


def command(*words: str | Path) -> str:
    """Return a command line that a shell reads as these words."""
    return shlex.join(["usvit", *map(str, words)])


def _score(channel: StepChannel, images: Path, model: Path, out: Path, link: Path, calibration: Path | None) -> None:
    from usvit.scoring import score

    score(model, images, out, link=link, calibration=calibration, progress=channel)


def _test(channel: StepChannel, scores: Path, labels: LabelChoice, out: Path, command: str) -> None:
    from usvit.reports import report
    from usvit.scoring import evaluate_scores

    settings = ExternalTestSettings(drop_seen=labels.drop_seen)
    evaluate_scores(scores, labels.table(), settings=settings, out=out, command=command)
    report(out)


def _recalibrate(channel: StepChannel, scores: Path, labels: LabelChoice, out: Path) -> None:
    from usvit.scoring import recalibrate

    recalibrate(scores, labels.table(), out=out, drop_seen=labels.drop_seen)


def _read(channel: StepChannel, study: Path) -> None:
    from usvit.reviewing import ServeSettings, load_review, serve_study

    plan = load_review(study)
    settings = ServeSettings(port=0, browser=False)
    serve_study(plan, settings, channel, lambda server: channel.link(server.link(plan.readers[0])))


def _export_answers(channel: StepChannel, study: Path) -> None:
    from usvit.reviewing import export_review

    export_review(study)
