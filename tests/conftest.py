"""What all tests share: the command line in-process, a small phantom, and where the real data lie."""

import contextlib
import hashlib
import io
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # several tests at once: one thread each, before PyTorch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Tests of several threads run beside others: a thread that waits must not spin, which takes more time than the work.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

os.environ["USVIT_COMMAND_LINE"] = "1"  # errors name options; tests/test_errors.py shows them to Python users
os.environ.pop("USVIT_DATA", None)  # the folder of the user's own data; tests find real data by USVIT_TEST_DATA

import filelock
import hypothesis
import pytest
from markupsafe import Markup

from tests.descriptions import described
from usvit.data.datasets import examination_cache, manifest, manifest_file
from usvit.data.datasets.cards import load_card
from usvit.data.datasets.locate import open_dataset
from usvit.data.loading import array_cache
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import NoProgress
from usvit.upstream.sources import near_duplicates as upstream_near_duplicates

REPOSITORY = Path(__file__).resolve().parent.parent

# The same examples in every run: a change is blamed for what it breaks. To look for new ones:
# HYPOTHESIS_PROFILE=explore python -m pytest ...
# No example has a time limit, nor have all together (too_slow): a busy machine is no fault.
patient = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("repeatable", derandomize=True, **patient)
hypothesis.settings.register_profile("explore", max_examples=1000, **patient)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# Ray takes what is slow to answer for dead, and ends workers where other programs need the memory.
for key, value in {
    "worker_register_timeout_seconds": 600,
    "agent_register_timeout_ms": 600_000,
    "gcs_server_request_timeout_seconds": 600,
    "gcs_server_port_wait_time_s": 600,
    "gcs_rpc_server_reconnect_timeout_s": 600,
    "py_gcs_connect_timeout_s": 600,
    "health_check_timeout_ms": 600_000,
    "memory_monitor_refresh_ms": 0,
}.items():
    os.environ.setdefault(f"RAY_{key}", str(value))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker ends with minutes of work while the others have none."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(autouse=True, scope="session")
def _own_cache_of_examined_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the images of tests out of the user's cache; generated data sets stay in it, for the next call."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        for module in (examination_cache, array_cache):
            patch.setattr(module, "cache_dir", lambda: folder)
        yield


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of pytest-xdist share: what takes long is made once."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(autouse=True, scope="session")
def _images_are_described_once(shared_folder: Path) -> Iterator[None]:
    """Remember the descriptions of images (``tests/descriptions.py``)."""
    described.folder = shared_folder / "descriptions"
    described.folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        for module in (manifest, manifest_file, upstream_near_duplicates):
            patch.setattr(module, "describe", described)
        yield


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """The command line configures the logger ``usvit``; the next test begins without that."""
    yield
    logger = logging.getLogger("usvit")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True, scope="session")
