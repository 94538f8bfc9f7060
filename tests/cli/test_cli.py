"""The command line as its user meets it: help, exit codes, and errors that say what to do."""

import errno
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from pydantic import ValidationError

from tests.conftest import TINY
from usvit.cli import machine_fault, name_fault
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.records.values import SkippedFile

pytestmark = pytest.mark.slow

COMMANDS = [
    [],
    ["cv"],
    ["train"],
    ["pretrain"],
    ["transfer"],
    ["test"],
    ["report"],
    ["data"],
    ["data", "phantom"],
    ["data", "list"],
    ["data", "info"],
    ["data", "prepare"],
    ["data", "audit"],
    ["data", "split"],
    ["data", "preview"],
    ["models"],
    ["models", "list"],
    ["models", "export"],
    ["models", "info"],
    ["bench"],
]


def test_help_answers_without_importing_anything_heavy():
    code = (
        "import sys\nfrom usvit.cli import main\n"
        f"for command in {COMMANDS!r}:\n"
        "    sys.argv = ['usvit', *command, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as stop: assert not stop.code, command\n"
        "    heavy = {'torch', 'timm', 'pandas', 'numpy', 'matplotlib', 'sklearn', 'PIL'} & set(sys.modules)\n"
        "    assert not heavy, (command, heavy)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.count("Usage") == len(COMMANDS)


def test_the_version_is_the_packages(usvit):
    from usvit import __version__

    assert usvit("--version").out.strip() == __version__


def test_lists_name_what_can_be_asked_for(usvit):
    assert {card["name"] for card in json.loads(usvit("data", "list", "--json").out)} >= {"busi", "b", "phantom"}
    assert len(json.loads(usvit("models", "list", "--json").out)) > 90
    assert "benign (433)" in usvit("data", "info", "busi").out
    assert usvit("data", "info", "bussi").code == 2


@pytest.fixture
def busi(tmp_path):
    """20 images for each class in BUSI's layout, with masks; each test breaks one."""
    generator = np.random.default_rng(0)
    for label in ("benign", "malignant", "normal"):
        folder = tmp_path / "data" / label
        folder.mkdir(parents=True)
        for number in range(1, 21):
            pixels = generator.integers(0, 255, (40, 50), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{label} ({number}).png")
            Image.fromarray(np.zeros((40, 50), dtype=np.uint8)).save(folder / f"{label} ({number})_mask.png")
    return tmp_path / "data"


def busi_run(busi, out, *more):
    return ("cv", "--dataset", "busi", "--data-root", busi, "--out", out, *TINY, *more)


BAD_NAMES = [
    (["--dataset", "bsi"], "Nearest: busi"),
    (["--dataset", "busi+c"], "Unknown data set 'c'"),
    (["--dataset", "phantom+phantom"], "twice"),
    (["--model", "vit_b31"], "vit_b32"),
    (["--model", "timm:resnet51"], "Nearest: resnet51q, resnet50"),
    (["--model", "r26_s16"], "use r26_s32"),
    (["--recipe", "gheflati_vit"], "Nearest: gheflati2022_vit"),
    (["--recipe", "nowhere.yaml"], "no recipe file nowhere.yaml"),
    (["--set", "train.step=3"], "Nearest: train.steps"),
    (["--device", "tpu"], "device"),
    (["--weights", "missing.pth"], "no such file"),
    (["--data-root", "does/not/exist"], "does not exist"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD_NAMES, ids=lambda value: str(value)[:40])
def test_an_unknown_name_is_one_paragraph_and_exit_code_2_and_nothing_is_written(
    arguments, said, usvit, small_phantom, tmp_path
):
    out = tmp_path / "run"
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, *TINY, *arguments)
    assert answer.code == 2, answer.err
    assert said.lower() in answer.err.lower()
    assert "Traceback" not in answer.err and not out.exists()


def test_a_missing_data_root_shows_how_to_get_the_data(usvit, tmp_path, monkeypatch):
    monkeypatch.delenv("USVIT_DATA", raising=False)
    answer = usvit("cv", "--dataset", "busi", "--out", tmp_path / "run", *TINY)
    assert answer.code == 2 and "--data-root" in answer.err and "Dataset_BUSI_with_GT" in answer.err


def test_a_wrong_data_root_shows_the_expected_layout(usvit, tmp_path):
    (tmp_path / "somewhere" / "pictures").mkdir(parents=True)
    answer = usvit(*busi_run(tmp_path / "somewhere", tmp_path / "run"))
    assert answer.code == 2 and "benign/benign (1).png" in answer.err and "Found: pictures" in answer.err


def test_a_missing_class_folder_is_named(usvit, busi, tmp_path):
    (busi / "malignant").rename(tmp_path / "elsewhere")
    answer = usvit(*busi_run(busi, tmp_path / "run"))
    assert answer.code == 2 and "no folder 'malignant'" in answer.err and "Found: benign, normal" in answer.err


def truncate(path):
    path.write_bytes(path.read_bytes()[:300])


def grow_mask(path):
    Image.fromarray(np.zeros((41, 50), dtype=np.uint8)).save(path.with_name(f"{path.stem}_mask.png"))


def bomb(path):
    Image.new("1", (60_000, 2_000)).save(path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [(truncate, "damaged or truncated"), (grow_mask, "the mask is 50 x 41"), (bomb, "decompression bomb")],
    ids=["truncated", "mask of another size", "decompression bomb"],
)
def test_a_bad_image_is_named_and_can_be_left_out(damage, said, usvit, busi, tmp_path):
    damage(busi / "benign" / "benign (7).png")
    answer = usvit(*busi_run(busi, tmp_path / "run"))
    assert answer.code == 2 and "benign (7)" in answer.err and said in answer.err and "--skip-bad" in answer.err
    assert not (tmp_path / "run").exists()

    answer = usvit(*busi_run(busi, tmp_path / "run", "--skip-bad"))
    assert answer.code == 3, answer.err
    assert "could not be read" in answer.out and "benign (7)" in answer.out
    assert len(pd.read_csv(tmp_path / "run" / "predictions.csv")) == 59
    skipped = pd.read_csv(tmp_path / "run" / "skipped.csv")
    assert skipped.path.str.contains("benign (7)", regex=False).all() and len(skipped) == 1


def test_an_image_without_a_class_is_named(usvit, busi, tmp_path):
    (busi / "benign" / "benign (3).png").rename(busi / "lost.png")
    (busi / "benign" / "benign (3)_mask.png").unlink()
    answer = usvit(*busi_run(busi, tmp_path / "run"))
    assert answer.code == 2 and "no class is known for lost.png" in answer.err


def test_a_class_with_fewer_groups_than_folds_is_named(usvit, busi, tmp_path):
    for number in range(5, 21):
        (busi / "normal" / f"normal ({number}).png").unlink()
        (busi / "normal" / f"normal ({number})_mask.png").unlink()
    answer = usvit(*busi_run(busi, tmp_path / "run", "--set", "split.folds=5"))
    assert answer.code == 2 and "The class 'normal' has 4 groups" in answer.err and "split.folds" in answer.err


def test_a_pair_with_two_labels_is_left_out_unless_asked_for(usvit, busi, tmp_path):
    Image.open(busi / "benign" / "benign (4).png").save(busi / "malignant" / "malignant (5).png")
    answer = usvit(*busi_run(busi, tmp_path / "without"))
    assert answer.code == 0 and "left out: benign (4) of busi: pixel-identical to 'malignant (5)'" in answer.out
    assert len(pd.read_csv(tmp_path / "without" / "predictions.csv")) == 58
    answer = usvit(*busi_run(busi, tmp_path / "with", "--keep-conflicts"))
    assert answer.code == 0
    pooled = pd.read_csv(tmp_path / "with" / "predictions.csv").set_index("image_id")
    assert len(pooled) == 60
    assert pooled.fold["benign (4)"] == pooled.fold["malignant (5)"], "copies must stay together"


def test_a_full_disk_is_explained_and_the_run_can_be_resumed(usvit, small_phantom, small_disk, tmp_path):
    # 0.5 million parameters in a checkpoint with momentum do not fit into 1 MB.
    arguments = ("cv", "--data-root", small_phantom, "--out", small_disk / "run", *TINY)
    answer = usvit(*arguments)
    assert answer.code == 2
    assert "No space left on the disk" in answer.err and "resume" in answer.err
    assert json.loads((small_disk / "run" / "run.json").read_text())["state"] == "running"
    subprocess.run(["mount", "-o", "remount,size=100m", str(small_disk)], check=True)
    answer = usvit(*arguments)
    assert answer.code == 0, answer.err
    assert len(pd.read_csv(small_disk / "run" / "predictions.csv")) == 48


def test_two_processes_cannot_share_a_run(usvit, small_phantom, tmp_path):
    import filelock

    (tmp_path / "run").mkdir()
    usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY)
    with filelock.FileLock(tmp_path / "run" / ".lock"):
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY)
    assert answer.code == 2 and "Another process" in answer.err


