"""Bootstrap of a fitted surface: what other surfaces the same networks could have given."""

import numpy as np

from usvit.scaling.surface import Array, Surface
from usvit.scaling.variable_projection import SurfaceFit, SweepFitter

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
    spare = max(1, fitter.n - fitter.n_parameters)
    errors = -(found.residuals - found.residuals.mean()) * np.sqrt(fitter.n / spare)
    surfaces = []
    for _ in range(draws):
        drawn = generator.choice(errors, fitter.n)
        # A relative error of -1 or less would give a loss of 0 or less.
        surfaces.append(fitter.fit(fitted * np.maximum(1 + drawn, 0.05), start=found.surface).surface)
    return surfaces


def band(values: Array, level: float = LEVEL) -> tuple[float, float] | None:
    """Return the percentile interval of bootstrap values; None if more of them are undefined than lie outside of it."""
    tail = (1 - level) / 2
    known = values[np.isfinite(values)]
    if len(known) < len(values) * (1 - tail):
        return None
    low, high = np.quantile(known, [tail, 1 - tail])
    return float(low), float(high)
