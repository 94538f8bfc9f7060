"""The content of a report, gathered once for the page and for Markdown."""

from dataclasses import dataclass, field
from pathlib import Path

from usvit.data.datasets import DataCard, card_facts, card_names, read_prose
from usvit.documents import Plot
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.evaluation import decided_at, rows_of
from usvit.figure_table import main_table
from usvit.metrics.prevalence import check_prevalence, prevalence_section
from usvit.records import AtPrevalence, AuditRecord, MetricsRecord, RunRecord, fitting, load_record
from usvit.reports.author_answers import Answers
from usvit.reports.cases import Cases, find_cases
from usvit.reports.checklists import Checklist, fill_checklists
from usvit.reports.energy import Energy, energy_estimate
from usvit.reports.evaluations import checks_of_evaluation, lead_of
from usvit.reports.figures import fold_strip, loss_curves, precision_recall, roc_by_class, roc_with_band
from usvit.reports.figures_flow import flow_plot
from usvit.reports.figures_probability import calibration_plot, decision_plot
from usvit.reports.figures_selective import risk_coverage_plot, rule_out_plot
from usvit.reports.flow import Flow, flow_of_run
from usvit.reports.formatting import estimate, short, spread
from usvit.reports.lead import lead_of_run
from usvit.reports.leakage import Check, leakage_checks
from usvit.reports.limitations import limits_of
from usvit.reports.run_files import Run, read_run
from usvit.reports.saliency_images import SaliencyImages, explained_fact, read_explained
from usvit.reports.statements import facts_of
from usvit.reports.thumbnails import Pictures


@dataclass(frozen=True)
class Options:
    """Options of a report."""

    roots: dict[str, Path] | None = None
    """Data set -> folder with its images for thumbnails, "" for all; None shows no thumbnails."""
    include_images: bool = False
    """Show images whatever the licences say."""
    answers: Answers = field(default_factory=Answers)
    audit: Path | None = None
    """audit.json of the same images, or its folder."""
    prevalence: float | None = None
    """Share of positives in (0, 1) at which PPV and NPV are computed."""


@dataclass(frozen=True)
class _ShownImages:
    """The card of one data set as the page shows it."""

    name: str
    facts: tuple[tuple[str, str], ...]
    faults: tuple[str, ...]
    """Known faults of the data set."""


@dataclass(frozen=True)
class ReportContent:
    """The content of one report."""

    title: str
    run: Run
    plots: dict[str, Plot]
    losses: dict[int, Plot]
    checks: tuple[Check, ...]
    audit: AuditRecord | None
    cases: Cases
    pictures: Pictures
    explained: SaliencyImages
    energy: Energy
    data_cards: tuple[_ShownImages, ...]
    model_card: tuple[tuple[str, str], ...]
    limits: tuple[str, ...]
    checklists: tuple[Checklist, ...]
    answers: Answers
    at_prevalence: AtPrevalence | None
    """Predictive values at a stated prevalence, as in metrics.json; None if not requested."""
    flow: Flow

    @property
    def cross_validated(self) -> bool:
        return self.run.cross_validated

    @property
    def lead(self) -> str:
        """The first paragraph of the page."""
        return lead_of(self.run) if self.run.evaluated else lead_of_run(self.run)

    @property
    def positive(self) -> str:
        return self.run.metrics.positive_class


def gather(run_dir: Path, options: Options) -> ReportContent:
    """Read a run and compute the content of its report.

    Raises:
        UsvitError: a needed file is absent or damaged, files contradict each other, an answer or the audit does not
            fit, or a data root does not hold its data set.
    """
    with fitting(run_dir):
        return _gather(read_run(run_dir), run_dir, options)


def _gather(run: Run, run_dir: Path, options: Options) -> ReportContent:
    record = run.record
    pictures = Pictures(run, options.roots, options.include_images)
    explained = read_explained(run_dir)
    energy = energy_estimate(record, options.answers.watts, options.answers.watts_source)
    limits = (*limits_of(run, pictures.cards), *options.answers.limits)
    facts = facts_of(run, pictures.cards) | {"limits": " ".join(limits)}
    if fact := explained_fact(explained):
        facts["explained"] = fact
    flow = flow_of_run(run)
    return ReportContent(
        title=record.name or run_dir.resolve().name,
        run=run,
        plots={"flow": flow_plot(flow), **_plots(run)},
        losses=loss_curves(run.histories, best_steps(record)),
        checks=tuple(checks_of_evaluation(run) if run.evaluated else leakage_checks(run)),
        audit=_audit(run, options.audit),
        cases=find_cases(run, pictures, explained),
        pictures=pictures,
        explained=explained,
        energy=energy,
        data_cards=tuple(_data_card(card) for card in pictures.cards.values() if card),
        model_card=_model_card(run, facts),
        limits=limits,
        checklists=tuple(fill_checklists(facts, options.answers.items)),
        answers=options.answers,
        at_prevalence=_at_prevalence(run, options.prevalence),
        flow=flow,
    )


