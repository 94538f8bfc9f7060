"""The page ``repeatability.html``: one file, no script, no network."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.documents import LegendEntry, Pens, Plot
from usvit.evaluation import ScorePairs
from usvit.files import write_text
from usvit.records import ChangeRecord, FlipRecord, RepeatabilityRecord, RepeatsRecord
from usvit.records.repeatability import AgreementRecord
from usvit.reports.formatting import rule_words, unit_sentence
from usvit.reports.remarks import remarks
from usvit.wording import capitalized, plural

MOST_POINTS = 3000
"""Pairs that the scatter plot draws; of more, it draws every n-th."""
_CHANGE_ROW = 0.24
"""Inches per change in the charts."""


def write_repeatability_page(path: Path, record: RepeatabilityRecord, pairs: ScorePairs | None = None) -> None:
    """Write the page of a repeatability.json; the same record and pairs give the same bytes.

    Args:
        path: the file.
        record: its content.
        pairs: scores of the pairs, for the plot of repeats; it is not drawn without them.

    Raises:
        UsvitError: the page cannot be written.
    """
    write_text(path, doc.html_page(repeatability_document(record, pairs)))


def repeatability_document(record: RepeatabilityRecord, pairs: ScorePairs | None = None) -> doc.Document:
    """Build the document of a test-retest; ``pairs`` as ``write_repeatability_page``."""
    kind = f"Test {record.row}s before and after {plural(len(record.changes or []), 'controlled change')}"
    sections: list[doc.DocumentSection] = []
    if record.repeats is not None:
        kind = f"{plural(record.repeats.n_images, record.row)} in {plural(record.repeats.n_sets, 'set')} of repeats"
        sections = [
            _agreement(record, record.repeats, pairs),
            _repeat_flips(record.repeats, record.positive_class),
            _left_out(
                [(f"{one.n:,} {one.reason}, such as {one.example}.") for one in record.repeats.left_out], _ALL_USED
            ),
        ]
    elif record.changes is not None:
        measured = [one for one in record.changes if one.scales is not None]
        missing = [line for one in record.changes if (line := _not_measured(one))]
        sections = [
            _change_flips(record, measured),
            _change_agreement(record, measured),
            _left_out(missing, _ALL_CHANGED),
        ]
    return doc.Document(
        title=f"Repeatability of {record.name}",
        kind=f"{kind}. Positive class: {record.positive_class}.",
        lead=[
            *([doc.Paragraph(unit_sentence(record).strip())] if record.unit else []),
            *(doc.Note(warning) for warning in record.warnings),
        ],
        sections=sections,
        made_from="repeatability.json",
    )


_ALL_USED = "None: every image that has a partner was scored by the same network as its partner."
_ALL_CHANGED = "None: every image allows every change."


def _left_out(lines: Sequence[str], none: str) -> doc.DocumentSection:
    return doc.DocumentSection("Left out", [doc.Listing(lines or [none])], "left-out")


def _not_measured(one: ChangeRecord) -> str:
    parts = [f"{part.n:,} {part.reason}, such as {part.example}" for part in one.left_out]
    parts += [f"not measured: {one.reason}"] if one.reason else []
    return f"{_name(one)}: {'; '.join(parts)}." if parts else ""


def _name(one: ChangeRecord) -> str:
    return f"{one.change} {one.strength}"


def _agreement(record: RepeatabilityRecord, found: RepeatsRecord, pairs: ScorePairs | None) -> doc.DocumentSection:
    what = f"Repeats are {record.row}s with equal values in the column {found.column}."
    if found.only_copies:
        what = "Repeats are near-duplicates of one frame, which usvit groups."
    patients = "the patients are not known" if found.n_patients is None else plural(found.n_patients, "patient")
    said = (
        f"{what} Each set was scored by one network that was trained on none of its images. "
        f"{plural(found.n_pairs, 'pair')} of {plural(found.n_images, record.row)} in {plural(found.n_sets, 'set')} "
        f"(the largest has {found.largest_set}) and {plural(found.n_groups, 'group')}; {patients}."
    )
    caption = (
        "Repeats have no order, so there is no bias, and the limits of agreement are plus and minus the repeatability "
        "coefficient: 95 % of the differences of two scores of one thing lie between them, if they are normally "
        "distributed. 95 % intervals by the jackknife over groups."
    )
    rows = [("Probability", found.scales.probability), ("Logit", found.scales.logit)]
    blocks: list[doc.Block] = [doc.Paragraph(said), _scale_table("Agreement", rows, caption), *_remarks(record)]
    if pairs is not None:
        caption = "Pairs of repeats on the scale of the probability."
        blocks.append(doc.Figure(_difference_plot(found, pairs), caption, wide=True))
    return doc.DocumentSection("Agreement of repeats", blocks, "repeats")


def _scale_table(name: str, rows: Sequence[tuple[str, AgreementRecord]], caption: str) -> doc.Table:
    heads = doc.numbers("Bias", "Lower limit of agreement", "Upper limit of agreement")
    heads += doc.numbers("Repeatability coefficient", "SD within a set", detail=name != "Agreement")
    heads += doc.numbers(rows[0][1].icc_form if rows else "ICC")
    lines: list[tuple[doc.Cell, ...]] = [
        (
            *(what, "–" if one.bias.value is None else one.bias, one.lower_limit, one.upper_limit),
            *(one.repeatability_coefficient, one.within_sd, one.icc),
        )
        for what, one in rows
    ]
    return doc.Table(name, ["Scale" if name == "Agreement" else "Change", *heads], lines, caption)


def _repeat_flips(found: RepeatsRecord, positive: str) -> doc.DocumentSection:
    caption = (
        f"Share of the pairs of which one image is called {positive} and the other is not. 95 % intervals count groups "
        "and take the thresholds as given."
    )
    rows: list[tuple[doc.Cell, ...]] = [
        (rule_words(one.rule), one.n_pairs, one.n_flips, one.rate) for one in found.flips
    ]
    blocks: list[doc.Block] = [
        doc.Table("Flips", ["Operating point", *doc.numbers("Pairs", "Flips", "Flip rate")], rows, caption)
    ]
    blocks += [doc.Paragraph(f"{rule_words(rule)}: {reason}", small=True) for rule, reason in found.undecided.items()]
    if found.flips:
        blocks += _warning("Flip rates", found.flips[0].rate.warning)
    return doc.DocumentSection("Decisions that flip", blocks, "flips")


def _warning(what: str, warning: str | None) -> list[doc.Block]:
    return [doc.Paragraph(f"{what}: {warning}.", small=True)] if warning else []


def _change_flips(record: RepeatabilityRecord, measured: list[ChangeRecord]) -> doc.DocumentSection:
    rules, most = _rules(record), record.most_flips or {}
    said = (
        "Each test image was scored by the network of the fold that tested it, before and after each change, at the "
        "thresholds of that fold."
    )
    worst: list[tuple[doc.Cell, ...]] = [
        (rule_words(rule), most.get(rule, "no change flips a decision")) for rule in rules
    ]
    rows: list[tuple[doc.Cell, ...]] = [
        (_name(one), f"{one.n_images:,} ({one.n_groups:,})", *(_flips(_flip_of(one, rule)) for rule in rules))
        for one in measured
    ]
    caption = (
        "Flip rates, with 95 % intervals that count groups and take the thresholds as given; in brackets, how many "
        f"{record.row}s become positive and negative."
    )
    heads = doc.numbers(f"{capitalized(record.row)}s (groups)", *map(rule_words, rules))
    plot = [doc.Figure(_flips_plot(measured, _shown_rule(rules)), "Flipped decisions by change.", wide=True)]
    return doc.DocumentSection(
        "Decisions that flip",
        [
            doc.Paragraph(said),
            doc.Table("Most flips", ["Operating point", "Change with the most flips"], worst),
            *(plot if measured else []),
            doc.Table("Flips by change", ["Change", *heads], rows, caption),
        ],
        "changes",
    )


def _flips(one: FlipRecord | None) -> doc.Cell:
    return "–" if one is None else (one.rate, doc.muted(f" (+{one.n_to_positive}, −{one.n_to_negative})"))


def _change_agreement(record: RepeatabilityRecord, measured: list[ChangeRecord]) -> doc.DocumentSection:
    caption = (
        "Changed less original. About 95 % of the differences lie between the limits of agreement, if they are "
        "normally distributed. The repeatability coefficient and the ICC count the bias as error. 95 % intervals by "
        "the jackknife over groups."
    )
    scales = [(_name(one), one.scales) for one in measured if one.scales is not None]
    blocks: list[doc.Block] = []
    if measured:
        said = f"Probability of {record.positive_class}: changed less original."
        blocks.append(doc.Figure(_limits_plot(measured), said, wide=True))
    for title, of_scale in (
        ("Probability", [(name, one.probability) for name, one in scales]),
        ("Logit", [(name, one.logit) for name, one in scales]),
    ):
        blocks.append(
            doc.DocumentSection(
                title, [_scale_table(f"Agreement, {title}", of_scale, caption)], detail=title == "Logit"
            )
        )
    if scales:
        blocks += _warning("Intervals", scales[0][1].logit.icc.warning)
    return doc.DocumentSection("Agreement of scores", [*blocks, *_remarks(record)], "agreement")


def _remarks(record: RepeatabilityRecord) -> list[doc.Block]:
    found = _agreement_remarks(record)
    if record.repeats is not None and (warning := record.repeats.scales.logit.icc.warning):
        found.insert(0, f"Agreement: {warning}.")
    return [doc.Listing(found, small=True)] if found else []


def _agreement_remarks(record: RepeatabilityRecord) -> list[str]:
    """Say why a limit, a coefficient or an ICC has no interval, or another than usual."""
    found = [] if record.repeats is None else [("repeats", record.repeats.scales)]
    found += [(f"{one.change} {one.strength}", one.scales) for one in record.changes or [] if one.scales is not None]
    return remarks(
        (
            (f"{title}, {name}, {scale}", getattr(getattr(scales, scale), key))
            for name, scales in found
            for scale in ("probability", "logit")
            for key, title in _FIGURES.items()
        ),
        warnings=False,
    )


_FIGURES = {
    "lower_limit": "lower limit",
    "upper_limit": "upper limit",
    "repeatability_coefficient": "repeatability coefficient",
    "icc": "ICC",
}


def _flip_of(change: ChangeRecord, rule: str) -> FlipRecord | None:
    """Return the flips of a change at one operating point; None if it has none."""
    return next((one for one in change.flips if one.rule == rule), None)


def _rules(record: RepeatabilityRecord) -> list[str]:
    entries = [record.repeats.flips] if record.repeats else [one.flips for one in record.changes or []]
    return list(dict.fromkeys(flip.rule for flips in entries for flip in flips))


def _shown_rule(rules: list[str]) -> str:
    """Return the operating point of the chart: the first that the run has chosen, or else the most probable class."""
    return next((rule for rule in rules if rule.startswith("sensitivity")), rules[0])


def _difference_plot(repeats: RepeatsRecord, pairs: ScorePairs) -> Plot:
    step = -(-len(pairs.first) // MOST_POINTS)
    mean, apart = (pairs.first + pairs.second)[::step] / 2, np.abs(pairs.first - pairs.second)[::step]
    limit = repeats.scales.probability.repeatability_coefficient

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(5.2, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot(mean, apart, "o", color=pens.series[0], markersize=3, fillstyle="none", markeredgewidth=0.7)
        if limit.value is not None:
            axes.axhline(limit.value, color=pens.series[1], linewidth=1.4)
        if limit.ci95 is not None:
            axes.axhspan(*limit.ci95, color=pens.series[1], alpha=0.2, linewidth=0)
        top = max(float(apart.max(initial=0)), limit.value or 0, (limit.ci95 or [0, 0])[1], 0.01) * 1.06
        axes.set(xlim=(0, 1), ylim=(0, top), xlabel="Mean probability of the pair", ylabel="Absolute difference")
        return figure

    legend = (
        LegendEntry(f"pairs of repeats ({len(mean):,} of {len(pairs.first):,})", "series-0", kind="dot"),
        LegendEntry("repeatability coefficient", "series-1", 1.4),
        LegendEntry("its 95 % interval", "series-1", kind="band"),
    )
    return Plot("differences", f"Absolute difference and mean probability of {len(mean):,} pairs", draw, legend)


def _limits_plot(changes: list[ChangeRecord]) -> Plot:
    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(6.4, 0.7 + _CHANGE_ROW * len(changes)), layout="constrained")
        axes = figure.add_subplot()
        for row, one in enumerate(changes):
            scale = one.scales.probability if one.scales else None
            if scale is None or scale.bias.value is None:
                continue
            low, high = scale.lower_limit.value, scale.upper_limit.value
            if low is not None and high is not None:
                axes.plot([low, high], [row, row], color=pens.series[0], linewidth=1.4)
            for limit in (scale.lower_limit, scale.upper_limit):
                if limit.ci95:
                    axes.plot(limit.ci95, [row, row], color=pens.series[0], linewidth=5, alpha=0.3)
            axes.plot(scale.bias.value, row, "o", color=pens.series[1], markersize=4)
        axes.axvline(0, color=pens.muted, linewidth=0.8)
        _name_rows(axes, changes, "Changed less original probability")
        return figure

    legend = (
        LegendEntry("bias", "series-1", kind="dot"),
        LegendEntry("limits of agreement", "series-0", 1.4),
        LegendEntry("95 % intervals of the limits", "series-0", kind="band"),
    )
    return Plot("limits", "Bias and limits of agreement of each change", draw, legend)


def _flips_plot(changes: list[ChangeRecord], rule: str) -> Plot:
    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(6.4, 0.7 + _CHANGE_ROW * len(changes)), layout="constrained")
        axes = figure.add_subplot()
        for row, one in enumerate(changes):
            flip = _flip_of(one, rule)
            if flip is None or flip.rate.value is None:
                continue
            if flip.rate.ci95:
                axes.plot(flip.rate.ci95, [row, row], color=pens.series[0], linewidth=1.4)
            axes.plot(flip.rate.value, row, "o", color=pens.series[0], markersize=4)
        _name_rows(axes, changes, "Share of the images whose decision flips")
        axes.set_xlim(left=0)
        return figure

    legend = (LegendEntry(f"flips at '{rule}', with 95 % interval", "series-0", 1.4),)
    return Plot("flips", f"Share of flipped decisions of each change at '{rule}'", draw, legend)


def _name_rows(axes: Axes, changes: list[ChangeRecord], label: str) -> None:
    axes.set_yticks(range(len(changes)), [f"{one.change} {one.strength}" for one in changes])
    axes.set_ylim(len(changes) - 0.5, -0.5)
    axes.set_xlabel(label)
