"""Facts from the files of a run as sentences, for the checklists, the model card and the limits.

A fact that the files do not contain is left out; nothing is guessed.
"""

import re
from collections import Counter

import pandas as pd

from usvit.data.datasets import DataCard
from usvit.records.run import (
    Data,
)
from usvit.reports.evaluations import facts_of_evaluation
from usvit.reports.flow import prevalence_sentence
from usvit.reports.formatting import count, decimals, estimate, rows_words, spread
from usvit.reports.run_files import Run
from usvit.wording import counted, listed, plural

_RESIZED = {
    "pad": "padded with black to a square around its centre, then resized to",
    "squash": "resized, whatever its aspect ratio, to",
}
_AUGMENTED = {
    "none": "without augmentation",
    "light": "with the augmentation policy 'light'",
    "us": "with the augmentation policy 'us' (keeps the depth direction and the aspect ratio)",
    "trivial": "with the augmentation policy 'trivial'",
}


def facts_of(run: Run, cards: dict[str, DataCard | None]) -> dict[str, str]:
    """Return every fact that the files of the run contain.

    Args:
        run: the run.
        cards: data set -> its card or None.
    """
    found: dict[str, str] = {}
    for part in (_what, _data, _partitions, _model, _training, _evaluation, _results, _open):
        for name, sentence in part(run, cards).items():
            if sentence:
                found[name] = sentence
    for name, sentence in facts_of_evaluation(run).items() if run.evaluated else ():
        found.pop(name, None)
        if sentence:
            found[name] = sentence
    return found


Facts = dict[str, str | None]
Cards = dict[str, DataCard | None]


def _what(run: Run, cards: Cards) -> Facts:
    name = run.record.model and run.record.model.name
    kind = run.record.kind
    uses = {metadata.intended_use for metadata in run.metadata.values() if metadata.intended_use}
    design = {"cv": run.design, "train": "one hold-out", "ensemble": f"{run.design} of an ensemble"}.get(str(kind))
    return {
        "technique": f"deep learning, a neural network for images ({name})" if name else None,
        "design": design,
        "goal": f"The run developed and internally validated a classifier ({design})." if design else None,
        "intended_use": listed(sorted(uses)) if uses else "research only; not a medical device",
        "classes": f"{listed(run.metrics.classes)}; positive class: {run.metrics.positive_class}",
    }


def _data(run: Run, cards: Cards) -> Facts:
    data = run.record.data or Data()
    found = []
    for name, card in cards.items():
        if card:
            found.append(f"{card.pretty_name}; licence {card.license}; from {card.host}; {card.citation}")
        elif run.evaluated is None:
            found.append(f"{name} (no data card)")
    excluded, skipped = data.excluded, data.skipped
    exclusions = None
    if excluded is not None:
        # Reasons name images in quotation marks; but for the names they are alike.
        why = Counter(re.sub("'[^']*'", "another image", one.reason or "no reason") for one in excluded)
        exclusions = f"{plural(len(excluded), 'image')} excluded"
        exclusions += f" ({'; '.join(f'{n} {reason}' for reason, n in why.most_common(5))})." if why else "."
        if skipped:
            exclusions += f" {plural(len(skipped), 'file')} skipped as unreadable."
    config = run.record.config
    chosen, given = config.data, config.input
    sentences = ["The classes of interest were fixed in the configuration."] if chosen and chosen.classes else []
    kept = chosen and chosen.keep_list
    sentences.append("A keep-list chose the images." if kept else "All images of the data sets were used.")
    sentences.append(
        "DICOM frames were cropped to the tissue region that their header describes; all others were used whole."
        if given and given.crop == "tissue"
        else "Frames were used whole."
    )
    size = config.model and config.model.image_size
    preprocessing = None
    if given and given.resize in _RESIZED and size:
        preprocessing = f"Each image as 8-bit RGB, {_RESIZED[given.resize]} {size} x {size} pixels"
        first = next(iter(run.metadata.values()), None)
        if first:
            preprocessing += f", then normalised with mean {first.preprocessing.mean} and SD {first.preprocessing.std}"
        preprocessing += "."
    missing = None
    if skipped is not None:
        missing = f"Files that could not be read: {len(skipped) or 'none'}" + (
            " (excluded and listed)." if skipped else "."
        )
        missing += " Nothing was imputed; an image that cannot be read is refused, or excluded and listed."
    return {
        "sources": " ".join(f"{one.rstrip('.')}." for one in found) or None,
        "exclusions": exclusions,
        "selection": " ".join(sentences),
        "preprocessing": preprocessing,
        "missing": missing,
        "devices": _levels(run.manifest, "device"),
        "label_sources": _levels(run.manifest, "label_source"),
        "class_counts": counted(run.metrics.class_counts),
        "quality": exclusions
        and "Files are decoded and checked before training; identical and near-identical images are found and grouped.",
    }


