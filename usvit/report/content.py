"""Everything that a report says, gathered once for the page and for Markdown."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from usvit.data.cards import DataCard, card_facts, card_names, read_prose
from usvit.errors import UsvitError
from usvit.metrics.decided import decided_at
from usvit.metrics.prevalence import check_prevalence, prevalence_section
from usvit.metrics.rows import rows_of
from usvit.records import AuditRecord, fitting, read_record
from usvit.report.answers import Answers
from usvit.report.cases import Cases, find_cases
from usvit.report.checklists import Checklist, fill_checklists
from usvit.report.energy import Energy, energy_estimate
from usvit.report.explained import Explained, explained_fact, read_explained
from usvit.report.facts import facts_of
from usvit.report.figures import fold_strip, loss_curves, precision_recall, roc_by_class, roc_with_band
from usvit.report.figures_probability import calibration_plot, decision_plot
from usvit.report.leakage import Check, leakage_checks
from usvit.report.limits import limits_of
from usvit.report.pictures import Pictures
from usvit.report.run import Run, read_run
from usvit.report.svg import Plot
from usvit.report.words import decimals, dig, estimate, interval, quoted, spread


@dataclass(frozen=True)
class Options:
    """What the user asked for."""

    roots: dict[str, Path] | None = None
    """Data set -> folder, "" for all: where images for thumbnails lie; None: no thumbnails."""
    include_images: bool = False
    """Show images whatever the licences say."""
    answers: Answers = field(default_factory=Answers)
    audit: Path | None = None
    """audit.json of the same images, or its folder."""
    prevalence: float | None = None
    """A share of positives at which PPV and NPV are wanted, in (0, 1)."""


@dataclass(frozen=True)
class Shown:
    """One data set's card as the page shows it."""

    name: str
    facts: tuple[tuple[str, str], ...]
    faults: tuple[str, ...]
    """What is known to be wrong with it."""


@dataclass(frozen=True)
class Measure:
    """One row of the main table."""

    name: str
    headline: dict[str, Any]
    """The Value that a reader should quote: the mean within folds; the pooled one where there is no headline."""
    pooled: dict[str, Any]
    spread: dict[str, Any]
    """Mean and SD of the folds."""


@dataclass(frozen=True)
class Content:
    """One report."""

    title: str
    run: Run
    headline: tuple[Measure, ...]
    plots: dict[str, Plot]
    losses: dict[int, Plot]
    checks: tuple[Check, ...]
    audit: dict[str, Any] | None
    cases: Cases
    pictures: Pictures
    explained: Explained
    energy: Energy
    training_seconds: float | None
    data_cards: tuple[Shown, ...]
    model_card: tuple[tuple[str, str], ...]
    limits: tuple[str, ...]
    checklists: tuple[Checklist, ...]
    answers: Answers
    config: str | None
    at_prevalence: dict[str, Any] | None
    """Predictive values at a stated prevalence, as metrics.json has them; None: not asked for."""

    @property
    def cross_validated(self) -> bool:
        return self.run.record.get("kind") != "train"

    @property
    def quoted(self) -> dict[str, Any]:
        """The figures that a reader should quote."""
        return quoted(self.run.metrics)

    @property
    def positive(self) -> str:
        return self.run.metrics["positive_class"]


def gather(run_dir: Path, options: Options) -> Content:
    """Read a run and work out all that its report says.

    Raises:
        UsvitError: a needed file is absent or damaged, files contradict each other, an answer or the audit does not
            fit, or a data root does not hold its data set.
    """
    with fitting(run_dir):
        return _gather(read_run(run_dir), run_dir, options)