def test_a_bug_is_a_traceback_and_exit_code_1(usvit, monkeypatch):
    monkeypatch.setattr("usvit.data.datasets.card_names", lambda: 1 / 0)
    answer = usvit("data", "list")
    assert answer.code == 1 and "bug in usvit" in answer.err and "ZeroDivisionError" in answer.err


def test_a_name_that_is_too_long_is_no_bug(usvit):
    answer = usvit("report", "a" * 5000)
    assert answer.code == 2 and answer.err.startswith("Error: ") and "Shorten the name" in answer.err


def test_a_name_that_is_not_utf_8_is_no_bug():
    with pytest.raises(ValidationError) as refused:
        SkippedFile(path=os.fsdecode(b"a\xff.png"), reason="damaged")
    assert "The key path cannot hold" in name_fault(refused.value) and "Rename it" in name_fault(refused.value)
    assert name_fault(ValueError("any other")) is None


def test_a_fault_of_the_disk_is_no_bug_and_names_no_file_where_patients_are_read(usvit, monkeypatch):
    error = OSError(errno.ENOSPC, "No space left on device", "NOVAK.png")

    def fault(*_, **__):
        raise error

    monkeypatch.setattr("usvit.scoring.score", fault)
    answer = usvit("score", "--model", "m", "--input", "i", "--out", "o")
    assert answer.code == 2 and "No space left on device. Free some space" in answer.err
    assert "NOVAK.png" not in answer.err
    assert "NOVAK.png: No space" in machine_fault(error, private=False)
    assert machine_fault(FileNotFoundError(errno.ENOENT, "x"), private=False) is None, "it may be a bug"
    assert machine_fault(RuntimeError("any other"), private=False) is None
    assert "Input/output error" in machine_fault(OSError("Input/output error (os error 5)"), private=True)
    assert "name the file itself" in machine_fault(RuntimeError("Symlink loop from '/a/b'"), private=True)


