"""What a reader study must state: the items that mrmc.json answers, and those that the authors must."""

from collections.abc import Sequence

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.records import MrmcRecord, StudyProtocol
from usvit.reports.checklists import NOTHING, PARTLY, RUN, fill_checklist
from usvit.reports.formatting import estimate
from usvit.reports.mrmc_reading import share_title
from usvit.wording import listed, plural

_STATUS = {RUN: "from the table", PARTLY: "partly; the rest is the authors'", NOTHING: "for the authors to state"}


def reader_checklist(record: MrmcRecord) -> doc.DocumentSection:
    """Build the section of the checklist of reader studies."""
    filled = fill_checklist("reader_study", _facts(record), {})
    rows: list[tuple[doc.Cell, ...]] = []
    for item in filled.items:
        status = _STATUS[item.status]
        words = doc.strong(status) if item.status == NOTHING else status
        rows.append((item.number, f"{item.section}. {item.asks}", words, item.run))
    said = (
        f"{filled.source}. Of {len(filled.items)} items the table answers {filled.count(RUN)} and a part of "
        f"{filled.count(PARTLY)}; the authors must state the other {filled.count(NOTHING)}. Use the original forms for "
        "a journal."
    )
    table = doc.Table("Items of a reader study", ["Item", "Asks for", "Status", "Answer"], rows, look="checklist")
    blocks: list[doc.Block] = [doc.Paragraph(said, small=True), doc.Details("All items", [table])]
    return doc.DocumentSection("Checklist", blocks, "checklist", detail=True)


def _facts(record: MrmcRecord) -> dict[str, str]:
    """Return statements from the record; what it does not hold is absent."""
    area, rows = record.figures[0], record.rows
    figures = listed(["AUC", *(one.figure for one in record.figures[1:])])
    facts = {
        **({} if record.positive_from is None else {"threshold": _positive_from(record.positive_from)}),
        "cases": f"{plural(record.n_cases, 'case')} of {plural(record.n_patients, 'patient')}, {record.n_positive} "
        "with the condition.",
        "readers": f"{plural(len(record.readers), 'reader')} ({listed(record.readers)}).",
        "design": f"Fully crossed: each reader read each case in {listed(record.modalities)}.",
        "size": f"{plural(len(record.readers), 'reader')} and {plural(record.n_patients, 'patient')}; the page states "
        "the power of later studies.",
        "method": f"{figures}; Obuchowski and Rockette's analysis with Hillis' "
        "degrees of freedom, cases clustered by patient; p also after Holm's correction if there are several "
        "comparisons.",
        "missing": f"Every reader rated every case that is analysed; {rows.unfinished} unfinished readings left out.",
    }
    facts["order"] = "Order, wash-out and display, the authors say."
    if record.protocol is not None:
        facts |= _protocol_facts(record.protocol, facts.get("threshold", ""))
    results: list[tuple[str, Estimate]] = [(f"AUC {one.modality}", one.mean[0].estimate) for one in area.modalities]
    results += [(f"AUC {one.a} minus {one.b}", one.mean[0].estimate) for one in area.differences]
    facts["results"] = _sentence("For other readers of other patients: ", results)
    if record.margin is not None:
        kind = "Equivalence" if record.test == "equivalence" else "Non-inferiority"
        facts["hypothesis"] = f"{kind} with a margin of {record.margin:g}."
    if rows.training:
        facts["training"] = f"{plural(rows.training, 'reading')} of training cases, left out of the analysis."
    if record.model is not None:
        facts["model"] = f"The model is the reader {record.model} of the table."
    if record.decisions:
        facts["decisions"] = _sentence(
            "Share of the cases: ", [(share_title(one), one.mean[0].estimate) for one in record.decisions]
        )
    agreement: list[tuple[str, Estimate]] = [
        (f"weighted kappa between readers, {one.modality}", one.weighted_kappa) for one in record.agreement
    ]
    agreement += [
        (f"weighted kappa within readers (mean), {one.modality}", one.weighted_kappa)
        for one in record.repeats
        if one.reader is None
    ]
    if agreement:
        facts["agreement"] = _sentence("", agreement)
    for name, part in (("times", record.times), ("courses", record.courses)):
        if part is not None:
            wanted = ("seconds", "ratio") if name == "times" else ("error_course", "time_course")
            facts[name] = _sentence(
                "",
                [
                    (f"{_WORDS[one.what]} {one.a}{f' against {one.b}' if one.b else ''}", one.mean[0].estimate)
                    for one in part.changes
                    if one.what in wanted
                ],
            )
    return facts


def _positive_from(rating: float) -> str:
    return f"Ratings from {rating:g} count as positive."


def _protocol_facts(protocol: StudyProtocol, threshold: str) -> dict[str, str]:
    """Return statements from the protocol of a study of ``usvit review``."""
    drawn = (
        "all cases of the source" if protocol.drawn is None else f"{plural(protocol.drawn, 'case')}, drawn at random"
    )
    session = "" if protocol.washout_days is None else f" Two sessions, {protocol.washout_days:g} days apart."
    facts = {
        "order": f"usvit review, design {protocol.design}: {drawn}, in a random order of each reader.{session} A case "
        f"is one {protocol.unit}; {plural(protocol.repeats, 'case')} read twice. Display and setting, the authors say.",
        "known": "The page stated no name, patient or reference class beside the images. Instructions: "
        f"{protocol.instructions or 'none.'} Prevalence and what else was told, the authors say.",
    }
    question = next((one for one in protocol.questions if one.name == protocol.rating), None)
    if question is not None:
        facts["threshold"] = f"'{question.asked}' ({question.answers}). {threshold}".strip()
    if protocol.training:
        feedback = "" if protocol.masks == "never" else ", with outlines of the lesions where there are some"
        facts["training"] = (
            f"Each reader first read {plural(protocol.training, 'training case')}, and was then shown the reference "
            f"class{feedback}; they are left out of the analysis."
        )
    if "aided" in protocol.stages:
        limit = "" if protocol.threshold is None else f", and the threshold {protocol.threshold:.3g}"
        after = " after the reader's own answers" if protocol.design == "sequential" else ""
        facts["shown"] = f"The score of {protocol.positive} as a number and a bar{limit}, and the decision{after}."
    return facts


_WORDS = {
    "seconds": "seconds a case,",
    "ratio": "ratio of times,",
    "error_course": "change of the rank error over a session,",
    "time_course": "ratio of times, end against start of a session,",
}


def _sentence(start: str, named: Sequence[tuple[str, Estimate]]) -> str:
    return start + "; ".join(f"{name} {estimate(one)}" for name, one in named) + "."
