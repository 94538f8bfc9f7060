"""The measurements, in order of importance: with the papers' sizes for a GPU, and with tiny ones for the CPU.

The estimates are guesses for an H100 with 16 cores, made before any measurement there; they decide what is started, and
the limits end what hangs.
"""

import os
from dataclasses import dataclass
from typing import Any

_HERE = "benchmarks.gpu_pieces"
_FUNCTIONS = {
    **{"cv": "crossval:measure", "pretrain": "pretraining:measure", "score": "scoring:measure"},
    **{"tests": "gpu_tests:measure", "distributed": "distributed:measure"},
    **{"bench": "zoo:protocol", "compile": "zoo:compiled"},
}
PIECES = tuple(_FUNCTIONS)


class UnknownPiece(Exception):
    """``--pieces`` names nothing that exists."""


@dataclass(frozen=True)
class Measurement:
    """One measurement, which runs in a process of its own."""

    key: str
    """``<piece>/<name>``."""
    says: str
    """What is measured, for ``--list`` and the page."""
    function: str
    """``module:function``, called with ``settings`` and the scratch folder."""
    settings: dict[str, Any]
    estimate: float
    """Seconds that it probably takes; it is not started if they are not left."""
    limit: float
    """Seconds after which it is ended."""

    @property
    def piece(self) -> str:
        return self.key.partition("/")[0]


def choose(measurements: list[Measurement], pieces: str | None) -> list[Measurement]:
    """Select the measurements of some pieces, or single ones, in the order of the plan.

    Raises:
        UnknownPiece: A name is neither a piece nor a key.
    """
    if pieces is None:
        return measurements
    names = {name.strip() for name in pieces.split(",") if name.strip()}
    known = {one.piece for one in measurements} | {one.key for one in measurements}
    if wrong := sorted(names - known):
        raise UnknownPiece(f"There is no piece or measurement '{wrong[0]}'. Pieces: {', '.join(PIECES)}; see --list.")
    return [one for one in measurements if one.piece in names or one.key in names]


def full() -> list[Measurement]:
    """Return the measurements for a GPU."""
    workers = max(1, _cores() - 2)
    cv = {
        **{"model": "vit_b32", "recipe": "gheflati2022_vit", "device": "cuda", "runs": 1},
        # All 250 steps of each fold: random weights could stop earlier than the paper's.
        "overrides": {"train.early_stopping.patience": None},
        **{"images": 943, "drawn_at": 320, "widths": [190, 600, 1048]},
    }
    starts = {"overrides": {"train.steps": 1, "train.early_stopping.patience": None}, "runs": 2}
    steps = {"images": 1000, "steps": 12, "rounds": 3, "device": "cuda", "workers": workers}
    pretrainings = (
        ("s16", "augreg_i1k", "vit_s16", 512, False),
        ("b16", "augreg_i1k", "vit_b16", 256, False),
        ("s16_compiled", "augreg_i1k", "vit_s16", 512, True),
        ("b16_compiled", "augreg_i1k", "vit_b16", 256, True),
        ("mae_b16", "mae", "vit_b16", 512, False),
        ("deit3_b16", "deit3_i1k", "deit3_b16", 256, False),
        ("deit3_s16", "deit3_i1k", "deit3_s16", 512, False),
        ("mae_b16_compiled", "mae", "vit_b16", 512, True),
    )
    score = {
        **{"model": "vit_b32", "overrides": {}, "files": 2000, "side": 512, "workers": workers, "batch_size": 64},
        **{"rounds": 2, "device": "cuda", "precision": "bf16"},
    }
    # The networks whose speed the papers print, by their protocols, and those of the 2022 study.
    single = {
        "deit3": ("deit_s", "deit3_b16", "deit3_l16", "resnet50", "patchconvnet_s60", "resmlp_s24"),
        "fixed": ("vit_b32", "vit_ti16", "resnet50"),
        "resmlp": ("resmlp_s12", "resmlp_s24", "deit_s"),
    }
    searched = {"latency": ("vit_s18x2",), "deit": ("deit_s", "resnet50"), "sweep": ("vit_ti16", "vit_b32")}
    compiled = {"mode": "both", "batch": 64, "precision": "bf16", "seconds": 15}
    return [
        _planned("cv/vit_b32", "five folds of 250 steps", cv, 180, 420),
        _planned("cv/vit_b32_aug", "the same, augmented", {**cv, "recipe": "gheflati2022_vit_aug"}, 240, 480),
        _planned("cv/start", "one step a fold, twice: the time until training starts", {**cv, **starts}, 120, 300),
        *(
            _pretrain(name, recipe, model, {**steps, "batch_size": batch}, compile_, 125 if compile_ else 90, 300)
            for name, recipe, model, batch, compile_ in pretrainings
        ),
        _planned("score/five", "five ViT-B/32", {**score, "fold": "all"}, 180, 420),
        _planned("score/one", "one ViT-B/32", {**score, "fold": "0"}, 180, 420),
        _planned("tests/gpu", "tests that need a GPU", {"files": None}, 90, 300),
        *_distributed({"model": "vit_b16", "batch_size": 256, "steps": 15, "device": "cuda"}, 45, 240),
        *(_bench(protocol, model, {}, 35, 180) for protocol, models in single.items() for model in models),
        *(_bench(protocol, model, {}, 150, 420) for protocol, models in searched.items() for model in models),
        *(_compile(model, compiled, 120, 400) for model in ("vit_b16", "vit_ti16", "resnet50")),
    ]