@pytest.mark.parametrize(
    ("command", "broken"),
    [
        (("score", "--model", "m", "--input", "i", "--out", "o"), "usvit.scoring.score"),
        (("evaluate", "o", "--labels", "t"), "usvit.scoring.evaluate_scores"),
        (("recalibrate", "o", "--labels", "t", "--out", "f"), "usvit.scoring.recalibrate"),
    ],
)
def test_the_traceback_of_a_bug_quotes_no_value_where_patients_are_read(usvit, monkeypatch, command, broken):
    def bug(*_, **__):
        try:
            raise KeyError("NOVAK^JANA")
        except KeyError as error:
            raise ValueError("cannot convert 'NOVAK^JANA'") from error

    monkeypatch.setattr(broken, bug)
    answer = usvit(*command)
    assert answer.code == 1 and "bug in usvit" in answer.err
    assert "KeyError" in answer.err and "ValueError" in answer.err and ", in bug" in answer.err
    assert "NOVAK^JANA" not in answer.err.replace('raise KeyError("NOVAK^JANA")', "").replace(
        "raise ValueError(\"cannot convert 'NOVAK^JANA'\")", ""
    )


def test_a_folder_whose_name_is_no_text_can_be_printed(capfd):
    code = "import sys; from usvit.cli import main; sys.argv = ['usvit', '--version']\n"
    code += "try: main()\nexcept SystemExit: pass\nprint('a\\udcff')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert r"a\udcff" in capfd.readouterr().out


def test_the_phantom_is_written_in_the_layout_that_the_reader_reads(usvit, tmp_path):
    answer = usvit("data", "phantom", "--out", tmp_path / "p", "--n", 12, "--seed", 7, "--size", 64)
    assert answer.code == 0 and "12 images" in answer.out
    same = write_phantom(PhantomSpec(n=12, seed=7, size=64), tmp_path / "q")
    assert (tmp_path / "p" / "phantom.csv").read_bytes() == (same / "phantom.csv").read_bytes()
    answer = usvit("data", "phantom", "--out", tmp_path / "p")
    assert answer.code == 2 and "Traceback" not in answer.err


def test_a_report_can_be_written_again(usvit, tiny_run, tmp_path):
    out = shutil.copytree(tiny_run, tmp_path / "run")
    before = (out / "report.html").read_bytes()
    (out / "report.html").unlink()
    assert usvit("report", out).code == 0
    assert (out / "report.html").read_bytes() == before
    assert usvit("report", tmp_path).code == 2


@pytest.mark.parametrize(
    ("arguments", "recipe"),
    [
        ([], "demo"),
        (["--dataset", "phantom"], "demo"),
        (["--dataset", "busi"], "gheflati2022_vit"),
        (["--model", "r26_s32"], "gheflati2022_vit"),
        (["--model", "vgg16"], "gheflati2022_cnn"),
        (["--model", "timm:convnext_tiny"], "gheflati2022_cnn"),
        (["--model", "timm:deit3_small_patch16_224"], "gheflati2022_vit"),
    ],
)
def test_without_a_recipe_the_studys_own_is_taken(arguments, recipe):
    from usvit.experiments.api import _default_recipe

    given = dict(zip(arguments[::2], arguments[1::2], strict=True))
    assert _default_recipe(given.get("--dataset"), given.get("--model")) == recipe


def test_a_folder_whose_name_is_not_utf_8_stands_in_the_record_of_a_command(usvit, tmp_path):
    folder = tmp_path / os.fsdecode(b"n\xff")
    answer = usvit(
        "plan",
        "accuracy",
        "--sensitivity",
        0.9,
        "--specificity",
        0.9,
        "--prevalence",
        0.3,
        "--half-width",
        0.1,
        "--out",
        folder,
    )
    assert answer.code == 0, answer.err
    assert r"n\udcff" in json.loads((folder / "plan.json").read_text())["command"]
