"""The report as Markdown, for a repository, a supplement or a text editor."""

from collections.abc import Iterable, Sequence
from typing import Any

from usvit.estimate import Estimate
from usvit.markup import markdown_text as text
from usvit.records import OutcomeRecord, ProcedureRecord
from usvit.reports.content import ReportContent
from usvit.reports.contradictions import MAX_SHOWN, contradictions, contradictions_sentences
from usvit.reports.evaluations import COUNTS
from usvit.reports.formatting import (
    NOT_RECORDED,
    count,
    decimals,
    duration,
    estimate,
    interval,
    p_words,
    short,
    usefulness,
)
from usvit.reports.patients import patient_figures, patients_headline_sentence, patients_sentence
from usvit.reports.remarks import class_remarks, headline_remarks, patient_remarks, point_remarks, subgroup_remarks
from usvit.reports.statements import tested


def markdown(content: ReportContent, figures: dict[str, str]) -> str:
    """Render the whole report as Markdown; values that are not recorded are left out.

    Args:
        content: the report.
        figures: title -> path of a figure's file, relative to the report.
    """
    parts = [
        f"# {text(content.title)}",
        "**For research use only. Not a medical device.**",
        text(content.answers.summary or ""),
        text(content.lead),
        *_warnings(content),
        _results(content),
        _patients(content),
        _external(content),
        _by_class(content),
        _points(content),
        _at_prevalence(content),
        _abstention(content),
        _subgroups(content),
        _calibration(content),
        _figures(figures),
        _cases(content),
        _leakage(content),
        _section("Model card", _rows(("", ""), content.model_card)),
        *(
            _section(f"Data: {card.name}", _rows(("", ""), card.facts) + _bullets(card.faults))
            for card in content.data_cards
        ),
        "" if content.run.evaluated else _section("Time and energy", _effort(content)),
        _section("Limits", _bullets(content.limits)),
        *_checklists(content),
        _section(f"How to reproduce this {'evaluation' if content.run.evaluated else 'run'}", _repeat(content)),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def _section(title: str, body: str) -> str:
    return f"## {text(title)}\n\n{body}" if body else ""


def _rows(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["| " + " | ".join(text(cell) for cell in row) + " |" for row in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]]) + "\n\n"


def _bullets(sentences: Iterable[str]) -> str:
    return "\n".join(f"- {text(one)}" for one in sentences)


def _warnings(content: ReportContent) -> list[str]:
    run, folds = content.run.record, content.run.record.folds
    found = []
    if folds and folds.unit == "image":
        found.append(
            f"LEAKING SPLIT. {count(folds.leaking_groups)} groups occur in two splits of a fold: the figures "
            "are inflated and do not apply to new patients."
        )
    if run.state != "finished":
        found.append("This run is not marked as finished.")
    found += content.run.metrics.warnings
    return [f"> **{text(one)}**" for one in found]


def _results(content: ReportContent) -> str:
    several = len(content.run.metrics.folds) > 1
    single = content.run.tested_set.capitalize()
    header = ["Measure", "Mean of the folds" if several else single, "95 % interval", "Groups"]
    rows = []
    for one in content.headline:
        row = [one.name, decimals(one.headline) if one.headline.value is not None else estimate(one.headline)]
        row += [interval(one.headline) or "none", count(one.headline.n_groups)]
        rows.append([*row, *([short(one.pooled), decimals(one.spread.sd)] if several else [])])
    body = f"Tested: {text(tested(content.run))}.\n\n"
    body += _rows([*header, *(["Pooled", "SD of the folds"] if several else [])], rows)
    body += _remarks(headline_remarks(content.run.metrics))
    body += f"{text(content.run.metrics.headline.explains)}\n\n"
    if several:
        area = f"{content.positive}_vs_rest"
        body += (
            "Pooled: the test images of all folds as one set, so outputs of different models are ranked against each "
            "other. The SD of the folds is not a confidence interval.\n\n"
        )
        body += _rows(
            ["Fold", "Images", "Groups", "Accuracy", f"AUC {content.positive}"],
            (
                [one.fold, one.n_images, one.n_groups, short(one.accuracy), short(one.auc[area])]
                for one in content.run.metrics.folds
            ),
        )
    return _section("Results", body)


