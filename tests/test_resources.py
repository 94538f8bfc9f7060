"""How much memory is free, and how much there is: by the machine, and by control groups of both versions."""

from pathlib import Path

import pytest

from usvit.resources import free_memory, total_memory

GIB = 2**30


def system(root: Path, *, available: int | None = 20 * GIB, cgroup: str = "", **files: str) -> Path:
    """Write what Linux tells in /proc and /sys; ``files`` are named by their path below the control groups."""
    (root / "proc/self").mkdir(parents=True)
    told = "" if available is None else f"MemAvailable:   {available // 1024} kB\n"
    (root / "proc/meminfo").write_text(f"MemTotal:       25000000 kB\n{told}HugePages_Total:       0\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    for name, content in files.items():
        path = root / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_without_a_control_group_it_is_what_the_machine_has(tmp_path):
    assert free_memory(system(tmp_path)) == 20 * GIB


def test_a_container_may_have_less_and_its_pages_of_files_count_as_free(tmp_path):
    files = {
        "job/memory.max": f"{4 * GIB}\n",
        "job/memory.current": f"{3 * GIB}\n",
        "job/memory.stat": f"anon {GIB}\nactive_file {GIB // 2}\ninactive_file {GIB}\n",
    }
    assert free_memory(system(tmp_path, cgroup="0::/job\n", **files)) == 2.5 * GIB


def test_the_tightest_of_the_groups_around_a_process_counts(tmp_path):
    files = {
        "memory.max": "max\n",
        "slurm/memory.max": f"{GIB}\n",
        "slurm/memory.current": "0\n",
        "slurm/memory.stat": "anon 0\n",
        "slurm/step/memory.max": "max\n",
    }
    assert free_memory(system(tmp_path, cgroup="0::/slurm/step\n", **files)) == GIB


def test_version_1_is_read_too(tmp_path):
    files = {
        "memory/docker/x/memory.limit_in_bytes": f"{2 * GIB}\n",
        "memory/docker/x/memory.usage_in_bytes": f"{GIB}\n",
        "memory/docker/x/memory.stat": f"cache 5\ntotal_inactive_file {GIB // 4}\n",
    }
    groups = "5:cpu:/docker/x\n4:memory:/docker/x\n0::/\n"
    assert free_memory(system(tmp_path, cgroup=groups, **files)) == 1.25 * GIB


@pytest.mark.parametrize("limit", ["max", "9223372036854771712"])
def test_a_group_without_a_limit_changes_nothing(tmp_path, limit):
    files = {
        "job/memory.max": f"{limit}\n",
        "job/memory.current": f"{GIB}\n",
        "job/memory.stat": "anon 0\n",
    }
    assert free_memory(system(tmp_path, cgroup="0::/job\n", **files)) == 20 * GIB


def test_where_nothing_is_told_nothing_is_known(tmp_path):
    assert free_memory(tmp_path) is None
    assert free_memory(system(tmp_path / "old", available=None)) is None


def test_more_than_the_limit_in_use_leaves_nothing(tmp_path):
    files = {"job/memory.max": "1000\n", "job/memory.current": "2000\n", "job/memory.stat": "anon 0\n"}
    assert free_memory(system(tmp_path, cgroup="0::/job\n", **files)) == 0


def test_the_whole_memory_is_that_of_the_machine_or_the_tightest_limit(tmp_path):
    files = {"slurm/memory.max": f"{8 * GIB}\n", "slurm/step/memory.max": "max\n", "slurm/memory.current": f"{GIB}\n"}
    assert total_memory(system(tmp_path / "job", cgroup="0::/slurm/step\n", **files)) == 8 * GIB
    assert total_memory(system(tmp_path / "machine")) == 25000000 * 1024
    old = {"memory/job/memory.limit_in_bytes": f"{2 * GIB}\n"}
    assert total_memory(system(tmp_path / "old", cgroup="4:memory:/job\n", **old)) == 2 * GIB
    assert total_memory(tmp_path / "nothing") is None
