"""Golden values for calibration and decision curves, made once by other people's packages.

Not run by the tests; they read golden_calibration.json beside it. To make it again, in an environment of its own:
    pip install dcurves==1.1.7 statsmodels==0.15.0
    python tests/oracles/golden_calibration.py
"""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import statsmodels.api as sm
from dcurves import dca

THRESHOLDS = [0.01, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95]


def main() -> None:
    rng = np.random.default_rng(20261121)
    n = 120
    odds = np.round(rng.normal(-0.5, 2.0, n), 4)
    positive = rng.random(n) < 1 / (1 + np.exp(-(0.3 + 0.6 * odds)))
    prob = np.round(1 / (1 + np.exp(-odds)), 6)
    logit = sm.Logit(positive.astype(float), sm.add_constant(odds)).fit(disp=0, tol=1e-14)
    offset = sm.GLM(positive.astype(float), np.ones((n, 1)), family=sm.families.Binomial(), offset=odds).fit(tol=1e-14)

    # Platt's targets, as a binomial response that is no whole number.
    target = np.where(positive, (positive.sum() + 1) / (positive.sum() + 2), 1 / ((~positive).sum() + 2))
    platt = sm.GLM(target, sm.add_constant(odds), family=sm.families.Binomial()).fit(tol=1e-14)

    curves = {}
    for name, prevalence in (("own", None), ("rare", 0.02)):
        frame = pd.DataFrame({"positive": positive.astype(int), "model": prob})
        found = dca(frame, "positive", ["model"], thresholds=THRESHOLDS, prevalence=prevalence)
        curves[name] = {
            kind: found[found.model == kind].sort_values("threshold").net_benefit.tolist() for kind in ("model", "all")
        }
    golden = {
        "made_by": "tests/oracles/golden_calibration.py, dcurves 1.1.7, statsmodels 0.15.0",
        "odds": odds.tolist(),
        "prob": prob.tolist(),
        "positive": positive.astype(int).tolist(),
        "intercept": float(logit.params[0]),
        "slope": float(logit.params[1]),
        "in_the_large": float(offset.params[0]),
        "platt": {"intercept": float(platt.params[0]), "slope": float(platt.params[1])},
        "thresholds": THRESHOLDS,
        "net_benefit": curves,
    }
    Path(__file__).with_suffix(".json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
