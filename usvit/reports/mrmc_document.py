"""The document of a reader study, from mrmc.json: for the page, Markdown, LaTeX and the terminal."""

from collections.abc import Sequence

import usvit.documents as doc
from usvit.records import MrmcRecord, ReaderComponents, ReaderDifference, ReaderFigureRecord, ReaderInference
from usvit.reports.formatting import p_words
from usvit.reports.mrmc_checklist import reader_checklist
from usvit.reports.mrmc_reading import ACROSS, decision_section, reading_sections, rows_sentence
from usvit.reports.remarks import remarks
from usvit.wording import capitalized, listed, plural

_NAMES = {"auc": "AUC", "sensitivity": "Sensitivity", "specificity": "Specificity"}
_TESTS = {"noninferiority": "non-inferiority", "equivalence": "equivalence"}
_MEANING = (
    "Mean over readers with a 95 % interval. It holds for other readers of other patients (both vary); for these "
    "readers and other patients; or for other readers of these patients. Only the first generalises to both: report it."
)
_METHOD = (
    "Obuchowski and Rockette's analysis with Hillis' degrees of freedom. The covariances that patients cause are "
    "Obuchowski's, so that several cases of a patient count as one; with one case a patient they are DeLong's. "
    "Reference: Hillis (2014), Statistics in Medicine 33:330."
)
_COMPONENTS = (
    "Variance of the numbers between readers, and the mean variance and covariance of the readers' numbers that the "
    "patients cause. The first contains the difference of the other two."
)


def mrmc_document(record: MrmcRecord) -> doc.Document:
    """Build the document of a reader study."""
    beside = f", beside the model {record.model}" if record.model else ""
    return doc.Document(
        title=f"Reader study {record.table}",
        kind=f"{plural(len(record.readers), 'reader')}{beside}: {plural(record.n_cases, 'case')} of "
        f"{plural(record.n_patients, 'patient')}, {record.n_positive} positive. Modalities: "
        f"{listed(record.modalities)}.",
        lead=[doc.Paragraph(rows_sentence(record), small=True), *(doc.Note(warning) for warning in record.warnings)],
        sections=[
            *(_figure(record, one) for one in record.figures),
            *([_agreement(record)] if record.agreement else []),
            *([decision_section(record)] if record.decisions else []),
            *reading_sections(record),
            reader_checklist(record),
            doc.DocumentSection("Methods", [doc.Paragraph(_METHOD)], "method", detail=True),
        ],
        made_from="the table of answers. All files hold the same numbers: mrmc.json, mrmc.md, mrmc.tex",
        name="usvit analysis of a reader study",
    )


def _figure(record: MrmcRecord, one: ReaderFigureRecord) -> doc.DocumentSection:
    name = _NAMES[one.figure]
    at = f" at a rating of {record.positive_from:g} or more" if one.figure != "auc" else ""
    at += f" (the model: {record.model_from:.4g} or more)" if at and record.model_from is not None else ""
    heads: list[str | doc.Column] = ["Reader", *doc.numbers(*(mean.modality for mean in one.modalities))]
    rows: list[tuple[doc.Cell, ...]] = [
        (reader, *(f"{mean.readers[k].value:.3f}" for mean in one.modalities))
        for k, reader in enumerate(record.readers)
    ]
    rows += [] if one.model is None else [(record.model, *[f"{one.model:.3f}"] * len(one.modalities))]
    means = [
        (mean.modality if k == 0 else "", ACROSS[inference.across], inference.estimate)
        for mean in one.modalities
        for k, inference in enumerate(mean.mean)
    ]
    blocks: list[doc.Block] = [
        doc.Table(f"{name} of each reader", heads, rows, f"{name} of each reader{at}."),
        doc.Table("Mean over readers", ["Modality", "Holds for", *doc.numbers(name)], means, _MEANING),
    ]
    blocks += _differences(record, one.differences) if one.differences else []
    named = [
        (f"{mean.modality}, {ACROSS[each.across]}", each.estimate) for mean in one.modalities for each in mean.mean
    ]
    named += [
        (f"{_title(pair)}, {ACROSS[each.across]}", each.estimate) for pair in one.differences for each in pair.mean
    ]
    said = remarks(named, warnings=False)
    blocks += [doc.Listing(said, small=True)] if said else []
    numbers = [(mean.modality, mean.components) for mean in one.modalities]
    numbers += [(_title(pair), pair.components) for pair in one.differences]
    blocks.append(_components(numbers))
    return doc.DocumentSection(name, blocks, one.figure)


