"""Measure coverage of the headline by patient, and of a headline whose folds contradict each other.

    python -m benchmarks.coverage_patients                        # two tables of docs/explanation/intervals.md
    python -m benchmarks.coverage_patients --repetitions 50       # a quick look

The studies are those of ``coverage_training``: normally distributed features, 30 % positive patients, 5 stratified
folds with inner validation patients, and a linear discriminant that is trained in each fold.

The first table takes several images of each patient, combines their probabilities as ``usvit`` does, and counts how
often the 95 % interval of the patients' AUC contains the mean true AUC of the study's models. The true AUC of each
model is measured on a fixed set of 40,000 other patients. "Folds shifted" means that a random number with half the SD
of the scores is added to the scores of each model, whose true AUC is measured with it.

In the second table the threshold of each model is moved by a random number, as if some trainings fell for one class.
The true sensitivity of each model is known in closed form.
"""

import argparse
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import expit, logit
from scipy.stats import norm, rankdata

from benchmarks.coverage_training import (
    CORRELATION,
    FOLDS,
    PREVALENCE,
    SHIFT,
    deal,
    discriminant,
    draw,
    holds,
    inner_part,
)
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.patients import Rule, patients_of_models
from usvit.evaluation.prediction_arrays import rows_of
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.cross_validation import fold_mean, mean_figure, mean_value

FEATURES, DISTANCE = 20, 1.5
OTHERS = 40_000
"""Patients on whom the true AUC of a model is measured; Monte Carlo error 0.002."""
MOVES = (0.0, 0.5, 1.0, 2.0)
"""SDs of the random number that moves the threshold of a model, in SDs of the scores within a class."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=400)
    parser.add_argument("--only", choices=("patients", "models"))
    given = parser.parse_args()
    start = time.perf_counter()
    print(
        f"{given.repetitions} studies a row; Monte Carlo error {np.sqrt(0.95 * 0.05 / given.repetitions):.3f} at 0.95\n"
    )
    if given.only != "models":
        heads: tuple[str, ...]
        heads = ("patients", "images", "folds", "rule", "true AUC", "pooled", "headline", "lengths", "training share")
        print(f"| {' | '.join(heads)} |\n" + "|---" * len(heads) + "|")
        for n in (240, 480):
            for uneven in (False, True):
                for shift in (0.0, SHIFT):
                    patient_rows(n, uneven, shift, given.repetitions)
    if given.only != "patients":
        heads = ("threshold moved by", "n", "these models", "procedure", "length", "without: these models")
        heads = (*heads, "without: procedure", "without: length", "warned")
        print(f"\n| {' | '.join(heads)} |\n" + "|---" * len(heads) + "|")
        for n in (240, 780):
            for move in MOVES:
                model_row(n, move, given.repetitions)
    print(f"\n{time.perf_counter() - start:.0f} s")


def patient_rows(n: int, uneven: bool, shift: float, repetitions: int) -> None:
    """Print the rows of both rules that make one probability of a patient's images."""
    others = images_of(np.random.default_rng(7), OTHERS, uneven)
    found = [patient_study(n, uneven, shift, seed, others) for seed in range(repetitions)]
    for how in ("mean", "max"):
        own = [one[how] for one in found]
        cells = [np.mean([holds(one[name], one["truth"]) for one in own]) for name in ("pooled", "headline")]
        lengths = [np.mean([np.diff(one[name].ci95) for one in own]) for name in ("pooled", "headline")]
        print(
            f"| {n} | {'1 to 7' if uneven else '4'} | {'shifted' if shift else 'alike'} | {how} | "
            f"{np.mean([one['truth'] for one in own]):.3f} | {cells[0]:.3f} | {cells[1]:.3f} | "
            f"{lengths[0]:.3f}, {lengths[1]:.3f} | {np.mean([one['share'] for one in own]):.2f} |",
            flush=True,
        )


def images_of(rng: np.random.Generator, n: int, uneven: bool) -> tuple[np.ndarray, ...]:
    """Draw features (n, p), the patient of each image, and the labels of the patients."""
    positive = np.arange(n) < round(PREVALENCE * n)
    patient = np.repeat(np.arange(n), rng.integers(1, 8, n) if uneven else np.full(n, 4))
    x = np.sqrt(1 - CORRELATION) * rng.normal(size=(len(patient), FEATURES))
    x += np.sqrt(CORRELATION) * rng.normal(size=(n, FEATURES))[patient]
    x[:, 0] += DISTANCE * positive[patient]
    return x, patient, positive


