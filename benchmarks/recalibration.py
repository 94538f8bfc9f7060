"""Measure the coverage of the intervals of ``usvit recalibrate``, on simulated patients with a known true value.

The log-odds of a patient's images are normally distributed around +- D^2 / 2 with variance D^2, so that they are
calibrated, with an AUC of Phi(D / sqrt 2) = 0.90; they are correlated within the patient. The network's log-odds are
twice as large (temperature 2). Each study fits a temperature and thresholds. The true sensitivity of a fitted threshold
follows from the normal distribution.

    python benchmarks/recalibration.py [STUDIES]     150 studies per row: 20 minutes of one busy core
"""

import os
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from usvit.metrics.threshold_choice import Rule
from usvit.scoring.calibration import scaled
from usvit.scoring.external.recalibration import LabelledImages, fit

D = float(np.sqrt(2) * norm.ppf(0.90))
TEMPERATURE = 2.0
RULES = (Rule("sensitivity", 0.9), Rule("specificity", 0.9), Rule("youden"))
SHAPES = [(12, 1), (25, 1), (50, 1), (100, 1), (12, 3), (25, 3), (50, 3), (100, 3)]
CORRELATION = 0.5


def study(rng: np.random.Generator, n_positive: int, per_patient: int) -> LabelledImages:
    """Simulate one study, with equally many patients with and without cancer, and the same number of images each."""
    label = np.repeat(np.repeat([0, 1], n_positive), per_patient)
    patient = np.repeat(np.arange(2 * n_positive), per_patient)
    shared = rng.normal(0, np.sqrt(CORRELATION), 2 * n_positive)[patient]
    noise = shared + rng.normal(0, np.sqrt(1 - CORRELATION), len(label))
    odds = TEMPERATURE * (np.where(label == 1, D**2 / 2, -(D**2) / 2) + D * noise)
    prob = np.stack([expit(-odds), expit(odds)], axis=1)
    return LabelledImages(label, prob, patient.astype(str).astype(object), 1)


def truth(threshold: float, temperature: float | None) -> tuple[float, float]:
    """Return the true sensitivity and specificity of a threshold on probabilities scaled by a temperature."""
    limit = logit(threshold) * (temperature or 1.0) / TEMPERATURE
    return float(norm.sf((limit - D**2 / 2) / D)), float(norm.cdf((limit + D**2 / 2) / D))


def main(studies: int) -> None:
    print(f"{studies} studies a row; Monte Carlo error of a coverage of 0.95: {np.sqrt(0.95 * 0.05 / studies):.3f}")
    print("shape: patients with cancer x images | coverage of T, of the threshold's interval | sensitivity >= 0.9: ")
    print("coverage of its interval; mean of apparent, corrected, true | the same of Youden's sensitivity")
    for n_positive, per_patient in SHAPES:
        rng = np.random.default_rng(0)
        rows = []
        for number in range(studies):
            images = study(rng, n_positive, per_patient)
            found = fit(images, "malignant", rules=RULES, n_resamples=300, seed=number)
            temperature = found.temperature
            held = [np.nan, np.nan]
            if temperature.ci95 is not None:
                held[0] = temperature.ci95[0] <= TEMPERATURE <= temperature.ci95[1]
            one = found.thresholds[0]
            best = expit(D**2 / 2 + D * norm.ppf(0.1))  # calibrated threshold at which the true sensitivity is 0.9
            if one.ci95 is not None:
                held[1] = one.ci95[0] <= best <= one.ci95[1]
            entry = [*held, temperature.value or np.nan]
            for k in (0, 2):
                one = found.thresholds[k]
                if one.threshold is None or one.sensitivity.ci95 is None:
                    entry += [np.nan] * 4
                    continue
                true = truth(one.threshold, temperature.value)[0]
                low, high = one.sensitivity.ci95
                corrected = one.sensitivity.corrected
                entry += [low <= true <= high, one.sensitivity.value, corrected or np.nan, true]
            rows.append(entry)
        t, thr, temperature, *rest = np.nanmean(np.array(rows, dtype=float), axis=0)
        text = "   ".join(f"{a:.3f}; {b:.3f} {c:.3f} {d:.3f}" for a, b, c, d in (rest[:4], rest[4:]))
        print(
            f"{n_positive:4} x {per_patient} | T {t:.3f} (mean {temperature:.2f}), threshold {thr:.3f} | {text}",
            flush=True,
        )


if __name__ == "__main__":
    assert np.allclose(scaled(np.array([[0.2, 0.8]]), 1.0), [[0.2, 0.8]])
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
