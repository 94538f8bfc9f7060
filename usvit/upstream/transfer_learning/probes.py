"""Probes of frozen features: few-shot least squares, logistic regression, nearest neighbours, retrieval."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.preprocessing import normalize

from usvit.data.splits import check_shots, draw_shots
from usvit.errors import UsvitError
from usvit.metrics.retrieval import (
    SMALLEST_PROB,
    average_precisions,
    choose_k,
    knn_probabilities,
    leave_one_out,
    mean_precisions,
)
from usvit.progress import Progress, task
from usvit.seeding import derive_seed
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.training import Chosen, RetrievalIntervals, TextTuning, TransferEstimate, TransferRow
from usvit.upstream.text_tuning.tower import TextModule
from usvit.upstream.transfer_learning import least_squares, linear, metrics
from usvit.upstream.transfer_learning.affine import Affine
from usvit.upstream.transfer_learning.clusters import CLUSTERS, class_shares, cluster_table, fit_clusters
from usvit.upstream.transfer_learning.feature_tables import energy_table, nearest_table, tsne_table
from usvit.upstream.transfer_learning.few_shot_probes import probe_of, settings_of
from usvit.upstream.transfer_learning.retrieval import LabelledFeatures, rank_by_coarse
from usvit.upstream.transfer_learning.separability import random_halves, separate
from usvit.upstream.transfer_learning.splits import TransferSplit, TransferSplits

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
_N_LEAVE_ONE_OUT = 10_000
"""Largest number of training images on which k is chosen; all images of ImageNet would take a day."""
_HALVES_COVER = "which images form the halves; not other images, nor the seed that the network was trained with"


@dataclass(frozen=True)
class FeatureSet:
    """The features of those images of a split that a probe needs (``needed``)."""

    split: TransferSplit
    features: NDArray[np.float32]
    """Shape (n, D)."""

    @property
    def targets(self) -> NDArray[np.int64]:
        return self.split.targets


@dataclass(frozen=True)
class ProbeResult:
    """The result of a probe, or of fine-tuning."""

    rows: list[metrics.Row]
    """The rows of ``results.csv``."""
    summary: list[TransferRow]
    """The printed table."""
    chosen: Chosen
    """What was chosen, and its accuracy on the images on which it was chosen."""
    logits: NDArray[np.floating]
    """Logits of the test images from the chosen probe, of shape (n, K)."""
    head: Affine | None = None
    """The new head of the network; None if it keeps its own."""
    learnt_from: tuple[str, ...] = ("train",)
    """Names of the splits whose images the result has seen."""
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    """Other tables for the run's folder, by file name."""
    text: TextTuning | None = None
    modules: Sequence[TextModule] = ()
    """The trained text tower and the decoder, which are written beside the network."""


_Probe = Callable[[TransferConfig, TransferSplits, dict[str, FeatureSet], Progress], ProbeResult]


