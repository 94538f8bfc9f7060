"""``usvit explain`` as its user meets it."""

import json
import shutil

import pytest

from tests.explaining.conftest import make_run, phantom_manifest  # noqa: F401  (fixtures)

pytestmark = pytest.mark.slow


@pytest.fixture
def run(make_run):  # noqa: F811
    return make_run()


def test_it_says_what_it_made_and_how_it_agrees_with_the_masks(usvit, run, small_phantom):
    answer = usvit("explain", run, "--data-root", small_phantom)
    assert answer.code == 0, answer.err
    assert (
        "rollout: 6 test images" in answer.out
        and "pointing game" in answer.out
        and "for the image centre" in answer.out
    )
    assert "groups only" in answer.out and "not a medical device" in answer.out
    assert len(list((run / "explain").glob("*.png"))) == 6


def test_json_is_the_entry(usvit, run, small_phantom, tmp_path):
    out = tmp_path / "x"
    said = usvit("explain", run, "--method", "filters", "--json", "--data-root", small_phantom, "--out", out).out
    answer = json.loads(said)
    assert answer["method"] == "filters"
    entry = json.loads((out / "explain.json").read_text())["methods"]["filters"]
    assert entry.items() <= answer.items()


@pytest.mark.parametrize("method", ["distance", "residuals", "positions", "filters", "attention", "occlusion"])
def test_every_method_is_told_in_words(usvit, run, small_phantom, method):
    some = ("--images", 2) if method in ("attention", "occlusion", "distance", "residuals") else ()
    answer = usvit("explain", run, "--method", method, *some, "--data-root", small_phantom)
    assert answer.code == 0 and "Written" in answer.out and len(answer.out.splitlines()) >= 3, answer.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "rolout"), "Nearest: rollout"),
        (("--method", "gradcam", "--class", "malignent"), "Nearest: malignant"),
        (("--method", "rollout", "--class", "malignant"), "--class requires gradcam or occlusion"),
        (("--image-id", "nobody"), "Unknown image 'nobody'"),
        (("--images", 3, "--errors", 2), "Pass only one of --images"),
        (("--method", "filters", "--images", 3), "Leave out --images"),
        (("--method", "rollout", "--layer", 1), "--layer requires attention or mixing"),
        (("--method", "attention", "--layer", 3), "has no layer '3'. --layer takes a number from 1 to 2"),
        (("--method", "mixing"), "has no linear map over its patches"),
        (("--model", "vit_ti16"), "Name one network"),
        (("--data-root", "nowhere"), "does not exist"),
    ],
)
def test_bad_input_is_one_paragraph_and_leaves_nothing(usvit, run, small_phantom, options, said, monkeypatch):
    monkeypatch.setenv("USVIT_DATA", str(small_phantom))
    answer = usvit("explain", run, *options)
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err
    assert not (run / "explain").exists()


def test_what_is_no_run_is_named(usvit, run, tmp_path):
    assert "is not a run, the folder of a fold, or a file of weights" in usvit("explain", tmp_path / "nothing").err
    shutil.copytree(run / "fold-0", tmp_path / "alone" / "fold-0")
    answer = usvit("explain", tmp_path / "alone" / "fold-0")
    assert answer.code == 2 and "is not part of a run" in answer.err


def test_an_unfinished_run_and_missing_files_are_named(usvit, run, small_phantom):
    (run / "fold-1" / "predictions.csv").unlink()
    answer = usvit("explain", run, "--data-root", small_phantom)
    assert answer.code == 2 and "predictions.csv" in answer.err
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"state": "running"}))
    answer = usvit("explain", run)
    assert answer.code == 2 and "not finished" in answer.err


def test_a_network_without_attention_says_what_it_can_do(usvit, make_run, small_phantom):  # noqa: F811
    run = make_run("timm:resnet10t", name="cnn")
    answer = usvit("explain", run, "--method", "attention", "--data-root", small_phantom)
    assert answer.code == 2 and "no attention layers" in answer.err and "gradcam or occlusion" in answer.err
