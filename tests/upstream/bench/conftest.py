"""Answers of the child processes, without starting any."""

from typing import Any

import pytest

from usvit.upstream.bench.case import BenchmarkCase, Preflight
from usvit.upstream.records.bench import BenchResult

SEEN = {
    "machine": {
        "device": "cpu",
        "name": "A processor",
        "cores": 2,
        "threads": 2,
        "free_memory_gb": 20.0,
        "system": "Linux x86_64",
        "tf32": None,
    },
    "versions": {"usvit": "0", "torch": "2", "timm": "1"},
}


def row_of(case: BenchmarkCase, seconds: float, **more: Any) -> BenchResult:
    """A measurement of ``seconds`` a batch."""
    return case.result(
        "ok",
        precision="fp32" if case.hardware.precision == "auto" else case.hardware.precision,
        **{
            "images_per_second": case.batch / seconds,
            "seconds_median": seconds,
            "seconds_min": seconds * 0.9,
            "seconds_q1": seconds * 0.95,
            "seconds_q3": seconds * 1.1,
            "seconds_mean": seconds * 1.02,
            "repeats": case.repeats,
            "warmup": 2,
            "peak_memory_mib": 100.0,
            "memory": "max_memory_allocated",
            "load": 1.0,
            **more,
        },
    )


def without_number(case: BenchmarkCase, status: str, reason: str) -> BenchResult:
    return case.result(status, reason=reason)  # type: ignore[arg-type]


@pytest.fixture
def models_seen():
    """What ``probe`` would say of the cases, from the zoo alone."""
    from usvit.models.zoo import find_model

    def look(cases: list[BenchmarkCase]) -> Preflight:
        models = []
        for name in dict.fromkeys(case.model["name"] for case in cases):
            spec = find_model(name)
            paper = [
                {"table": printed.table, "image_size": printed.image_size, "protocol": key, "images_per_second": value}
                for printed in spec.paper
                for key, value in printed.images_per_second.items()
            ]
            about = {"name": name, "vit": {}, "architecture": spec.architecture, "params": 1, "macs": 1}
            models.append({**about, "paper": paper})
        return Preflight.model_validate({**SEEN, "models": models})

    return look