def patient_study(n: int, uneven: bool, shift: float, seed: int, others: tuple[np.ndarray, ...]) -> dict[Rule, Any]:
    """Return the intervals of one study by patient, and the mean true AUC of its models."""
    rng = np.random.default_rng([seed, 3])
    x, patient, positive = images_of(rng, n, uneven)
    y, fold = positive[patient], deal(rng, positive)
    tables: list[pd.DataFrame] = []
    truths: dict[Rule, list[float]] = {"mean": [], "max": []}
    for k in range(FOLDS):
        test = fold == k
        inner = inner_part(rng, positive, test, 0.1)
        fitted = ~(test | inner)[patient]
        w, middle = discriminant(x[fitted], y[fitted])
        middle -= logit(PREVALENCE) + shift * (x @ w).std() * rng.normal()
        prob = expit(x @ w - middle)
        for part, own in (("test", test), ("val", inner)):
            at = np.flatnonzero(own[patient])
            tables.append(predictions(at, patient[at], y[at], prob[at], k, part))
        elsewhere = expit(others[0] @ w - middle)
        for how, truth in truths.items():
            truth.append(true_area(elsewhere, others[1], others[2], how))
    table = pd.concat(tables, ignore_index=True)
    found: dict[Rule, Any] = {}
    for how, truth in truths.items():
        own = patients_of_models(table, how=how, positive="yes", precedence=["yes", "no"])
        rows, headline = rows_of(own, "test"), headline_section(own, "yes", {})
        found[how] = {
            "truth": float(np.mean(truth)),
            "headline": headline["auc"],
            "share": headline["training_share"]["value"],
            "pooled": clustered_auc(rows.label == rows.index("yes"), rows.prob[:, rows.index("yes")], rows.group),
        }
    return found


def predictions(
    image: np.ndarray, patient: np.ndarray, y: np.ndarray, prob: np.ndarray, fold: int, part: str
) -> pd.DataFrame:
    """Return a predictions table of one split of one fold."""
    name = np.char.add("p", patient.astype(str))
    return pd.DataFrame(
        {
            "image_id": image.astype(str), "group_id": name, "patient_id": name, "dataset": "simulated", "fold": fold,
            "part": part, "label": np.where(y, "yes", "no"), "prob_no": 1 - prob, "prob_yes": prob,
        }
    )  # fmt: skip


def true_area(prob: np.ndarray, patient: np.ndarray, positive: np.ndarray, how: Rule) -> float:
    """Return the AUC of the patients' mean or highest probability."""
    if how == "mean":
        score = np.bincount(patient, prob) / np.bincount(patient)
    else:
        score = np.maximum.reduceat(prob, np.flatnonzero(np.r_[True, np.diff(patient) > 0]))
    ranks, up = rankdata(score), int(positive.sum())
    return float((ranks[positive].sum() - up * (up + 1) / 2) / (up * (len(positive) - up)))


def model_row(n: int, move: float, repetitions: int) -> None:
    """Print how often the interval of the sensitivity contains the truth, with and without the part between models."""
    found = [model_study(n, move, seed) for seed in range(repetitions)]
    truth = np.array([one["truth"] for one in found])
    cells = []
    for name in ("with", "without"):
        values = [one[name] for one in found]
        cells.append(f"{np.mean([holds(one, true) for one, true in zip(values, truth, strict=True)]):.3f}")
        cells.append(f"{np.mean([holds(one, truth.mean()) for one in values]):.3f}")
        cells.append(f"{np.mean([np.diff(one.ci95) for one in values if one.ci95]):.3f}")
    warned = np.mean([one["with"].method != one["without"].method for one in found])
    print(f"| {move:g} SD | {n} | {' | '.join(cells)} | {warned:.3f} |", flush=True)


def model_study(n: int, move: float, seed: int) -> dict[str, Any]:
    """Return the interval of the sensitivity, with and without the part between models, and the true mean."""
    rng = np.random.default_rng([seed, 4])
    mu = np.r_[DISTANCE, np.zeros(FEATURES - 1)]
    x, y, patient, positive = draw(rng, n, mu, 1)
    fold = deal(rng, positive)
    figures, truths = [], []
    for k in range(FOLDS):
        at = fold == k
        w, middle = discriminant(x[~at], y[~at])
        length = np.linalg.norm(w)
        middle += move * length * rng.normal() - logit(PREVALENCE)
        figures.append(mean_figure((x[at] @ w > middle).astype(float), y[at], patient[at], n))
        truths.append(norm.cdf((w @ mu - middle) / length))
    mean = fold_mean([figures])
    assert mean is not None
    alike = replace(mean, folds=np.zeros(0))  # nothing then shows that the models differ
    return {
        "truth": float(np.mean(truths)),
        "with": mean_value(mean, 0.0, absent="", n_groups=n),
        "without": mean_value(alike, 0.0, absent="", n_groups=n),
    }


if __name__ == "__main__":
    main()
