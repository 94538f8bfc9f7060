"""What all tests share: the command line in-process, a small phantom, and where the real data lie."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:  # several tests at once: one thread each, before PyTorch is imported
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import pytest

from usvit.data.phantom import PhantomSpec, write_phantom

REPOSITORY = Path(__file__).resolve().parent.parent

# The same examples in every run: a change is blamed for what it breaks. To look for new ones:
# HYPOTHESIS_PROFILE=explore python -m pytest ...
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.register_profile("explore", max_examples=1000, deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first, so that no worker ends with minutes of work while the others have none."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


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


@pytest.fixture(scope="session")
def small_phantom(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """48 images of 64 x 64 of about 24 patients."""
    return write_phantom(PhantomSpec(n=48, seed=3, size=64), tmp_path_factory.mktemp("phantom") / "small", workers=1)


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
"""Options for a cross-validation of seconds: a network of 0.5 million parameters, 3 folds of 6 steps."""
