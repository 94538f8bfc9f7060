"""A measurement of shift: trainings, predictions of the left-out sets, figures, record, table and page."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

import usvit
from usvit.config import RunConfig
from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError
from usvit.estimate import Interval
from usvit.evaluation import size_problem
from usvit.files import OutputFolder, write_csv
from usvit.metrics.threshold_choice import Rule
from usvit.progress import Progress
from usvit.records import ContaminationRecord, save_record
from usvit.scoring import RunNetworks, predict_manifest
from usvit.upstream.config.study import ShiftSettings
from usvit.upstream.records.shift import ShiftRecord, ShiftSet
from usvit.upstream.records.written_record import WrittenRecord
from usvit.upstream.studies.engines import make_engine
from usvit.upstream.studies.execution import execute
from usvit.upstream.studies.shift.document import write_shift_page
from usvit.upstream.studies.shift.figures import Judged, cells_of, judge, row_of, set_by_key
from usvit.upstream.studies.shift.published import published_figures
from usvit.upstream.studies.shift.sets import PHANTOM, JoinedSets
from usvit.upstream.studies.shift.training import (
    Kind,
    LeftOut,
    check_weights,
    leave_each_out,
    study_of,
    write_inputs,
)

_OWN_FILES = ("study", "runs", "external", "shift.json", "shift.csv", "shift.html")
FIGURES = ("auc", "sensitivity", "specificity", "slope", "observed_expected", "ppv", "npv")


@dataclass(frozen=True)
class ShiftRequest:
    """What is to be measured, checked."""

    sets: JoinedSets
    config: RunConfig
    """Configuration of the trainings."""
    rule: Rule
    settings: ShiftSettings
    out: Path
    command: str

    @property
    def kind(self) -> Kind:
        """Kind of the trainings."""
        return "train" if self.settings.hold_out else "cv"

    @property
    def sizes(self) -> tuple[int, ...]:
        """Numbers of patients to recalibrate on, each once."""
        return tuple(dict.fromkeys(self.settings.sizes))


class ShiftOutcome(WrittenRecord[ShiftRecord]):
    """The result of a measurement of shift: the content of ``shift.json``, its folder and its page."""


def measure(request: ShiftRequest, progress: Progress) -> ShiftOutcome:
    """Train without each set, predict it, and write ``shift.json``, ``shift.csv`` and ``shift.html``.

    Raises:
        UsvitError: See ``usvit.measure_shift``.
    """
    sets, config, settings = request.sets, request.config, request.settings
    _refuse_all_sizes(request)
    output = OutputFolder(request.out, "a measurement of shift", files=_OWN_FILES)
    output.refuse_other_files()
    engine = make_engine(settings.engine, address=None, cpus=settings.cpus, gpus=None, device=config.device)
    contamination = check_weights(config, sets)
    runs = settings.runs or request.out / "runs"
    left_out = leave_each_out(sets, config, request.kind, runs)
    with output.opened(private=sets.manifest.is_private):
        write_inputs(left_out)
        outcome = execute(
            study_of(left_out, config, request.kind, request.settings.by),
            engine=engine,
            roots={},
            out=request.out / "study",
            command=request.command,
            progress=progress,
            runs=runs,
        )
        if outcome.failed:
            first = outcome.failed[0]
            raise UsvitError(
                f"{len(outcome.failed)} of {len(left_out)} trainings failed, the first of them {first.id}: "
                f"{first.error} The same command tries them again; see {outcome.page}."
            )
        judged = [_judge(one, request, runs, progress) for one in left_out]
        record = _record(request, judged, contamination)
        save_record(request.out / "shift.json", record)
        write_csv(request.out / "shift.csv", table_of(record))
        return ShiftOutcome(request.out, record, write_shift_page(request.out, record, runs))


def table_of(record: ShiftRecord) -> pd.DataFrame:
    """Return all figures of a record as one line each: left-out set, tested set, side, figure, value and interval."""
    lines: list[dict[str, str | float | None]] = []

    def add(
        left_out: str, tested: str, side: str, figure: str, n: int | None, value: float | None, ends: Interval | None
    ) -> None:
        low, high = ends or (None, None)
        head = {"left_out": left_out, "tested": tested, "side": side, "n_patients": n, "figure": figure}
        lines.append({**head, "value": value, "low": low, "high": high})

    for cell in record.matrix:
        side = "matrix, external" if cell.external else "matrix, internal"
        add(cell.left_out, cell.tested, side, "auc", None, cell.auc.value, cell.auc.ci95)
    for row in record.rows:
        for side, figures in (("internal", row.internal), ("external", row.external), ("deployed", row.deployed)):
            tested = "+".join(row.trained_on) if side == "internal" else row.left_out
            for name in FIGURES:
                one = getattr(figures, name)
                add(row.left_out, tested, side, name, None, one.value, one.ci95)
        for name in ("auc", "sensitivity", "specificity"):
            one = getattr(row.change, name)
            add(row.left_out, row.left_out, "change", name, None, one.value, one.ci95)
        add(row.left_out, row.left_out, "change, paired", "auc", None, row.paired.auc.value, row.paired.auc.ci95)
        for drawn in row.recalibration:
            for name in ("sensitivity", "specificity", "slope", "observed_expected"):
                found = getattr(drawn, name)
                side = f"recalibration, {drawn.fitted}"
                add(row.left_out, row.left_out, side, name, drawn.n_patients, found.median, found.interval)
    return pd.DataFrame(lines).astype({"n_patients": "Int64"})


def _refuse_all_sizes(request: ShiftRequest) -> None:
    table = request.sets.table()
    most = max(table.group_id[table.set == name].nunique() for name in request.sets.names)
    problems = [size_problem(size, most) for size in request.sizes]
    if problems and all(problems):
        raise UsvitError(
            f"No set has enough patients for a recalibration of {' or '.join(map(str, request.sizes))}: {problems[0]} "
            "in the largest set. Give smaller numbers with --sizes, or --sizes none."
        )


def _judge(one: LeftOut, request: ShiftRequest, runs: Path, progress: Progress) -> Judged:
    networks = RunNetworks.of_run(runs / one.run.id, request.rule)
    config = request.config
    logits = predict_manifest(
        networks,
        one.target,
        request.out / "external" / f"{one.file}.csv",
        device=config.device,
        precision=config.precision,
        progress=progress,
    )
    return judge(one, networks, logits, set_by_key(request.sets.table()))


def _record(
    request: ShiftRequest, judged: Sequence[Judged], contamination: Sequence[ContaminationRecord]
) -> ShiftRecord:
    sets, config, positive = request.sets, request.config, request.sets.manifest.positive_class
    table = sets.table()
    prevalence = (
        float((table.label == positive).mean()) if request.settings.prevalence is None else request.settings.prevalence
    )
    rows = [
        row_of(
            one,
            [other for other in judged if other is not one],
            prevalence=prevalence,
            rule=request.rule,
            sizes=request.sizes,
            draws=request.settings.draws,
        )
        for one in judged
    ]
    return ShiftRecord(
        command=request.command,
        usvit_version=usvit.__version__,
        by=request.settings.by,
        kind=request.kind,
        recipe=config.recipe,
        model=config.model.name,
        seed=config.seed,
        classes=list(sets.manifest.classes),
        positive_class=positive,
        rule=request.rule.name,
        prevalence=prevalence,
        prevalence_given=request.settings.prevalence is not None,
        n_draws=request.settings.draws,
        sets=[_described(sets, table, name) for name in sets.names],
        matrix=[cell for one in judged for cell in cells_of(one, sets.names)],
        rows=rows,
        published=published_figures(),
        contamination=list(contamination),
        says=_sentences(request, judged, contamination),
    )


def _described(sets: JoinedSets, table: pd.DataFrame, name: str) -> ShiftSet:
    rows = table[table.set == name]
    positive = rows.label == sets.manifest.positive_class
    return ShiftSet(
        name=name,
        datasets=list(dict.fromkeys(sets.cards[one] for one in rows.dataset)),
        n_images=len(rows),
        n_groups=int(rows.group_id.nunique()),
        positive_groups=int(rows.group_id[positive].nunique()),
        negative_groups=int(rows.group_id[~positive].nunique()),
        class_counts={label: int((rows.label == label).sum()) for label in sets.manifest.classes},
        positive_share=float(positive.mean()),
    )


def _sentences(
    request: ShiftRequest, judged: Sequence[Judged], contamination: Sequence[ContaminationRecord]
) -> list[str]:
    """Return what a reader must know about the figures."""
    said = [warning] if (warning := contamination_warning(contamination)) else []
    cards = set(request.sets.cards.values())
    if cards == {PHANTOM}:
        said.append("All sets are phantoms: the figures show how the method works, and say nothing about patients.")
    elif PHANTOM in cards:
        said.append(
            "Not all sets are real images: a change of figures between a phantom and real images is that of two kinds "
            "of images, and says nothing about a change between hospitals or scanners."
        )
    if len(request.sets.names) == 2:
        said.append("With two sets, each training uses one of them.")
    said.append(
        "The intervals are of new patients like these for these networks. They do not include another training, and "
        "two or three sets are not a sample of all hospitals: the figures of a further one may lie outside."
    )
    members = [member for one in judged for member in one.networks.members]
    if unscaled := sum(member.trained.temperature is None for member in members):
        said.append(
            f"{unscaled} of {len(members)} networks have no temperature, because none could be fitted on their inner "
            "validation images; their probabilities are used as they are."
        )
    for one in judged:
        if lacking := {
            k: own.origin for k, own in zip(one.networks.folds, one.networks.own, strict=True) if own.threshold is None
        }:
            folds = ", ".join(str(fold) for fold in lacking)
            said.append(
                f"{one.left_out.name} left out: sensitivity and specificity are undefined, because a network has no "
                f"threshold (fold {folds}; {next(iter(lacking.values())).removeprefix('none: ')}). More inner "
                "validation images, another --rule, or longer training may give one."
            )
    if request.kind == "train":
        said.append(
            "Each training is one hold-out: its held-out images are few, and the intervals are those of one network."
        )
    return said
