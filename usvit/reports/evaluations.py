"""What the report of an evaluation says: a table of predictions, a run that was evaluated again, or an external test.

Nothing was trained in its folder, so that it has other sentences, facts and checks than a run.
"""

from collections import Counter

from usvit.records import External
from usvit.reports.formatting import count, estimate, rows_words
from usvit.reports.leakage import BY_HASH, Check
from usvit.reports.run_files import Run
from usvit.wording import counted, listed, plural

COUNTS = {
    "label_rows": "rows of the table of labels",
    "labels": "different ids with a label that is used",
    "labels_without_id": "labels without an id",
    "labels_left_out": "labels that were left out on request",
    "labelled_failed": "labelled files that could not be scored",
    "labelled_not_scored": "labels that match no scored image",
    "scored_not_labelled": "scored files without a label",
    "copies_left_out": "second copies of a file, which do not count",
    "seen_images_left_out": "images left out because their group was used for the model or its calibration",
}
"""Key of ``external.counts`` -> what it counts."""


def lead_of(run: Run) -> str:
    """Return the first paragraph of the report of an evaluation."""
    evaluated, metrics = run.evaluated, run.metrics
    assert evaluated is not None
    rows = f"{rows_words(metrics)} in {plural(metrics.n_groups, 'group')}"
    if metrics.external:
        thresholds = (
            f"The thresholds were fitted on other patients ({count(metrics.external.recalibrated.n_images)} images)."
            if metrics.external.recalibrated
            else "The threshold is the model's own."
        )
        return (
            f"External test of a frozen model ({_networks(run)}): its scores for {rows} were compared with the labels "
            f"of these images. Nothing was trained, and no threshold was chosen, on these images. {thresholds}"
        )
    again = "Another evaluation of the predictions of the run" if evaluated.of == "run" else "Predictions of the table"
    folds = len(metrics.folds)
    sets = f"in {folds} folds, each predicted by the model of its fold" if folds > 1 else "as one set"
    return (
        f"{again} {evaluated.source}: {rows}, {sets}. usvit trained nothing here; it computed the figures from the "
        "classes and the probabilities in the predictions."
    )


def _networks(run: Run) -> str:
    networks = (run.evaluated and run.evaluated.networks) or []
    names = Counter(one.architecture or "network" for one in networks)
    model = run.metrics.external and run.metrics.external.model_sha256
    words = [f"{plural(len(networks), 'network')}: {listed(names)}"] if networks else []
    return ", ".join([*words, f"SHA-256 {str(model)[:12]}"] if model else words) or "not recorded"


def facts_of_evaluation(run: Run) -> dict[str, str | None]:
    """Return the facts by which an evaluation differs from a run; None removes one that would be wrong."""
    external, points = run.metrics.external, run.metrics.operating_points
    chosen = [one for one in points if one.pooled is not None]
    design = "external test of a frozen model" if external else "evaluation of a table of predictions"
    thresholds = "; ".join(f"{one.rule} ({one.source})" for one in chosen)
    facts: dict[str, str | None] = {
        "design": design,
        "goal": f"{design.capitalize()}; nothing was developed.",
        "selection": None,
        "outputs": f"One probability for each of {listed(run.metrics.classes)}.",
        "no_ensemble": None,
        "thresholds": f"Thresholds for {run.metrics.positive_class}: {thresholds}." if thresholds else None,
        "repeat": f"the command '{run.record.command}' with the same files (run.json has their SHA-256)."
        if run.record.command
        else None,
    }
    if external is None:
        return facts
    assert run.evaluated is not None
    left_out = [
        f"{count(n)} {COUNTS[name]}"
        for name, n in external.counts.items()
        if n and name in COUNTS and name not in ("label_rows", "labels")
    ]
    return facts | {
        "external": f"This is an external test on {plural(run.metrics.n_images, run.metrics.row)} in "
        f"{plural(run.metrics.n_groups, 'group')}. Images seen in training: {_seen(external)}",
        "model": f"A frozen model of {_networks(run)}.",
        "technique": f"deep learning, neural networks for images ({_networks(run)})",
        "exclusions": f"Not used: {'; '.join(left_out) or 'none'}.",
        "missing": f"Labelled files that could not be scored: {_failed(external)}.",
    }


def _seen(external: External) -> str:
    return str(external.seen.answer) if external.seen else "not recorded."


def _failed(external: External) -> str:
    failures = external.failures
    if failures.n_failed is None:
        return f"not known ({failures.reason})"
    share = f", a share of {estimate(failures.share)}" if failures.share else ""
    codes = f" ({counted(failures.codes)})" if failures.codes else ""
    return f"{count(failures.n_failed)}{share}{codes}"


def checks_of_evaluation(run: Run) -> list[Check]:
    """Return what is known about images that the model has seen."""
    question = "Was the model trained on a tested image, a near-duplicate of one, or another image of its group?"
    external = run.metrics.external
    if external is None:
        why = "Not known: a table does not say on which images its model was trained"
        if run.evaluated is not None and run.evaluated.of == "run":
            why = "See the report of the run: its leakage is checked on its own files"
        return [Check(question, None, f"{why}.")]
    found = external.seen.found if external.seen else None
    clean = {"none": "passed", "none by exact hash": BY_HASH}.get(str(found))
    return [Check(question, 0 if clean else None, _seen(external), clean=clean or "passed")]
