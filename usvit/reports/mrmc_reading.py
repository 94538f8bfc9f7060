"""Sections of the document of a reader study: reading times, courses of sessions, and agreement within readers."""

from collections.abc import Callable, Sequence

from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.records import MrmcRecord, ReaderChange, ReaderShare, SessionCourses, SessionCurve
from usvit.reports.formatting import p_words
from usvit.reports.remarks import remarks
from usvit.wording import listed, plural

ACROSS = {
    "readers and patients": "other readers, other patients",
    "patients": "these readers, other patients",
    "readers": "other readers, these patients",
}
_TITLES = {
    "seconds": "{a}: time, s",
    "ratio": "{a} against {b}: ratio of times",
    "wrong_over_right": "{a}: wrong against right decisions, ratio of times",
    "error_course": "{a}: rank error, end less start",
    "time_course": "{a}: ratio of times, end against start",
}
_AXES = {"rank_error": "Rank error", "seconds": "Seconds"}
_TIMES = (
    "Geometric mean of the times, and ratios of geometric means; p is that of a ratio of 1. A time is a number of each "
    "reader like an AUC, so that its interval counts readers and patients in the same way."
)
_COURSES = (
    "Change from the first to the last case of a session, from a straight line within the sessions and reference "
    "classes of each reader. The rank error of a case is the share of the cases of the other class that the reader "
    "rates on the wrong side of it (1 less the placement of DeLong et al. 1988; its mean is 1 less the AUC). A rank "
    "error that falls, or a ratio below 1, shows learning; a rank error that rises shows fatigue."
)
_REPEATS = (
    "Second readings of a case by the same reader in the same modality: weighted kappa (quadratic weights) and "
    "ICC(2,1) of the first and second ratings; with 95 % intervals for these readers and other patients (jackknife)."
)


def rows_sentence(record: MrmcRecord) -> str:
    """Say which rows of the table are analysed, and which are not."""
    rows = record.rows
    left = [
        f"{plural(n, 'reading')} {words}"
        for n, words in ((rows.training, "of training cases"), (rows.unfinished, "that were not finished"))
        if n
    ]
    said = f"{plural(rows.analysed, 'reading')} analysed"
    said += f", and {plural(rows.repeats, 'repeat')} for the agreement within readers" if rows.repeats else ""
    return f"{said}. Left out: {listed(left)}." if left else f"{said}."


def reading_sections(record: MrmcRecord) -> list[doc.DocumentSection]:
    """Build the sections for which the table has columns."""
    found = []
    if record.repeats:
        found.append(_within(record))
    if record.times is not None:
        medians = doc.Table(
            "Median time of each reader",
            ["Reader", *doc.numbers(*(f"{one.modality}, s" for one in record.times.medians))],
            [
                (reader, *(f"{one.readers[k].value:.1f}" for one in record.times.medians))
                for k, reader in enumerate(record.readers)
            ],
            f"Median time of each reader over {plural(record.times.n_cases, 'case')}, in seconds.",
        )
        blocks = [medians, *_changes("Mean time over readers", record.times.changes, record.readers, _TIMES)]
        found.append(doc.DocumentSection("Reading time", blocks, "time"))
    if record.courses is not None:
        blocks = _changes("Course of a session", record.courses.changes, record.readers, _COURSES)
        found.append(
            doc.DocumentSection(
                "Learning and fatigue", [_figures(record.courses, record.modalities), *blocks], "course"
            )
        )
    return found


