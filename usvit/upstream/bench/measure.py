"""One measurement, in the process that was started for it (``usvit.upstream.bench.worker``)."""

import os
import signal

import torch
from torch import nn

from usvit.config import OptimConfig
from usvit.errors import UsvitError
from usvit.training import Device, make_optimizer, resolve_device, seed_everything
from usvit.upstream.bench.case import BenchmarkCase
from usvit.upstream.bench.memory import PeakMemory, bound_memory
from usvit.upstream.bench.steps import make_steps, new_network
from usvit.upstream.bench.timing import time_steps
from usvit.upstream.records.bench import BenchResult, Status

_NO_MEMORY = ("can't allocate memory", "out of memory", "bad_alloc", "Cannot allocate memory", "ALLOC_FAILED")
_COMPILER = ("torch._inductor", "torch._dynamo", "torch.fx", "triton")


def measure(case: BenchmarkCase) -> list[BenchResult]:
    """Build the network, warm up, time its steps and read the peak memory.

    Call it in a separate process: it sets threads, memory limits and an alarm that ends the process after
    ``case.hard_limit`` seconds.

    Returns:
        One row, or two if ``case.branches`` is set. A failure is a row with a reason.
    """
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None
    precision: str = case.hardware.precision
    try:
        device = prepare_process(case)
        precision = device.precision
        return _measured(case, device, load)
    except Exception as error:
        _alarm(0)
        status, reason = _reason(error, case)
        return [case.result(status, reason=reason, precision=precision, load=load)]


def prepare_process(case: BenchmarkCase) -> Device:
    """Set threads, device and memory limit."""
    if case.hardware.threads:
        torch.set_num_threads(case.hardware.threads)
    device = resolve_device(case.hardware.device, case.hardware.precision)
    if case.mode == "train":
        seed_everything(0)  # usvit trains with deterministic algorithms, so their cost is part of its speed
    else:
        torch.manual_seed(0)
        torch.backends.cudnn.benchmark = True  # shapes are fixed, so cuDNN can choose the fastest algorithms
    bound_memory(device.type, case.hardware.memory_gb)
    return device


def _measured(case: BenchmarkCase, device: Device, load: float | None) -> list[BenchResult]:
    _load_libraries()
    memory = PeakMemory(device.type, case.hardware.compile)
    steps = make_steps(case, device, new_network(case))

    def limit_time() -> None:
        """Let the alarm end the process at the hard limit, which is its default action."""
        _alarm(case.hard_limit)

    if not case.hardware.compile:
        limit_time()
    timing = time_steps(
        steps,
        device=device.type,
        repeats=case.repeats,
        seconds=case.seconds,
        compiled=case.hardware.compile,
        compiled_now=limit_time if case.hardware.compile else lambda: None,
        warm_now=memory.restart,
    )
    _alarm(0)
    alone = len(steps) == 1
    rows = []
    for name in steps:
        figures = timing.summary(name)
        if case.hardware.compile:
            figures["compile_seconds"] = max(0.0, timing.first[name] - figures["seconds_median"])
        rows.append(
            case.result(
                "ok",
                precision=device.precision,
                branches=None if alone else name,
                images_per_second=case.batch / figures["seconds_median"],
                **figures,
                repeats=timing.repeats,
                warmup=timing.warmup,
                peak_memory_mib=memory.peak_mib() if alone else None,
                memory=memory.method if alone else "not measured: two networks share the process",
                load=load,
            )
        )
    return rows


def _alarm(seconds: int) -> None:
    if hasattr(signal, "alarm"):  # not on Windows, where only the parent process limits the time
        signal.alarm(seconds)


def _load_libraries() -> None:
    """Use the optimizer once, so that PyTorch's lazy imports do not count as the network's memory."""
    network = nn.Linear(2, 2)
    optimizer = make_optimizer(network, OptimConfig(name="sgd"))
    network(torch.zeros(1, 2)).sum().backward()
    optimizer.step()


def _reason(error: Exception, case: BenchmarkCase) -> tuple[Status, str]:
    """Turn an exception into a status and a line of text."""
    text = " ".join(str(error).split())
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(sign in text for sign in _NO_MEMORY):
        bound = case.hardware.memory_gb
        return "out_of_memory", f"a batch of {case.batch} does not fit into " + (
            f"{bound:g} GB" if bound else "the memory that is free"
        )
    if isinstance(error, UsvitError):
        return "failed", text
    if case.hardware.compile and type(error).__module__.startswith(_COMPILER):
        return "failed", f"torch.compile failed: {text[:300]}"
    return "failed", f"{type(error).__name__}: {text[:300]}"
