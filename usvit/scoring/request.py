"""What a scoring job is asked for, and which of it identifies the job when it is resumed."""

from dataclasses import dataclass
from pathlib import Path

from usvit.config.scoring import ScoringSettings
from usvit.plain_data import Settings
from usvit.pseudonyms import Pseudonyms
from usvit.records import AbstentionZone
from usvit.scoring.ensemble import Ensemble


@dataclass(frozen=True)
class Request:
    """The arguments of ``score``."""

    models: tuple[Path, ...]
    inputs: tuple[str, ...]
    out: Path
    settings: ScoringSettings


def identity_of(request: Request, ensemble: Ensemble, pseudonyms: Pseudonyms, zone: AbstentionZone | None) -> Settings:
    """Return the settings that identify a job. The number of processes is not among them."""
    return {
        # A pseudonym instead of the paths: only the owner of the key can compare them.
        "input": pseudonyms.item("\0".join(str(Path(one).absolute()) for one in request.inputs)),
        "key": pseudonyms.fingerprint,
        "model": ensemble.sha256,
        "threshold": [ensemble.threshold, ensemble.threshold_origin],
        **({} if ensemble.unit_point is None else {"unit": str(ensemble.unit_point)}),
        "calibration": None if request.settings.calibration is None else ensemble.record().content()["calibration"],
        "frames": request.settings.frames,
        "flip": request.settings.flip,
        "abstain": request.settings.abstain,
        "keep_ids": request.settings.keep_ids,
        "thumbnails": request.settings.thumbnails,
        "products": sorted(request.settings.products),
        **({"pictures": True} if request.settings.pictures else {}),
        **({} if zone is None else {"abstain_at": [zone.low, zone.high, zone.origin]}),
        **{name: one.sha256 for name, one in ensemble.companions.items()},
        "batch_size": request.settings.batch_size,
        "device": ensemble.device_name,
    }
