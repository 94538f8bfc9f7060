"""``benchmarks/gpu.py``: it resumes, keeps to its time, survives what fails, and writes its page."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.gpu_pieces import crossval, page, plan, requirements, runner
from benchmarks.gpu_pieces.crossval import phases
from benchmarks.gpu_pieces.results import Results, UnusableResults, empty
from tests.conftest import REPOSITORY
from tests.gpu_benchmark_functions import MACHINE, fake

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the command ends groups of processes")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Call the command's loop with made-up measurements: ``call(*measurements, minutes=1)``."""
    monkeypatch.setattr(runner, "ENVIRONMENT", fake("environment", "machine"))

    def run(*measurements, minutes=1.0, tiny=True, again=False):
        results = Results.open(tmp_path / "out", tiny=tiny)
        code = runner.measure_all(
            list(measurements),
            results,
            minutes=minutes,
            again=again,
            scratch=tmp_path / "scratch",
            commit="abc",
            repository=REPOSITORY,
        )
        return code, Results.read(tmp_path / "out").content["results"]

    return run


@pytest.mark.slow
def test_a_second_call_measures_nothing_again(call, tmp_path):
    one = fake("cv/one", "count", file=str(tmp_path / "calls"))
    code, first = call(one)
    assert (code, first["cv/one"]["status"], first["cv/one"]["values"]) == (0, "ok", {"calls": 1})
    before = (tmp_path / "out" / "gpu.json").read_bytes()
    assert call(one)[0] == 0
    assert (tmp_path / "out" / "gpu.json").read_bytes() == before
    assert call(one, again=True)[1]["cv/one"]["values"] == {"calls": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "status", "says"),
    [
        ("fail", "failed", "the reason of the failure"),
        ("crash", "failed", "exit code -11"),
        ("not_json", "failed", "not JSON compliant"),
        ("needs_a_package", "skipped", "skipped: needs a_package_that_nobody_has"),
        ("needs_a_file_of_usvit", "failed", "a_file_that_is_not_there"),
    ],
)
def test_what_fails_costs_only_itself_and_says_why(call, tmp_path, function, status, says):
    code, results = call(fake("cv/bad", function), fake("cv/good", "count", file=str(tmp_path / "calls")))
    assert results["cv/bad"]["status"] == status
    assert says in results["cv/bad"]["error"]
    assert results["cv/good"]["status"] == "ok"
    assert code == 0


@pytest.mark.slow
def test_a_failure_stays_but_a_missing_package_is_looked_for_again(call):
    bad, lacking = fake("cv/bad", "fail"), fake("cv/lacking", "needs_a_package")
    call(bad, lacking)
    _, results = call(dataclasses.replace(bad, function="tests.gpu_benchmark_functions:machine"), lacking)
    assert (results["cv/bad"]["status"], results["cv/bad"]["session"]) == ("failed", 0)
    assert (results["cv/lacking"]["status"], results["cv/lacking"]["session"]) == ("skipped", 1)


def alive(pid):
    """Return whether a process still works; one that has ended but was not waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the test looks into /proc")
def test_a_hang_ends_with_all_its_processes_at_its_time_limit(call, tmp_path):
    file = tmp_path / "pid"
    _, results = call(fake("cv/hang", "hang", limit=2, file=str(file)), fake("cv/next", "machine"))
    assert results["cv/hang"]["status"] == "timeout"
    assert "ended after 2 s, its time limit" in results["cv/hang"]["error"]
    assert not alive(int(file.read_text()))
    assert results["cv/next"]["status"] == "ok"


@pytest.mark.slow
def test_what_does_not_fit_into_the_time_is_left_for_the_next_call(call, tmp_path, capsys):
    long = fake("cv/long", "count", estimate=100, file=str(tmp_path / "long"))
    short = fake("score/short", "count", file=str(tmp_path / "short"))
    code, results = call(long, short, minutes=1)
    assert (code, list(results)) == (3, ["score/short"])
    assert "For the next call: cv/long" in capsys.readouterr().out
    code, results = call(long, short, minutes=2)
    assert (code, results["cv/long"]["status"], results["score/short"]["values"]) == (0, "ok", {"calls": 1})


@pytest.mark.slow
def test_what_the_end_of_the_call_cuts_off_is_tried_twice(call, tmp_path):
    slow = fake("cv/slow", "hang", estimate=0, file=str(tmp_path / "pid"))
    for attempt, left in ((1, 3), (2, 0)):
        code, results = call(slow, minutes=2 / 60)
        assert (results["cv/slow"]["status"], results["cv/slow"]["attempts"], code) == ("cut", attempt, left)
    before = (tmp_path / "out" / "gpu.json").read_bytes()
    assert call(slow)[0] == 0
    assert (tmp_path / "out" / "gpu.json").read_bytes() == before


@pytest.mark.slow
def test_what_took_the_machine_down_is_tried_once_more(call, tmp_path):
    one = fake("cv/one", "count", file=str(tmp_path / "calls"))
    for attempts, status in ((1, "ok"), (2, "started")):
        results = Results.open(tmp_path / "out", tiny=True)
        results.content["results"] = {"cv/one": {"status": "started", "attempts": attempts, "session": 0}}
        results.save()
        assert call(one)[1]["cv/one"]["status"] == status


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the test looks into /proc")
def test_a_call_that_is_ended_takes_its_measurement_along(tmp_path):
    script = f"""
