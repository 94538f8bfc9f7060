"""The document of a plan, from plan.json: for its page and for the terminal."""

from collections.abc import Sequence

import usvit.documents as doc
from usvit.documents import Plot
from usvit.records import PlanCriterion, PlanRecord
from usvit.wording import capitalized, plural

TITLES = {
    "validation": "Sample size to validate a model",
    "accuracy": "Sample size for sensitivity and specificity",
    "comparison": "Sample size to compare two models",
}


def plan_document(record: PlanRecord, plots: Sequence[Plot] = ()) -> doc.Document:
    """Build the document of a plan, for its page and the terminal."""
    sections = [_sizes(record)]
    sections += [_other_sizes(record, plots)] if record.curve else []
    repeat: list[doc.Block] = [
        doc.CodeBlock("Command", record.command),
        doc.Facts([("usvit", record.usvit_version)]),
    ]
    sections += [
        _assumptions(record),
        doc.DocumentSection("Methods", [doc.Facts(_methods(record))], "method", detail=True),
        doc.DocumentSection("How to repeat it", repeat, "repeat", detail=True),
    ]
    return doc.Document(
        title=TITLES[record.design],
        lead=[
            doc.Paragraph(doc.strong(in_words(record))),
            doc.Paragraph(_meaning(record)),
            *(doc.Note(warning) for warning in record.warnings),
        ],
        sections=sections,
        made_from=f"plan.json (schema {record.schema_version})",
    )


def _meaning(record: PlanRecord) -> str:
    if record.design == "validation":
        return (
            "At this size, each figure below has a 95 % interval that is as narrow as stated, if the assumptions hold."
        )
    if record.design == "accuracy":
        return (
            "At this size, sensitivity and specificity have 95 % intervals that are as narrow as stated, if the "
            "assumptions hold."
        )
    shows = "that the two AUCs differ, if they differ as assumed."
    if record.test == "noninferiority":
        shows = (
            f"that the AUC of the first model is not lower than that of the second by {record.margin:g} or more, if "
        )
        shows += "the AUCs are as assumed."
    elif record.test == "equivalence":
        shows = f"that the two AUCs differ by less than {record.margin:g}, if they are as assumed."
    return f"At this size, the study shows with the stated power {shows}"


def _several(record: PlanRecord) -> bool:
    """Return whether patients have several images."""
    return record.assumptions.images_per_patient > 1 or record.assumptions.images_cv > 0


def _sizes(record: PlanRecord) -> doc.DocumentSection:
    several, digits = _several(record), "+.3f" if record.design == "comparison" else ".3f"
    rows: list[tuple[doc.Cell, ...]] = []
    for one in record.criteria:
        decides = one.name == record.decisive and len(record.criteria) > 1
        name: doc.Words = (capitalized(one.name), doc.muted(" decides")) if decides else capitalized(one.name)
        expected = "–" if one.value is None else format(one.value, digits)
        if one.n_patients is None:
            rows.append((name, expected, _aim_in_words(one), one.reason))
            continue
        effect = "–" if one.design_effect is None else f"{one.design_effect:.2f}"
        images: tuple[doc.Cell, ...] = (one.n_independent, effect, one.n_images) if several else ()
        rows.append((name, expected, _aim_in_words(one), *images, one.n_patients))
    heads = (*doc.numbers("Expected"), doc.Column("Aim"))
    rows_word = capitalized(f"{record.assumptions.row}s")
    heads += doc.numbers(f"{rows_word}, one a patient", "Design effect", rows_word) if several else ()
    caption = "The largest size counts."
    if several:
        caption += (
            f" The design effect is the factor by which the {rows_word.lower()} of one patient, which are alike, "
            "increase their number."
        )
    table = doc.Table("Sizes", ["Figure", *heads, *doc.numbers("Patients")], rows, caption)
    return doc.DocumentSection("Sizes", [table], "sizes")


def _other_sizes(record: PlanRecord, plots: Sequence[Plot]) -> doc.DocumentSection:
    comparison = record.design == "comparison"
    half = "Expected half width of each 95 % interval. The vertical line is the planned size"
    captions = {
        "precision": f"{half}{'' if comparison else '; points are the aims'}.",
        "power": "Probability that the study shows what is assumed. The vertical line is the planned size.",
    }
    names, row = list(record.curve[0].half_widths), capitalized(f"{record.assumptions.row}s")
    rows: list[tuple[doc.Cell, ...]] = [
        (
            (point.n_patients, doc.muted(" planned")) if point.n_patients == record.n_patients else point.n_patients,
            point.n_images,
            *(f"{point.half_widths[name]:.3f}" for name in names),
            *([] if point.power is None else [f"{point.power:.2f}"]),
        )
        for point in record.curve
    ]
    heads = doc.numbers(row, *(f"{capitalized(name)} ±" for name in names), *(["Power"] if comparison else []))
    caption = f"Expected half width of the 95 % interval (±){' and power' if comparison else ''}."
    if record.design == "validation":
        caption += " The interval of O/E is not symmetric; half its width is shown."
    table = doc.Table("What other sizes give", [*doc.numbers("Patients"), *heads], rows, caption)
    figures = [doc.Figure(plot, captions[plot.name], wide=True) for plot in plots]
    return doc.DocumentSection("What other sizes give", [*figures, table], "curves", "Other sizes")


