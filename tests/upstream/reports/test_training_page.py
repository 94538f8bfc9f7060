"""The pages of ``usvit pretrain`` and ``usvit transfer``, of runs that were really made."""

import json
import re

import pandas as pd
import pytest

from tests.upstream.pretraining_run.test_experiment import FRACTALS
from usvit.errors import UsvitError
from usvit.upstream.reports.training_page import write_upstream_report
from usvit.upstream.reports.transfer_figures import tried_plot
from usvit.upstream.transfer_learning.metrics import results_table

pytestmark = pytest.mark.slow

VALIDATED = (*FRACTALS, "--set", "train.steps=4", "--set", "source.val=val", "--set", "train.eval_every=2")


@pytest.fixture
def pretrained(tmp_path, usvit):
    assert usvit("pretrain", *VALIDATED, "--out", tmp_path / "run").code == 0
    return tmp_path / "run"


def words(path):
    """What a reader sees: without styles, drawings and tags."""
    page = re.sub(r"<(style|svg).*?</\1>", " ", path.read_text(), flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def test_a_pre_training_and_a_transfer_from_it_have_a_page_each(pretrained, tmp_path, usvit):
    text = words(pretrained / "report.html")
    kept = json.loads((pretrained / "pretrain.json").read_text())["kept"][0]
    assert f"{kept['val_loss']:.4f}" in text and f"{kept['val_accuracy']:.4f}" in text
    assert "from random weights" in text and "Pre-training: supervised, recipe fractals" in text
    assert "--weights RUN" in text and "not recorded" not in text
    assert "images generated on the fly occur nowhere else" in text

    few = ("--how", "fewshot", "--source", "fractals", "--device", "cpu", "--precision", "fp32")
    small = ("--set", "source.size=24", "--set", "source.image_size=32", "--set", "source.classes=3")
    options = ("--set", "source.val=val", "--set", "shots=[1,2]", "--set", "draws=2", "--set", "l2=[0.1,1.0]")
    out = tmp_path / "few"
    answer = usvit("transfer", "--weights", pretrained, *few, *small, *options, "--out", out)
    assert answer.code == 0, answer.err
    assert f"report: {out / 'report.html'}" in answer.out
    text = words(out / "report.html")
    for line in json.loads((out / "transfer.json").read_text())["summary"]:
        value = line["accuracy"]
        assert f"{line['name']} {value['value']:.3f}" in text
    assert "pretrain: supervised, recipe fractals, 4 steps on fractals (24 images)" in text
    assert "2 images per class" in text and "not recorded" not in text


def test_a_page_is_one_file_without_script_and_the_same_bytes_each_time(pretrained):
    page = pretrained / "report.html"
    before = page.read_bytes()
    assert b"<script" not in before
    page.unlink()
    assert write_upstream_report(pretrained).read_bytes() == before


def test_names_of_other_people_stay_text(pretrained):
    record = json.loads((pretrained / "run.json").read_text())
    (pretrained / "run.json").write_text(json.dumps(record | {"name": "<b>run</b>"}))
    page = write_upstream_report(pretrained).read_text()
    assert "<b>run" not in page and "&lt;b&gt;run" in page


def test_a_damaged_file_is_named_and_the_old_page_stays(pretrained):
    before = (pretrained / "report.html").read_bytes()
    (pretrained / "fold-0" / "history.csv").write_text("loss\n1\n")
    with pytest.raises(UsvitError, match=r"history\.csv.*step"):
        write_upstream_report(pretrained)
    assert (pretrained / "report.html").read_bytes() == before


def results(rows):
    columns = ("how", "cell", "draw", "k", "l2", "part", "accuracy", "chosen")
    return results_table([dict(zip(columns, row, strict=True)) for row in rows])


def test_few_shot_has_a_line_for_each_number_of_images_and_draws_are_averaged():
    nothing = float("nan")
    rows = [
        ("fewshot", nothing, draw, k, l2, "val", 0.1 * k + 0.2 * draw + 0.1 * (l2 == 1.0), l2 == 1.0)
        for draw in (0, 1)
        for k in (1, 5)
        for l2 in (0.1, 1.0)
    ]
    plot = tried_plot(results([*rows, ("fewshot", nothing, 0, 5, 1.0, "test", 0.99, True)]))
    assert [entry.text for entry in plot.legend] == ["1 images per class", "5 images per class", "chosen"]
    assert "at best 0.700" in plot.title  # 0.5 + 0.1, and 0.2 in one of two draws; the test does not count


def test_cells_and_single_settings_have_no_axis_to_stand_on():
    nothing = float("nan")
    cells = [("finetune", f"lr{rate}", nothing, nothing, nothing, "val", 0.5, False) for rate in (0.1, 0.2)]
    assert tried_plot(results(cells)) is None
    neighbours = [{"how": "fewshot", "k": 5, "neighbours": n, "part": "val", "accuracy": n / 10} for n in (1, 3, 9)]
    plot = tried_plot(results_table(neighbours))
    assert [entry.text for entry in plot.legend] == ["5 images per class", "chosen"] and "at best 0.900" in plot.title
    assert tried_plot(results([("knn", nothing, nothing, 10, nothing, "train", 0.5, True)])) is None


def test_a_browser_shows_the_page_on_a_phone_and_asks_for_nothing(pretrained, visit):
    page = visit(pretrained / "report.html", width=400)
    assert page.locator("h1").inner_text() and page.locator("svg.plot").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= 400")


def test_a_long_sweep_shows_its_first_cells_and_the_chosen_one(pretrained, tmp_path, usvit):
    few = ("--how", "fewshot", "--source", "fractals", "--device", "cpu", "--precision", "fp32")
    small = ("--set", "source.size=24", "--set", "source.image_size=32", "--set", "source.classes=3")
    options = ("--set", "source.val=val", "--set", "shots=[1]", "--set", "draws=2", "--set", "l2=[0.1]")
    out = tmp_path / "few"
    assert usvit("transfer", "--weights", pretrained, *few, *small, *options, "--out", out).code == 0
    assert "Only one setting." in words(out / "report.html")  # two draws of one strength are no sweep

    table = pd.read_csv(out / "results.csv")
    cells = [
        {"how": "finetune", "cell": f"lr{n}", "part": "val", "accuracy": n / 100 if n else None, "chosen": n == 44}
        for n in range(45)
    ]
    pd.concat([table[table.part == "test"], pd.DataFrame(cells)]).to_csv(out / "results.csv", index=False)
    text = words(write_upstream_report(out))
    assert "lr0 diverged" in text and "lr39 0.390" in text and "lr40" not in text and "lr44 0.440 yes" in text
    assert "The first 40 of 45" in text