def _within(record: MrmcRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = [
        (
            one.modality,
            "mean over readers" if one.reader is None else one.reader,
            one.n_repeats,
            one.weighted_kappa,
            "–" if one.icc is None else one.icc,
        )
        for one in record.repeats
    ]
    heads = doc.numbers("Repeats", "Weighted kappa", "ICC(2,1)")
    blocks: list[doc.Block] = [doc.Table("Agreement within readers", ["Modality", "Reader", *heads], rows, _REPEATS)]
    named = [
        (f"{name}, {one.modality}, {one.reader or 'mean'}", value)
        for one in record.repeats
        for name, value in (("weighted kappa", one.weighted_kappa), ("ICC", one.icc))
    ]
    said = remarks(named, warnings=False)
    blocks += [doc.Listing(said, small=True)] if said else []
    return doc.DocumentSection("Agreement within readers", blocks, "within")


def share_title(one: ReaderShare) -> str:
    """Return what a share of the cases is, in words."""
    if one.what == "with_model":
        return f"{one.a}: decision of the reader is that of the model"
    return f"{one.a} to {one.b}: changed to {'right' if one.what == 'to_right' else 'wrong'}"


def decision_section(record: MrmcRecord) -> doc.DocumentSection:
    """Build the section of the agreement with the model and of changed minds."""
    rows: list[doc.TableRow] = []
    for share in record.decisions or ():
        rows.append(doc.TableRow((share_title(share),), "group"))
        rows += [doc.TableRow((ACROSS[each.across], each.estimate)) for each in share.mean]
    caption = f"Share of all cases, by decisions: ratings of {record.positive_from:g} or more are positive"
    caption += "" if record.model_from is None else f", and scores of the model of {record.model_from:.4g} or more"
    named = [(f"{share_title(s)}, {ACROSS[e.across]}", e.estimate) for s in record.decisions or () for e in s.mean]
    said = remarks(named, warnings=False)
    each_reader = doc.Table(
        "Decisions of each reader",
        ["Share of the cases", *doc.numbers(*record.readers)],
        [(share_title(one), *(f"{value.value:.3f}" for value in one.readers)) for one in record.decisions or ()],
        detail=True,
    )
    blocks: list[doc.Block] = [
        doc.Table("Decisions", ["Holds for", *doc.numbers("Mean over readers")], rows, f"{caption}."),
        *([doc.Listing(said, small=True)] if said else []),
        each_reader,
    ]
    return doc.DocumentSection("Agreement with the model and changed minds", blocks, "decisions")


def _changes(name: str, changes: Sequence[ReaderChange], readers: list[str], caption: str) -> list[doc.Block]:
    """Return the table of means over readers, its remarks, and the table of each reader."""
    titles = [_TITLES[one.what].format(a=one.a, b=one.b) for one in changes]
    digits = [1 if one.what == "seconds" else 3 for one in changes]
    rows: list[doc.TableRow] = []
    for title, places, change in zip(titles, digits, changes, strict=True):
        rows.append(doc.TableRow((title,), "group"))
        for each in change.mean:
            number = doc.Quantity(each.estimate, places, signed=change.what == "error_course")
            rows.append(doc.TableRow((ACROSS[each.across], number, p_words(each.estimate.p))))
    named = [
        (f"{title}, {ACROSS[each.across]}", each.estimate)
        for title, change in zip(titles, changes, strict=True)
        for each in change.mean
    ]
    said = remarks(named, warnings=False)
    each_reader = doc.Table(
        f"{name}, each reader",
        ["Number", *doc.numbers(*readers)],
        [
            (title, *(f"{one.value:.{places}f}" for one in change.readers))
            for title, places, change in zip(titles, digits, changes, strict=True)
        ],
        detail=True,
    )
    table = doc.Table(name, ["Holds for", *doc.numbers("Mean over readers", "p")], rows, caption)
    return [table, *([doc.Listing(said, small=True)] if said else []), each_reader]


def _figures(courses: SessionCourses, modalities: list[str]) -> doc.Gallery:
    figures = []
    for what, label in _AXES.items():
        curves = [one for one in courses.curves if one.what == what]
        if curves:
            title = f"{label} by tenths of the session, mean over readers"
            legend = tuple(
                doc.LegendEntry(one.modality, _colour(one, modalities), 1.6, _dash(one, modalities)) for one in curves
            )
            plot = doc.Plot(f"plot-{what.replace('_', '-')}", title, _drawing(curves, modalities, label), legend)
            figures.append(doc.Figure(plot, f"{title}."))
    return doc.Gallery(figures)


def _colour(one: SessionCurve, modalities: list[str]) -> str:
    return f"series-{modalities.index(one.modality) % doc.N_SERIES}"


def _dash(one: SessionCurve, modalities: list[str]) -> tuple[float, ...]:
    return doc.DASHES[modalities.index(one.modality) % doc.N_SERIES]


def _drawing(curves: Sequence[SessionCurve], modalities: list[str], label: str) -> Callable[[doc.Pens], Figure]:
    def draw(pens: doc.Pens) -> Figure:
        figure = Figure(figsize=(3.4, 2.3), layout="constrained")
        axes = figure.add_subplot()
        for one in curves:
            values = [float("nan") if value is None else value for value in one.tenths]
            places = [k + 0.5 for k in range(len(values))]
            (line,) = axes.plot(places, values, color=pens.of(_colour(one, modalities)), linewidth=1.5, marker=".")
            if _dash(one, modalities):
                line.set_dashes(_dash(one, modalities))
        axes.set(xlabel="Tenth of the session", ylabel=label, xlim=(0, 10))
        axes.set_ylim(bottom=0)
        return figure

    return draw
