"""Fit the form of ``usvit.upstream.scaling.surface`` by variable projection (Golub and Pereyra 1973).

For given exponents the form is linear in its coefficients, so these are solved exactly, without negative values, inside
the search over the exponents alone. A search over all of them at once, or parabolas through each budget, is less
reliable: parabolas are biased (arXiv:2603.22339).

Residuals are relative, (f - y) / y, because the paper minimises the relative error. The loss of a residual is Huber's,
as weights that are computed again from the residuals until they stay (iteratively reweighted least squares).
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls

from usvit.upstream.scaling.surface import Array, Surface

HUBER = 2.5
"""Residuals beyond this number of robust standard deviations count linearly."""
BOUNDS = {"a": (0.02, 8.0), "b": (0.02, 8.0), "c": (0.01, 4.0)}
"""Range of the exponents. The paper's are well inside."""
STARTS = 24
"""Starting points of the search, drawn with a fixed seed."""
ROUNDS = 12
"""Most repetitions of the weighting."""
_MAD = 1.4826
_EDGE = 6.0


@dataclass(frozen=True)
class SurfaceFit:
    """A fitted surface and how well it fits."""

    surface: Surface
    residuals: Array
    """(f - y) / y of each point."""
    weights: Array
    """Huber's weight of each point in (0, 1]."""
    scale: float
    """Robust standard deviation of the residuals."""
    cost: float
    """Mean weighted squared residual."""