def _levels(manifest: pd.DataFrame | None, column: str) -> str | None:
    if manifest is None or column not in manifest:
        return None
    names = manifest[column].dropna().astype(str).value_counts()
    names = names[names.index.str.strip() != ""]
    if names.empty:
        return None
    shown = ", ".join(f"{name} ({count(int(n))} images)" for name, n in names.head(6).items())
    return shown + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def _partitions(run: Run, cards: Cards) -> Facts:
    folds, kind = run.record.folds, run.record.kind
    config, data = run.record.config, run.record.data
    partition = None
    if kind in ("cv", "train", "ensemble"):
        made = {"file": "read from a frozen file", "official": "those of the release"}.get(
            str(folds.scheme), "drawn by usvit"
        )
        seed = f", seed {config.seed}" if config.seed is not None else ""
        what = f"{len(run.metrics.folds)} folds" if run.cross_validated else "One hold-out split"
        partition = f"{what}, {made}{seed}, stratified by class if drawn; training, inner validation and test"
        partition += " splits in each." if run.cross_validated else "."
        if folds.sha256:
            partition += f" SHA-256 of the split: {folds.sha256}."
    disjoint = None
    if folds.unit == "image":
        leaking = count(folds.leaking_groups)
        disjoint = f"LEAKING SPLIT: the splits are disjoint by image only; {leaking} groups occur in two splits."
    elif folds.unit == "group":
        disjoint = "Splits are disjoint by group: the patient if an identifier is known, otherwise the near-duplicates."
        if data and data.grouping is not None:
            disjoint += f" Images grouped {_grouping(data.grouping)}."
    several = len(run.parts) > 1
    sizes = [(f"fold {fold}: " if several else "") + counted(parts) for fold, parts in sorted(run.parts.items())]
    events = f"Test images by class: {counted(run.metrics.class_counts)}."
    return {
        "partition": partition,
        "disjoint": disjoint,
        "parts": f"{events} Images by split: {'; '.join(sizes)}." if sizes else events,
        "external": "None in this run: all test images come from the data sets that the model was developed on; "
        "new hospitals and devices were not tested."
        if partition
        else None,
        "internal": f"{'Out-of-fold predictions' if run.cross_validated else 'A held-out split'}: {tested(run)}."
        if partition
        else None,
    }


def _grouping(sizes: dict[str, int]) -> str:
    words = {"patient": "by patient", "copies": "by near-duplicates", "image": "alone"}
    return ", ".join(f"{words.get(kind, f'by {kind}')} {count(n)}" for kind, n in sizes.items())


def tested(run: Run) -> str:
    """``778 images in 765 groups``, with the number of patients if it is known."""
    words = f"{rows_words(run.metrics)} in {plural(run.metrics.n_groups, 'group')}"
    patients = run.metrics.patients and run.metrics.patients.n_patients
    return f"{words}, {plural(patients, 'patient')}" if patients and run.metrics.row != "patient" else words


