"""What a report says, read from its HTML; how a browser takes it is in test_browser.py."""

import json
import re
import sys
from html.parser import HTMLParser

import pandas as pd
import pytest

from tests.conftest import without_lines
from tests.evaluation.contents import summarise
from tests.reports.conftest import HASH, fake_run
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.files import write_csv, write_json
from usvit.records import run_hashes
from usvit.reports import write_report
from usvit.reports.formatting import count, decimals, duration

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The text, the ids and the tags of a page."""

    def __init__(self, html: str):
        super().__init__()
        self.text, self.ids, self.tags, self.attributes, self._silent = "", [], [], [], False
        self.feed(html)
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        self.ids += [value for key, value in attrs if key == "id"]
        self._silent = tag in ("style", "title")

    def handle_endtag(self, tag):
        self._silent = False

    def handle_data(self, data):
        if not self._silent:
            self.text += f" {data}"


def report(run_dir):
    return Page(write_report(run_dir).read_text(encoding="utf-8"))


def words(run_dir):
    """The text of a page whose figures have no lines, for what stands outside of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.documents.svg.to_svg", without_lines)
        return report(run_dir).text


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A run with its report, which tests only read."""
    run_dir = fake_run(tmp_path_factory.mktemp("reported") / "vit-b32-busi")
    write_report(run_dir)
    return run_dir


@pytest.fixture(scope="module")
def html(reported):
    return (reported / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_headline_is_that_of_metrics_json(reported, page):
    metrics = json.loads((reported / "metrics.json").read_text())
    text = page.text
    headline, pooled, spread = metrics["headline"], metrics["pooled"], metrics["mean_sd"]
    auc = "malignant_vs_rest"
    rows = (
        ("Accuracy", headline["accuracy"], pooled["accuracy"], spread["accuracy"]),
        ("Balanced accuracy", headline["balanced_accuracy"], pooled["balanced_accuracy"], spread["balanced_accuracy"]),
        ("AUC, malignant vs rest", headline["auc"], pooled["auc"][auc], spread["auc"][auc]),
        ("AUC, mean of all classes vs rest", *(one["auc_macro_ovr"] for one in (headline, pooled, spread))),
    )
    for name, quoted, whole, folds in rows:
        (low, high), (least, most) = quoted["ci95"], whole["ci95"]
        figures = f"{quoted['value']:.3f} {low:.3f} to {high:.3f} {quoted['n_groups']}"
        assert f"{name} {figures} {whole['value']:.3f} {least:.3f} to {most:.3f} {folds['sd']:.3f}" in text
    assert "Mean of 5 folds Groups Pooled SD of 5 folds" in text
    assert headline["explains"] in text


def test_images_groups_and_patients_are_counted_and_few_groups_warned_of(tmp_path):
    text = words(fake_run(tmp_path / "run", n=120, patients=40))
    assert "Tested: 120 images in 40 groups (40 patients)" in text
    assert "Intervals are from 40 groups only: below 50" in text
    assert "Interval of AUC" in text
    assert "40 patients (" in text
    assert "There are only 19 groups with an image of class 'normal'" in text  # among the limits


def test_the_page_shows_what_metrics_json_says(run_dir):
    metrics = json.loads((run_dir / "metrics.json").read_text())
    metrics["pooled"]["accuracy"]["ci95"] = [0.123456, 0.987654]
    write_json(run_dir / "metrics.json", metrics)
    assert "0.123 to 0.988" in words(run_dir)


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (("pooled", "auc", "malignant_vs_rest", "value"), 0.999, r"pooled\.auc\.malignant_vs_rest differs \(0\.999"),
        (("pooled", "sensitivity", "malignant", "value"), 1.0, r"pooled\.sensitivity\.malignant"),
        (("headline", "auc", "value"), 0.999, r"headline\.auc differs \(0\.999"),
        (("headline", "brier", "value"), 0.001, r"headline\.brier"),
        (("confusion", "counts", 0, 1), 99123, r"confusion\.counts"),
        (("folds", 3, "accuracy", "value"), 1.0, r"folds\.3\.accuracy"),
        (("mean_sd", "auc", "malignant_vs_rest", "mean"), 0.999, r"mean_sd\.auc\.malignant_vs_rest"),
    ],
)
def test_figures_that_are_not_those_of_the_predictions_are_refused(run_dir, path, value, named):
    metrics = json.loads((run_dir / "metrics.json").read_text())
    inner = metrics
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    write_json(run_dir / "metrics.json", metrics)
    with pytest.raises(UsvitError, match=rf"metrics\.json was not made from predictions\.csv: {named}"):
        write_report(run_dir)
    assert not (run_dir / "report.html").exists()


def test_pooled_predictions_that_are_not_those_of_the_folds_are_refused(run_dir):
    table = pd.read_csv(run_dir / "fold-2" / "predictions.csv")
    test = table["part"] == "test"
    table.loc[test, "prob_benign"], table.loc[test, "prob_normal"] = table["prob_normal"], table["prob_benign"]
    write_csv(run_dir / "fold-2" / "predictions.csv", table)
    with pytest.raises(UsvitError, match=r"does not hold the predictions of .*fold-2/predictions\.csv"):
        write_report(run_dir)


def test_a_file_whose_hash_is_another_than_on_record_is_refused(run_dir):
    record = json.loads((run_dir / "run.json").read_text())
    write_json(run_dir / "run.json", {**record, "files": run_hashes(run_dir)})
    write_report(run_dir)
    for name in ("metrics.json", "predictions.csv", "folds.csv", "fold-1/model.json"):
        before = (run_dir / name).read_bytes()
        (run_dir / name).write_bytes(before + b"\n")
        with pytest.raises(UsvitError, match=rf"{name} is not the file whose SHA-256 is in run\.json"):
            write_report(run_dir)
        (run_dir / name).write_bytes(before)


def test_the_reader_is_told_what_the_numbers_are_not(page):
    text = page.text
    assert text.count("For research use only. Not a medical device.") == 2
    assert "Intervals count groups, not images" in text
    assert "It is not a confidence interval" in text
    assert "These data carry no patient identifiers." in text


def test_a_leaking_split_is_marked_at_the_top_and_nothing_claims_the_contrary(tmp_path):
    def leak(record):
        record["folds"].update(unit="image", leaking_groups=41)
        record["data"].update(grouping={"patient": 778, "copies": 0, "image": 0})

    text = report(fake_run(tmp_path / "run", change=leak)).text
    assert text.index("LEAKING SPLIT") < text.index("Results")
    assert "41 groups" in text
    assert "The folds ignored these groups." in text
    honest = {"patient": 778, "copies": 0, "image": 0}
    other = report(fake_run(tmp_path / "other", change=lambda record: record["data"].update(grouping=honest))).text
    for claim in ("any other image of its group", "are in the same split", "no patient is in both"):
        assert claim not in text
        assert claim in other


@pytest.mark.parametrize(
    ("grouping", "told"),
    [
        ({"patient": 778, "copies": 0, "image": 0}, "All images carry a patient identifier"),
        ({"patient": 700, "copies": 8, "image": 70}, "Only some of the images carry a patient identifier"),
        (
            {"patient": 0, "copies": 8, "image": 770},
            "0 images grouped by patient, 8 with their near-duplicates, 770",
        ),
    ],
)
def test_the_grouping_is_told(tmp_path, grouping, told):
    run_dir = fake_run(tmp_path / "run", change=lambda record: record["data"].update(grouping=grouping))
    assert told in words(run_dir)


def test_what_was_done_can_be_read_and_repeated(page):
    text = page.text
    assert "The network vit_b32 (vit_base_patch32_224.augreg_in21k, 87,457,539 parameters) was trained" in text
    assert "with the recipe gheflati2022_vit and seed 7, on busi: 778 images in 778 groups" in text
    assert "usvit cv --dataset busi --model vit_b32 --recipe gheflati2022_vit --seed 7" in text
    assert "Wall time 35 min 17 s" in text
    assert "clip_norm: 1.0" in text
    for digest in (HASH, HASH[::-1]):
        assert digest in text
    assert "busi malignant (55) same pixels as another image with another label" in text
    assert "Skipped files None." in text


def test_each_fold_shows_its_parts_and_its_kept_step(reported, page):
    folds = pd.read_csv(reported / "folds.csv")
    sizes = folds[folds["fold"] == 3]["part"].value_counts()
    metrics = json.loads((reported / "metrics.json").read_text())
    kept = json.loads((reported / "run.json").read_text())["results"][3]["best_step"]
    text = page.text
    accuracy = metrics["folds"][3]["accuracy"]["value"]
    assert f"3 {sizes['train']} {sizes['val']} {sizes['test']} {sizes['test']} {accuracy:.3f}" in text
    assert f"Fold 3 , best step {kept} of 250" in text


def test_a_hold_out_is_not_told_in_the_words_of_folds(tmp_path):
    run_dir = fake_run(tmp_path / "run", kind="train")
    page = report(run_dir)
    assert "hold-out" in page.text
    assert "Measure Hold-out Groups Accuracy" in page.text
    told = page.text[: page.text.index("Model card and data cards")]
    assert not re.search(r"\bfolds?\b|SD\b", told, flags=re.IGNORECASE)
    assert "folds-title" not in page.ids


def test_two_classes_have_one_curve_and_one_auc(tmp_path):
    run_dir = fake_run(tmp_path / "run", classes=("benign", "malignant"), shares=(0.6, 0.4))
    text = report(run_dir).text
    assert "ROC: malignant against the rest, pooled." in text
    assert "ROC: each class" not in text
    assert "mean of all classes" not in text


def test_an_undefined_value_is_told_with_its_reason(tmp_path):
    run_dir = fake_run(tmp_path / "run", classes=("benign", "malignant", "cyst"), shares=(0.6, 0.4, 0.0))
    text = report(run_dir).text
    assert re.search(r"Undefined: [\w ,]+: no fold of some repeat has images of every class", text)
    assert "nan" not in text.lower().split()


def test_folds_that_do_not_count_are_told(run_dir):
    table = pd.read_csv(run_dir / "predictions.csv")
    lonely = (table["fold"] == 2) & (table["label"] == "malignant")
    table = table[~lonely]
    write_csv(run_dir / "predictions.csv", table)
    (run_dir / "fold-2" / "predictions.csv").unlink()
    classes = ["benign", "malignant", "normal"]
    write_json(run_dir / "metrics.json", summarise(table, classes=classes, positive="malignant"))
    assert "(4 of 5 folds)" in words(run_dir)


def test_the_same_run_gives_the_same_bytes(reported, html):
    assert write_report(reported).read_bytes() == html.encode()


def test_a_matplotlibrc_of_the_user_changes_nothing(reported, html):
    import matplotlib as mpl

    with mpl.rc_context({"font.size": 30, "lines.linewidth": 9, "svg.fonttype": "path", "axes.facecolor": "red"}):
        assert write_report(reported).read_bytes() == html.encode()


def test_the_page_is_one_file_without_script_and_every_id_is_used_once(html, page):
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert len(page.ids) == len(set(page.ids))
    assert page.tags.count("svg") > 7
    for name, value in page.attributes:
        if name in ("src", "href", "xlink:href"):
            assert value.startswith("#")
            assert value[1:] in page.ids
        if name == "clip-path":
            assert value[5:-1] in page.ids
        if name == "aria-labelledby":
            assert value in page.ids
    addresses = set(re.findall(r"https?://[^\"' <)]+", html))
    assert addresses <= {"http://www.w3.org/2000/svg", "https://scholar.cu.edu.eg"}  # the latter as words alone
    assert 'href="http' not in html and "src=" not in html
    assert not re.search(r"#0404\d\d|#0[123]0[123]0[123]", html)  # every stand-in became a colour of the page


def test_tables_have_captions_or_headings_and_scoped_headers(html):
    assert all("scope=" in cell for cell in re.findall(r"<th\b[^>]*>", html))
    assert re.findall(r"<h([1-6])", html)[:3] == ["1", "2", "3"]
    assert '<html lang="en">' in html


def test_what_was_not_recorded_is_shown_as_such(tmp_path):
    def strip(record):
        for key in ("config", "device", "folds", "model", "results", "seconds"):  # which an evaluation does not have
            del record[key]
        record["data"] = {}
        record["state"] = "running"

    run_dir = fake_run(tmp_path / "bare", change=strip)
    (run_dir / "folds.csv").unlink()
    for history in run_dir.glob("fold-*/history.csv"):
        history.unlink()
    text = report(run_dir).text
    assert "not recorded" in text
    assert "Training curves: not recorded." in text
    assert "not marked as finished" in text


def test_an_evaluation_history_with_gaps_or_an_explosion_is_drawn(run_dir):
    path = run_dir / "fold-0" / "history.csv"
    history = pd.read_csv(path)
    history.loc[3, "train_loss"] = float("inf")
    history["val_loss"] = ""
    write_csv(path, history)
    (run_dir / "fold-1" / "history.csv").write_text("step,lr\n1,0.1\n")
    assert report(run_dir).tags.count("svg") > 7


@pytest.mark.parametrize("name", ["run.json", "metrics.json", "predictions.csv"])
def test_a_missing_file_is_named(run_dir, name):
    (run_dir / name).unlink()
    with pytest.raises(UsvitError, match=re.escape(name)):
        write_report(run_dir)
    assert not (run_dir / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("metrics.json", "{", r"metrics\.json"),
        ("metrics.json", "[]", "expected a JSON object"),
        ("metrics.json", '{"schema_version": "2.0"}', r"metrics\.json was written by another version of usvit"),
        ("metrics.json", '{"schema_version": "1.0"}', r"metrics\.json is damaged: key positive_class: Field required"),
        ("folds.csv", "image_id\na\n", r"folds\.csv: no column fold, part"),
        ("fold-0/history.csv", "", r"history\.csv as a CSV"),
    ],
)
def test_a_damaged_file_is_named(run_dir, name, content, message):
    (run_dir / name).write_text(content)
    with pytest.raises(UsvitError, match=message):
        write_report(run_dir)


def test_metrics_of_other_predictions_are_refused(run_dir):
    table = pd.read_csv(run_dir / "predictions.csv")
    write_csv(run_dir / "predictions.csv", table.iloc[1:])
    with pytest.raises(UsvitError, match=r"778 images.*was not made from predictions\.csv \(777 images"):
        write_report(run_dir)


def test_numbers_are_written_for_people():
    assert [duration(s) for s in (8.44, 59.96, 200, 3900)] == ["8.4 s", "60.0 s", "3 min 20 s", "1 h 05 min"]
    assert count(88224232) == "88,224,232"
    assert decimals(0.86666) == "0.867"
    assert decimals(Estimate(value=0.5, ci95=None, n_groups=1)) == "0.500"
    assert decimals(None) == count(None) == duration(None) == "not recorded"


def test_two_thousand_images_take_fewer_than_six_million_calls_and_five_megabytes(tmp_path):
    """Half of them with the fonts and modules that are loaded once; calls and not seconds, which a busy machine has
    fewer of."""
    run_dir, calls = fake_run(tmp_path / "run", n=2000), 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        page = write_report(run_dir)
    finally:
        sys.setprofile(None)
    assert 100_000 < calls < 6_000_000
    assert page.stat().st_size < 5e6


def test_each_fold_is_shown_at_each_operating_point(reported, page):
    metrics = json.loads((reported / "metrics.json").read_text())
    text = page.text
    for point in metrics["operating_points"]:
        for one in point["folds"]:
            outcome = one["on_test"]
            shown = (
                f"{one['threshold']:.3f} {outcome['sensitivity']['value']:.3f} {outcome['specificity']['value']:.3f}"
            )
            assert f"{one['fold']} {shown}" in text
    assert "Sensitivity ≥ 0.9" in text


def test_subgroups_are_shown_with_counts_and_intervals(reported, page):
    metrics = json.loads((reported / "metrics.json").read_text())
    (division,) = [one for one in metrics["subgroups"] if one["by"] == "device"]
    text = page.text
    for one in division["levels"]:
        low, high = one["figures"]["accuracy"]["ci95"]
        counts = f"{one['n_images']} {one['n_groups']} {one['class_images']['malignant']}"
        assert f"{one['level']} {counts} {one['figures']['accuracy']['value']:.3f} {low:.3f} to {high:.3f}" in text
