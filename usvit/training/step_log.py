"""The step log: loss, speed, memory and time left, as a CSV table and as events for TensorBoard.

A training that was killed and resumed leaves the same rows as an uninterrupted one.
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

from usvit.files import TABLE_BYTES, append_text, disk_errors, read_bytes, write_text
from usvit.models import Cost
from usvit.training.device import peak_gb, peak_tflops

COLUMNS = ("step", "epoch", "lr", "loss", "images_per_second", "mfu", "memory_gb", "seconds_left")
EVENTS = "events.out.tfevents.0.usvit"
"""TensorBoard reads files with such names; its default name would contain the machine's name."""
TABLE = "steps.csv"


class StepLog:
    """Writes ``steps.csv`` and TensorBoard's events into one folder, from one process.

    Columns: ``step`` (counted from 1), ``epoch``, ``lr``; ``loss``, the mean since the previous row;
    ``images_per_second`` over all devices since the start of the training; ``mfu`` (model FLOPs utilization), the
    ``Cost.operations`` of these images as a share in [0, 1] of the devices' peak; ``memory_gb``, the peak memory of
    the first device, or of the process, in 10^9 bytes; ``seconds_left``. Unknown values are empty.

    Args:
        folder: created if it does not exist.
        device: device of this process.
        cost: operations of one image (``usvit.models.complexity``), or None if they are unknown.
        world: number of devices.
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
        """Keep the rows up to ``step`` and drop those that a killed process wrote after its last checkpoint.

        The events are rewritten from the table, so that both agree.

        Raises:
            UsvitError: the folder cannot be written.
        """
        rows = [row for row in self.rows() if int(row["step"]) <= step]
        write_text(self._table, "".join(f"{','.join(one)}\n" for one in (COLUMNS, *(row.values() for row in rows))))
        self.close()
        with disk_errors(self._events_file):
            self._events_file.unlink(missing_ok=True)  # the writer appends to an existing file
            self._events = RecordWriter(str(self._events_file))
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            for row in rows:
                self._add_events(int(row["step"]), {key: float(value) for key, value in row.items() if value})

    def rows(self) -> list[dict[str, str]]:
        """Return the rows of the table as strings, without lines that a crash of the machine cut or damaged."""
        if not self._table.exists():
            return []
        text = read_bytes(self._table, TABLE_BYTES).decode("utf-8", "replace")
        lines = [line.split(",") for line in text[: text.rfind("\n") + 1].split("\n")]
        if tuple(lines[0]) != COLUMNS:
            return []
        return [dict(zip(COLUMNS, line, strict=True)) for line in lines[1:] if _is_row(line)]

    def add(self, row: Mapping[str, float]) -> None:
        """Append a row and write it to the disk at once.

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
        """Write the figures of an evaluation for TensorBoard; the run keeps them in ``history.csv``."""
        with disk_errors(self._events_file):
            self._add_events(step, {key: value for key, value in figures.items() if value is not None})

    def close(self) -> None:
        """Close the file of the events."""
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
    # A resumed training repeats loss and learning rate to the last digit; the other columns are measurements.
    return repr(float(value)) if key in ("loss", "lr", "epoch") else f"{value:.5g}"


def _is_row(cells: list[str]) -> bool:
    try:
        int(cells[0])
        return len([float(cell or 0) for cell in cells]) == len(COLUMNS)
    except ValueError:
        return False