def _gather(run: Run, run_dir: Path, options: Options) -> Content:
    record, metrics = run.record, run.metrics
    pictures = Pictures(run, options.roots, options.include_images)
    explained = read_explained(run_dir)
    energy = energy_estimate(record, options.answers.watts, options.answers.watts_source)
    limits = (*limits_of(run, pictures.cards), *options.answers.limits)
    facts = facts_of(run, pictures.cards) | {"limits": " ".join(limits)}
    if fact := explained_fact(explained):
        facts["explained"] = fact
    return Content(
        title=record.get("name") or run_dir.resolve().name,
        run=run,
        headline=_headline(metrics),
        plots=_plots(run),
        losses=loss_curves(run.histories, best_steps(record)),
        checks=tuple(leakage_checks(run)),
        audit=_audit(run, options.audit),
        cases=find_cases(run, pictures, explained),
        pictures=pictures,
        explained=explained,
        energy=energy,
        training_seconds=training_seconds(record),
        data_cards=tuple(_data_card(card) for card in pictures.cards.values() if card),
        model_card=_model_card(run, facts),
        limits=limits,
        checklists=tuple(fill_checklists(facts, options.answers.items)),
        answers=options.answers,
        config=config_text(record),
        at_prevalence=_at_prevalence(run, options.prevalence),
    )


def _at_prevalence(run: Run, prevalence: float | None) -> dict[str, Any] | None:
    """Made again from the predictions and the thresholds on record where the user states a prevalence."""
    if prevalence is None:
        found: dict[str, Any] | None = run.metrics.get("at_prevalence")
        return found
    check_prevalence(prevalence)
    rows = rows_of(run.test, "test", run.metrics["classes"])
    decided = decided_at(rows, run.metrics["positive_class"], run.metrics.get("operating_points") or [])
    return prevalence_section(decided.reference, decided.called, rows.group, prevalence)


def _headline(metrics: dict[str, Any]) -> tuple[Measure, ...]:
    pooled, means, positive = metrics["pooled"], metrics["mean_sd"], metrics["positive_class"]
    own, area = quoted(metrics), f"{positive}_vs_rest"
    names = [
        ("Accuracy", "accuracy", None),
        ("Balanced accuracy", "balanced_accuracy", None),
        (f"AUC, {positive} vs rest", "auc", area),
        ("AUC, mean of all classes vs rest", "auc_macro_ovr", None),
        (f"Sensitivity, {positive}", "sensitivity", positive),
        (f"Specificity, {positive}", "specificity", positive),
    ]
    if len(metrics["classes"]) == 2:
        del names[3]  # the same number
    rows = []
    for name, key, of in names:
        whole, spread = (one[key] if of is None else one[key][of] for one in (pooled, means))
        rows.append(Measure(name, own[key], whole, spread))
    return tuple(rows)


def _plots(run: Run) -> dict[str, Plot]:
    metrics, classes, positive = run.metrics, run.metrics["classes"], run.metrics["positive_class"]
    folds = metrics["folds"]
    area = f"{positive}_vs_rest"
    several = len(folds) > 1
    plots = {
        "roc": roc_with_band(
            run.test,
            positive,
            estimate(metrics["pooled"]["auc"][area]),
            f"{spread(metrics['mean_sd']['auc'][area])} (SD)" if several else None,
        )
    }
    if len(classes) > 2:
        areas = [_short(metrics["pooled"]["auc"][f"{name}_vs_rest"]) for name in classes]
        plots["roc_classes"] = roc_by_class(run.test, classes, areas)
    average = dig(metrics["pooled"].get("average_precision"), positive)
    plots["precision_recall"] = precision_recall(
        run.test, positive, estimate(average) if average else "not recorded", by_fold=several
    )
    reliability = dig(metrics, "calibration.pooled.classes")
    if reliability and positive in reliability:
        shown = reliability[positive]["reliability"]
        plots["calibration"] = calibration_plot(shown["bins"], _short(shown["ece"]))
    if metrics.get("decision_curve"):
        plots["decision"] = decision_plot(metrics["decision_curve"])
    if several:
        plots["folds"] = fold_strip(_strip_rows(metrics))
    return plots