def _agreement(record: MrmcRecord) -> doc.DocumentSection:
    decided = record.positive_from is not None
    heads = ["Weighted kappa", "ICC(2,1)", *(["Fleiss' kappa", "Gwet's AC1"] if decided else [])]
    rows: list[tuple[doc.Cell, ...]] = [
        (one.modality, one.weighted_kappa, one.icc, *((one.fleiss_kappa, one.gwet_ac1) if decided else ()))
        for one in record.agreement
    ]
    caption = "Kappa of the ratings with quadratic weights, the mean over pairs of readers"
    caption += f"; Fleiss' kappa and AC1 of ratings of {record.positive_from:g} or more" if decided else ""
    caption += ". ICC: absolute agreement of single readers. Its interval holds for other readers of other patients, "
    caption += "the others for these readers and other patients. The model is not among the readers."
    named = [
        (f"{head}, {one.modality}", value)
        for one in record.agreement
        for head, value in zip(heads, (one.weighted_kappa, one.icc, one.fleiss_kappa, one.gwet_ac1), strict=False)
    ]
    said = remarks(named, warnings=False)
    blocks: list[doc.Block] = [doc.Table("Agreement", ["Modality", *doc.numbers(*heads)], rows, caption)]
    blocks += [doc.Listing(said, small=True)] if said else []
    return doc.DocumentSection("Agreement between readers", blocks, "agreement")


def _title(pair: ReaderDifference) -> str:
    return f"{pair.a} minus {pair.b}"


def _differences(record: MrmcRecord, pairs: Sequence[ReaderDifference]) -> list[doc.Block]:
    several, claims = len(pairs) > 1, record.margin is not None
    rows: list[doc.TableRow] = []
    for pair in pairs:
        rows.append(doc.TableRow((_title(pair),), "group"))
        for one in pair.mean:
            cells: list[doc.Cell] = [ACROSS[one.across], one.estimate, p_words(one.estimate.p)]
            cells += [p_words(one.p_holm)] if several else []
            cells += [_claim(one)] if claims else []
            rows.append(doc.TableRow(tuple(cells)))
    heads = [*doc.numbers("Difference", "p"), *(doc.numbers("p, Holm") if several else [])]
    caption = "Paired by case and reader." + (" Holm: corrected over the comparisons." if several else "")
    if claims:
        test = _TESTS[record.test or "noninferiority"]
        caption += f" Claim: {test} with the margin {record.margin:g}, which must have been stated before."
    table = doc.Table("Differences", ["Holds for", *heads, *([doc.Column("Claim")] if claims else [])], rows, caption)
    names = [_title(pair) for pair in pairs]
    each = doc.Table(
        "Difference of each reader",
        ["Reader", *doc.numbers(*names)],
        [(reader, *(f"{pair.readers[k].value:+.3f}" for pair in pairs)) for k, reader in enumerate(record.readers)],
        detail=True,
    )
    return [table, each, *(_power(record, pair) for pair in pairs if pair.power)]


def _claim(one: ReaderInference) -> str:
    if one.noninferiority is not None:
        first = one.noninferiority.a_vs_b
        return f"{first.verdict}, p {p_words(first.p)}"
    assert one.equivalence is not None
    return f"{one.equivalence.verdict}, p {p_words(one.equivalence.p)}"


def _power(record: MrmcRecord, pair: ReaderDifference) -> doc.Table:
    patients = list(dict.fromkeys(one.patients for one in pair.power))
    readers = list(dict.fromkeys(one.readers for one in pair.power))
    power = {(one.readers, one.patients): one.power for one in pair.power}
    return doc.Table(
        f"Power of a later study, {_title(pair)}",
        ["Readers", *doc.numbers(*(plural(n, "patient") for n in patients))],
        [(n, *(f"{power[n, m]:.2f}" if (n, m) in power else "–" for m in patients)) for n in readers],
        f"Probability that a study of this size finds a difference of {record.effect:g} (two-sided, 5 %), for other "
        "readers of other patients, if readers and patients vary as here. A small study states these variances poorly.",
        detail=True,
    )


def _components(numbers: Sequence[tuple[str, ReaderComponents]]) -> doc.Table:
    def shown(value: float | None) -> str:
        return "–" if value is None else f"{value:.2e}"

    return doc.Table(
        "Components of variance",
        ["Number", *doc.numbers("Between readers", "By patients, variance", "By patients, covariance")],
        [
            (capitalized(name), shown(one.mean_square), shown(one.variance), shown(one.covariance))
            for name, one in numbers
        ],
        _COMPONENTS,
        detail=True,
    )