def _remarks(sentences: list[str]) -> str:
    return f"{_bullets(sentences)}\n\n" if sentences else ""


def _patients(content: ReportContent) -> str:
    metrics = content.run.metrics
    several = len(metrics.folds) > 1
    rows = [
        [one.probability, "AUC" if one.name == "auc" else one.name, _or_reason(one.headline)]
        + ([_or_reason(one.pooled)] if several else [])
        for one in patient_figures(metrics)
    ]
    header = ["A patient's probability", "Figure", *(["Mean of the folds", "Pooled"] if several else ["Value"])]
    said = [patients_sentence(metrics), *([patients_headline_sentence(metrics)] if rows else [])]
    body = "".join(f"{text(one)}\n\n" for one in said if one)
    return _section("By patient", body + (_rows(header, rows) + _remarks(patient_remarks(metrics)) if rows else ""))


def _external(content: ReportContent) -> str:
    external = content.run.metrics.external
    if external is None:
        return ""
    body = f"Images seen in training: {text(external.seen.answer)}\n\n"
    counts = external.counts.items()
    body += _rows(["What", "Number"], ([COUNTS.get(name, name), count(n)] for name, n in counts))
    failures = external.failures
    if failures.share is None:
        body += f"Images that could not be scored: not known ({text(failures.reason)}).\n\n"
    else:
        body += f"Images that could not be scored: {failures.n_failed}, {estimate(failures.share)}.\n\n"
    worst: list[tuple[str, Any]]
    worst = [(f"{one.rule}, if all of these were wrong", one) for one in failures.worst_case if failures.n_failed]
    decided = [(f"{one.rule}, of the images it decided", one.outcome) for one in external.abstained.decided_only]
    if rows := [[rule, short(one.sensitivity), short(one.specificity)] for rule, one in (*worst, *decided)]:
        body += _rows(["Threshold", "Sensitivity", "Specificity"], rows)
    one = external.calibrated
    calibrated = [("Slope", one.slope), ("Intercept", one.intercept), ("In the large", one.in_the_large)]
    title = f"Calibrated probability of {content.positive}"
    body += _rows([title, ""], ([name, short(value)] for name, value in calibrated))
    return _section("What was counted", body)


def _by_class(content: ReportContent) -> str:
    metrics = content.run.metrics
    labels, pooled = metrics.confusion.labels, metrics.pooled
    body = "Confusion matrix, reference in rows, decision in columns:\n\n"
    rows = zip(labels, metrics.confusion.counts, strict=True)
    body += _rows(["", *labels], ([name, *map(count, counts)] for name, counts in rows))
    body += _rows(
        ["Class", "Images", "Sensitivity", "Specificity", "AUC vs rest"],
        (
            [
                name,
                count(metrics.class_counts[name]),
                short(pooled.sensitivity[name]),
                short(pooled.specificity[name]),
                short(pooled.auc[f"{name}_vs_rest"]),
            ]
            for name in metrics.classes
        ),
    )
    return _section("Classes and errors", body + _remarks(class_remarks(metrics)))


def _points(content: ReportContent) -> str:
    rows = []
    for point in content.run.metrics.operating_points:
        if not content.cross_validated and point.pooled is None and not point.rule.startswith("frozen"):
            continue
        for one in point.folds:
            if one.on_test:
                rows.append([point.rule, one.fold, decimals(one.threshold), *_four(one.on_test)])
            else:
                rows.append([point.rule, one.fold, one.reason, "", "", "", ""])
        several = "pooled" if len(point.folds) > 1 else content.run.tested_set
        if point.procedure:
            rows.append([point.rule, f"{several}, procedure", "", *_four(point.procedure)])
        if point.pooled and (len(point.folds) > 1 or point.procedure):
            given = ", given these thresholds" if point.procedure else ""
            rows.append([point.rule, f"{several}{given}", "", *_four(point.pooled)])
    header = ["Rule", "Fold", "Threshold", "Sensitivity", "Specificity", "PPV", "NPV"]
    said = "The intervals of the procedure include the choice of the thresholds on other inner validation images.\n\n"
    body = said + _rows(header, rows) + _remarks(point_remarks(content.run.metrics)) if rows else ""
    for reason, rules in content.without_threshold.items():
        body += f"No threshold for {text(', '.join(rules))}: {text(reason)}.\n\n"
    return _section(f"Operating points for {content.positive}", body)


