"""The processes of a node: how they start, and how they end with their service."""

import importlib
import logging
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from usvit.config.node import NodeConfig, load_node_config
from usvit.errors import EXIT_USER, UsvitError
from usvit.threads import configure_threads

QUIET = ("pynetdicom", "highdicom", "pydicom", "dicomweb_client", "urllib3", "retrying")
"""Loggers whose messages quote names, UIDs or data sets."""


def start_child(name: str, target: str, config: Path, argument: str = "") -> BaseProcess:
    """Start a process of the service; it is spawned, because a fork copies locks of threads.

    Args:
        name: name of the process.
        target: ``module:function``; the function takes the configuration and an event that ends it, and the argument
            if it is not "".
        config: the validated configuration as a file.
        argument: a text for the function.
    """
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=run_child, args=(target, config, argument), name=name)
    process.start()
    return process


def run_child(target: str, config: Path, argument: str) -> None:
    """Run the main function of a process until SIGTERM arrives or the service ends."""
    stop = stop_on_signals()
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_stop_with, args=(parent, stop), daemon=True).start()
    configure_threads()
    silence_libraries()
    module, _, function = target.partition(":")
    run: Callable[..., None] = getattr(importlib.import_module(module), function)
    arguments: tuple[NodeConfig | threading.Event | str, ...] = (load_node_config(config), stop)
    try:
        run(*arguments, *([argument] if argument else []))
    except UsvitError as error:
        print(f"usvit node, {function}: {error}", file=sys.stderr, flush=True)
        os._exit(EXIT_USER)
    except Exception as error:  # the message may quote a data set
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{Path(place.tb_frame.f_code.co_filename).name}:{place.tb_lineno}" if place is not None else "?"
        print(f"usvit node, {function}: stopped by {type(error).__name__} at {where}", file=sys.stderr, flush=True)
        os._exit(1)


def stop_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set."""
    stop = threading.Event()

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, ask)
    signal.signal(signal.SIGINT, ask)
    return stop


def silence_libraries() -> None:
    """Keep libraries from logging and warning about what is in data sets."""
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.simplefilter("ignore")


def _stop_with(parent: BaseProcess, stop: threading.Event) -> None:
    parent.join()
    stop.set()