def _at_prevalence(run: Run, prevalence: float | None) -> AtPrevalence | None:
    """Compute predictive values from predictions and recorded thresholds if the user states a prevalence."""
    if prevalence is None:
        return run.metrics.at_prevalence
    check_prevalence(prevalence)
    rows = rows_of(run.measured, "test", run.metrics.classes)
    decided = decided_at(rows, run.metrics.positive_class, run.metrics.operating_points)
    found = prevalence_section(decided.reference, decided.called, rows.group, prevalence)
    return AtPrevalence.model_validate(found)


def _plots(run: Run) -> dict[str, Plot]:
    metrics, classes, positive = run.metrics, run.metrics.classes, run.metrics.positive_class
    pooled, area = metrics.pooled, f"{positive}_vs_rest"
    several = len(metrics.folds) > 1
    plots = {
        "roc": roc_with_band(
            run.measured,
            positive,
            estimate(pooled.auc[area]),
            f"{spread(metrics.mean_sd.auc[area])} (SD)" if several else None,
        )
    }
    if len(classes) > 2:
        areas = [short(pooled.auc[f"{name}_vs_rest"]) for name in classes]
        plots["roc_classes"] = roc_by_class(run.measured, classes, areas)
    average = pooled.average_precision[positive]
    plots["precision_recall"] = precision_recall(run.measured, positive, estimate(average), by_fold=several)
    shown = metrics.calibration.pooled.classes[positive].reliability
    plots["calibration"] = calibration_plot(shown.bins, short(shown.ece))
    plots["decision"] = decision_plot(metrics.decision_curve)
    curve = metrics.selective.risk_coverage
    plots["risk_coverage"] = risk_coverage_plot(curve, short(curve.area))
    if metrics.selective.rule_out:
        plots["rule_out"] = rule_out_plot(metrics.selective.rule_out)
    if several:
        plots["folds"] = fold_strip(_strip_rows(metrics))
    return plots


def _strip_rows(metrics: MetricsRecord) -> list[tuple[str, Estimate, list[float], float | None]]:
    positive = metrics.positive_class
    rows = []
    for row in main_table(n_classes=2):
        values = [fold.figure(row.key, positive).value for fold in metrics.folds]
        known = [value for value in values if value is not None]
        mean = metrics.mean_sd.figure(row.key, positive).mean
        rows.append((str(row.page), metrics.pooled.figure(row.key, positive), known, mean))
    return rows


def best_steps(record: RunRecord) -> dict[int, int]:
    """Return fold -> step whose weights were kept, from ``run.json``."""
    return {one.fold: one.best_step for one in record.results if one.best_step is not None}


def _audit(run: Run, path: Path | None) -> AuditRecord | None:
    if path is None:
        path = run.folder / "audit"
        if not (path / "audit.json").is_file():
            return None
    file = path / "audit.json" if path.is_dir() else path
    audit = load_record(file, AuditRecord, follow=path is file)
    ours, theirs = run.record.data.manifest_sha256, audit.manifest_sha256
    if theirs != ours:
        raise UsvitError(
            f"{file} is an audit of other images than the run's (manifest {theirs[:12]}..., the run's "
            f"{str(ours)[:12]}...). Audit the same data set with 'usvit data audit'."
        )
    return audit


def _data_card(card: DataCard) -> _ShownImages:
    faults: list[str] = []
    prose = (
        read_prose(card.name) if card.name in card_names() else ""
    )  # the path of a user's own card is not known here
    inside = False
    for line in prose.splitlines():
        if line.startswith("## "):
            inside = line.removeprefix("## ").strip() == "Known faults"
        elif inside and line.startswith("- "):
            faults.append(line.removeprefix("- ").strip())
        elif inside and line.strip() and faults:
            faults[-1] += f" {line.strip()}"
    hidden = ("How to get it", "Download", "Reader", "Layout")
    facts = tuple((name, text) for name, text in card_facts(card) if name not in hidden)
    return _ShownImages(card.pretty_name, facts, tuple(fault.replace("`", "") for fault in faults))


def _model_card(run: Run, facts: dict[str, str]) -> tuple[tuple[str, str], ...]:
    licences = {name: text for one in run.metadata.values() for name, text in one.data_licenses.items()}
    rows: list[tuple[str, str | None]] = [
        ("Network", facts.get("model")),
        ("Input", " ".join(filter(None, [facts.get("inputs"), facts.get("preprocessing")]))),
        ("Output", facts.get("outputs")),
        ("Intended use", facts.get("intended_use")),
        (
            "Not meant for",
            "Patient care; screening; images of other organs or devices, unless tested on them.",
        ),
        ("Initial weights", facts.get("weights")),
        ("Tested on" if run.evaluated else "Trained on", facts.get("sources")),
        ("Licences of the data", "; ".join(f"{name}: {text}" for name, text in licences.items())),
        ("Training", facts.get("training")),
        ("Model selection", facts.get("model_selection")),
        ("Results", facts.get("headline")),
        ("Probabilities", facts.get("recalibration")),
    ]
    if run.evaluated:
        rows = [(name, text) for name, text in rows if text]
    return tuple((name, text or "not recorded") for name, text in rows)
