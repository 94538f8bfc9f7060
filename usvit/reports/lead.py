"""The first paragraph of the page of a run: which network, from which weights, trained and tested on what.

Every part comes from the record. A part that the record does not hold is left out.
"""

from usvit.reports.formatting import count, rows_words
from usvit.reports.run_files import Run
from usvit.wording import listed, plural


def lead_of_run(run: Run) -> str:
    """Return the first paragraph of a run of ``usvit cv``, ``train`` or ``ensemble``."""
    return " ".join(_of_ensemble(run) if run.record.kind == "ensemble" else _of_training(run))


def _weights_words(run: Run) -> str:
    """Return what the networks were trained from, such as ``from scratch, without pre-trained weights``; or ''."""
    weights = run.record.model.weights
    if not weights.source:
        return ""
    if weights.source == "scratch":
        return "from scratch, without pre-trained weights"
    if weights.source == "several":
        return "from different initial weights"
    name = weights.name
    kind = {
        "hub": "pre-trained weights of the hub",
        "package": "pre-trained weights of the Python package",
        "file": "the weights",
        "run": "the weights of the run",
    }
    words = f"from {kind.get(weights.source, f'weights ({weights.source})')}"
    if name:
        words += f", {name}," if weights.source in ("hub", "package") else f" {name}"
    by = f" (pre-trained by {weights.pretrained_by})" if weights.pretrained_by else ""
    return (words + by).rstrip(",")


def _network(run: Run) -> str:
    model = run.record.model
    if not model.name:
        return "A network"
    facts = [model.timm] if model.timm else []
    if model.params is not None:
        facts.append(f"{count(model.params)} parameters")
        if model.trainable is not None and model.trainable != model.params:
            facts[-1] += f", {count(model.trainable)} of them trained"
    return f"The network {model.name}" + (f" ({', '.join(facts)})" if facts else "")


def _images(run: Run) -> str:
    data = run.record.data
    words = f" on {listed(data.datasets)}" if data.datasets else ""
    sizes = [plural(n, one) for n, one in ((data.n_images, "image"), (data.n_groups, "group")) if n is not None]
    return words + (f": {' in '.join(sizes)}" if sizes else "")


def _of_training(run: Run) -> list[str]:
    config = run.record.config
    parts = [_weights_words(run)]
    if config.recipe == "none":
        parts.append("without a named recipe")
    elif config.recipe:
        parts.append(f"with the recipe {config.recipe}")
    if config.seed is not None:
        named = bool(config.recipe) and config.recipe != "none"
        parts = [*parts[:-1], f"{parts[-1]} and seed {config.seed}"] if named else [*parts, f"with seed {config.seed}"]
    how = ", ".join(part for part in parts if part)
    trained = f"{_network(run)} was trained{f' {how},' if how else ''}{_images(run)}."
    if not run.cross_validated:
        tested = f"One model was trained, and tested on {_tested(run)} that were held out: it was "
        leaks = run.record.folds.unit == "image"
        return [trained, tested + ("not trained on them." if leaks else _NOT_GROUP)]
    return [
        trained,
        f"In each of {_folds(run)} a new model was trained without the images of the fold and then tested on them.",
        _predicted_once(run, "a model that was not trained on it"),
    ]


_NOT_GROUP = "trained neither on them nor on any other image of their groups."


def _of_ensemble(run: Run) -> list[str]:
    members = run.members
    chosen = run.record.config.as_written().get("ensemble")
    by_validation = isinstance(chosen, dict) and chosen.get("weights") == "validation"
    how = "with weights that were chosen on inner validation images" if by_validation else "with equal weights"
    parameters = f", together {count(run.record.model.params)} parameters" if run.record.model.params else ""
    name = run.record.model.name
    of = f" of the network {name}" if name and name != "ensemble" else ""
    first = (
        f"An ensemble{of}: the probabilities of {plural(len(members), 'network')} ({listed(members)}{parameters}) are "
        f"averaged {how}."
    )
    began = _weights_words(run)
    began = f" {began}" if began else ""
    then = f"Nothing was trained here: each network was trained in its own run{began},{_images(run)}."
    if not run.cross_validated:
        leaks = run.record.folds.unit == "image"
        tested = f"The ensemble was tested on {_tested(run)} that were held out: its networks were "
        return [first, then, tested + ("not trained on them." if leaks else _NOT_GROUP)]
    tested = (
        f"In each of {_folds(run)} the networks that were trained without the images of the fold were tested on them."
    )
    return [first, then, tested, _predicted_once(run, "networks that were not trained on it")]


def _tested(run: Run) -> str:
    return f"{rows_words(run.metrics)} in {plural(run.metrics.n_groups, 'group')}"


def _folds(run: Run) -> str:
    repeats = (
        f" ({run.n_repeats} repeats of a complete cross-validation, each with its own folds and trainings)"
        if run.n_repeats > 1
        else ""
    )
    return f"{len(run.metrics.folds)} folds{repeats}"


def _predicted_once(run: Run, by: str) -> str:
    once = "once in each repeat" if run.n_repeats > 1 else "once"
    group = "" if run.record.folds.unit == "image" else " or any other image of its group"
    return f"Each image was predicted {once}, by {by}{group}."
