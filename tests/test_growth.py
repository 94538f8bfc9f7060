"""``benchmarks.growth``: the exponent of known curves, and every row of the table."""

import re
import runpy
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import growth
from benchmarks.growth_fit import fit_growth
from benchmarks.processes import Measured
from tests.conftest import succeed

SIZES = (100, 320, 1000, 3200, 10_000)
linux = pytest.mark.skipif(sys.platform != "linux", reason="the memory of processes is read from /proc")


def curve(fixed, factor, exponent, noise=0.0):
    n = np.array(SIZES, dtype=float)
    return (fixed + factor * n**exponent) * np.exp(noise * np.random.default_rng(3).normal(size=n.size))


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.1, 1.5, 2.0])
@pytest.mark.parametrize("fixed", [0.0, 5.0])
def test_the_exponent_of_a_known_curve_is_found_beside_its_start_up(exponent, fixed):
    found = fit_growth(SIZES, curve(fixed, 60 / 10_000**exponent, exponent))
    assert found.exponent == pytest.approx(exponent, abs=0.02)
    assert found.fixed == pytest.approx(fixed, abs=0.3)


def test_the_plain_slope_hides_growth_behind_the_start_up():
    found = fit_growth(SIZES, curve(20.0, 60 / 10_000**2, 2.0))
    assert found.slope < 0.5 and found.exponent == pytest.approx(2, abs=0.02)


def test_noise_of_a_few_percent_changes_the_exponent_little():
    assert fit_growth(SIZES, curve(5.0, 0.01, 1.0, noise=0.03)).exponent == pytest.approx(1, abs=0.12)


def test_a_cost_that_hardly_grows_has_no_exponent_and_one_that_does_not_grow_passes_no_limit():
    found = fit_growth(SIZES, curve(5.0, 0.00005, 1.0))
    assert found.exponent is None and found.size_at(10) == pytest.approx(100_000, rel=0.01)
    found = fit_growth(SIZES, curve(5.0, 0.0, 1.0, noise=0.003))
    assert found.exponent is None and found.size_at(10) is None


def test_the_size_at_a_limit_solves_the_fitted_curve():
    straight = fit_growth(SIZES, curve(5.0, 0.01, 1.0))
    assert straight.size_at(1005) == pytest.approx(100_000, rel=1e-3)
    square = fit_growth(SIZES, curve(5.0, 1e-6, 2.0))
    assert square.size_at(5 + 1e6) == pytest.approx(1e6, rel=0.05)
    assert straight.size_at(1.0) is None


@pytest.mark.parametrize(
    ("sizes", "costs"), [((1, 2, 3), (1, 2, 3)), ((1, 2, 3, 4), (1, 2, 0, 4)), ((1, 1, 1, 1), (1, 2, 3, 4))]
)
def test_too_few_sizes_and_impossible_costs_are_refused(sizes, costs):
    with pytest.raises(ValueError, match="size"):
        fit_growth(sizes, costs)


def run_here(command, environment):
    """``measure`` without a measurement: it does here what a fresh Python does with ``command``.

    That is ``-c PROGRAM``, ``-m usvit`` and the words of a command, or a file.
    """
    assert command[0] == sys.executable
    arguments = command[1:]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        if arguments[0] == "-c":
            exec(arguments[1], {"__name__": "__main__"})
        elif arguments[:2] == ["-m", "usvit"]:
            succeed(*arguments[2:])
        else:
            patch.setattr(sys, "argv", arguments)
            with pytest.raises(SystemExit) as stop:
                runpy.run_path(arguments[0], run_name="__main__")
            assert not stop.value.code
    return Measured(wall=2.0, cpu=1.0, held=1e6, resident=2e6)


def rows_of(text):
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    for row in rows:
        assert row.count(" | ") == 6 and re.search(r"\| \d+\.\d to \d+\.\d \|", row), row
    return [row.split(" | ")[0].removeprefix("| ") for row in rows]


@linux
@pytest.mark.slow
def test_the_quick_mode_runs_every_command_and_prints_every_row(monkeypatch, capsys):
    monkeypatch.setattr(growth, "measure", run_here)
    growth.main(["--quick"])
    said = capsys.readouterr().out
    assert rows_of(said) == [case.name for case in growth.CASES]
    assert re.search(r"ratio \d+\.\d\d \(goal", said)


@linux
@pytest.mark.slow
def test_one_row_is_measured_by_the_command_of_the_documentation():
    words = [sys.executable, "-m", "benchmarks.growth", "--quick", "--only", "resamples"]
    done = subprocess.run(words, cwd=growth.REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert rows_of(done.stdout) == [growth.CASES[growth.KEYS.index("resamples")].name]