def _assumptions(record: PlanRecord) -> doc.DocumentSection:
    one, comparison = record.assumptions, record.design == "comparison"
    row = one.row
    given = [
        (f"Share of positive {row}s (prevalence)", one.prevalence, ".3g"),
        ("AUC of the first model" if comparison else "AUC", one.auc, ".3f"),
        ("AUC of the second model", one.auc_b, ".3f"),
        ("Correlation of the two models' scores within a class", one.correlation, ".2f"),
        ("Sensitivity", one.sensitivity, ".3f"),
        ("Specificity", one.specificity, ".3f"),
        ("Threshold probability of the net benefit", one.threshold, ".3g"),
        ("Mean of the log-odds", one.linear_predictor_mean, ".2f"),
        ("SD of the log-odds", one.linear_predictor_sd, ".2f"),
        (f"{capitalized(row)}s per patient, mean", None if row == "patient" else one.images_per_patient, ".3g"),
    ]
    if _several(record):
        given.append((f"{capitalized(row)}s per patient, SD / mean", one.images_cv, ".2f"))
        given.append((f"Correlation of the scores of a patient's {row}s", one.icc, ".2f"))
    notes = [f"Log-odds of the predictions: {one.linear_predictor}."] if one.linear_predictor else []
    if one.like:
        positive = f"; positive class: {one.positive_class}" if one.positive_class else ""
        notes.append(f"Taken from: {', '.join(one.like)}{positive}.")
    notes += [f"{capitalized(note)}." for note in one.notes]
    if row != "patient":
        notes.append(f"All {row}s of a patient have the label of the patient.")
    if record.design == "validation":
        notes.append(
            "The model is calibrated in the planned population. A model that is not needs recalibration first, or a "
            "larger study."
        )
    if comparison:
        notes.append(f"The scores are normal with one variance in each class, and both models score the same {row}s.")
    said = (
        "The size is only as good as these numbers. If one is uncertain, repeat the plan with a less favourable value."
    )
    facts = [(name, format(value, form)) for name, value, form in given if value is not None]
    return doc.DocumentSection(
        "Assumptions", [doc.Paragraph(said), doc.Facts(facts), doc.Listing(notes)], "assumptions"
    )


def _methods(record: PlanRecord) -> list[tuple[str, doc.Words]]:
    found: list[tuple[str, doc.Words]] = []
    if record.design == "validation":
        found += [
            (
                "O/E",
                "Ratio of observed to expected positives: SE(ln O/E) = √((1 − φ) / (n φ)) at a prevalence φ. Riley et "
                "al. (2021), Statistics in Medicine 40:4230.",
            ),
            (
                "Calibration slope",
                "Inverse of Fisher's information of the recalibration line over the distribution of the log-odds. "
                "Riley et al. (2021).",
            ),
            ("AUC", "Newcombe's variance (2006), Statistics in Medicine 25:559, method 4, as in Riley et al. (2021)."),
            (
                "Standardised net benefit",
                "Net benefit divided by the prevalence; variance as in Riley et al. (2021), section 3.4.",
            ),
        ]
    elif record.design == "accuracy":
        said = (
            "Half the width of Wilson's interval. The number of all images follows from the share of positives "
            "(Buderer 1996, Academic Emergency Medicine 3:895)."
        )
        found.append(("Sensitivity, specificity", said))
    else:
        test = {"difference": "Two-sided test", "noninferiority": "Lower end of the interval above minus the margin"}
        said = (
            f"{test.get(str(record.test), 'Two one-sided tests')} with the variance of DeLong's estimate for normal "
            "scores; sizes after Obuchowski & McClish (1997), Statistics in Medicine 16:1529, or larger if the "
            "interval of usvit compare, which is not symmetric near an AUC of 1, needs it."
        )
        found.append(("Difference of AUCs", said))
    if _several(record):
        said = (
            "1 + ((1 + CV²) m − 1) × ICC for m images a patient on average (Eldridge, Ashby & Kerry 2006, "
            "International Journal of Epidemiology 35:1292). The ICC of a figure is the correlation of what two images "
            "of one patient add to it. It follows from the correlation of their scores; for O/E it is 1, because only "
            "the label counts."
        )
        found.append(("Design effect", said))
    said = (
        "The formulas hold for large studies. With fewer than 50 patients of a class, intervals cover the truth less "
        "often than they state."
    )
    return [*found, ("Few patients", said)]


def in_words(record: PlanRecord) -> str:
    """Return the answer of a plan as one sentence."""
    if record.n_patients is None or record.n_images is None:
        return "No study of a practicable size reaches the aim."
    size = plural(record.n_patients, "patient")
    if record.n_images != record.n_patients:
        size += f" with {record.n_images:,} {record.assumptions.row}s"
    positive = (
        ""
        if record.n_positive_images is None
        else f", of them about {record.n_positive_images:,} with a positive label"
    )
    if record.design == "comparison":
        return f"The study needs at least {size}{positive}."
    return f"The study needs at least {size}{positive}. The {record.decisive} decides."


def _aim_in_words(criterion: PlanCriterion) -> str:
    """Format the aim: ``95 % interval of width 0.2``."""
    if criterion.target_kind == "power":
        return f"power {criterion.target:g}"
    if criterion.target_kind == "half width":
        return f"95 % interval of ± {criterion.target:g}"
    return f"95 % interval of width {criterion.target:g}"