def _strip_rows(metrics: dict[str, Any]) -> list[tuple[str, dict[str, Any], list[float], float | None]]:
    positive = metrics["positive_class"]
    places: list[tuple[str, str, str | None]] = [
        ("Accuracy", "accuracy", None),
        ("Balanced accuracy", "balanced_accuracy", None),
    ]
    places += [("AUC", "auc", f"{positive}_vs_rest"), ("Sensitivity", "sensitivity", positive)]
    places += [("Specificity", "specificity", positive)]
    rows = []
    for name, key, of in places:
        pooled, mean = metrics["pooled"][key], metrics["mean_sd"][key]
        values = [fold[key] if of is None else fold[key][of] for fold in metrics["folds"]]
        known = [value["value"] for value in values if value["value"] is not None]
        rows.append((name, pooled if of is None else pooled[of], known, (mean if of is None else mean[of])["mean"]))
    return rows


def _short(value: dict[str, Any]) -> str:
    if value.get("value") is None:
        return "undefined"
    ends = interval(value)
    return decimals(value) + (f" ({ends})" if ends else "")


def best_steps(record: dict[str, Any]) -> dict[int, int]:
    """Fold -> the step whose weights were kept, of ``run.json``."""
    results = record.get("results") or []
    return {one["fold"]: one["best_step"] for one in results if "fold" in one and one.get("best_step") is not None}


def training_seconds(record: dict[str, Any]) -> float | None:
    """Of all folds, of ``run.json``; None where no time is on record."""
    seconds = [one["seconds"] for one in record.get("results") or [] if one.get("seconds") is not None]
    return sum(seconds) if seconds else None


def config_text(record: dict[str, Any]) -> str | None:
    """The configuration in ``run.json`` as YAML; None where there is none."""
    config = record.get("config")
    return yaml.safe_dump(config, sort_keys=False, allow_unicode=True) if config else None


def _audit(run: Run, path: Path | None) -> dict[str, Any] | None:
    if path is None:
        path = run.folder / "audit"
        if not (path / "audit.json").is_file():
            return None
    file = path / "audit.json" if path.is_dir() else path
    audit = read_record(file, AuditRecord, follow=path is file)
    ours, theirs = dig(run.record, "data.manifest_sha256"), audit.get("manifest_sha256")
    if theirs != ours:
        raise UsvitError(
            f"{file} is an audit of other images than the run's (manifest {str(theirs)[:12]}..., the run's "
            f"{str(ours)[:12]}...). Audit the same data set with 'usvit data audit'."
        )
    return audit


def _data_card(card: DataCard) -> Shown:
    faults: list[str] = []
    prose = read_prose(card.name) if card.name in card_names() else ""  # where a user's own card lies is not known here
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
    return Shown(card.pretty_name, facts, tuple(fault.replace("`", "") for fault in faults))


def _model_card(run: Run, facts: dict[str, str]) -> tuple[tuple[str, str], ...]:
    licences = {name: text for one in run.passports.values() for name, text in (one.get("data_licenses") or {}).items()}
    rows: list[tuple[str, str | None]] = [
        ("Network", facts.get("model")),
        ("Input", " ".join(filter(None, [facts.get("inputs"), facts.get("preprocessing")]))),
        ("Output", facts.get("outputs")),
        ("Intended use", facts.get("intended_use")),
        (
            "Not meant for",
            "Care of patients; screening; images of other organs or other machines, unless tested there.",
        ),
        ("First weights", facts.get("weights")),
        ("Trained on", facts.get("sources")),
        ("Licences of the data", "; ".join(f"{name}: {text}" for name, text in licences.items())),
        ("Training", facts.get("training")),
        ("Choice of the weights", facts.get("model_selection")),
        ("Measured", facts.get("headline")),
        ("Probabilities", facts.get("recalibration")),
    ]
    return tuple((name, text or "not recorded") for name, text in rows)
