"""The document of a model beside readers, from readers.json: for the page, Markdown, LaTeX and the terminal."""

from collections.abc import Callable, Iterable, Iterator

import usvit.documents as doc
from usvit.estimate import Difference
from usvit.records import Changed, CombinedRule, GivenDifferences, MatchedPoint, ReadersRecord
from usvit.reports.formatting import p_words, rule_words
from usvit.reports.remarks import remarks
from usvit.wording import counted, listed, plural

_P = doc.numbers("p", "p, Holm")
_GIVEN = doc.numbers("Sensitivity, thresholds given", "Specificity, thresholds given", detail=True)
_GIVEN_WORDS = (
    "Thresholds given: of the pooled images, with the model and its thresholds taken as given; these intervals are "
    "mostly shorter, because they do not contain the choice of the threshold and the training."
)
_HOLM = "Holm: corrected for all p-values of this table."
SHOWN = "sensitivity >= 0.95"
"""The decisions that the terminal shows; the page has all."""


def readers_document(record: ReadersRecord, roc: doc.Plot | None = None) -> doc.Document:
    """Build the document of a comparison with readers.

    Args:
        record: the content of readers.json.
        roc: the figure; the terminal, Markdown and LaTeX need none.
    """
    return doc.Document(
        title=f"{record.run} and {listed(one.reader for one in record.readers if one.left_out is not None)}",
        kind=f"A model beside readers' BI-RADS categories: {plural(record.n_images, 'tested image')} in "
        f"{plural(record.n_groups, 'group')}, {plural(record.n_folds, 'fold')}. Positive class: "
        f"{record.positive_class}.",
        lead=[doc.Note(warning) for warning in record.warnings],
        sections=[_areas(record, roc), _points(record), _matched(record), _rules(record), _categories(record)],
        made_from="the predictions of the run and the categories of the readers. All files hold the same numbers: "
        "readers.json, readers.md, readers.tex",
        name="usvit comparison with readers",
    )


def _areas(record: ReadersRecord, roc: doc.Plot | None) -> doc.DocumentSection:
    areas = doc.Table(
        "AUC of the model and of the readers",
        ["Reader", *doc.numbers("Images", "AUC, reader", "AUC, model")],
        [(one.reader, one.n_images, one.auc, one.model) for one in record.readers],
        "AUC of the ordered categories (ties count one half) and of the model on the same images, pooled over folds, "
        "with 95 % intervals that count groups (patients).",
    )
    several = record.n_folds > 1
    rows = []
    for one in record.readers:
        rows.append(doc.TableRow((one.reader,), "group"))
        rows.append(doc.TableRow(("AUC within folds", *_tested(one.within_folds))))
        rows += [doc.TableRow(("AUC, pooled", *_tested(one.pooled)))] if several else []
    differences = doc.Table(
        "Model minus reader",
        ["Figure", *doc.numbers("Difference"), *_P],
        rows,
        "Model minus reader, paired by image. "
        + (
            "Within folds: the interval accounts for the training images that folds share. Pooled: the model is taken "
            "as given. "
            if several
            else "The model is taken as given. "
        )
        + "Holm: corrected over the readers.",
    )
    left = doc.Table(
        "Images of each reader",
        ["Reader", *doc.numbers("Groups", "By class", "Without reading", "Category 0", "Category 6")],
        [
            (
                one.reader,
                one.n_groups,
                counted(one.class_counts),
                *((one.left_out.missing, one.left_out.category_0, one.left_out.category_6) if one.left_out else "–––"),
            )
            for one in record.readers
        ],
        "Images without a reading, of category 0 (incomplete) and of category 6 (known cancer) are left out.",
        detail=True,
    )
    caption = (
        "ROC curve of the model, and the points of each reader at the cuts of the next table, with 95 % intervals."
    )
    named = [(one.reader, figure) for one in record.readers for figure in (one.auc, one.within_folds, one.pooled)]
    said = remarks(named, warnings=False)
    return doc.DocumentSection(
        "AUC",
        [
            areas,
            *([doc.Figure(roc, caption)] if roc else []),
            differences,
            left,
            *([doc.Listing(said, small=True)] if said else []),
        ],
        "auc",
    )


def _tested(value: Difference | None) -> tuple[doc.Cell, doc.Cell, doc.Cell]:
    return ("–", "–", "–") if value is None else (value, p_words(value.p), p_words(value.p_holm))


def _given(value: GivenDifferences | None) -> tuple[doc.Cell, doc.Cell]:
    return ("–", "–") if value is None else (value.sensitivity, value.specificity)


def _by_reader(record: ReadersRecord, rows: Iterable[tuple[str, doc.TableRow]]) -> Iterator[doc.TableRow]:
    """Put the name of each reader above its rows."""
    listed_rows = list(rows)
    for one in record.readers:
        own = [row for name, row in listed_rows if name == one.reader]
        if own:
            yield doc.TableRow((one.reader,), "group", detail=all(row.detail for row in own))
            yield from own


def _points(record: ReadersRecord) -> doc.DocumentSection:
    rows = (
        (
            one.reader,
            doc.TableRow((rule_words(one.cut), one.outcome.sensitivity, one.outcome.specificity, one.outcome.ppv)),
        )
        for one in record.points
    )
    table = doc.Table(
        "Operating points of the readers",
        ["Positive", *doc.numbers("Sensitivity", "Specificity", "PPV")],
        [*_by_reader(record, rows)],
        "Each cut calls the categories from there upwards positive. 95 % intervals count groups.",
    )
    return doc.DocumentSection("Readers", [table], "readers")


