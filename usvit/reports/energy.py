"""Estimate of the energy of a training: power times time."""

import re
from dataclasses import dataclass

from usvit.records import RunRecord

BOARD_POWER = {
    "h200 nvl": 600,
    "h200": 700,
    "h100 pcie": 350,
    "h100 nvl": 400,
    "h100": 700,
    "a100 80gb pcie": 300,
    "a100-pcie": 250,
    "a100": 400,
    "v100-pcie": 250,
    "v100-sxm2": 300,
    "l40s": 350,
    "nvidia l4": 72,
    "tesla t4": 70,
    "rtx a6000": 300,
    "rtx 6000 ada": 300,
    "rtx 4090": 450,
    "rtx 3090": 350,
    "rtx 2080 ti": 250,
}
"""Part of a device's name -> maximum board power in W from the manufacturer's data sheet, looked up in this order."""


@dataclass(frozen=True)
class Energy:
    """Kilowatt hours, or None; ``text`` explains either."""

    kwh: float | None
    text: str


def energy_estimate(record: RunRecord, watts: float | None = None, source: str | None = None) -> Energy:
    """Estimate the energy of the training of all folds.

    Args:
        record: run.json.
        watts: power during training, if the user knows it.
        source: how the power was measured, such as "wall meter".

    Returns:
        The user's power times the time. Without it, on a GPU whose board power is known, that power times the time: an
        upper bound for the GPU alone. Otherwise no number, because the power of a shared CPU is not known.
    """
    seconds = record.training_seconds
    if seconds is None:
        return Energy(None, "not supplied: the run recorded no training time")
    kind, name = (record.device.type, record.device.name or "") if record.device else (None, "")
    hours = seconds / 3600
    if watts is not None:
        kwh = watts * hours / 1000
        how = f"{source}" if source else "no source given"
        return Energy(kwh, f"{kwh:.3g} kWh = {watts:g} W (supplied: {how}) x {hours:.3g} h of training")
    # Whole words: an L40 is no L4, and a 3090 Ti no 3090.
    found = next(
        (power for part, power in BOARD_POWER.items() if re.search(rf"\b{part}\b(?! ti\b)", name.lower())), None
    )
    if kind != "cuda" or found is None:
        what = f"the power of {name or 'the device'} during this training is not known"
        return Energy(None, f"not supplied: {what} (give 'watts' in the --answers file)")
    kwh = found * hours / 1000
    return Energy(
        kwh,
        f"at most {kwh:.3g} kWh for the GPU alone = {found} W (board power of {name}, stated by "
        f"its manufacturer) x {hours:.3g} h of training; host and cooling are not included",
    )
