"""The public function of the benchmarks. pandas is imported after the arguments have been checked."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from usvit.config import merge, nested
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError
from usvit.plain_data import Settings
from usvit.progress import Progress, shown_progress
from usvit.upstream.bench.case import Hardware
from usvit.upstream.bench.protocols import Protocol, find_protocol
from usvit.upstream.config.bench import BenchmarkSettings

if TYPE_CHECKING:
    from usvit.upstream.records.bench import BenchRecord, Mode, Precision

_MODES: Mapping[str, tuple["Mode", ...]] = {"train": ("train",), "infer": ("infer",), "both": ("train", "infer")}
_PRECISIONS: Mapping[str, tuple["Precision", ...]] = {
    "auto": ("auto",),
    "fp32": ("fp32",),
    "bf16": ("bf16",),
    "both": ("fp32", "bf16"),
}


@takes_settings
def benchmark(
    models: str | Sequence[str],
    *,
    settings: BenchmarkSettings,
    out: str | Path | None = None,
    progress: Progress | None = None,
    command: str = "usvit.benchmark",
    overrides: Mapping[str, Any] | None = None,
    **model_settings: Any,
) -> "BenchRecord":
    """Measure images/s and peak memory of networks by the protocol of a paper.

    Weights are random and images are noise. Each measurement is made in a process of its own.

    Args:
        models: Names of ``usvit models list``, or ``timm:NAME``.
        settings: See ``BenchmarkSettings``.
        out: Folder for bench.json, bench.csv and bench.svg. Default: nothing is written.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the record.
        overrides: Settings of the section ``model`` of the configuration by dotted key, such as
            ``{"vit.stem": "hmlp_bn"}``.
        **model_settings: The same settings with double underscores for dots: ``vit__stem="hmlp_bn"``.

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
    protocol = _with_batch(find_protocol(settings.protocol), settings)

    from usvit.upstream.bench.execution import BenchSettings, run_bench

    return run_bench(
        BenchSettings(
            models=(models,) if isinstance(models, str) else tuple(models),
            protocol=protocol,
            modes=_MODES[settings.mode] if settings.mode else protocol.modes,
            precisions=_PRECISIONS[settings.precision or protocol.precision],
            hardware=Hardware(
                settings.device,
                "auto",
                settings.compile,
                settings.channels_last,
                settings.threads,
                settings.memory_gb,
            ),
            seconds=settings.seconds,
            n_classes=settings.classes,
            model_settings=_model_settings({**model_settings, **(overrides or {})}, settings.image_size),
        ),
        out=None if out is None else Path(out),
        command=command,
        progress=shown_progress(progress),
    )


def _with_batch(protocol: Protocol, settings: BenchmarkSettings) -> Protocol:
    first, last = settings.batch or protocol.batch, settings.max_batch or protocol.max_batch
    if protocol.search == "none":
        if settings.max_batch is not None:
            raise UsvitError(f"The protocol {protocol.name} measures one batch size: pass --batch, not --max-batch.")
    elif first > last:
        raise UsvitError(f"--batch {first} is larger than --max-batch {last}: the search would end before it begins.")
    return replace(protocol, batch=first, max_batch=last, repeats=settings.repeats)


def _model_settings(given: Mapping[str, Any], image_size: int | None) -> Settings:
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