def _four(outcome: OutcomeRecord | ProcedureRecord) -> list[str]:
    return [short(value) for value in (outcome.sensitivity, outcome.specificity, outcome.ppv, outcome.npv)]


def _at_prevalence(content: ReportContent) -> str:
    found = content.at_prevalence
    if found is None:
        return ""
    rows = [[one.rule, estimate(one.ppv, 4), estimate(one.npv, 4)] for one in found.rules]
    body = (
        f"A share of {found.of_test_images:.3f} of the test images are {text(content.positive)}. Sensitivity and "
        "specificity are assumed to be the same elsewhere; the thresholds are taken as given.\n\n"
    )
    title = f"Predictive values at a prevalence of {found.prevalence:g}"
    return _section(title, body + _rows(["Decision", "PPV", "NPV"], rows))


def _abstention(content: ReportContent) -> str:
    metrics = content.run.metrics
    body = f"AURC {short(metrics.selective.risk_coverage.area)}.\n\n"
    if metrics.selective.reason:
        body += f"No deferral and no rule-out: {text(metrics.selective.reason)}.\n\n"
    else:
        body += "Intervals below take the cuts as given.\n\n"
        body += _rows(
            ["Deferred", "Error of the rest", "Sensitivity", "Specificity"],
            (
                [short(one) for one in (point.deferred, point.error, point.sensitivity, point.specificity)]
                for point in metrics.selective.deferral
            ),
        )
        body += _rows(
            ["Patients not read", "Sensitivity lost", "False-omission rate", "Missed", "Spared"],
            (
                [short(one) for one in (point.not_read, point.sensitivity_lost, point.false_omission)]
                + [count(point.n_missed), count(point.n_spared)]
                for point in metrics.selective.rule_out
            ),
        )
    for entry in metrics.conformal:
        body += f"Prediction sets, alpha = {entry.alpha:g}, {entry.guarantee}: "
        body += f"{text(entry.reason)}.\n\n" if entry.reason else "patients covered, and images by their sets.\n\n"
        if entry.sets:
            body += _rows(
                ["Images of", "Covered", "One class", "Both", "None"],
                (
                    [one.reference, short(one.coverage)]
                    + [short(share) for share in (one.one_class, one.both_classes, one.no_class)]
                    for one in entry.sets
                ),
            )
    return _section("Abstention and guarantees", body)


def _subgroups(content: ReportContent) -> str:
    area, rows = f"{content.positive}_vs_rest", []
    for division in content.run.metrics.subgroups:
        for one in division.levels:
            found = [short(one.figures.accuracy), short(one.figures.auc[area])]
            found += [short(each[content.positive]) for each in (one.figures.sensitivity, one.figures.specificity)]
            rows.append([division.by, one.level, count(one.n_images), count(one.n_groups), *found])
    header = ["By", "Level", "Images", "Groups", "Accuracy", "AUC", "Sensitivity", "Specificity"]
    body = (_rows(header, rows) + _remarks(subgroup_remarks(content.run.metrics)) if rows else "") + _differences(
        content
    )
    return _section(f"Subgroups, {content.positive} against the rest", body)


def _differences(content: ReportContent) -> str:
    rows = [
        [
            division.by,
            f"{one.level} minus {one.against}",
            name,
            _or_reason(value),
            *(p_words(value.p), p_words(value.p_holm)),
        ]
        for division in content.run.metrics.subgroups
        for one in division.differences
        for name, value in (
            *(("AUC", one.auc), ("Accuracy", one.accuracy)),
            *(("Sensitivity", one.sensitivity), ("Specificity", one.specificity)),
        )
    ]
    if not rows:
        return ""
    header = ["By", "Difference", "Figure", "Value (95 % interval)", "p", "p, Holm"]
    return "Differences between subgroups, with Holm's correction for all of them:\n\n" + _rows(header, rows)


