"""The step log: loss, speed, memory and time left, as a table for people and as events for TensorBoard.

A training that is killed and goes on leaves the same rows as one that was not.
"""

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import RecordWriter
from tensorboardX.summary import scalar

from usvit.files import append_text, disk_errors, write_text
from usvit.models.count import Cost
from usvit.train.memory import peak_gb
from usvit.train.peaks import peak_tflops

COLUMNS = ("step", "epoch", "lr", "loss", "images_per_second", "mfu", "memory_gb", "seconds_left")
EVENTS = "events.out.tfevents.0.usvit"
"""TensorBoard reads files of such names; its own would hold the machine's name."""
TABLE = "steps.csv"


class StepLog:
    """``steps.csv`` and TensorBoard's events, in one folder; one process writes them.

    Columns: ``step`` (counted from 1), ``epoch``, ``lr``; ``loss``, the mean since the row before; images_per_second of
    all devices since the training began; ``mfu`` (model FLOPs utilisation), the share in [0, 1] of what the devices
    could compute that ``Cost.operations`` of these images are; ``memory_gb``, the most of the first device, or of
    the process, in 10^9 bytes; ``seconds_left``. What is not known is empty.

    Args:
        folder: made where missing.
        device: of this process.
        cost: of one image (``usvit.models.count``); None: not known.
        world: devices that compute.
        stated_peak: ``train.peak_tflops``.
    """

    def __init__(
        self,
        folder: Path,
        *,
        device: torch.device,
        cost: Cost | None = None,
        world: int = 1,
        stated_peak: float | None = None,
    ):
        self._table, self._events_file, self._device = folder / TABLE, folder / EVENTS, device
        peak = peak_tflops(device, stated_peak)
        self._per_image = None if cost is None or peak is None else cost.operations / (peak * 1e12 * world)
        self._events: RecordWriter | None = None

    def resume(self, step: int) -> None:
        """Keep the rows up to ``step``, drop those that a killed process wrote after its last checkpoint.

        The events are written again from the table, so that both say the same.

        Raises:
            UsvitError: the folder cannot be written.
        """
        rows = [row for row in self.rows() if int(row["step"]) <= step]
        write_text(self._table, "".join(f"{','.join(one)}\n" for one in (COLUMNS, *(row.values() for row in rows))))
        self.close()
        with disk_errors(self._events_file):
            self._events_file.unlink(missing_ok=True)  # the writer would append
            self._events = RecordWriter(str(self._events_file))
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            for row in rows:
                self._add_events(int(row["step"]), {key: float(value) for key, value in row.items() if value})

    def rows(self) -> list[dict[str, str]]:
        """What the table holds, as text; a last line that was cut short is left out."""
        try:
            text = self._table.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        lines = [line.split(",") for line in text[: text.rfind("\n") + 1].splitlines()]
        if not lines or tuple(lines[0]) != COLUMNS:
            return []
        return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:] if len(line) == len(COLUMNS)]

    def add(self, row: Mapping[str, float]) -> None:
        """One row more, on the disk at once.

        Args:
            row: step, epoch, lr, loss, images_per_second, seconds_left.

        Raises:
            UsvitError: the disk is full.
        """
        if self._events is None:
            self.resume(int(row["step"]) - 1)
        speed = row["images_per_second"]
        mfu = None if self._per_image is None else self._per_image * speed
        whole: dict[str, float | None] = {**row, "mfu": mfu, "memory_gb": peak_gb(self._device)}
        line = ",".join(_text(key, whole.get(key)) for key in COLUMNS)
        with disk_errors(self._table):
            append_text(self._table, f"{line}\n")
            self._add_events(int(row["step"]), {key: value for key, value in whole.items() if value is not None})

    def evaluated(self, step: int, figures: Mapping[str, Any]) -> None:
        """Figures of an evaluation, for TensorBoard alone: the run keeps them in ``history.csv``."""
        with disk_errors(self._events_file):
            self._add_events(step, {key: value for key, value in figures.items() if value is not None})

    def close(self) -> None:
        if self._events is not None:
            self._events.close()
            self._events = None

    def _add_events(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            if key not in ("step", "epoch") and math.isfinite(value):
                tag = key if key.startswith("val_") else f"train/{key}"
                self._write(Event(wall_time=time.time(), step=step, summary=scalar(tag, value)))
        if self._events is not None:
            self._events.flush()

    def _write(self, event: Event) -> None:
        if self._events is not None:
            self._events.write(event.SerializeToString())


def _text(key: str, value: float | None) -> str:
    if value is None:
        return ""
    if key == "step":
        return str(int(value))
    # The loss and the rate are what a resumed training must repeat to the last digit; the rest is measured.
    return repr(float(value)) if key in ("loss", "lr", "epoch") else f"{value:.5g}"