import sys
from benchmarks import gpu
from benchmarks.gpu_pieces import plan, runner
from tests.gpu_benchmark_functions import fake
runner.ENVIRONMENT = fake("environment", "machine")
plan.tiny = lambda: [fake("cv/hang", "hang", file={str(tmp_path / "pid")!r})]
sys.argv = ["gpu.py", "--tiny", "--out", {str(tmp_path / "out")!r}]
sys.exit(gpu.main())
"""
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, stdout=subprocess.DEVNULL)
    file, patience = tmp_path / "pid", time.monotonic() + 120
    while not (file.exists() and file.read_text()):
        assert process.poll() is None and time.monotonic() < patience
        time.sleep(0.05)
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not alive(int(file.read_text()))
    entry = json.loads((tmp_path / "out" / "gpu.json").read_text())["results"]["cv/hang"]
    assert (entry["status"], entry["attempts"]) == ("started", 1)


@pytest.mark.slow
def test_without_a_gpu_only_tiny_settings_are_measured(call, capsys):
    assert call(fake("cv/one", "machine"), tiny=False) == (2, {})
    assert "--tiny" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["{", "[]", '{"schema": 1}'])
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path, content):
    (tmp_path / "gpu.json").write_text(content)
    with pytest.raises(UnusableResults, match=r"gpu\.json"):
        Results.open(tmp_path, tiny=False)
    assert (tmp_path / "gpu.json").read_text() == content


def test_tiny_figures_never_mix_with_others(tmp_path):
    Results.open(tmp_path, tiny=True).save()
    with pytest.raises(UnusableResults, match="with --tiny"):
        Results.open(tmp_path, tiny=False)


def command(*arguments, cwd=REPOSITORY):
    words = [sys.executable, str(REPOSITORY / "benchmarks" / "gpu.py"), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd)


@pytest.mark.slow
def test_the_command_needs_neither_torch_nor_usvit_to_say_what_is_missing(tmp_path):
    """A bare machine has to be able to run this."""
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'usvit', 'numpy', 'pydantic'], None)); "
    for arguments in (["--list"], ["--requirements"]):
        script = f"{blocked}sys.argv = ['gpu.py', *{arguments}]; from benchmarks import gpu; sys.exit(gpu.main())"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=REPOSITORY)
        assert done.returncode == 0, done.stderr


def test_mistakes_get_one_sentence(tmp_path):
    assert "--out DIR is missing" in command().stderr
    wrong = command("--out", tmp_path, "--pieces", "cv,cats")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        f"Error: There is no piece or measurement 'cats'. Pieces: {', '.join(plan.PIECES)}; see --list.\n",
    )


def test_the_plan_names_each_measurement_once_and_each_piece_has_a_table():
    for measurements in (plan.full(), plan.tiny()):
        keys = [one.key for one in measurements]
        assert len(set(keys)) == len(keys)
        assert {one.piece for one in measurements} == set(plan.PIECES) == set(page.SECTIONS)
        # At most the 8.5 minutes of a call, so that each is started by some call.
        assert all(one.estimate <= one.limit <= 8.5 * 60 for one in measurements)
    assert [one.key for one in plan.choose(plan.full(), "score/one,cv")] == [
        *("cv/vit_b32", "cv/vit_b32_aug", "cv/start", "score/one")
    ]


@pytest.mark.slow
def test_the_plan_names_recipes_networks_and_settings_that_exist():
    from benchmarks.pretrain_throughput import Timed
    from usvit.config import build, build_config, load_recipe, nested
    from usvit.models import find_model
    from usvit.upstream.bench.protocols import find_protocol
    from usvit.upstream.config.pretrain import PretrainConfig
    from usvit.upstream.config.sweep import read_recipe, settings_for

    seen = set()
    for one in [*plan.full(), *plan.tiny()]:
        settings = one.settings
        if "model" in settings:
            find_model(settings["model"])
        if one.piece == "cv":
            build_config(load_recipe(settings["recipe"]), nested(settings["overrides"]))
        elif one.piece in ("pretrain", "distributed"):
            timed = Timed.of(settings)
            build(PretrainConfig, settings_for(read_recipe(settings["recipe"]), settings["model"]), timed.overrides)
        elif one.piece == "bench":
            find_protocol(settings["protocol"])
        seen.add(one.piece)
    assert seen == set(plan.PIECES)


def test_the_phases_of_a_run_add_up_to_its_wall_time():
    def task(name, unit, begin, end):
        return {"name": name, "unit": unit, "begin": begin, "end": end}

    told = {
        "started": 100.5,
        "imported": 104.0,
        "ready": 105.0,
        "finished": 140.0,
        "tasks": [
            task("checking images", "images", 106.0, 108.0),
            task("comparing images", "pairs", 108.0, 109.0),
            task("decoding images", "images", 110.0, 114.0),
            task("fold 1/2", "steps", 115.0, 120.0),
            task("fold 2/2", "steps", 123.0, 127.0),
            task("something new", "things", 130.0, 131.0),
        ],
    }
    found = phases(told, spawned=100.0, ended=141.0)
    assert found == {
        "python": 0.5,
        "imports": 3.5,
        "device": 1.0,
        "checking": 3.0,
        "decoding": 4.0,
        "training": 9.0,
        "rest": 20.0,
        "rest_before": 3.0,
        "rest_between": 7.0,
        "rest_after": 10.0,
        "total": 41.0,
        "without_start_up": 36.0,
        "until_training": 10.0,
    }
    parts = ("python", "imports", "device", "checking", "decoding", "training", "rest")
    assert sum(found[part] for part in parts) == found["total"]


def test_packages_are_followed_with_what_they_need(tmp_path):
    there = tmp_path / "there.txt"
    has = ["torch==2.11.0+cu130", "torchvision==0.26.0", "numpy==2.4.0", "timm==0.9.0", "Pillow==13.0.0"]
    there.write_text("\n".join([*has, "a-package @ file:///x"]))
    found = {line.partition("==")[0]: line.partition("==")[2] for line in requirements.missing(there)}
    assert {"pydantic", "pydantic-core", "typing-inspection", "pydicom", "hypothesis", "pytest"} <= set(found)
    assert found["timm"] != "0.9.0"  # too old
    assert not {"torch", "torchvision", "numpy", "pillow", "triton"} & set(found)
    assert not [name for name in found if name.startswith(("nvidia-", "cuda-"))]
    assert all(re.fullmatch(r"\d[\w.]*", number) for number in found.values())
    there.write_text("\n".join([*has[:3], *(f"{name}=={number}" for name, number in found.items()), has[4]]))
    assert requirements.missing(there) == []
    there.write_text("nothing")
    with pytest.raises(requirements.UnusableList, match="pip list"):
        requirements.missing(there)


SESSION = {
    **MACHINE,
    "name": "NVIDIA Imaginary",
    "driver": "580.1",
    "cuda": "13.0",
    "started": "2026-11-23T10:00:00+00:00",
    "commit": "abc123",
    "missing_packages": ["pydicom>=3.0"],
    "missing_optional_packages": ["monai"],
}


def entry(values, settings=None, **more):
    return {"session": 0, "says": "what", "settings": settings or {}, "status": "ok", "values": values, **more}


def content(results):
    return {**empty(), "sessions": [SESSION], "results": results}


def section(text, title):
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_the_page_of_nothing_says_that_nothing_has_been_measured():
    text = page.page(empty())
    assert "Nothing has been measured on a GPU yet" in text
    assert "python benchmarks/gpu.py --out DIR" in text
    assert "|" not in text


def test_the_page_of_the_documentation_is_made_from_the_results_beside_it():
    """Renew it with: python benchmarks/gpu.py --out DIR --page."""
    file = REPOSITORY / "docs" / "benchmarks-gpu.json"
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else empty()
    assert not known["tiny"]
    assert (REPOSITORY / "docs" / "benchmarks-gpu.md").read_text(encoding="utf-8") == page.page(known)


def test_the_page_says_device_date_commit_and_command_and_what_is_missing():
    run = {
        **{"python": 0.5, "imports": 3.0, "device": 1.5, "checking": 4.0, "decoding": 2.0, "training": 11.0},
        **{
            "rest": 3.0,
            "rest_before": 0.5,
            "rest_between": 2.25,
            "rest_after": 0.25,
            "total": 25.0,
            "without_start_up": 20.0,
            "until_training": 7.25,
        },
        "folds": [{"steps": 250, "seconds": 2.0, "images_per_second": 9.0}] * 5,
        "peak_gb": 12.34,
    }
    cv = {"runs": [run], "operations": int(4e15), "peak_tflops": 1000.0, "command": "usvit cv ..."}
    steps = {
        **{"batch_size": 256, "precision": "bf16", "files_speed": 1500.0, "resident_speed": 1600.0},
        **{"store_speed": 1595.0, "store_share": 0.0312, "input_share": 0.0625},
        **{"files_mfu": 0.41, "resident_mfu": 0.4321, "first_step_seconds": 30.0},
        **{"peak_gb": None, "command": "python benchmarks/pretrain_throughput.py ..."},
    }
    settings = {"recipe": "augreg_i1k", "model": "vit_b16", "compile": True}
    text = page.page(
        content(
            {
                "cv/vit_b32": entry(cv),
                "pretrain/b16_compiled": entry(steps, settings),
                "pretrain/s16": {**entry(None), "status": "skipped", "needs": "pydicom"},
                "score/five": {
                    **entry(None),
                    "status": "failed",
                    "error": "Traceback\nOutOfMemoryError: no\n(exit code 1)",
                },
                "bench/deit/deit_s": {**entry(None), "status": "timeout", "error": "ended after 9 s, its time limit"},
            }
        )
    )
    told = section(text, "Cross-validation by the paper's recipe")
    assert "`python benchmarks/gpu.py --out DIR --pieces cv` on NVIDIA Imaginary, 2026-11-23, commit abc123." in told
    assert (
        "| what | 5 × 250 | 5.00 | 4.00 | 2.00 | 11.0 | 0.50 + 2.25 + 0.25 | 25.0 | **20.0** | 7.25 "
        "| 4.00 (36.4%) | 12.3 | A |" in told
    )
    assert "- `usvit cv ...`" in told
    assert "- `cv/vit_b32_aug` (the same, augmented): not tried yet" in told
    told = section(text, "Pre-training")
    figures = "1,500 | 1,595 | **1,600** | 6.2% | **3.1%** | 41.0% | **43.2%** | – | 30.0"
    assert f"| compiled | 256 | bf16 | {figures} | A |" in told
    assert "- `pretrain/s16` (what): skipped: needs pydicom" in told
    assert "(what): failed: `OutOfMemoryError: no`" in section(text, "Scoring, from files to tables")
    assert "timeout: `ended after 9 s, its time limit`" in section(text, "Networks by the papers' protocols")
    machines = section(text, "Machines")
    assert "| A | NVIDIA Imaginary | 580.1 | 13.0 | 2.11.0 | – | 3.12.0 | 3 | abc123 | 2026-11-23 " in machines
    assert "| pydicom>=3.0, monai (optional) |" in machines


def test_every_line_of_a_table_has_its_columns():
    row = {
        **{"mode": "infer", "batch": 256, "image_size": 224, "precision": "bf16", "status": "ok", "reason": None},
        **{"branches": None, "images_per_second": 5000.0, "seconds_median": 0.1, "repeats": 30},
        **{"compile_seconds": 12.0, "peak_memory_mib": 900.0},
    }
    bench = {"rows": [row], "papers": {"224": 1891.0}, "hardware": "one V100 of 32 GB", "command": "usvit bench"}
    medians = dict.fromkeys(("decode only", "infer only", "usvit score", "whole command", "plain loop"), 10.0)
    score = {"n_networks": 5, "medians": medians, "of_the_slower": 0.96, "command": "python -m x"}
    gpu_tests = {"files": ["a", "b"], "passed": 3, "failed": [{"name": "t", "message": "m"}], "skipped": []}
    both = [{**row, "compiled": False}, {**row, "images_per_second": 6000.0, "compiled": True}]
    plain = {
        **{"strategy": "DDPStrategy", "batch_size": 8, "precision": "bf16", "resident_speed": 7.0},
        **{"peak_gb": 1.0, "first_step_seconds": 2.0},
    }
    text = page.page(
        content(
            {
                "bench/deit3/deit_s": entry(bench, {"protocol": "deit3", "model": "deit_s"}),
                "score/five": entry(score, {"model": "vit_b32", "precision": "bf16", "files": 9, "workers": 2}),
                "tests/gpu": entry(gpu_tests),
                "distributed/ddp": entry(plain, {"model": "vit_b16"}),
                "compile/vit_b16": entry({"rows": both}, {"model": "vit_b16"}),
            }
        )
    )
    assert "| deit3 | deit_s | infer | bf16 | 256 | 5,000 | 900 | 1891 (one V100 of 32 GB) | A |" in text
    assert "| vit_b16 | infer | 256 | 5,000 | 6,000 | 1.20 | 12.0 | A |" in text
    assert "| a, b | 3 | `t` | 0 | – | A |" in text
    tables = re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)
    assert len(tables) == 6
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1, table


def test_tiny_figures_do_not_become_the_page_of_the_documentation(tmp_path):
    results = Results.open(tmp_path, tiny=True)
    results.save()
    refused = command("--out", tmp_path, "--page")
    assert (refused.returncode, "mean nothing" in refused.stderr) == (2, True)
    written = command("--out", tmp_path, "--page", tmp_path / "page.md")
    assert written.returncode == 0, written.stderr
    assert (tmp_path / "page.md").read_text() == page.page(results.content)


@pytest.mark.slow
def test_the_tiny_settings_run_resume_and_make_a_page(tmp_path):
    arguments = ["--out", tmp_path / "out", "--tiny", "--minutes", 60, "--pieces", "tests,distributed/fsdp,cv/vit_b32"]
    done = command(*arguments, "--commit", "abc", "--scratch", tmp_path / "scratch", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    before = (tmp_path / "out" / "gpu.json").read_bytes()
    results = json.loads(before)["results"]
    assert {key: one["status"] for key, one in results.items()} == dict.fromkeys(
        ("cv/vit_b32", "tests/gpu", "distributed/fsdp"), "ok"
    ), results
    cv = results["cv/vit_b32"]["values"]
    assert [[fold["steps"] for fold in run["folds"]] for run in cv["runs"]] == [[2, 2]]
    assert cv["n_images"] == 48
    for run in cv["runs"]:
        assert 0 < run["until_training"] < run["without_start_up"] < run["total"]
        assert all(run[phase] > 0 for phase in ("imports", "checking", "decoding", "training", "rest"))
    assert results["tests/gpu"]["values"]["passed"] > 0
    assert results["tests/gpu"]["values"]["failed"] == []
    assert results["distributed/fsdp"]["values"]["strategy"] == "ModelParallelStrategy"
    assert results["distributed/fsdp"]["values"]["resident_speed"] > 0

    again = command(*arguments, cwd=tmp_path)
    assert (again.returncode, (tmp_path / "out" / "gpu.json").read_bytes()) == (0, before)

    assert command("--out", tmp_path / "out", "--page", tmp_path / "page.md").returncode == 0
    text = (tmp_path / "page.md").read_text()
    assert "tiny settings" in text
    assert len(re.findall(r"^\| two folds of two steps \| 2 × 2 \|", text, flags=re.MULTILINE)) == 1


@pytest.mark.slow
def test_an_impossible_setting_ends_the_measurement_with_its_reason(tmp_path, monkeypatch, capfd):
    """How the end of a measurement and its last words become a failure is tested above."""
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    one = next(one for one in plan.tiny() if one.key == "cv/vit_b32")
    assert one.function == f"{crossval.__name__}:measure"
    overrides = {**one.settings["overrides"], "split.folds": 40}
    with pytest.raises(SystemExit) as stop:
        crossval.measure({**one.settings, "overrides": overrides}, tmp_path)
    assert stop.value.code not in (0, None)
    assert "40 folds need 40" in capfd.readouterr().err
