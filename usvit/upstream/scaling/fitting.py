"""``usvit shape fit``: the loss of a sweep as a function of shape and compute."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from usvit.config.keywords import takes_settings
from usvit.files import alone_in, sha256_of_file
from usvit.records import save_record
from usvit.upstream.config.shape import ShapeFitSettings
from usvit.upstream.records.scaling import ScalingDimension, ScalingPoint, ScalingRecord, ScalingValue
from usvit.upstream.records.written_record import WrittenRecord
from usvit.upstream.scaling.bootstrap import band, bootstrap, limits
from usvit.upstream.scaling.document import ADVICE
from usvit.upstream.scaling.pages import write_fit_page
from usvit.upstream.scaling.shapes import TITLES
from usvit.upstream.scaling.surface import Array, Surface, numbers_of
from usvit.upstream.scaling.tables import SweepTable, read_sweep
from usvit.upstream.scaling.variable_projection import BOUNDS, HUBER, SurfaceFit, SweepFitter

WIDEST = 3.0
"""An exponent is identified if the upper end of its band is at most this multiple of the lower end."""
_AT_BOUND = 1.02
"""An exponent within this factor of its bound has not been found, only limited."""


class ShapeFit(WrittenRecord[ScalingRecord]):
    """A fit: the content of ``scaling.json``, this file and its page."""

    @property
    def unidentified(self) -> list[str]:
        """Reasons why the data do not identify some exponents; empty if they identify all."""
        return [
            f"{TITLES[one.name]}: {one.exponent.reason}" for one in self.record.dimensions if one.exponent.value is None
        ]

    @property
    def complaint(self) -> str | None:
        """One paragraph about all of them with what helps; None if the data identify all exponents."""
        if not self.unidentified:
            return None
        several = "exponents" if len(self.unidentified) > 1 else "exponent"
        return f"The data do not identify the {several} of the {'; '.join(self.unidentified)}. {ADVICE}"


@takes_settings
def fit_shapes(
    table: str | Path,
    *,
    settings: ShapeFitSettings,
    command: str = "usvit.fit_shapes",
) -> ShapeFit:
    """Fit the loss as a function of shape and compute, and derive how the best shape grows with compute.

    The form is that of Alabdulmohsin et al. 2023, section 3, with one data exponent and one irreducible loss for all
    dimensions (``usvit.upstream.scaling.surface``). It is fitted to relative residuals with Huber's loss by variable
    projection; the bands are percentiles of a residual bootstrap.

    Args:
        table: ``study.csv`` of a study that ``plan_shapes`` wrote, or any CSV of shape, compute and loss.
        settings: See ``ShapeFitSettings``.
        command: What the user called, for the record.

    Returns:
        The record, its file and its page. An exponent that the data do not identify has no value but a reason
        (``unidentified``).

    Raises:
        UsvitError: The table cannot be read, a value is missing or invalid, or it has too few budgets or networks.

    Example:
        >>> import tempfile, usvit
        >>> from pathlib import Path
        >>> from usvit.upstream.scaling import example_sweep
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "sweep.csv").write_text(example_sweep())  # simulated, with the paper's exponents
        >>> fit = usvit.fit_shapes(folder / "sweep.csv", draws=50)
        >>> {one.name: round(one.exponent.value, 2) for one in fit.record.dimensions}
        {'width': 0.22, 'depth': 0.45, 'mlp': 0.6}
    """
    path = Path(table)
    sweep = read_sweep(path, settings.loss, settings.compute, settings.dimensions, settings.drop_missing)
    fitter = SweepFitter(sweep.shapes, sweep.compute)
    found = fitter.fit(sweep.losses, seed=settings.seed)
    surfaces = bootstrap(fitter, sweep.losses, found, settings.draws, settings.seed)
    folder = settings.out or path.parent / "shape-fit"
    record = _record(sweep, found, surfaces, fitter.spare, command, settings.seed)
    with alone_in(folder):
        save_record(folder / "scaling.json", record)
        return ShapeFit(folder / "scaling.json", record, write_fit_page(folder, record))


def _record(
    sweep: SweepTable, found: SurfaceFit, surfaces: Sequence[Surface], spare: int, command: str, seed: int
) -> ScalingRecord:
    from usvit import __version__

    surface = found.surface
    exponents = np.array([one.exponents for one in surfaces])
    data = np.array([one.c for one in surfaces])
    floor = np.array([one.eps for one in surfaces])
    fitted = sweep.losses * (1 + found.residuals)
    warnings = []
    if sweep.left_out:
        warnings.append(f"Left out, because they have no loss: {len(sweep.left_out)} of the trainings.")
    if sweep.ignored:
        named = " and the ".join(TITLES[name] for name in sweep.ignored)
        warnings.append(f"Varies in the table without being fitted, so that its effect counts as error: the {named}.")
    if sweep.constant:
        named = ", ".join(f"{TITLES[name]} {value:g}" for name, value in sweep.constant.items())
        warnings.append(f"Constant in the sweep, and therefore not fitted: {named}.")
    return ScalingRecord(
        command=command,
        usvit_version=__version__,
        table=sweep.path.name,
        table_sha256=sha256_of_file(sweep.path),
        dimensions=[
            ScalingDimension(
                name=name,  # type: ignore[arg-type]
                values=sorted({float(one) for one in sweep.shapes[:, place]}),
                reference=float(surface.reference[place]),
                alpha=float(surface.alpha[place]),
                a=float(surface.a[place]),
                beta=float(surface.beta[place]),
                b=float(surface.b[place]),
                exponent=_exponent_of(surface, place, exponents[:, place], spare),
            )
            for place, name in enumerate(sweep.dimensions)
        ],
        constant=sweep.constant,  # type: ignore[arg-type]
        compute_reference=surface.compute_reference,
        compute=(float(sweep.compute.min()), float(sweep.compute.max())),
        n_budgets=sweep.n_budgets,
        xi=surface.xi,
        c=_identified(surface.c, limits(data, spare)),
        eps=ScalingValue(value=surface.eps, ci95=limits(floor, spare).tolist(), reason=None),
        residual_sd=found.scale,
        huber=HUBER,
        n_outliers=int((found.weights < 1).sum()),
        seed=seed,
        parameters=numbers_of(surface),
        draws=[numbers_of(one) for one in surfaces],
        points=[
            ScalingPoint(
                row=sweep.names[place],
                group=sweep.groups[place],
                shape={name: float(sweep.shapes[place, k]) for k, name in enumerate(sweep.dimensions)},  # type: ignore[misc]
                gflops=float(sweep.compute[place]),
                loss=float(sweep.losses[place]),
                fitted=float(fitted[place]),
                weight=float(found.weights[place]),
            )
            for place in range(len(sweep.losses))
        ],
        warnings=warnings,
    )


def _exponent_of(surface: Surface, place: int, drawn: Array, spare: int) -> ScalingValue:
    """Return the scaling exponent of a dimension with its band, or the reason why the data do not identify it.

    Args:
        surface: The fitted surface.
        place: Place of the dimension.
        drawn: Its exponent in the bootstrap draws, NaN where it is undefined.
        spare: Degrees of freedom of the fit.
    """
    if surface.alpha[place] <= 0:
        return _missing("in this sweep, larger values do not reduce the loss (include smaller ones)")
    if surface.beta[place] <= 0:
        return _missing(
            "in this sweep, larger values cost nothing at a fixed compute (include larger ones, or smaller budgets)"
        )
    for name, value in (("a", float(surface.a[place])), ("b", float(surface.b[place])), ("c", surface.c)):
        low, high = BOUNDS[name]
        if value < low * _AT_BOUND or value > high / _AT_BOUND:
            return _missing(
                f"the fit drives the exponent {name} to its limit of {low if value < 1 else high:g}, so that the curve "
                "has no clear minimum"
            )
    found = band(drawn, spare)
    if found is None:
        share = float(np.mean(~np.isfinite(drawn)))
        return _missing(f"in {100 * share:.0f} % of the bootstrap draws the loss has no minimum over it")
    return _identified(float(surface.exponents[place]), found)


def _identified(value: float, found: Sequence[float] | Array) -> ScalingValue:
    low, high = (float(one) for one in found)
    if high > WIDEST * low:
        return _missing(f"its 95 % band of {low:.3g} to {high:.3g} is wider than a factor of {WIDEST:g}")
    return ScalingValue(value=value, ci95=(low, high), reason=None)


def _missing(reason: str) -> ScalingValue:
    return ScalingValue(value=None, ci95=None, reason=reason)