def _or_reason(value: Estimate) -> str:
    """Format a difference; without an interval, with the reason."""
    if value.value is not None and value.ci95 is None and value.reason:
        return f"{short(value)} (no interval: {text(value.reason)})"
    return short(value)


def _calibration(content: ReportContent) -> str:
    metrics = content.run.metrics
    one = metrics.calibration.pooled.classes[content.positive]
    error = one.reliability
    rows: list[tuple[str, str]] = [
        ("Slope", short(one.slope)),
        ("Intercept", short(one.intercept)),
        ("In the large", short(one.in_the_large)),
        ("Expected calibration error, debiased", short(error.ece_debiased)),
        ("Expected calibration error, plain", f"{short(error.ece)}, {error.ece.method or ''}"),
        ("Brier score", short(one.brier.score)),
        ("Decision curve, thresholds", usefulness(metrics.decision_curve)),
    ]
    return _section(f"Calibration and utility, {content.positive}", _rows(("", ""), rows))


def _figures(figures: dict[str, str]) -> str:
    return _section("Figures", "\n\n".join(f"![{text(title)}]({path})" for title, path in figures.items()))


def _cases(content: ReportContent) -> str:
    classes = content.run.metrics.classes
    header = ["Image", "Data set", "Fold", "Reference", "Decision", *(f"P({name})" for name in classes)]
    body = f"{content.cases.n_errors:,} of {content.cases.n_images:,} test images were misclassified.\n\n"
    for title, cases in (
        ("Most confident errors", content.cases.confident_errors),
        ("Most uncertain cases", content.cases.uncertain),
    ):
        rows = [
            [one.image_id, one.dataset, one.fold, one.label, one.decision, *(decimals(prob) for _, prob in one.prob)]
            for one in cases
        ]
        body += f"{title}:\n\n{_rows(header, rows)}" if rows else f"{title}: none.\n\n"
    return _section("Cases", body + _bullets(content.explained.sentences))


def _leakage(content: ReportContent) -> str:
    rows = [[one.question, one.result, one.answer] for one in content.checks]
    found = contradictions(content.run)
    body = _rows(["Check", "Result", "Found"], rows)
    if found:
        body += (
            f"{text(' '.join(contradictions_sentences(found)))}\n\n{_bullets(one.words for one in found[:MAX_SHOWN])}"
        )
    return _section("Leakage", body)


def _effort(content: ReportContent) -> str:
    device = content.run.record.device
    name, kind, precision = (one or NOT_RECORDED for one in (device.name, device.type, device.precision))
    return _bullets(
        [
            f"Device: {name} ({kind}), precision {precision}",
            f"Training: {duration(content.training_seconds)}",
            f"Energy, estimated: {content.energy.text}",
        ]
    )


def _checklists(content: ReportContent) -> list[str]:
    found = []
    for one in content.checklists:
        rows = []
        for item in one.items:
            from_run = f"From the run: {item.run}" if item.answer and item.run else item.run
            rows.append([item.number, item.asks, item.status, " ".join(filter(None, [item.answer, from_run]))])
        header = ["Item", "Asks for", "Status", "Answer"]
        found.append(_section(f"{one.name} ({one.source})", _rows(header, rows)))
    return found


def _repeat(content: ReportContent) -> str:
    record = content.run.record
    rows = [
        ("Command", record.command),
        ("usvit", record.usvit_version),
        ("Manifest, SHA-256", record.data and record.data.manifest_sha256),
        ("Split, SHA-256", record.folds and record.folds.sha256),
        ("Configuration, SHA-256", record.config_sha256),
    ]
    if evaluated := content.run.evaluated:
        rows += [(f"{what}, SHA-256", sha256) for what, sha256 in (evaluated.files or {}).items()]
    return _bullets(f"{name}: {value}" for name, value in rows if value)