def own_key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The key of the pseudonyms: no test reads or makes that of whoever runs the tests."""
    path = tmp_path_factory.mktemp("key") / "pseudonym.key"
    path.write_text(hashlib.sha256(b"of the tests").hexdigest() + "\n")
    path.chmod(0o600)
    before = os.environ.get("USVIT_KEY")
    os.environ["USVIT_KEY"] = str(path)
    yield path
    os.environ.pop("USVIT_KEY") if before is None else os.environ.update(USVIT_KEY=before)


def succeed(*arguments: object) -> str:
    """Run the command line in this process, for fixtures of a module or session; return what it said beside its result.

    Much cheaper than a process, which imports again what the command needs.
    """
    from usvit.cli import main

    said = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        patch.setattr(sys, "argv", ["usvit", *map(str, arguments)])
        try:
            main()
        except SystemExit as stop:
            assert not stop.code, said.getvalue()
    return said.getvalue()


@pytest.fixture
def usvit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run the command line in this process: ``usvit("cv", "--seed", 1)``."""
    from usvit.cli import main

    def run(*arguments: object) -> Answer:
        monkeypatch.setattr(sys, "argv", ["usvit", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run


@pytest.fixture(autouse=True, scope="module")
def _figures_are_drawn_where_they_are_read(request: pytest.FixtureRequest) -> Iterator[None]:
    """Leave out the lines of figures, half the time of a page, but where ``DRAWN`` says that a test reads them."""
    with pytest.MonkeyPatch.context() as patch:
        if DRAWN.isdisjoint(request.path.parts):
            from usvit.documents import svg  # on use, because it imports matplotlib

            patch.setattr(svg, "to_svg", without_lines)
        yield


DRAWN = frozenset(
    (
        *("reports", "documents", "node", "reviewing", "test_demo.py", "test_cli.py"),
        *("test_identities.py", "test_job.py", "test_pseudonyms.py"),  # no name is in any output
        *("test_fuzzing.py", "test_hostile_runs.py", "test_terminal.py"),
    )
)
"""Folders and files whose tests get whole figures; the processes that a test starts draw them, too."""


def without_lines(figure: object, *, name: str, title: str) -> Markup:
    return Markup(
        '<svg role="img" aria-labelledby="{0}-title" class="plot"><title id="{0}-title">{1}</title></svg>'
    ).format(name, title)


@pytest.fixture
def without_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the page, which takes half the time of a tiny run, where only networks and predictions are compared."""
    monkeypatch.setattr("usvit.reports.write_report", lambda path: None)


@pytest.fixture(scope="session")
def small_phantom(shared_folder: Path) -> Path:
    """48 images of 64 x 64 of about 24 patients."""
    root = shared_folder / "phantom" / "small"
    with filelock.FileLock(shared_folder / "phantom.lock"):
        return root if root.is_dir() else write_phantom(PhantomSpec(n=48, seed=3, size=64), root, workers=1)


@pytest.fixture(scope="session")
def embedded_phantom(shared_folder: Path) -> Path:
    """A cache that holds the phantom of the bare command, which needs no network and takes 20 s of CPU; only read."""
    cache = shared_folder / "embedded"

    def no_network(*_: object) -> None:
        raise OSError("the network is blocked")

    with filelock.FileLock(shared_folder / "embedded.lock"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket.socket, "connect", no_network)
        patch.setenv("USVIT_CACHE", str(cache))
        patch.delenv("USVIT_DATA", raising=False)
        open_dataset(load_card("phantom"), {}, NoProgress())
    return cache


@pytest.fixture(scope="session")
def tiny_run(shared_folder: Path, small_phantom: Path) -> Path:
    """A finished cross-validation of the small phantom by the options ``TINY``, made by the command; only read.

    With one thread, whatever this process has: resumed and repeated runs are compared with it byte by byte.
    """
    from tests.processes import command_line, ended_well, run  # on use, because it imports PyTorch

    out = shared_folder / "tiny-run"
    with filelock.FileLock(shared_folder / "tiny-run.lock"):
        if not (out / "report.html").is_file():
            ended_well(run(command_line, "cv", "--data-root", small_phantom, "--out", out, *TINY))
    return out


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB; skipped where this user may not mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if (
        shutil.which("mount") is None
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True
        ).returncode
    ):
        pytest.skip("mounting a small file system needs root on Linux")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; the test is skipped where it is absent."""
    folder = Path(os.environ.get("USVIT_TEST_DATA", REPOSITORY.parent / "shared" / "data"))
    if not (folder / "Dataset_BUSI_with_GT").is_dir():
        pytest.skip(
            "the real BUSI images are not here (set USVIT_TEST_DATA to the folder that holds Dataset_BUSI_with_GT)"
        )
    return folder


TINY = (
    *("--model", "timm:test_resnet", "--weights", "scratch", "--device", "cpu", "--precision", "fp32"),
    *("--set", "model.image_size=32", "--set", "train.batch_size=8", "--set", "train.steps=6"),
    *("--set", "train.eval_every=2", "--set", "split.folds=3"),
)


def tiny_settings() -> dict[str, dict[str, object]]:
    """Return the settings of ``TINY`` as sections, for a configuration that is built in Python."""
    found: dict[str, dict[str, object]] = {}
    for pair in TINY[TINY.index("--set") + 1 :: 2]:
        key, value = pair.split("=")
        section, name = key.split(".")
        found.setdefault(section, {})[name] = int(value)
    return found


"""Options for a cross-validation of seconds: a network of 0.5 million parameters, 3 folds of 6 steps."""
