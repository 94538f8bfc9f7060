"""The public function of the benchmarks. pandas is imported after the arguments have been checked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.arguments import checked_arguments
from usvit.config import merge, nested
from usvit.errors import UsvitError, unknown
from usvit.progress import Progress, shown_progress
from usvit.upstream.bench.case import Hardware
from usvit.upstream.bench.protocols import Protocol, find_protocol

if TYPE_CHECKING:
    from usvit.upstream.records.bench import BenchRecord, Precision

_MODES = {"train": ("train",), "infer": ("infer",), "both": ("train", "infer")}
_PRECISIONS: Mapping[str, tuple["Precision", ...]] = {
    "auto": ("auto",),
    "fp32": ("fp32",),
    "bf16": ("bf16",),
    "both": ("fp32", "bf16"),
}


@checked_arguments
def benchmark(
    models: str | Sequence[str],
    *,
    protocol: str = "fixed",
    mode: str | None = None,
    batch: int | None = None,
    max_batch: int | None = None,
    repeats: int = 30,
    seconds: float = 60.0,
    image_size: int | None = None,
    classes: int = 1000,
    device: str = "auto",
    precision: str | None = None,
    compile: bool = False,
    channels_last: bool = False,
    threads: int | None = None,
    memory_gb: float | None = None,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str = "usvit.benchmark",
    overrides: Mapping[str, Any] | None = None,
    **settings: Any,
) -> "BenchRecord":
    """Measure images/s and peak memory of networks by the protocol of a paper.

    Weights are random and images are noise. Each measurement is made in a process of its own.

    Args:
        models: Names of ``usvit models list``, or ``timm:NAME``.
        protocol: ``fixed``, ``deit``, ``resmlp``, ``deit3``, ``sweep`` or ``latency``.
        mode: ``train``, ``infer`` or ``both``. Default: that of the protocol.
        batch: Batch size, or the first one of a search. Default: that of the protocol.
        max_batch: The largest batch size of a search. Default: that of the protocol.
        repeats: Number of timed steps, at least 1. Their median counts.
        seconds: Time limit of each measurement, without building and compiling.
        image_size: Side of the input in pixels. Default: that of the network.
        classes: Number of outputs of the head.
        device: ``auto``, ``cpu`` or ``cuda``.
        precision: ``auto``, ``fp32``, ``bf16`` or ``both``. Default: that of the protocol.
        compile: Use ``torch.compile``. Its time is reported separately.
        channels_last: Compute convolutions in NHWC order.
        threads: Threads of the CPU. Default: as PyTorch chooses.
        memory_gb: Limit of memory in GB. Default: nearly all that is free.
        out: Folder for bench.json, bench.csv and bench.svg. Default: nothing is written.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the record.
        overrides: Settings of the section ``model`` of the configuration by dotted key, such as
            ``{"vit.stem": "hmlp_bn"}``.
        **settings: The same settings with double underscores for dots: ``vit__stem="hmlp_bn"``.

    Returns:
        The content of ``bench.json`` (docs/reference/bench.schema.json).

    Raises:
        UsvitError: An argument is wrong or a measurement is impossible, which is found before the first measurement,
            or ``out`` already holds results.

    Example:
        >>> import usvit
        >>> result = usvit.benchmark(
        ...     "vit_ti16", mode="infer", batch=2, repeats=1, image_size=32, threads=1, device="cpu", precision="fp32",
        ...     vit__depth=1,
        ... )
        >>> [(row.model, row.batch, row.status) for row in result.results]
        [('vit_ti16', 2, 'ok')]
    """
    chosen = find_protocol(protocol)
    modes = _MODES.get(mode) if mode else chosen.modes
    if modes is None:
        raise unknown("mode", str(mode), _MODES)
    precisions = _PRECISIONS.get(precision or chosen.precision)
    if precisions is None:
        raise unknown("precision", str(precision), _PRECISIONS)
    if device not in ("auto", "cpu", "cuda"):
        raise unknown("device", device, ("auto", "cpu", "cuda"))
    chosen = replace(_with_batch(chosen, batch, max_batch), repeats=repeats)
    model_settings = _model_settings({**settings, **(overrides or {})}, image_size)

    from usvit.upstream.bench.execution import BenchSettings, run_bench

    return run_bench(
        BenchSettings(
            models=(models,) if isinstance(models, str) else tuple(models),
            protocol=chosen,
            modes=modes,  # type: ignore[arg-type]
            precisions=precisions,
            hardware=Hardware(device, "auto", compile, channels_last, threads, memory_gb),  # type: ignore[arg-type]
            seconds=seconds,
            n_classes=classes,
            model_settings=model_settings,
        ),
        out=None if out is None else Path(out),
        command=command,
        progress=shown_progress(progress),
    )


def _with_batch(protocol: Protocol, batch: int | None, max_batch: int | None) -> Protocol:
    first, last = batch or protocol.batch, max_batch or protocol.max_batch
    if protocol.search == "none":
        if max_batch is not None:
            raise UsvitError(f"The protocol {protocol.name} measures one batch size: pass --batch, not --max-batch.")
    elif first > last:
        raise UsvitError(f"--batch {first} is larger than --max-batch {last}: the search would end before it begins.")
    return replace(protocol, batch=first, max_batch=last)


def _model_settings(given: Mapping[str, Any], image_size: int | None) -> dict[str, Any]:
    """Nest ``{"vit.stem": "hmlp_bn"}`` as the section ``model``; the prefix ``model.`` of a key is optional."""
    settings = nested(given)
    if isinstance(settings.get("model"), dict):
        settings = merge(settings, settings.pop("model"))
    for key in ("name", "weights", "weights_sha256"):
        if key in settings:
            raise UsvitError(f"usvit bench does not accept --set {key}: models are arguments, and weights are random.")
    if image_size is not None:
        settings["image_size"] = image_size
    return settings
