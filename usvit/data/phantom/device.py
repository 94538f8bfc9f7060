"""Settings of the scanner for one patient: probe, depth, focus, gain. They do not depend on the class."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from usvit.errors import UsvitError, unknown

_SOUND_SPEED_MM_PER_US = 1.54  # in soft tissue, as scanners assume
FWHM = 2.3548  # full width at half maximum of a Gaussian, in standard deviations

_CHOOSABLE: Mapping[str, tuple[float, float]] = {
    "frequency_mhz": (3, 18),
    "depth_mm": (20, 60),
    "looks": (1, 8),
    "dynamic_range_db": (30, 90),
    "gain_db": (-20, 20),
    "penetration_db": (5, 60),
}
"""Settings that a phantom set may fix for all of its patients, and their limits."""


@dataclasses.dataclass(frozen=True)
class Scanner:
    """Settings that all views of a patient share.

    The ranges are our choice: frequency and depth as on linear probes in breast imaging, the others such that images
    look like those of different scanners and operators.
    """

    frequency_mhz: float  # centre frequency, 7-12
    depth_mm: float  # depth and width of the field of view, 30-42
    cycles: float  # pulse length (FWHM) in wavelengths
    f_number: float  # beam width at the focus (FWHM) in wavelengths
    focus_mm: float  # depth of the focus
    focal_zone_mm: float  # distance from the focus at which the beam is wider by sqrt(2)
    looks: int  # compounded frames
    dynamic_range_db: float  # shown between black and white
    gain_db: float  # overall gain error
    tgc_slope: float  # time gain relative to the true loss, 1 = perfect
    tgc_ripple_db: tuple[float, float, float]  # slider errors: amplitudes of three cosines along depth
    penetration_db: float  # tissue echo over noise at the bottom of the image

    @property
    def wavelength_mm(self) -> float:
        return _SOUND_SPEED_MM_PER_US / self.frequency_mhz

    @property
    def axial_sigma_mm(self) -> float:
        """Standard deviation of the pulse in depth, in mm; halved because the pulse travels there and back."""
        return self.cycles * self.wavelength_mm / 2 / FWHM

    def lateral_sigma_mm(self, depth_mm: np.ndarray) -> np.ndarray:
        """Standard deviation of the beam at each depth, in mm.

        A Gaussian beam, w(z) = w0 sqrt(1 + ((z - focus) / zone)^2). The zone is longer than that
        of a fixed focus, because receive focusing follows the echo.
        """
        narrowest = self.f_number * self.wavelength_mm / FWHM
        return narrowest * np.sqrt(1 + ((depth_mm - self.focus_mm) / self.focal_zone_mm) ** 2)


def sample_device(rng: np.random.Generator) -> Scanner:
    """Draw the settings of a scanner."""
    depth = rng.uniform(30, 42)
    return Scanner(
        frequency_mhz=rng.uniform(7, 12),
        depth_mm=depth,
        cycles=rng.uniform(1.6, 2.4),
        f_number=rng.uniform(2.0, 3.2),
        focus_mm=depth * rng.uniform(0.3, 0.6),
        focal_zone_mm=rng.uniform(9, 15),
        looks=int(rng.integers(2, 5)),
        dynamic_range_db=rng.uniform(50, 65),
        gain_db=rng.normal(0, 2.5),
        tgc_slope=rng.uniform(0.84, 1.0),
        tgc_ripple_db=(rng.normal(0, 1.2), rng.normal(0, 1.2), rng.normal(0, 1.2)),
        penetration_db=rng.uniform(16, 40),
    )


def parse_scanner(text: str) -> dict[str, float]:
    """Parse ``frequency_mhz=7,gain_db=6`` into settings of a scanner, in the order of ``_CHOOSABLE``.

    Raises:
        UsvitError: A setting is unknown, named twice, not a number, or outside its limits.
    """
    found: dict[str, float] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (word.strip() for word in part.partition("="))
        if name not in _CHOOSABLE:
            raise unknown("setting of the phantom's scanner:", name, _CHOOSABLE, "Example: frequency_mhz=7,gain_db=6.")
        if name in found:
            raise UsvitError(f"The phantom's scanner has {name} twice. Name each setting once.")
        low, high = _CHOOSABLE[name]
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if not low <= number <= high or (name == "looks" and number != int(number)):
            kind = "a whole number" if name == "looks" else "a number"
            raise UsvitError(
                f"The phantom's scanner has {name}={value or '(nothing)'}; it must be {kind}, {low} to {high}."
            )
        found[name] = number
    return {name: found[name] for name in _CHOOSABLE if name in found}


def with_settings(scanner: Scanner, settings: Mapping[str, float]) -> Scanner:
    """Fix some settings of a scanner; the focus keeps its place relative to the depth, the others stay as drawn."""
    changes: dict[str, Any] = dict(settings)
    if "looks" in changes:
        changes["looks"] = int(changes["looks"])
    if "depth_mm" in changes:
        changes["focus_mm"] = scanner.focus_mm / scanner.depth_mm * changes["depth_mm"]
    return dataclasses.replace(scanner, **changes)
