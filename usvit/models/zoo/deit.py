"""DeiT, with and without the distillation token (Touvron 2022, thesis, sections 3.2 to 3.4)."""

from usvit.models.spec import ModelSpec, PaperFigures
from usvit.models.zoo.common import THESIS, TIMM_SIZE, WHOLE_MILLIONS, figures, hub, shape

_BY = "Touvron 2022 (DeiT), ImageNet-1k"
_DISTILLED = "Touvron 2022 (DeiT), ImageNet-1k, distilled from RegNetY-16GF"


def _deit(size: str, *paper: PaperFigures) -> ModelSpec:
    timm = f"deit_{TIMM_SIZE[size]}_patch16"
    finer = {"in1k_384": (f"{timm}_384.fb_in1k", _BY)} if size == "b" else {}
    weights = hub(in1k=(f"{timm}_224.fb_in1k", _BY), **finer)
    return ModelSpec(f"deit_{size}", "deit", f"{timm}_224", THESIS, weights=weights, shape=shape(size), paper=paper)


def _distilled(size: str, *paper: PaperFigures) -> ModelSpec:
    timm = f"deit_{TIMM_SIZE[size]}_distilled_patch16"
    finer = {"in1k_384": (f"{timm}_384.fb_in1k", _DISTILLED)} if size == "b" else {}
    weights = hub(in1k=(f"{timm}_224.fb_in1k", _DISTILLED), **finer)
    return ModelSpec(f"deit_{size}_distilled", "deit", f"{timm}_224", THESIS, weights=weights, paper=paper)


MODELS = (
    _deit("ti", figures("Thesis, Table 3.5", 5, v100_16gb_best=2536.5, note=WHOLE_MILLIONS)),
    _deit(
        "s",
        figures("Thesis, Table 3.5", 22, v100_16gb_best=940.4),
        figures("Thesis, Table 3.17", 22, 4.6),
        figures("Thesis, Table 4.1", 22, 4.6, v100_32gb_batch32=940.4),
        figures("Thesis, Table 5.1", 22.0, 4.6, v100_32gb_batch256_amp=1891),
    ),
    _deit(
        "b",
        figures("Thesis, Table 3.5", 86, v100_16gb_best=292.3),
        figures("Thesis, Table 3.17", 86, 17.5),
        figures("Thesis, Table 3.17", 86, 55.4, 384, v100_16gb_best=85.9),
        figures("Thesis, Table 3.10", size=160, v100_16gb_best=609.31),
        figures("Thesis, Table 3.10", size=320, v100_16gb_best=134.13),
        figures("Thesis, Table 4.1", 86, 17.5, v100_32gb_batch32=292.3),
        figures("Thesis, Table 5.1", 86.6, 17.5, v100_32gb_batch256_amp=831),
    ),
    _distilled("ti", figures("Thesis, Table 3.5", 6, v100_16gb_best=2529.5)),
    _distilled("s", figures("Thesis, Table 3.5", 22, v100_16gb_best=936.2)),
    _distilled(
        "b",
        figures("Thesis, Table 3.5", 87, v100_16gb_best=290.9),
        figures("Thesis, Table 3.17", 87, 55.5, 384, v100_16gb_best=85.8),
    ),
)
