"""Bootstrap of a fitted surface: what other surfaces the same networks could have given."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import norm, t

from usvit.upstream.scaling.surface import Array, Surface
from usvit.upstream.scaling.variable_projection import SurfaceFit, SweepFitter

DRAWS = 400
LEVEL = 0.95


def bootstrap(
    fitter: SweepFitter, losses: Array, found: SurfaceFit, draws: int = DRAWS, seed: int = 0
) -> list[Surface]:
    """Refit the surface to losses whose residuals are drawn again.

    The networks of a sweep are chosen, not drawn, so that residuals are resampled and not networks (Davison and Hinkley
    1997, section 6.2.3). The residuals are those of the fit, divided by sqrt(1 - p / n), because a fit with p
    parameters leaves residuals that are too small.

    Args:
        fitter: The networks.
        losses: The losses that were fitted.
        found: Their fit.
        draws: Number of refits.
        seed: Seed of the draws.
    """
    generator = np.random.default_rng(seed)
    fitted = losses * (1 + found.residuals)
    errors = -(found.residuals - found.residuals.mean()) * np.sqrt(fitter.n / fitter.spare)
    surfaces = []
    for _ in range(draws):
        drawn = generator.choice(errors, fitter.n)
        # A relative error of -1 or less would give a loss of 0 or less.
        surfaces.append(fitter.fit(fitted * np.maximum(1 + drawn, 0.05), start=found.surface).surface)
    return surfaces


def limits(values: ArrayLike, spare: int) -> Array:
    """Return the lower and the upper end of the 95 % percentile interval of bootstrap values; NaN is left out.

    The percentiles lie further out than 2.5 % and 97.5 %, by as much as Student's t does beyond the normal
    distribution (expanded percentile interval: Hesterberg 2015, What Teachers Should Know about the Bootstrap). Of B
    draws, the j-th smallest is the percentile 100 j / (B + 1). Without the two, the bands contain the truth too rarely
    (docs/benchmarks.md).

    Args:
        values: Draws, as (B, ...).
        spare: Degrees of freedom: the points of the fit minus its parameters, at least 1.

    Returns:
        Both ends, as (2, ...).
    """
    tail = float(norm.cdf(t.ppf((1 - LEVEL) / 2, spare)))
    drawn = np.asarray(values, dtype=np.float64)
    return np.asarray(np.nanquantile(drawn, [tail, 1 - tail], axis=0, method="weibull"))


def band(values: Array, spare: int) -> tuple[float, float] | None:
    """Return the interval of ``limits``; None if more draws are undefined than lie outside of a 95 % band."""
    if np.isfinite(values).sum() < len(values) * (1 - (1 - LEVEL) / 2):
        return None
    low, high = limits(values, spare)
    return float(low), float(high)
