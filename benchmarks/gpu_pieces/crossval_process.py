"""The process of one cross-validation: it notes when it started, imported, had the device, and did which task."""

import time

STARTED = time.time()

import json  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


class Tasks:
    """A progress display that notes begin and end of each task."""

    def __init__(self) -> None:
        self.done: list[dict[str, Any]] = []

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self.finish()
        self.done.append({"name": name, "unit": unit, "begin": time.time(), "end": None})

    def update(self, done: int, note: str = "") -> None:
        pass

    def finish(self) -> None:
        if self.done and self.done[-1]["end"] is None:
            self.done[-1]["end"] = time.time()


def main() -> None:
    request = json.loads(sys.argv[1])
    import torch

    import usvit
    from usvit.experiments import cross_validation  # noqa: F401  imports all that a run needs until its first step

    imported = time.time()
    if request["device"] == "cuda":
        torch.zeros(1, device="cuda")  # the context of CUDA; cuBLAS begins when usvit has made it deterministic
        torch.cuda.synchronize()
    ready = time.time()
    tasks = Tasks()
    run = usvit.cross_validate(
        "phantom",
        request["model"],
        recipe=request["recipe"],
        weights="scratch",
        data_root=Path(request["data"]),
        out=Path(request["out"]),
        progress=tasks,
        overrides={**request["overrides"], "device": request["device"]},
    )
    tasks.finish()
    finished = time.time()
    record = run.record
    told = {
        "started": STARTED,
        "imported": imported,
        "ready": ready,
        "finished": finished,
        "tasks": tasks.done,
        "folds": [
            {"steps": one.steps, "seconds": one.seconds, "images_per_second": one.images_per_second}
            for one in record.results
        ],
        "config": record.config.as_written(),
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if request["device"] == "cuda" else None,
        "name": record.device.name,
        "precision": record.device.precision,
        "n_images": record.data.n_images,
        "n_groups": record.data.n_groups,
    }
    Path(request["answer"]).write_text(json.dumps(told), encoding="utf-8")


if __name__ == "__main__":
    main()
