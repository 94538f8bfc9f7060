"""Sweeps that are simulated from a known surface, to show and to test what a fit recovers."""

import numpy as np

from usvit.upstream.scaling.surface import Array, Surface

PAPER_EXPONENTS = {"width": 0.22, "depth": 0.45, "mlp": 0.60}
"""Scaling exponents of Alabdulmohsin et al. 2023, section 4.1, for the 10-shot error on ImageNet."""
_CENTRE = (1968.0, 40.0, 6144.0)
VALUES = (
    (200.0, 300.0, 450.0, 600.0, 900.0, 1300.0),
    (3.0, 5.0, 8.0, 12.0, 18.0, 27.0),
    (400.0, 700.0, 1100.0, 1700.0, 2600.0, 4000.0),
)
_BUDGETS = (1e10, 3e10, 1e11, 3e11, 1e12)
"""Compute in GFLOPs."""


def known_surface() -> Surface:
    """Return a surface with the paper's exponents; its other numbers are made up, because the paper prints none."""
    c, a = 0.35, np.array([0.7, 0.4, 0.3])
    b = c / np.array(list(PAPER_EXPONENTS.values())) - a
    return Surface(
        reference=np.array([600.0, 12.0, 1500.0]),
        compute_reference=1e11,
        alpha=np.array([0.12, 0.12, 0.10]),
        a=a,
        beta=np.array([0.05, 0.08, 0.08]),
        b=b,
        xi=0.1,
        c=c,
        eps=0.15,
    )


def star_points() -> tuple[Array, Array]:
    """Return shapes (N, 3) and compute (N,) of a star sweep around the paper's centre."""
    shapes = [
        [value if place == k else middle for k, middle in enumerate(_CENTRE)]
        for place, values in enumerate(VALUES)
        for value in values
    ]
    points = [(shape, budget) for budget in _BUDGETS for shape in shapes]
    return np.array([shape for shape, _ in points]), np.array([budget for _, budget in points])


def example_sweep(noise: float = 0.0, seed: int = 0) -> str:
    """Return a simulated star sweep as CSV text with the columns that ``fit_shapes`` reads.

    Args:
        noise: Standard deviation of the relative error of each loss.
        seed: Seed of the errors.
    """
    shapes, compute = star_points()
    errors = np.random.default_rng(seed).normal(0, noise, len(compute)) if noise else np.zeros(len(compute))
    losses = known_surface().loss(shapes, compute) * (1 + errors)
    lines = ["width,depth,mlp,gflops,loss"]
    lines += [
        f"{shape[0]:g},{shape[1]:g},{shape[2]:g},{budget:.6g},{float(loss)!r}"
        for shape, budget, loss in zip(shapes, compute, losses, strict=True)
    ]
    return "\n".join(lines) + "\n"