def fewshot(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Fit ``config.probe`` on k images of each class, drawn several times.

    For each k, the setting with the best mean validation accuracy over draws is chosen. The predictions are those of
    the largest k and its first draw, as is the head that is written into the network, if the probe has one.
    """
    train, test, val = seen["train"], seen["test"], seen.get("val")
    n_classes = len(splits.classes)
    rows: list[metrics.Row] = []
    summary: list[TransferRow] = []
    kept: tuple[Any, Chosen] | None = None
    of_val: float | None = None
    with task(progress, "few-shot probes", len(config.shots) * config.draws, "probes") as advance:
        for number, k in enumerate(sorted(config.shots)):
            name, settings = settings_of(config, k * n_classes)
            problems = []
            for draw in range(config.draws):
                drawn = draw_shots(splits.train.targets, k, config.seed, draw)
                shots = np.searchsorted(train.split.rows, splits.train.rows[drawn])
                problems.append(probe_of(config, train.features[shots], train.targets[shots], n_classes))
                advance(number * config.draws + draw + 1)
            best = settings[0]
            if val is not None:
                tried = [
                    {
                        "setting": setting,
                        "draw": draw,
                        "accuracy": float(metrics.right(val.split, one.solve(setting)(val.features)).mean()),
                    }
                    for setting in settings
                    for draw, one in enumerate(problems)
                ]
                table = pd.DataFrame(tried)
                best = least_squares.choose(table)
                means = table.groupby("setting").accuracy.mean()
                of_val = float(means[best])
                rows += [
                    {"accuracy": float(means[one]), name: one, "chosen": one == best, **_of_val(val.split, k)}
                    for one in settings
                ]
            figure: dict[str, Any] = {name: int(best) if name == "neighbours" else best}
            found = []
            for draw, problem in enumerate(problems):
                probe = problem.solve(best)
                hits = metrics.right(test.split, probe(test.features))
                of_table = draw == 0 and k == max(config.shots)
                more = {"draw": draw, "k": k, "chosen": of_table, **figure}
                found.append(metrics.row("fewshot", test.split, hits, interval=True, **more))
                if of_table:
                    kept = probe, Chosen(k=k, draw=0, val_accuracy=of_val, **figure)
            rows += found
            one = metrics.accuracy(test.split, metrics.right(test.split, problems[0].solve(best)(test.features)))
            summary.append(
                TransferRow(
                    name=f"{k}-shot",
                    accuracy=metrics.over_draws([each["accuracy"] for each in found], one.n_groups),
                    mean_class_accuracy=float(np.mean([each["mean_class_accuracy"] for each in found])),
                    first_draw=one,
                    **figure,
                )
            )
    assert kept is not None
    chosen_probe, chosen = kept
    head = chosen_probe if isinstance(chosen_probe, Affine) else None
    return ProbeResult(rows, summary, chosen, chosen_probe(test.features), head)


def logistic(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Fit a logistic regression; accuracy, then cross-entropy, on validation images choose its strength."""
    train, test, val = seen["train"], seen["test"], seen.get("val")
    strengths, n_classes = config.l2 or linear.L2, len(splits.classes)
    rows: list[metrics.Row] = []
    best, score = 0, None  # if there are no validation images, there is only one strength
    probes = []
    with task(progress, "linear probe", len(strengths), "strengths") as advance:
        for done, l2 in enumerate(strengths, start=1):
            probes.append(linear.fit_logistic(train.features, train.targets, n_classes, l2))
            advance(done)
    if val is not None:
        values = [probe(val.features) for probe in probes]
        hits = [metrics.right(val.split, one) for one in values]
        loss = [linear.cross_entropy(one, val.targets) for one in values]
        best = linear.choose(strengths, [float(one.mean()) for one in hits], loss)
        score = float(hits[best].mean())
        rows += [
            metrics.row("linear", val.split, one, l2=l2, chosen=number == best)
            for number, (l2, one) in enumerate(zip(strengths, hits, strict=True))
        ]
    probe, learnt_from = probes[best], ("train", "val") if val is not None else ("train",)
    if config.final is not None and val is not None:
        both = np.concatenate([train.features, val.features]), np.concatenate([train.targets, val.targets])
        probe = linear.fit_logistic(*both, n_classes, strengths[best])
    logits = probe(test.features)
    hits_test = metrics.right(test.split, logits)
    rows.append(metrics.row("linear", test.split, hits_test, interval=True, l2=strengths[best], chosen=True))
    summary = [metrics.line("linear probe", test.split, hits_test, l2=strengths[best])]
    return ProbeResult(rows, summary, Chosen(l2=strengths[best], val_accuracy=score), logits, probe, learnt_from)


def neighbours(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Classify by the nearest neighbours among the training images.

    k is chosen by leaving out one training image (or patient) at a time; of more than ``_N_LEAVE_ONE_OUT`` images, a
    random sample is left out.
    """
    train, test = seen["train"], seen["test"]
    n_classes, how, rows_judged = len(splits.classes), config.how, None
    if len(train.split) > _N_LEAVE_ONE_OUT:
        rng = np.random.default_rng(derive_seed(config.seed, "neighbours"))
        rows_judged = np.sort(rng.choice(len(train.split), _N_LEAVE_ONE_OUT, replace=False))
    tried = leave_one_out(
        train.features, train.targets, config.k, config.sigma, groups=train.split.groups, rows=rows_judged
    )
    k, n_judged = choose_k(tried), min(len(train.split), _N_LEAVE_ONE_OUT)
    logger.info(f"Nearest neighbours: k = {k} of {', '.join(map(str, tried))}.")
    prob = knn_probabilities(test.features, train.features, train.targets, k, config.sigma, n_classes=n_classes)
    hits = metrics.right(test.split, prob)
    precision = average_precisions(test.features, train.features, test.targets, train.targets)
    of_map = mean_precisions({"mean_average_precision": precision}, test.split.groups)["mean_average_precision"]
    rows = [
        {"how": how, "part": "train", "n_images": n_judged, "k": one, "accuracy": value, "chosen": one == k}
        for one, value in tried.items()
    ]
    low, high = of_map.ci95 or (None, None)
    figures = {"mean_average_precision": of_map.value, "k": k}
    more = figures | {"map_ci95_low": low, "map_ci95_high": high, "chosen": True}
    rows.append(metrics.row(how, test.split, hits, interval=True, **more))
    intervals = RetrievalIntervals(mean_average_precision=TransferEstimate.of(of_map))
    summary = [metrics.line(f"{k} nearest neighbours", test.split, hits, **figures, intervals=intervals)]
    chosen = Chosen(k=k, sigma=config.sigma, leave_one_out_accuracy=tried[k])
    tables = {}
    if config.feature_tables:
        tables = {
            "neighbours.csv": nearest_table(test.features, train.features, test.split, train.split),
            "pca.csv": energy_table(train.features),
            "tsne.csv": tsne_table(test.features, test.split, derive_seed(config.seed, "tsne")),
        }
    return ProbeResult(rows, summary, chosen, np.log(np.maximum(prob, SMALLEST_PROB)), learnt_from=(), tables=tables)


def retrieval(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Run ``neighbours``; if there are coarse classes, also measure what they add to the search (eq. 2.5)."""
    found = neighbours(config, splits, seen, progress)
    queries, keys = (seen[name] for name in ("test", "train"))
    of_query, of_key = queries.split.coarse_targets, keys.split.coarse_targets
    if of_query is None or of_key is None:
        return found
    ranking = rank_by_coarse(
        LabelledFeatures(queries.features, queries.targets, of_query),
        LabelledFeatures(keys.features, keys.targets, of_key),
        config.sigma,
    )
    intervals = mean_precisions(ranking.precisions, queries.split.groups)
    intervals["coarse_accuracy"] = metrics.accuracy(queries.split, ranking.right)
    figures = {name: one.value for name, one in intervals.items()}
    found.rows[-1].update(figures)
    line = found.summary[-1]
    more = {name: TransferEstimate.of(one) for name, one in intervals.items()}
    assert line.intervals is not None
    line = line.model_copy(update={"intervals": line.intervals.model_copy(update=more), **figures})
    return replace(found, summary=[*found.summary[:-1], line])


def clustered(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Cluster the training images, and classify a test image by the classes of the training images of its cluster."""
    train, test = seen["train"], seen["test"]
    kmeans = fit_clusters(train.features, config.clusters, derive_seed(config.seed, "clusters") % 2**32)
    shares = class_shares(kmeans.labels_, train.targets, config.clusters, len(splits.classes))
    prob = shares[kmeans.predict(normalize(test.features))]
    hits = metrics.right(test.split, prob)
    rows = [metrics.row("clusters", test.split, hits, interval=True, chosen=True)]
    summary = [metrics.line(f"{config.clusters} clusters, commonest class", test.split, hits)]
    tables = {CLUSTERS: cluster_table(train.split, kmeans.labels_)}
    logits = np.log(np.maximum(prob, SMALLEST_PROB))
    return ProbeResult(rows, summary, Chosen(clusters=config.clusters), logits, learnt_from=(), tables=tables)


def separability(
    config: TransferConfig, splits: TransferSplits, seen: dict[str, FeatureSet], progress: Progress
) -> ProbeResult:
    """Separate random halves of the classes on the training images, and classify the test images into whole classes."""
    train, test = seen["train"], seen["test"]
    l2, n_classes = (config.l2 or linear.L2)[0], len(splits.classes)
    of_class = linear.fit_logistic(train.features, train.targets, n_classes, l2)
    rows: list[metrics.Row] = []
    found: dict[str, list[metrics.Bools]] = {"right": [], "conditioned": []}
    with task(progress, "random halves", config.draws, "splits") as advance:
        for draw in range(config.draws):
            labels = random_halves(train.targets, config.seed, draw)
            one = separate(train.features, labels, of_class, n_classes, l2)
            for name, hits in (("right", one.right), ("conditioned", one.conditioned)):
                found[name].append(hits)
                rows.append(metrics.row(f"separability, {name}", train.split, hits, draw=draw, l2=l2))
            advance(draw + 1)
    n_groups, summary = metrics.accuracy(train.split, found["right"][0]).n_groups, []
    for name, what in (("right", "random halves"), ("conditioned", "random halves, conditioned")):
        each = [float(hits.mean()) for hits in found[name]]
        of_classes = [metrics.mean_class_accuracy(train.targets, hits) for hits in found[name]]
        value = metrics.over_draws(each, n_groups).replace(method=f"t over {config.draws} splits", covers=_HALVES_COVER)
        mean = float(np.mean(of_classes))
        summary.append(TransferRow(name=what, accuracy=value, mean_class_accuracy=mean, l2=l2))
    logits = of_class(test.features)
    hits = metrics.right(test.split, logits)
    rows.append(metrics.row("separability", test.split, hits, interval=True, l2=l2, chosen=True))
    summary.append(metrics.line("classes, on the test images", test.split, hits, l2=l2))
    return ProbeResult(rows, summary, Chosen(l2=l2), logits, of_class)


PROBES: dict[str, _Probe] = {
    "fewshot": fewshot,
    "linear": logistic,
    "knn": neighbours,
    "retrieval": retrieval,
    "clusters": clustered,
    "separability": separability,
}


def needed(config: TransferConfig, splits: TransferSplits) -> list[TransferSplit]:
    """Return the splits whose features are needed; for a few-shot probe, only the training images that are drawn."""
    train = splits.train
    if config.how == "fewshot":
        most = max(config.shots)  # includes the images of fewer shots
        drawn = [draw_shots(train.targets, most, config.seed, draw) for draw in range(config.draws)]
        train = replace(train, rows=train.rows[np.unique(np.concatenate(drawn))])
    return [split for split in (train, splits.val, splits.test) if split is not None]


def check(config: TransferConfig, splits: TransferSplits) -> None:
    """Check before any image is read that all choices and draws are possible.

    Raises:
        UsvitError: A setting, which is named, must be changed.
    """
    if config.how == "fewshot":
        check_shots(splits.train.targets, splits.classes, max(config.shots), "source.val_share")
    choices = {"fewshot": settings_of(config)[1], "linear": config.l2 or linear.L2, "finetune": config.cells}
    count = len(choices.get(config.how, ()))
    if count > 1 and splits.val is None:
        key = "k" if config.how == "fewshot" and config.probe == "neighbours" else "l2"
        what, one = {"l2": ("strengths l2", "[1]"), "k": ("numbers of neighbours k", "[10]")}[key]
        raise UsvitError(
            f"There are {count} {'cells of the sweep' if config.how == 'finetune' else what} to choose from, but no "
            "validation images, and test images must not be used for the choice. Set source.val to a split, or "
            "source.val_share to a share of the training images"
            + ("." if config.how == "finetune" else f", or {key} to one value: --set {key}={one}.")
        )


def _of_val(val: TransferSplit, k: int) -> metrics.Row:
    return {"how": "fewshot", "part": "val", "n_images": len(val), "k": k}
