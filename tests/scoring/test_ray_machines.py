"""Scoring on two machines of a Ray cluster gives the tables of one machine, also if one of the two dies."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from benchmarks.score_throughput import make_files
from tests.two_machines import ray_cluster

pytestmark = pytest.mark.slow

TABLES = ("scores.csv", "scores.parquet", "failures.csv", "files.csv", "studies.csv", "patients.csv")
N_FILES = 320


@pytest.fixture(scope="module")
def cluster():
    with ray_cluster() as started:
        yield started


@pytest.fixture(scope="module")
def command(run, tmp_path_factory):
    """The command that scores many files, but for its folder and its engine."""
    folder = tmp_path_factory.mktemp("machines")
    files = make_files(folder / "export", N_FILES, 256)
    (files / "damaged.dcm").write_bytes(b"no image")
    key = ("--key", str(folder / "key"), "--device", "cpu", "--precision", "fp32", "--workers", "1")
    return [sys.executable, "-m", "usvit", "score", "--model", str(run), "--input", str(files), *key]


@pytest.fixture(scope="module")
def local(command, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "scores"
    assert subprocess.run([*command, "--out", str(out)], capture_output=True).returncode == 3
    return out


def on_ray(cluster, command, out):
    engine = ("--engine", "ray", "--address", cluster.address, "--cpus", "1", "--out", str(out))
    started = cluster.head.command(*command, *engine)
    return subprocess.Popen(started, env=cluster.environment, stderr=subprocess.PIPE, text=True)


def rows_in(out):
    """Return the number of rows that a running job has committed."""
    try:
        with sqlite3.connect(f"file:{out / 'journal.sqlite'}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM rows").fetchone()[0])
    except sqlite3.OperationalError:  # the job is starting
        return 0


def shares(said):
    """Return how many portions each machine scored, by its address."""
    found = re.search(r"portions of 64 files scored: (.*)\.", said)
    assert found, said
    return {address: int(n) for n, address in re.findall(r"(\d+) on ([\d.]+\d)", found[1])}


def stopped_with_a_portion(cluster, job):
    """Stop the worker of each machine while it scores, so that both certainly hold a portion of the files."""
    stopped = {}
    while len(stopped) < 2:
        assert job.poll() is None, job.communicate()[1]
        for machine in {cluster.head, cluster.other} - stopped.keys():
            if (pid := machine.stop_inside("ray::_Scorer.score")) is not None:
                stopped[machine] = pid
        time.sleep(0.02)
    return stopped


def test_two_machines_give_the_tables_of_one_even_if_one_of_them_dies(cluster, command, local, tmp_path):
    said = on_ray(cluster, command, tmp_path / "both")
    for pid in stopped_with_a_portion(cluster, said).values():
        os.kill(pid, signal.SIGCONT)
    text = said.communicate(timeout=600)[1]
    assert said.returncode == 3, text
    assert shares(text).keys() == {cluster.head.address, cluster.other.address}
    assert sum(shares(text).values()) == -(-(N_FILES + 1) // 64)

    crashed = on_ray(cluster, command, tmp_path / "one")
    os.kill(stopped_with_a_portion(cluster, crashed)[cluster.head], signal.SIGCONT)
    while not rows_in(tmp_path / "one"):
        assert crashed.poll() is None, crashed.communicate()[1]
        time.sleep(0.05)
    cluster.other.crash()
    assert rows_in(tmp_path / "one") < N_FILES
    text = crashed.communicate(timeout=600)[1]
    assert crashed.returncode == 3, text
    assert f"a worker on {cluster.other.address} was lost" in text, text

    for out in ("both", "one"):
        for name in TABLES:
            assert (tmp_path / out / name).read_bytes() == (local / name).read_bytes(), (out, name)
