"""The document of the winner of a study, from best.json."""

import usvit.documents as doc
from usvit.figure_table import BY_KEY
from usvit.upstream.records.best import BestCandidate, BestFold, BestRecord, BestValidation
from usvit.wording import plural


def best_document(record: BestRecord) -> doc.Document:
    """Build the document of a winner."""
    figure = BY_KEY[record.figure]
    title = figure.titled(figure.title, record.positive_class)
    repeats = f" of {record.n_repeats} repeats" if record.n_repeats > 1 else ""
    return doc.Document(
        title=f"The winner of {record.study}",
        kind=f"{plural(record.n_images, 'image')} in {plural(record.n_groups, 'group')}, "
        f"{plural(record.n_folds, 'fold')}{repeats}; {title}",
        lead=[doc.Note(warning) for warning in record.warnings],
        sections=[_candidates(record), _choice(record), _winner(record)],
        made_from=f"best.json (schema {record.schema_version})",
    )


def _candidates(record: BestRecord) -> doc.DocumentSection:
    heads: list[str | doc.Column] = [
        "Candidate",
        *doc.numbers("Parameters"),
        "Inner validation (SE)",
        *doc.numbers("Test, mean of folds"),
    ]
    table = doc.Table("Candidates", heads, [_candidate(one) for one in record.candidates])
    blocks: list[doc.Block] = [
        table,
        doc.Paragraph("* within one standard error of the best on inner validation images", small=True),
    ]
    if record.left_out:
        blocks.append(doc.Facts([(f"left out: {left.run}", left.reason) for left in record.left_out]))
    return doc.DocumentSection("Candidates", blocks, "candidates")


def _candidate(one: BestCandidate) -> tuple[doc.Cell, ...]:
    mark = "*" if one.within_one_se else ""
    return one.name, one.parameters, f"{_validation(one.validation)}{mark}", one.test


def _validation(one: BestValidation) -> str:
    error = "no SE" if one.standard_error is None else f"{one.standard_error:.3f}"
    return f"{one.value:.3f} ({error})"


def _choice(record: BestRecord) -> doc.DocumentSection:
    """Show what each fold chooses, and what choosing costs."""
    facts: list[tuple[str, doc.Words]] = [
        ("nested choice", (record.nested, ", the figure to report")),
        ("apparent best", (record.apparent.test, f" ({record.apparent.name}), chosen on the test images")),
        (
            "apparent minus nested",
            (
                record.apparent_minus_nested,
                ", which is the optimism of choosing on the test images and the loss from choosing on few inner "
                "validation images together",
            ),
        ),
    ]
    return doc.DocumentSection(
        "The choice", [doc.Listing([_fold(fold) for fold in record.folds]), doc.Facts(facts)], "choice"
    )


def _fold(fold: BestFold) -> str:
    tested = "undefined" if fold.test is None else f"{fold.test:.3f}"
    return f"fold {fold.fold} chooses {_named(fold.chosen, fold.members)}: {tested} on its test images"


def _named(name: str, members: list[str]) -> str:
    return f"{name} ({', '.join(members)})" if members else name


def _winner(record: BestRecord) -> doc.DocumentSection:
    winner = record.winner
    said = f"{_named(winner.name, winner.members)}, {plural(winner.parameters, 'parameter')}"
    return doc.DocumentSection(
        "The winner",
        [
            doc.Facts([("winner", said)]),
            doc.Paragraph("Score with it:"),
            doc.CodeBlock("Commands", "\n".join(record.commands)),
        ],
        "winner",
    )
