"""``usvit watch`` as its user meets it: exit codes and what is printed."""

import json

import pytest

from tests.monitoring.months import write_month


@pytest.mark.slow
def test_the_exit_code_tells_of_an_alarm(usvit, tmp_path):
    months = [write_month(tmp_path / f"m{k}", f"2026-0{k}", brighter=40.0 * (k == 4)) for k in range(1, 5)]
    words = ["--out", tmp_path / "w", "--as-of", "2026-12-01"]
    quiet = usvit("watch", *months[:3], *words)
    assert (quiet.code, quiet.out.split("\n")[1][:10]) == (0, "Not tested"), quiet.err
    alarm = usvit("watch", *months, *words, "--json")
    assert alarm.code == 3 and json.loads(alarm.out)["verdict"] == "alarm"
    dealt_with = usvit("watch", *months, *words, "--since", "2026-05")
    assert dealt_with.code == 0 and "In control" in dealt_with.out
    stopped = usvit("watch", *months, *words, "--stop", "brightness>80")
    assert stopped.code == 3 and "Condition to stop, brightness>80" in stopped.out
    assert f"page: {tmp_path / 'w' / 'watch.html'}" in stopped.out


def test_mistakes_have_the_exit_code_2(usvit, tmp_path):
    answer = usvit("watch", tmp_path / "nothing", "--out", tmp_path / "w")
    assert answer.code == 2 and "is not a folder" in answer.err and not (tmp_path / "w").exists()
