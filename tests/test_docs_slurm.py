"""The Slurm example of the documentation, with stand-ins for what only a cluster has."""

import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "how-to" / "slurm.md"
SRUN = """#!/bin/bash
echo "$@" > srun.txt
mkdir -p runs/deit_s
echo '{"state": "running"}' > runs/deit_s/run.json
[ "$END" = now ] && { echo '{"state": "finished"}' > runs/deit_s/run.json; exit 0; }
trap 'sleep 0.3; echo saved > saved.txt; exit 1' TERM
touch ready.txt
while :; do sleep 0.05; done
"""
SCONTROL = """#!/bin/bash
[ "$1" = show ] && { echo node1; echo node2; exit 0; }
echo "$@" >> scontrol.txt
"""

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def start(folder, end):
    script = re.search(r"```bash\n(#!/bin/bash\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert script is not None
    (folder / "job.sh").write_text(script[1])
    for name, text in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    slurm = {"SLURM_JOB_NODELIST": "node[1-2]", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": "17"}
    environment = {**os.environ, **slurm, "PATH": f"{folder}:{os.environ['PATH']}", "END": end}
    return subprocess.Popen(["bash", "job.sh"], cwd=folder, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_a_job_that_is_taken_away_saves_and_goes_back_into_the_queue(tmp_path):
    job = start(tmp_path, "asked")
    until = time.monotonic() + 300
    while not (tmp_path / "ready.txt").exists():
        assert time.monotonic() < until and job.poll() is None
        time.sleep(0.02)
    job.send_signal(signal.SIGTERM)
    said = job.communicate(timeout=300)[1]
    assert job.returncode == 0, said
    assert (tmp_path / "saved.txt").exists()  # it was waited for
    assert (tmp_path / "scontrol.txt").read_text() == "requeue 17\n"


def test_a_job_that_ends_by_itself_is_not_put_back(tmp_path):
    job = start(tmp_path, "now")
    assert job.communicate(timeout=300)[1] == ""
    assert job.returncode == 0
    assert not (tmp_path / "scontrol.txt").exists()
    assert "--nnodes 2 --nproc-per-node 8" in (tmp_path / "srun.txt").read_text()
    assert "--rdzv-endpoint node1:29500 --rdzv-id 17-0" in (tmp_path / "srun.txt").read_text()
