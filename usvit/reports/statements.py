"""Facts from the files of a run as sentences, for the checklists, the model card and the limits.

A fact that the files do not contain is left out; nothing is guessed.
"""

import re
from collections import Counter

import pandas as pd

from usvit.data.datasets import DataCard
from usvit.reports.formatting import count, counted, decimals, dig, estimate, listed, plural, quoted, spread
from usvit.reports.run_files import Run

RESIZED = {
    "pad": "padded with black to a square around its centre, then resized to",
    "squash": "resized, whatever its aspect ratio, to",
}
AUGMENTED = {
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
    return found


Facts = dict[str, str | None]
Cards = dict[str, DataCard | None]


def _what(run: Run, cards: Cards) -> Facts:
    name = dig(run.record, "model.name")
    kind = run.record.get("kind")
    uses = {metadata["intended_use"] for metadata in run.metadata.values() if metadata.get("intended_use")}
    design = {"cv": run.design, "train": "one hold-out"}.get(str(kind))
    return {
        "technique": f"deep learning, a neural network for images ({name})" if name else None,
        "design": design,
        "intended_use": listed(sorted(uses)) if uses else "research only; not a medical device",
        "classes": f"{listed(run.metrics['classes'])}; positive class: {run.metrics['positive_class']}",
    }


def _data(run: Run, cards: Cards) -> Facts:
    data = run.record.get("data") or {}
    found = []
    for name, card in cards.items():
        if card:
            found.append(f"{card.pretty_name}; licence {card.license}; from {card.host}; {card.citation}")
        else:
            found.append(f"{name} (no data card)")
    excluded, skipped = data.get("excluded"), data.get("skipped")
    exclusions = None
    if excluded is not None:
        # Reasons name images in quotation marks; but for the names they are alike.
        why = Counter(re.sub("'[^']*'", "another image", str(one.get("reason") or "no reason")) for one in excluded)
        exclusions = f"{plural(len(excluded), 'image')} excluded"
        exclusions += f" ({'; '.join(f'{n} {reason}' for reason, n in why.most_common(5))})." if why else "."
        if skipped:
            exclusions += f" {plural(len(skipped), 'file')} skipped as unreadable."
    config = run.record.get("config") or {}
    kept = dig(config, "data.keep_list")
    sentences = ["The classes of interest were fixed in the configuration."] if dig(config, "data.classes") else []
    sentences.append("A keep-list chose the images." if kept else "All images of the data sets were used.")
    cut = dig(config, "input.crop") == "tissue"
    sentences.append(
        "DICOM frames were cropped to the tissue region that their header describes; all others were used whole."
        if cut
        else "Frames were used whole."
    )
    resize, size = dig(config, "input.resize"), dig(config, "model.image_size")
    preprocessing = None
    if resize in RESIZED and size:
        preprocessing = f"Each image as 8-bit RGB, {RESIZED[resize]} {size} x {size} pixels"
        stated = next(iter(run.metadata.values()), {}).get("preprocessing") or {}
        if stated.get("mean"):
            preprocessing += f", then normalised with mean {stated['mean']} and SD {stated['std']}"
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
        "selection": " ".join(sentences) if config else None,
        "preprocessing": preprocessing,
        "missing": missing,
        "devices": _levels(run.manifest, "device"),
        "label_sources": _levels(run.manifest, "label_source"),
        "class_counts": counted(run.metrics["class_counts"]),
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
    folds = run.record.get("folds") or {}
    config = run.record.get("config") or {}
    unit, kind, scheme = folds.get("unit"), run.record.get("kind"), folds.get("scheme")
    leaking = folds.get("leaking_groups")
    partition = None
    if kind in ("cv", "train"):
        made = {"file": "read from a frozen file", "official": "those of the release"}.get(
            str(scheme), "drawn by usvit"
        )
        seed = f", seed {config['seed']}" if "seed" in config else ""
        what = f"{len(run.metrics['folds'])} folds" if kind == "cv" else "One hold-out split"
        partition = f"{what}, {made}{seed}, stratified by class if drawn; training, inner validation and test"
        partition += " splits in each." if kind == "cv" else "."
        if folds.get("sha256"):
            partition += f" SHA-256 of the split: {folds['sha256']}."
    disjoint = None
    if unit == "image":
        disjoint = f"LEAKING SPLIT: the splits are disjoint by image only; {count(leaking)} groups occur in two splits."
    elif unit == "group":
        disjoint = "Splits are disjoint by group: the patient if an identifier is known, otherwise the near-duplicates."
        if (sizes := dig(run.record, "data.grouping")) is not None:
            disjoint += f" Images grouped {_grouping(sizes)}."
    several = len(run.parts) > 1
    sizes = [(f"fold {fold}: " if several else "") + counted(parts) for fold, parts in sorted(run.parts.items())]
    events = f"Test images by class: {counted(run.metrics['class_counts'])}."
    return {
        "partition": partition,
        "disjoint": disjoint,
        "parts": f"{events} Images by split: {'; '.join(sizes)}." if sizes else events,
        "external": "None in this run: all test images come from the data sets that the model was developed on; "
        "new hospitals and devices were not tested."
        if partition
        else None,
        "internal": f"{'Out-of-fold predictions' if kind == 'cv' else 'A held-out split'}: {tested(run)}."
        if partition
        else None,
    }


def _grouping(sizes: dict[str, int]) -> str:
    words = {"patient": "by patient", "copies": "by near-duplicates", "image": "alone"}
    return ", ".join(f"{words.get(kind, f'by {kind}')} {count(n)}" for kind, n in sizes.items())


def tested(run: Run) -> str:
    """``778 images in 765 groups``, with the number of patients if it is known."""
    words = f"{plural(run.metrics['n_images'], 'image')} in {plural(run.metrics['n_groups'], 'group')}"
    patients = dig(run.metrics, "patients.n_patients")
    return f"{words}, {plural(patients, 'patient')}" if patients else words


def _model(run: Run, cards: Cards) -> Facts:
    model = run.record.get("model") or {}
    weights = model.get("weights") or {}
    name, timm, parameters = model.get("name"), model.get("timm"), model.get("params")
    source = weights.get("source")
    began = None
    if source == "scratch":
        began = "Random, without pre-training."
    elif source:
        began = f"Pre-trained weights ({source}) {weights.get('name') or weights.get('file') or ''}".rstrip()
        began += f", SHA-256 {weights['sha256']}" if weights.get("sha256") else ""
        began += f", licence {weights.get('license') or 'not stated'}."
    size = dig(run.record, "config.model.image_size")
    classes = run.metrics["classes"]
    return {
        "model": f"{name} (timm {timm}), {count(parameters)} parameters." if name else None,
        "inputs": f"One image of {size} x {size} pixels is the input." if size else None,
        "outputs": f"One probability for each of {listed(classes)} (softmax, summing to 1); the decision is the most "
        "probable class.",
        "weights": began,
    }


def _training(run: Run, cards: Cards) -> Facts:
    config = run.record.get("config") or {}
    optim, train, loss = config.get("optim") or {}, config.get("train") or {}, config.get("loss") or {}
    training = None
    if optim.get("name"):
        rate = f"{optim['name']}, learning rate {optim.get('lr'):g}" if optim.get("lr") else str(optim["name"])
        length = f"{train['steps']} steps" if train.get("steps") else f"{train.get('epochs')} epochs"
        n_models = len(run.metrics["folds"])
        augmented = AUGMENTED.get(str(dig(config, "input.augment")), "augmentation not recorded")
        training = f"{n_models} models, one for each fold, " if n_models > 1 else "One model, "
        training += f"{augmented}; "
        training += f"{rate}, schedule {optim.get('schedule')}, weight decay {optim.get('weight_decay')}, "
        training += (
            f"batch {train.get('batch_size')}, {length} at most, seed {config.get('seed')}. All settings are in "
        )
        training += "the configuration of the report."
    stop = train.get("early_stopping") or {}
    selection = None
    if stop.get("keep") == "best":
        selection = (
            f"The step with the best {stop.get('monitor')} on the inner validation split, which contains no test image."
        )
    elif stop.get("keep") == "last":
        selection = "The last step; nothing was selected."
    weights = loss.get("class_weights")
    imbalance = None
    if weights:
        how = "weighted inversely to the classes' frequencies" if weights == "balanced" else "not weighted by class"
        imbalance = f"The loss was {how}. Class counts in the test: {counted(run.metrics['class_counts'])}."
        if weights == "balanced":
            imbalance += " Weighting shifts probabilities towards rare classes; see calibration."
    return {"training": training, "model_selection": selection, "imbalance": imbalance}


def _evaluation(run: Run, cards: Cards) -> Facts:
    metrics = run.metrics
    positive = metrics["positive_class"]
    own = quoted(metrics)
    method = own["auc"].get("method") if own["auc"].get("ci95") else None
    measures = ["accuracy", "balanced accuracy", "one-vs-rest AUC", "sensitivity and specificity of each class"]
    measures += ["calibration (equal-mass bins, slope, intercept)"] if metrics.get("calibration") else []
    measures += ["decision curve (net benefit)"] if metrics.get("decision_curve") else []
    others = own["accuracy"].get("method") if own["accuracy"].get("ci95") else None
    uncertain = None
    if method:
        uncertain = f"95 % intervals with the group as the unit: AUC {method}; proportions and others {others}."
        uncertain += " No hypothesis was tested."
    subgroupings = [one["by"] for one in metrics.get("subgroups") or [] if one.get("levels")]
    thresholds = None
    if points := metrics.get("operating_points"):
        thresholds = f"Thresholds for {positive}: {listed(one['rule'] for one in points)}; chosen on "
        thresholds += f"{points[0]['source']}."
        if len(metrics["folds"]) == 1:
            thresholds = thresholds.replace(" of the same fold", "")
    recalibration = None
    if calibration := metrics.get("calibration"):
        done = [one for one in calibration.get("recalibration") or [] if one.get("after")]
        recalibration = "Reported probabilities are not recalibrated."
        for one in done:
            before, after = decimals(one["before"]["log_loss"]), decimals(one["after"]["log_loss"])
            name = one["method"].replace("platt", "Platt")
            recalibration += f" For comparison, {name} scaling fitted on inner validation images: log loss "
            recalibration += f"{before} before, {after} after."
    folds = len(metrics["folds"]) > 1
    accuracy, auc = dig(metrics, "mean_sd.accuracy"), dig(metrics["mean_sd"]["auc"], f"{positive}_vs_rest")
    return {
        "measures": f"{', '.join(measures)}.",
        "uncertainty": uncertain,
        "subgroups": (f"by {listed(subgroupings)}" if subgroupings else "none could be formed")
        if "subgroups" in metrics
        else None,
        "thresholds": thresholds,
        "recalibration": recalibration,
        "spread": f"accuracy {spread(accuracy)}, AUC {spread(auc)} (mean ± SD of {len(metrics['folds'])} folds)."
        if folds
        else None,
        "no_ensemble": "each test image was predicted by one model"
        + (" in each repeat; figures are averaged, predictions are not." if run.n_repeats > 1 else "."),
    }


def _results(run: Run, cards: Cards) -> Facts:
    metrics, positive = run.metrics, run.metrics["positive_class"]
    own = quoted(metrics)
    left = len(dig(run.record, "data.excluded") or []) if dig(run.record, "data.excluded") is not None else None
    skipped = len(dig(run.record, "data.skipped") or [])
    flow = f"Tested: {tested(run)}"
    if left is not None:
        flow += f"; excluded {plural(left, 'image')}, skipped {plural(skipped, 'file')}"
    counts = metrics["confusion"]["counts"]
    wrong = sum(sum(row) for row in counts) - sum(row[k] for k, row in enumerate(counts))
    how = (
        "hold-out"
        if len(metrics["folds"]) == 1
        else "mean within folds"
        if metrics.get("headline")
        else "pooled over folds"
    )
    return {
        "tested": tested(run),
        "headline": f"On {tested(run)} ({how}): accuracy {estimate(own['accuracy'])}, AUC of {positive} against the "
        f"rest {estimate(own['auc'])}.",
        "diagnostic": f"For {positive}, most probable class: sensitivity {estimate(own['sensitivity'])}, "
        f"specificity {estimate(own['specificity'])}.",
        "flow": f"{flow}.",
        "failures": f"{plural(wrong, 'image')} of {count(metrics['n_images'])} misclassified; the report shows the "
        "confusion matrix, the most confident errors and the most uncertain cases.",
    }


def _open(run: Run, cards: Cards) -> Facts:
    record = run.record
    versions = record.get("versions") or {}
    version = record.get("usvit_version")
    software = None
    if version:
        software = ", ".join([f"usvit {version}", *(f"{name} {number}" for name, number in versions.items())]) + "."
    licences = [f"{name}: {card.license if card else 'not known'}" for name, card in cards.items()]
    code = f"usvit {version}, Apache-2.0, open source." if version else None
    command = record.get("command")
    return {
        "software": software,
        "code": code,
        "availability": code
        and f"Software: {code} Licences of the data: {'; '.join(licences)}. The authors "
        "must state whether the trained model is available.",
        "repeat": f"the command '{command}' with the file of the split, and this report." if command else None,
    }