def _model(run: Run, cards: Cards) -> Facts:
    config, model = run.record.config, run.record.model
    weights = model.weights
    began = None
    if weights.source == "scratch":
        began = "Random, without pre-training."
    elif weights.source == "several":
        began = "They differ between the networks; run.json of each member has them."
    elif weights.source:
        began = f"Pre-trained weights ({weights.source}) {weights.name or ''}".rstrip()
        began += f", SHA-256 {weights.sha256}" if weights.sha256 else ""
        began += f", licence {weights.license or 'not stated'}."
    size = config.model and config.model.image_size
    classes = run.metrics.classes
    return {
        "model": f"{model.name} (timm {model.timm}), {count(model.params)} parameters." if model.name else None,
        "inputs": f"One image of {size} x {size} pixels is the input." if size else None,
        "outputs": f"One probability for each of {listed(classes)} (softmax, summing to 1); the decision is the most "
        "probable class.",
        "weights": began,
    }


def _training(run: Run, cards: Cards) -> Facts:
    config = run.record.config
    optim, train = config.optim, config.train
    training = None
    if optim and train:
        rate = f"{optim.name}, learning rate {optim.lr:g}" if optim.lr else optim.name
        length = f"{train.steps} steps" if train.steps else f"{train.epochs} epochs"
        n_models = len(run.metrics.folds)
        augmented = _AUGMENTED.get(str(config.input and config.input.augment), "augmentation not recorded")
        training = f"{n_models} models, one for each fold, " if n_models > 1 else "One model, "
        training += f"{augmented}; "
        training += f"{rate}, schedule {optim.schedule}, weight decay {optim.weight_decay}, "
        training += f"batch {train.batch_size}, {length} at most, seed {config.seed}. All settings are in "
        training += "the configuration of the report."
    if run.record.kind == "ensemble":
        training = _ensemble_sentence(run)
    stop = train and train.early_stopping
    selection = None
    if stop and stop.keep == "best":
        selection = (
            f"The step with the best {stop.monitor} on the inner validation split, which contains no test image."
        )
    elif stop and stop.keep == "last":
        selection = "The last step; nothing was selected."
    if run.record.kind == "ensemble":
        selection = "Nothing was selected here; the weights of each network were selected in its own run."
    weights = config.loss and config.loss.class_weights
    imbalance = None
    if weights:
        how = "weighted inversely to the classes' frequencies" if weights == "balanced" else "not weighted by class"
        imbalance = f"The loss was {how}. Class counts in the test: {counted(run.metrics.class_counts)}."
        if weights == "balanced":
            imbalance += " Weighting shifts probabilities towards rare classes; see calibration."
    return {"training": training, "model_selection": selection, "imbalance": imbalance}


def _ensemble_sentence(run: Run) -> str:
    """Describe the members of an ensemble and their weights."""
    own = run.record.config.as_written().get("ensemble")
    own = own if isinstance(own, dict) else {}
    members = run.members
    how = "weights chosen on the inner validation images of each fold"
    how = how if own.get("weights") == "validation" else "equal weights"
    return (
        f"None of its own: the probabilities of {plural(len(members), 'run')} are averaged with {how} "
        f"({listed(members)}). Their settings are in the run.json of each; ensemble.json has the weights."
    )