def _planned(key: str, says: str, settings: dict[str, Any], estimate: float, limit: float) -> Measurement:
    return Measurement(key, says, f"{_HERE}.{_FUNCTIONS[key.partition('/')[0]]}", settings, estimate, limit)


def _pretrain(
    name: str, recipe: str, model: str, settings: dict[str, Any], compiled: bool, estimate: float, limit: float
) -> Measurement:
    says = f"{recipe}, {model}{', compiled' if compiled else ''}"
    settings = {**settings, "recipe": recipe, "model": model, "compile": compiled}
    return _planned(f"pretrain/{name}", says, settings, estimate, limit)


def _distributed(settings: dict[str, Any], estimate: float, limit: float) -> list[Measurement]:
    shared = {"recipe": "augreg_i1k", "images": 1000, "rounds": 3, "workers": 2, **settings}
    strategies = {"none": "without a strategy", "ddp": "DDP, one process", "fsdp": "FSDP, one process"}
    return [
        _planned(f"distributed/{strategy}", says, {**shared, "strategy": strategy}, estimate, limit)
        for strategy, says in strategies.items()
    ]


def _bench(protocol: str, model: str, arguments: dict[str, Any], estimate: float, limit: float) -> Measurement:
    settings = {"protocol": protocol, "model": model, "arguments": {"seconds": 15, **arguments}}
    return _planned(f"bench/{protocol}/{model}", f"{model}, protocol {protocol}", settings, estimate, limit)


def _compile(model: str, arguments: dict[str, Any], estimate: float, limit: float) -> Measurement:
    settings = {"model": model, "arguments": arguments}
    return _planned(f"compile/{model}", f"{model}, torch.compile", settings, estimate, limit)


def tiny() -> list[Measurement]:
    """Return the same measurements with settings of seconds on one core of a CPU; their figures mean nothing."""
    small = {"model.vit.depth": 1, "model.image_size": 32}
    on_cpu = {"device": "cpu", "precision": "fp32", "workers": 0}
    cv = {
        **{"model": "vit_ti16", "recipe": "gheflati2022_vit", "device": "cpu", "runs": 1},
        "overrides": {**small, "train.steps": 2, "train.batch_size": 4, "split.folds": 2, "precision": "fp32"},
        **{"images": 48, "drawn_at": 64, "widths": [60, 70, 90]},
    }
    steps = {"images": 20, "steps": 1, "rounds": 1, "batch_size": 4, "overrides": small, **on_cpu}
    score = {
        "model": "timm:test_resnet",
        "overrides": {"model.image_size": 32, "split.folds": 2, "precision": "fp32"},
        **{"files": 24, "side": 64, "fold": "all", "batch_size": 8, "rounds": 1, **on_cpu, "workers": 1},
    }
    seconds = {"batch": 2, "repeats": 1, "image_size": 32, "threads": 1, "device": "cpu", "precision": "fp32"}
    shallow = {**seconds, "vit__depth": 1}
    mae = {**small, "mae.decoder_width": 16, "mae.decoder_depth": 1, "mae.decoder_heads": 2}
    pretrainings = (
        ("s16", "augreg_i1k", "vit_ti16", small, False),
        ("s16_compiled", "augreg_i1k", "vit_ti16", small, True),
        ("mae_b16", "mae", "vit_ti16", mae, False),
        ("deit3_s16", "deit3_i1k", "deit3_ti16", small, False),
    )
    return [
        _planned("cv/vit_b32", "two folds of two steps", cv, 40, 300),
        _planned("cv/vit_b32_aug", "the same, augmented", {**cv, "recipe": "gheflati2022_vit_aug"}, 40, 300),
        _planned("cv/start", "twice: the time until training starts", {**cv, "runs": 2}, 60, 300),
        *(
            _pretrain(name, recipe, model, {**steps, "overrides": overrides}, compile_, 90 if compile_ else 25, 400)
            for name, recipe, model, overrides, compile_ in pretrainings
        ),
        _planned("score/five", "a tiny CNN", score, 60, 300),
        _planned("tests/gpu", "tests that need a GPU", {"files": ["tests/training/test_device.py"]}, 30, 300),
        *_distributed({**steps, "model": "vit_ti16"}, 25, 200),
        _bench("fixed", "vit_ti16", shallow, 40, 200),
        _bench("resmlp", "resnet50", {**seconds, "image_size": 64}, 40, 200),
        _compile("vit_ti16", {**shallow, "mode": "infer", "seconds": 15}, 120, 400),
    ]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