def _matched(record: ReadersRecord) -> doc.DocumentSection:
    def row(one: MatchedPoint) -> doc.TableRow:
        if one.reason is not None:
            return doc.TableRow((rule_words(one.cut), one.reason))
        return doc.TableRow(
            (rule_words(one.cut), *_tested(one.sensitivity), *_tested(one.specificity), *_given(one.given))
        )

    tables = []
    for kind, other in (("specificity", "sensitivity"), ("sensitivity", "specificity")):
        rows = [(one.reader, row(one)) for one in record.matched if one.matched == kind]
        tables.append(
            doc.Table(
                f"Matched {kind}",
                ["Reader's point", *doc.numbers("Sensitivity"), *_P, *doc.numbers("Specificity"), *_P, *_GIVEN],
                [*_by_reader(record, rows)],
                f"Model minus reader with the model at the reader's {kind}: the question is the difference of "
                f"{other}; the difference of {kind} says how well the match holds on the tested images. Holm: "
                f"corrected for the p-values of both tables. {_GIVEN_WORDS}",
            )
        )  # fmt: skip
    fold_wise = (
        "Each difference is the mean of those of the folds, and interval and p use these alone as the sample, so they "
        "contain the choice of the threshold."
        if record.n_folds > 1
        else "Interval and p take the model and its threshold as given."
    )
    said = (
        "The model's thresholds have at least the reader's specificity, or sensitivity, on the "
        f"{record.thresholds_from}. {fold_wise}"
    )
    return doc.DocumentSection("The model at the readers' points", [doc.Paragraph(said), *tables], "matched", "Matched")


def _rules(record: ReadersRecord) -> doc.DocumentSection:
    head: list[str | doc.Column] = [
        "Rule",
        *doc.numbers("Biopsies", "Avoided", "Missed cancers", "Added", "Found cancers", "PPV"),
    ]
    counts = doc.Table(
        "Biopsies of the combined rules",
        head,
        [*_by_decision(record, _counts)],
        "Change against the reader alone: number, and per 1,000 images with its 95 % interval, which counts groups and "
        "takes the model and its thresholds as given. PPV: share of cancers among the biopsied images.",
    )
    tests = doc.Table(
        "Combined rules minus reader alone",
        ["Rule", *doc.numbers("Sensitivity"), *_P, *doc.numbers("Specificity"), *_P, *_GIVEN],
        [
            *_by_decision(
                record,
                lambda one: doc.TableRow(
                    (one.rule, *_tested(one.sensitivity), *_tested(one.specificity), *_given(one.given))
                ),
            )
        ],
        f"Differences with 95 % intervals. {_HOLM} {_GIVEN_WORDS}",
    )
    of_mean = " For the mean of the readers, every reading counts as an image." if len(record.readers) > 1 else ""
    said = (
        f"A reader alone biopsies from category {record.biopsied_from} upwards. Downgrade: images of category "
        f"{listed(record.downgraded)} that the model calls negative are not biopsied. Upgrade: images of category "
        f"{listed(record.upgraded)} that it calls positive are. Numbers hold for the share of cancers among these "
        f"images, which is mostly far above that of a clinic.{of_mean}"
    )
    return doc.DocumentSection("Combined rules", [doc.Paragraph(said), counts, tests], "rules")


def _counts(one: CombinedRule) -> doc.TableRow:
    def cell(changed: Changed) -> doc.Cell:
        return "0" if not changed.n else (changed.n, "; ", doc.Quantity(changed.per_1000, digits=0))

    cells = (one.rule, one.n_biopsies, *(cell(part) for part in (one.avoided, one.missed, one.added, one.found)))
    return doc.TableRow((*cells, one.ppv))


def _by_decision(record: ReadersRecord, row_of: Callable[[CombinedRule], doc.TableRow]) -> Iterator[doc.TableRow]:
    """Put reader and decision of the model above the three rules."""
    before = None
    for one in record.rules:
        detail = one.decision != SHOWN and any(other.decision == SHOWN for other in record.rules)
        if (one.reader, one.decision) != before:
            before = one.reader, one.decision
            alone = f"{plural(one.n_biopsies_alone, 'biopsy', 'biopsies')} alone"
            name = f"{one.reader}; model: {rule_words(one.decision)}; {alone}"
            yield doc.TableRow((name,), "group", detail=detail)
        row = row_of(one)
        yield doc.TableRow(row.cells, detail=detail)


def _categories(record: ReadersRecord) -> doc.DocumentSection:
    positive = record.positive_class
    rows, before = [], None
    for one in record.categories:
        if (one.reader, one.decision) != before:
            before = one.reader, one.decision
            rows.append(doc.TableRow((f"{one.reader}; model: {rule_words(one.decision)}",), "group"))
        rows.append(
            doc.TableRow(
                (
                    one.category,
                    one.positive_called,
                    one.positive_not_called,
                    one.negative_called,
                    one.negative_not_called,
                )
            )
        )
    table = doc.Table(
        "Category, decision and reference",
        [
            "Category",
            *doc.numbers(f"{positive}, called positive", f"{positive}, called negative"),
            *doc.numbers("Others, called positive", "Others, called negative"),
        ],
        rows,
        "Images of each category by the model's decision and the reference. At an operating point, the thresholds were "
        "chosen without these images.",
    )
    return doc.DocumentSection("Reclassification", [table], "categories", detail=True)
