"""Printing of figures for the commands."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from usvit.estimate import Estimate
    from usvit.records import (
        ClassCalibration,
        ContaminationRecord,
        MetricsRecord,
        OutcomeRecord,
        ProcedureRecord,
        RunRecord,
    )

TITLE = 28
POOLED = 24


def print_contamination(contaminations: "Sequence[ContaminationRecord] | None") -> None:
    """Print the warning about tested data sets that a foundation model was pre-trained on, if there are any."""
    if contaminations:
        from usvit.data.splits import contamination_warning

        print(contamination_warning(contaminations))


def print_figures(metrics: "MetricsRecord") -> None:
    """Print the headline of metrics.json with the pooled figures and the SD of the folds, then the warnings."""
    from usvit.metrics.figure_table import HEADLINE
    from usvit.reports import headline_remarks

    positive, n_folds = metrics.positive_class, len(metrics.folds)
    several = n_folds > 1
    headline, pooled, over_folds = metrics.headline, metrics.pooled, metrics.mean_sd
    heads = (f"mean of {n_folds} folds [95 %]", "pooled [95 %]", "SD of folds") if several else ("value [95 %]", "", "")
    print(f"{'':{TITLE}}{heads[0]:{POOLED}}{heads[1]:{POOLED}}{heads[2]}".rstrip())
    for row in HEADLINE:
        if row.key == "auc_macro_ovr" and len(metrics.classes) == 2:
            continue  # it has the value of the AUC
        title, value = row.titled(row.title, positive), getattr(headline, row.key)
        whole, spread = pooled.figure(row.key, positive), over_folds.figure(row.key, positive)
        more = f"{spread.sd:.3f}" if spread.sd is not None else ""
        tail = f"{with_interval(whole):{POOLED}}{more}" if several else ""
        print(f"{_short(title):{TITLE}}{with_interval(value):{POOLED}}{tail}".rstrip())
    print(headline.explains)
    if several:
        print("Pooled: all test images as one set, in which scores of different networks are ranked together.")
    for remark in headline_remarks(metrics, pooled=False):
        print(f"Note: {remark}")
    _print_patients(metrics)
    for warning in metrics.warnings:
        print(f"Warning: {warning}")


def _print_patients(metrics: "MetricsRecord") -> None:
    """Print the figures of one row per patient, if there are patients with several images."""
    from itertools import groupby

    from usvit.reports import patient_figures, patients_headline_sentence, patients_sentence

    patients, several = metrics.patients, len(metrics.folds) > 1
    if patients.n_patients is None:
        return
    if patients.n_patients == patients.n_images:
        print("By patient: every patient with an identifier has one image, so these are the same figures.")
        return
    print(f"By patient. {patients_sentence(metrics)}")
    for title, figures in groupby(patient_figures(metrics), lambda one: one.probability):
        print(f"  {title}")
        for one in figures:
            name = "AUC" if one.name == "auc" else one.name
            tail = with_interval(one.pooled) if several else ""
            print(f"{f'    {name}':{TITLE}}{with_interval(one.headline):{POOLED}}{tail}".rstrip())
    if said := patients_headline_sentence(metrics):
        print(said)


def print_operating_points(metrics: "MetricsRecord") -> None:
    """Print the pooled sensitivity and specificity of each rule, and those of every fold.

    The first interval is that of the procedure, which includes the choice of the thresholds. The interval that is
    conditional on these thresholds is below it.
    """
    frozen = metrics.external is not None  # an external test chooses no thresholds
    heads = ("thresholds", "") if frozen else ("thresholds (nested)", "folds below target")
    print(f"\n{heads[0]:{TITLE}}{'sensitivity':{POOLED}}{'specificity':{POOLED}}{heads[1]}".rstrip())
    said: str | None = ""
    for one in metrics.operating_points:
        if one.pooled is None:
            print(f"{one.rule:{TITLE}}none{', for the same reason' if one.reason == said else f': {one.reason}'}")
            said = one.reason
        else:
            missed = "" if one.n_below_target is None else f"{one.n_below_target} of {len(one.folds)}"
            print(f"{one.rule:{TITLE}}{_both(one.procedure or one.pooled)}{missed}".rstrip())
            if one.procedure:
                print(f"{'  given these thresholds':{TITLE}}{_both(one.pooled)}".rstrip())
        tested = [fold.on_test for fold in one.folds]
        if len(tested) > 1 and any(tested):
            for name in _BY_CLASS:
                values = [None if outcome is None else getattr(outcome, name).value for outcome in tested]
                shown = "  ".join("  -  " if value is None else f"{value:.3f}" for value in values)
                print(f"{f'  {name} by fold':{TITLE}}{shown}".rstrip())
    from usvit.reports import point_remarks

    for remark in point_remarks(metrics):
        print(f"Note: {remark}")


def _both(outcome: "OutcomeRecord | ProcedureRecord") -> str:
    """Format sensitivity and specificity, each with its interval, for their columns."""
    return "".join(f"{with_interval(getattr(outcome, name)):{POOLED}}" for name in _BY_CLASS)


def print_abstention(metrics: "MetricsRecord") -> None:
    """Print the area of the risk-coverage curve, and whom the first prediction sets cover, or why there are none."""
    print(f"\nabstention: AURC {with_interval(metrics.selective.risk_coverage.area)}")
    sets = next(iter(metrics.conformal), None)
    if sets is None or metrics.external is not None:  # an external test tests the sets of a calibration
        return
    name = f"prediction sets, alpha {sets.alpha:g}, {sets.guarantee} of a patient"
    if sets.reason:
        print(f"{name}: none, {sets.reason}")
    for one in sets.sets[:2]:
        covered, single = with_interval(one.coverage), with_interval(one.one_class)
        print(f"{name}: {one.reference}: covered {covered}, one class in the set of {single} of images")


def print_calibration(metrics: "MetricsRecord") -> None:
    """Print calibration of the positive class, the effect of temperature scaling, and the decision curve."""
    from usvit.reports import usefulness

    positive, calibration = metrics.positive_class, metrics.calibration
    own = calibration.pooled.classes[positive]
    frozen = metrics.external is not None
    title = f"uncalibrated probability of {positive}" if frozen else f"\ncalibration of {positive}"
    print(f"{title}: {calibration_in_words(own)}")
    print(f"decision curve: {usefulness(metrics.decision_curve)}")
    if frozen:  # nothing may be fitted on these labels
        return
    for one in calibration.recalibration:
        if one.method == "temperature" and one.after is None:
            print(one.reason)
        elif one.method == "temperature" and one.after is not None:
            before, after = one.before.log_loss.value, one.after.log_loss.value
            fitted = ", ".join(f"{fold.temperature:.2f}" for fold in one.folds)
            print(f"temperatures from inner validation images: {fitted}; log loss {before:.3f} -> {after:.3f}")


def calibration_in_words(calibration: "ClassCalibration") -> str:
    """Format slope, intercept, calibration-in-the-large and calibration error of one class with intervals."""
    error = calibration.reliability
    values = [
        ("slope", calibration.slope),
        ("intercept", calibration.intercept),
        ("in the large", calibration.in_the_large),
    ]
    parts = [f"{title} {with_interval(value)}" for title, value in values]
    plain = f"plain {with_interval(error.ece)}"
    floor = error.ece_noise_floor
    chance = "" if floor is None else f"; {floor:.3f} is expected by chance"
    return ", ".join([*parts, f"ECE, debiased {with_interval(error.ece_debiased)} ({plain}{chance})"])


def print_at_prevalence(metrics: "MetricsRecord") -> None:
    """Print predictive values at a stated prevalence, if they were requested."""
    found = metrics.at_prevalence
    if found is None:
        return
    title = f"at a prevalence of {found.prevalence:g}"
    print(f"\n{title:{TITLE}}{'PPV':{POOLED}}{'NPV':{POOLED}}".rstrip())
    for one in found.rules:  # four decimals, because a predictive value may be very near 0 or 1
        print(f"{one.rule:{TITLE}}{with_interval(one.ppv, 4):{POOLED}}{with_interval(one.npv, 4)}".rstrip())
    share = found.of_test_images
    print(f"(the share of positive test images is {share:.3f}; sensitivity and specificity are assumed to be the same)")


def print_subgroups(metrics: "MetricsRecord") -> None:
    """Print the AUC of each subgroup with its numbers of images and groups."""
    auc = f"{metrics.positive_class}_vs_rest"
    for one in metrics.subgroups:
        print(f"\n{_short('by ' + one.by):{TITLE}}{'AUC':{POOLED}}{'images':>8}{'groups':>8}")
        if not one.levels:
            print(f"  {one.reason}")
        for level in one.levels:
            area = with_interval(level.figures.auc[auc])
            print(f"{_short('  ' + level.level):{TITLE}}{area:{POOLED}}{level.n_images:8}{level.n_groups:8}")
        for entry in one.differences:
            print(
                f"  {entry.level} minus {entry.against} ({entry.n_images} images in {entry.n_groups} groups, and "
                f"{entry.n_images_against} in {entry.n_groups_against})"
            )
            for name in ("auc", "accuracy", "sensitivity", "specificity"):
                value = getattr(entry, name)
                reason = f", no interval: {value.reason}" if value.value is not None and value.ci95 is None else ""
                print(f"    {name}: {with_interval(value)}{holm_words(value)}{reason}")


def with_interval(value: "Estimate", digits: int = 3) -> str:
    """Format ``0.921 [0.884, 0.947]``; the number alone without an interval; the reason if it is undefined."""
    from usvit.estimate_text import Style, clear_of_zero, estimate_text, fixed

    return estimate_text(value, Style(fixed(digits), end=clear_of_zero(digits), undefined="undefined: {reason}"))


def holm_words(value: "Estimate") -> str:
    """Format ``, p = 0.012 (Holm = 0.036)``; empty without a p-value."""
    if value.p is None:
        return ""
    corrected = "" if value.p_holm is None else f" (Holm {p_value(value.p_holm)})"
    return f", p {p_value(value.p)}{corrected}"


def p_value(p: float) -> str:
    """Format a p-value: ``= 0.032``, ``< 0.001``; with more digits near the usual levels."""
    from usvit.reports import p_words

    said = p_words(p)
    return said if said.startswith("<") else f"= {said}"


_BY_CLASS = ("sensitivity", "specificity")


def _short(title: str) -> str:
    """Shorten a title to its column, so that a long class name does not shift the numbers."""
    title = title.replace("_", " ")
    return title if len(title) < TITLE else title[: TITLE - 3] + ".. "


def go_on(path: Path, record: "RunRecord") -> str:
    """Return the command that starts from a run of pre-training or transfer, with the settings of its network.

    The head is new there, so the hidden layer of a pre-training head is not one of them.

    Args:
        path: the run's folder.
        record: the content of its ``run.json``.
    """
    config, model = record.config, record.model
    sources = str((config.source or {}).get("name")).split("+")
    dataset = "DATASET"
    # Only pre-training fits folds of the same data set; a transfer was trained on images of a hold-out.
    if record.kind == "pretrain" and config.data and "data" in sources:
        dataset = config.data.dataset or dataset
    words = ["usvit", "cv", "--dataset", dataset, "--model", model.name or "MODEL", "--weights", str(path)]
    for key, value in model.vit.items():
        if key == "head":
            continue
        words += ["--set", f"model.vit.{key}={value}"]
    return shlex.join(words)