def _evaluation(run: Run, cards: Cards) -> Facts:
    metrics = run.metrics
    positive = metrics.positive_class
    own = metrics.headline
    method = own.auc.method if own.auc.ci95 else None
    measures = ["accuracy", "balanced accuracy", "one-vs-rest AUC", "sensitivity and specificity of each class"]
    measures += ["calibration (equal-mass bins, slope, intercept)", "decision curve (net benefit)"]
    others = own.accuracy.method if own.accuracy.ci95 else None
    uncertain = None
    if method:
        uncertain = f"95 % intervals with the group as the unit: AUC {method}; proportions and others {others}."
        uncertain += " No hypothesis was tested."
    subgroupings = [one.by for one in metrics.subgroups if one.levels]
    thresholds = None
    if points := metrics.operating_points:
        thresholds = f"Thresholds for {positive}: {listed(one.rule for one in points)}; chosen on {points[0].source}."
        if len(metrics.folds) == 1:
            thresholds = thresholds.replace(" of the same fold", "")
    recalibration = "Reported probabilities are not recalibrated."
    for one in metrics.calibration.recalibration:
        if one.after:
            name = one.method.replace("platt", "Platt")
            recalibration += f" For comparison, {name} scaling fitted on inner validation images: log loss "
            recalibration += f"{decimals(one.before.log_loss)} before, {decimals(one.after.log_loss)} after."
    n_folds = len(metrics.folds)
    accuracy, auc = metrics.mean_sd.accuracy, metrics.mean_sd.auc[f"{positive}_vs_rest"]
    return {
        "measures": f"{', '.join(measures)}.",
        "uncertainty": uncertain,
        "subgroups": f"by {listed(subgroupings)}" if subgroupings else "none could be formed",
        "thresholds": thresholds,
        "recalibration": recalibration,
        "spread": f"accuracy {spread(accuracy)}, AUC {spread(auc)} (mean ± SD of {n_folds} folds)."
        if n_folds > 1
        else None,
        "no_ensemble": "each test image was predicted by the mean of several models that were not trained on it."
        if run.record.kind == "ensemble"
        else "each test image was predicted by one model"
        + (" in each repeat; figures are averaged, predictions are not." if run.n_repeats > 1 else "."),
    }


def _results(run: Run, cards: Cards) -> Facts:
    metrics, positive = run.metrics, run.metrics.positive_class
    own, data = metrics.headline, run.record.data
    flow = f"Tested: {tested(run)}"
    if data.excluded is not None:
        flow += f"; excluded {plural(len(data.excluded), 'image')}, skipped {plural(len(data.skipped or []), 'file')}"
    counts = metrics.confusion.counts
    wrong = sum(sum(row) for row in counts) - sum(row[k] for k, row in enumerate(counts))
    labels = metrics.confusion.labels
    crossed = [
        f"of {plural(sum(row), 'image')} of {name}, {counted(dict(zip(labels, row, strict=True)))}"
        for name, row in zip(labels, counts, strict=True)
    ]
    how = run.tested_set if len(metrics.folds) == 1 else "mean within folds"
    return {
        "tested": tested(run),
        "headline": f"On {tested(run)} ({how}): accuracy {estimate(own.accuracy)}, AUC of {positive} against the "
        f"rest {estimate(own.auc)}.",
        "diagnostic": f"For {positive}, most probable class: sensitivity {estimate(own.sensitivity)}, "
        f"specificity {estimate(own.specificity)}.",
        "flow": f"{flow}.",
        "prevalence": prevalence_sentence(metrics),
        "crossed": f"Predicted class by reference class: {'; '.join(crossed)}.",
        "failures": f"{plural(wrong, metrics.row)} of {count(metrics.n_images)} misclassified; the report shows the "
        "confusion matrix, the most confident errors and the most uncertain cases.",
    }


def _open(run: Run, cards: Cards) -> Facts:
    record = run.record
    version = record.usvit_version
    software = None
    if version:
        others = (f"{name} {number}" for name, number in record.versions.items())
        software = ", ".join([f"usvit {version}", *others]) + "."
    licences = [f"{name}: {card.license if card else 'not known'}" for name, card in cards.items()]
    code = f"usvit {version}, Apache-2.0, open source." if version else None
    return {
        "software": software,
        "code": code,
        "availability": code
        and f"Software: {code} Licences of the data: {'; '.join(licences)}. The authors "
        "must state whether the trained model is available.",
        "repeat": f"the command '{record.command}' with the file of the split, and this report."
        if record.command
        else None,
    }