class SweepFitter:
    """The data of a sweep, prepared for several fits with other losses (bootstrap).

    Args:
        shapes: Dimensions of each network, as (N, K).
        compute: Compute of each training, as (N,).
    """

    def __init__(self, shapes: Array, compute: Array):
        self.reference: Array = np.exp(np.log(shapes).mean(0))
        self.compute_reference = float(np.exp(np.log(compute).mean()))
        self._u: Array = np.log(shapes / self.reference)
        self._v: Array = np.log(compute / self.compute_reference)
        self.n, self.k = shapes.shape
        bounds = [BOUNDS["a"]] * self.k + [BOUNDS["b"]] * self.k + [BOUNDS["c"]]
        self._low, self._high = np.log(np.array(bounds)).T

    @property
    def n_parameters(self) -> int:
        return 4 * self.k + 3

    @property
    def spare(self) -> int:
        """Degrees of freedom of the residuals, at least 1."""
        return max(1, self.n - self.n_parameters)

    def fit(self, losses: Array, start: Surface | None = None, starts: int = STARTS, seed: int = 0) -> SurfaceFit:
        """Fit the surface to one loss for each point.

        Args:
            losses: Losses, all above 0.
            start: Surface from which the search starts; None for ``starts`` random exponents, of which the best wins.
            starts: Number of random starting points.
            seed: Seed of the starting points.
        """
        weights = np.ones(self.n)
        candidates = [self._inverse(start)] if start is not None else self._random(starts, seed)
        found = [self._search(point, losses, weights) for point in candidates]
        cost, point = min(found, key=lambda one: one[0])
        scale = 0.0
        for _ in range(ROUNDS):
            residuals = self._residuals(point, losses)
            scale = _scale(residuals, self.spare)
            fresh = _huber(residuals, scale)
            if np.abs(fresh - weights).max() < 1e-3:
                break
            weights = fresh
            cost, point = self._search(point, losses, weights)
        coefficients, columns = self._solve(point, losses, weights)[:2]
        residuals = columns @ coefficients - 1
        return SurfaceFit(self._surface(point, coefficients), residuals, weights, scale, cost)

    # The search runs over z in R, from which the logarithm of an exponent follows within its bounds.

    def _exponents(self, point: Array) -> tuple[Array, Array]:
        share = 1 / (1 + np.exp(-np.clip(point, -40, 40)))
        exponents: Array = np.exp(self._low + (self._high - self._low) * share)
        slope: Array = exponents * (self._high - self._low) * share * (1 - share)
        return exponents, slope

    def _inverse(self, surface: Surface) -> Array:
        logs = np.log(np.concatenate([surface.a, surface.b, [surface.c]]))
        share = np.clip((logs - self._low) / (self._high - self._low), 1e-6, 1 - 1e-6)
        return np.asarray(np.clip(np.log(share / (1 - share)), -_EDGE, _EDGE))

    def _random(self, starts: int, seed: int) -> list[Array]:
        generator = np.random.default_rng(seed)
        middle = np.log(np.array([0.4] * self.k + [0.8] * self.k + [0.3]))
        points = [middle, *(middle + generator.normal(0, 0.8, (starts - 1, 2 * self.k + 1)))]
        shares = [np.clip((one - self._low) / (self._high - self._low), 0.02, 0.98) for one in points]
        return [np.log(share / (1 - share)) for share in shares]

    def _columns(self, exponents: Array, losses: Array) -> Array:
        """Return the terms of the form, divided by the losses: K saved, K spent, xi, eps."""
        a, b, c = exponents[: self.k], exponents[self.k : -1], exponents[-1]
        decay = -c * self._v
        logs = np.concatenate(
            [-a * self._u, b * self._u + decay[:, None], decay[:, None], np.zeros((self.n, 1))], axis=1
        )
        return np.asarray(np.exp(logs) / losses[:, None])

    def _solve(self, point: Array, losses: Array, weights: Array) -> tuple[Array, Array, Array]:
        """Return the coefficients, the columns, and the weighted orthonormal basis of the terms that are used."""
        columns = self._columns(self._exponents(point)[0], losses)
        root = np.sqrt(weights)
        weighted = columns * root[:, None]
        size = np.linalg.norm(weighted, axis=0)
        size[size == 0] = 1.0
        stacked = np.column_stack([weighted / size, root])
        r: Array = np.asarray(np.linalg.qr(stacked, mode="r"))  # this small triangle has the same minimum
        coefficients = nnls(r[:, :-1], r[:, -1], maxiter=50 * r.shape[1])[0]
        used = coefficients > 0
        basis = np.linalg.qr(weighted[:, used] / size[used])[0] if used.any() else np.zeros((self.n, 0))
        return coefficients / size, columns, basis

    def _residuals(self, point: Array, losses: Array) -> Array:
        coefficients, columns, _ = self._solve(point, losses, np.ones(self.n))
        return np.asarray(columns @ coefficients - 1)

    def _search(self, point: Array, losses: Array, weights: Array) -> tuple[float, Array]:
        root = np.sqrt(weights)
        memory: dict[bytes, tuple[Array, Array, Array]] = {}

        def solved(at: Array) -> tuple[Array, Array, Array]:
            key = at.tobytes()
            if key not in memory:
                memory.clear()
                memory[key] = self._solve(at, losses, weights)
            return memory[key]

        def residuals(at: Array) -> Array:
            coefficients, columns, _ = solved(at)
            return np.asarray((columns @ coefficients - 1) * root)

        def jacobian(at: Array) -> Array:
            """Kaufman's approximation: the change of the terms, outside of what the coefficients can take up."""
            coefficients, columns, basis = solved(at)
            slope = self._exponents(at)[1]
            k, terms = self.k, columns * coefficients
            changes = np.column_stack(
                [-self._u * terms[:, :k], self._u * terms[:, k : 2 * k], -self._v * terms[:, k : 2 * k + 1].sum(1)]
            )
            changes *= root[:, None] * slope
            return np.asarray(changes - basis @ (basis.T @ changes))

        method = "lm" if self.n >= len(point) else "trf"
        result = least_squares(residuals, point, jac=jacobian, method=method, xtol=1e-10, ftol=1e-12, max_nfev=200)
        return float(2 * result.cost / self.n), np.asarray(result.x)

    def _surface(self, point: Array, coefficients: Array) -> Surface:
        exponents, k = self._exponents(point)[0], self.k
        return Surface(
            self.reference,
            self.compute_reference,
            alpha=coefficients[:k],
            a=exponents[:k],
            beta=coefficients[k : 2 * k],
            b=exponents[k:-1],
            xi=float(coefficients[-2]),
            c=float(exponents[-1]),
            eps=float(coefficients[-1]),
        )


def _scale(residuals: Array, spare: int) -> float:
    """Return the robust standard deviation of residuals from a fit with this number of degrees of freedom."""
    return float(_MAD * np.median(np.abs(residuals)) * np.sqrt(len(residuals) / spare))


def _huber(residuals: Array, scale: float) -> Array:
    limit = max(HUBER * scale, 1e-9)  # without noise, no point is an outlier
    return np.asarray(np.minimum(1.0, limit / np.maximum(np.abs(residuals), 1e-300)))
