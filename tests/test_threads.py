"""Settings of native threads: made before PyTorch starts, never against the user's."""

import os
import subprocess
import sys

import pytest

from usvit.threads import SPINS, configure_threads, cpu_quota


def test_waiting_threads_sleep_soon():
    environment = {}
    configure_threads(environment)
    assert environment["GOMP_SPINCOUNT"] == str(SPINS) and environment["KMP_BLOCKTIME"] == "1"
    assert environment["OPENBLAS_NUM_THREADS"] == "1"


@pytest.mark.parametrize(
    "own",
    [{"OMP_WAIT_POLICY": "ACTIVE"}, {"OMP_WAIT_POLICY": "PASSIVE"}, {"GOMP_SPINCOUNT": "7", "KMP_BLOCKTIME": "200"}],
)
def test_the_users_own_settings_stay(own):
    environment = {**own, "OMP_NUM_THREADS": "3"}  # OpenBLAS respects it, too
    configure_threads(environment)
    assert environment == {**own, "OMP_NUM_THREADS": "3"}


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("", None), ("1 0\n", None), ("x y", None)]
)
def test_a_containers_limit_is_read(tmp_path, text, cores):
    (tmp_path / "cpu.max").write_text(text)
    assert cpu_quota(tmp_path / "cpu.max") == cores
    assert cpu_quota(tmp_path / "nothing") is None


def test_a_container_of_one_and_a_half_cores_gets_two_threads(tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    monkeypatch.setattr("usvit.threads._QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr("usvit.threads.usable_cores", lambda: 64)
    environment = {}
    configure_threads(environment)
    assert environment["OMP_NUM_THREADS"] == "2"
    monkeypatch.setattr("usvit.threads.usable_cores", lambda: 1)  # taskset: fewer cores than the container may use
    environment = {}
    configure_threads(environment)
    assert "OMP_NUM_THREADS" not in environment


def test_the_command_line_sets_them_before_pytorch_is_imported():
    program = (
        "import os, sys; from usvit.cli import main; sys.argv = ['usvit', '--version']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    )
    own = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=own, check=True).stdout
    assert said.split()[-2:] == [str(SPINS), "False"]
