"""Commands that write several files into a folder, while another process writes into it."""

import filelock
import pytest

from tests.cli.runs import make_run
from usvit.files import LOCK
from usvit.upstream.scaling import example_sweep


@pytest.fixture
def words(tmp_path):
    """Command -> its arguments, without ``--out``."""
    run, other = (make_run(tmp_path / name, seed=seed) for seed, name in enumerate(("run", "other"), start=1))
    (tmp_path / "sweep.csv").write_text(example_sweep(0.0005))
    return {
        "evaluate": ["evaluate", run],
        "compare": ["compare", run, other],
        "plan": ["plan", "accuracy", "--like", run],
        "fit": ["shape", "fit", tmp_path / "sweep.csv", "--draws", 50],
        "bench": ["bench", "vit_ti16"],
    }


@pytest.mark.parametrize("command", ["evaluate", "compare", "plan", "fit", "bench"])
def test_the_second_of_two_commands_writes_nothing_and_says_why(usvit, tmp_path, words, command):
    out = tmp_path / "out"
    out.mkdir()
    with filelock.FileLock(out / LOCK):
        answer = usvit(*words[command], "--out", out)
        assert answer.code == 2 and f"Another process is working on {out}" in answer.err, answer.err
        assert [path.name for path in out.iterdir()] == [LOCK]
    if command != "bench":  # which takes seconds
        assert usvit(*words[command], "--out", out).code == 0
        assert not (out / LOCK).exists()
