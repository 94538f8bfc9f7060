"""What the table says of ours and of the paper's."""

import json

import numpy as np
import pytest

from tests.studies.conftest import CONTENT, study_of
from usvit.studies.plan import make_plan
from usvit.studies.state import open_study
from usvit.studies.tables import fill


def value(x, ci95=None):
    return {"value": x, "ci95": ci95, "method": "m", "n_groups": 9}


def metrics_of(accuracy, ci95):
    """A ``metrics.json`` of two classes with little in it."""
    of_each = {"m": value(0.5), "n": value(0.5)}
    figures = {
        "accuracy": value(accuracy, ci95),
        "balanced_accuracy": value(0.5),
        "auc_macro_ovr": value(None),
        "auc": {"m_vs_rest": value(None), "n_vs_rest": value(None)},
        "sensitivity": of_each,
        "specificity": of_each,
    }
    mean = {"mean": 0.5, "sd": None}
    means = dict.fromkeys(("accuracy", "balanced_accuracy", "auc_macro_ovr"), mean)
    means |= {name: dict.fromkeys(figures[name], mean) for name in ("auc", "sensitivity", "specificity")}
    return {
        "schema_version": "1.3",
        "positive_class": "m",
        "classes": ["m", "n"],
        "n_images": 48,
        "n_groups": 24,
        "class_counts": {"m": 24, "n": 24},
        "pooled": figures,
        "folds": [{"fold": 0, **figures}],
        "mean_sd": means,
        "confusion": {"labels": ["m", "n"], "counts": [[12, 12], [12, 12]]},
    }


def filled(tmp_path, accuracies, *, interval=True, dataset=None, **changes):
    """The table of runs whose accuracies are given by seed and model; None: not finished."""
    plan = make_plan(study_of(**changes), dataset=dataset)
    with open_study(tmp_path / "study", plan, "command") as study:
        for run in plan.runs:
            accuracy = accuracies[run.seed, run.cell.model]
            study.settle(run.id, finished=accuracy is not None)
            if accuracy is None:
                continue
            study.run_path(run.id).mkdir(parents=True)
            ci95 = [accuracy - 0.05, accuracy + 0.05] if interval else None
            (study.run_path(run.id) / "metrics.json").write_text(json.dumps(metrics_of(accuracy, ci95)))
            (study.run_path(run.id) / "run.json").write_text('{"seconds": 1.5}')
        fill(study, plan)
        return study.record


def of_vit(record):
    return next(line for line in record["table"] if line["model"] == "timm:test_vit")


@pytest.mark.parametrize(
    ("ours", "within"), [(0.35, True), (0.31, True), (0.39, True), (0.29, False), (0.41, False)]
)  # the paper prints 35%, and the interval is 5 points to each side
def test_the_papers_figure_lies_within_or_it_does_not(tmp_path, ours, within):
    figure = of_vit(filled(tmp_path, {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): ours}))["figures"]["accuracy"]
    assert figure["within"] is within and figure["within_reason"] is None
    assert figure["paper"] == {"printed": "35%", "value": 0.35}


def test_where_nothing_can_be_compared_the_reason_is_said(tmp_path):
    accuracies = {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35}

    def vit(name, **options):
        figures = of_vit(filled(tmp_path / name, accuracies | options.pop("over", {}), **options))["figures"]
        assert figures["accuracy"]["within"] is None
        return figures["accuracy"]["within_reason"]

    assert vit("a", interval=False) == "no interval"
    assert vit("b", over={(0, "timm:test_vit"): None}) == "no finished run"
    assert vit("c", dataset="phantom") == "other data than the paper's"
    assert vit("d", paper=None) == "the paper prints none"


def test_an_undefined_figure_and_an_absent_one_say_why(tmp_path):
    record = filled(
        tmp_path,
        {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35},
        figures=["auc_macro_ovr", "mcc", "sensitivity.positive", "sensitivity.other"],
    )
    figures = of_vit(record)["figures"]
    assert figures["auc_macro_ovr"]["value"] is None and figures["auc_macro_ovr"]["within_reason"] == "no interval"
    assert "no such figure" in figures["mcc"]["reason"] and "no such figure" in figures["sensitivity.other"]["reason"]
    assert figures["sensitivity.positive"]["value"] == 0.5


def test_on_other_data_the_papers_row_is_found_by_its_model_unless_it_has_several(tmp_path):
    accuracies = {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35}
    assert of_vit(filled(tmp_path / "one", accuracies, dataset="phantom"))["printed_as"] == "Tiny/8"
    row = CONTENT["paper"]["rows"][0]
    several = {**CONTENT["paper"], "rows": [row, {**row, "dataset": "busi"}]}
    grid = [{**CONTENT["grid"][0], "datasets": ["phantom", "busi"]}]
    lines = filled(tmp_path / "two", accuracies, dataset="phantom", paper=several, grid=grid)["table"]
    assert all(line["printed_as"] is None for line in lines)


def test_the_spread_of_seeds_is_that_of_the_finished_runs(tmp_path):
    accuracies = {(seed, "timm:test_vit"): x for seed, x in enumerate([0.3, 0.36, 0.45])}
    accuracies |= {(0, "timm:test_resnet"): 0.5, (1, "timm:test_resnet"): None, (2, "timm:test_resnet"): None}
    record = filled(tmp_path, accuracies, seeds=[0, 1, 2])
    spread = {line["model"]: line["figures"]["accuracy"] for line in record["seed_spread"]}
    values = np.array([0.3, 0.36, 0.45])
    assert spread["timm:test_vit"] == {
        "n": 3,
        "mean": pytest.approx(values.mean()),
        "sd": pytest.approx(values.std(ddof=1)),
        "min": 0.3,
        "max": 0.45,
    }
    assert spread["timm:test_resnet"] == {"n": 1, "mean": 0.5, "sd": None, "min": 0.5, "max": 0.5}
    assert record["seed_spread"][1]["figures"]["auc_macro_ovr"]["n"] == 0
    assert of_vit(record)["figures"]["accuracy"]["value"] == 0.3, "the table is of the first seed"


def test_a_single_seed_has_no_spread(tmp_path):
    assert filled(tmp_path, {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35})["seed_spread"] == []
