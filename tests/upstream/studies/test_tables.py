"""What the table says of ours and of the paper's."""

import json

import numpy as np
import pytest

from tests.records.contents import content
from tests.upstream.studies.conftest import CHAIN, CONTENT, study_of
from usvit.upstream.records.study import StudyRecord
from usvit.upstream.studies.document import study_document
from usvit.upstream.studies.plan import make_plan
from usvit.upstream.studies.specification import StudyConfig
from usvit.upstream.studies.state import open_study
from usvit.upstream.studies.tables import fill, long_table

KEPT = content("pretrain")["kept"][0]


def value(x, ci95=None):
    return {"value": x, "ci95": ci95, "method": "m", "n_groups": 9}


CONTAMINATION = {
    "dataset": "bus_bra",
    "listed_as": "BUS-BRA",
    "network": "Net-X",
    "collection": None,
    "source": "a/b@1",
}


def metrics_of(accuracy, ci95, **more):
    """A ``metrics.json`` of two classes with little in it."""
    of_each = {"m": value(0.5), "n": value(0.5)}
    figures = {
        "accuracy": value(accuracy, ci95),
        "balanced_accuracy": value(0.5),
        "auc_macro_ovr": value(None),
        "auc": {"m_vs_rest": value(None), "n_vs_rest": value(None)},
        "sensitivity": of_each,
        "specificity": {"m": value(1 - accuracy), "n": value(0.5)},
    }
    mean = {"mean": 0.5, "sd": None, "n_folds": 1, "n_skipped": 0}
    means = dict.fromkeys(("accuracy", "balanced_accuracy", "auc_macro_ovr"), mean)
    means |= {name: dict.fromkeys(figures[name], mean) for name in ("auc", "sensitivity", "specificity")}
    whole = content("metrics")
    of_headline = {name: figures[name] for name in ("accuracy", "balanced_accuracy", "auc_macro_ovr")}
    of_headline |= {"auc": figures["auc"]["m_vs_rest"]}
    of_headline |= {name: figures[name]["m"] for name in ("sensitivity", "specificity")}
    return whole | {
        "positive_class": "m",
        "classes": ["m", "n"],
        "n_images": 48,
        "n_groups": 24,
        "class_counts": {"m": 24, "n": 24},
        "headline": whole["headline"] | of_headline,
        "pooled": whole["pooled"] | figures,
        "folds": [whole["folds"][0] | {"fold": 0, **figures}],
        "mean_sd": whole["mean_sd"] | means,
        "confusion": {"labels": ["m", "n"], "counts": [[12, 12], [12, 12]]},
        **more,
    }


def filled(tmp_path, accuracies, *, interval=True, dataset=None, figures=None, **changes):
    """The table of runs whose accuracies are given by seed and model; None: not finished."""
    plan = make_plan(study_of(**changes), dataset=dataset)
    with open_study(tmp_path / "study", plan, "command") as study:
        for run in plan.runs:
            accuracy = accuracies[run.seed, run.config["model"]["name"]]
            study.settle(run.id, finished=accuracy is not None)
            if accuracy is None:
                continue
            study.run_path(run.id).mkdir(parents=True)
            ci95 = [accuracy - 0.05, accuracy + 0.05] if interval else None
            metrics = metrics_of(accuracy, ci95, **(figures or {}))
            (study.run_path(run.id) / "metrics.json").write_text(json.dumps(metrics))
            (study.run_path(run.id) / "run.json").write_text(json.dumps(content("run", seconds=1.5)))
        fill(study, plan)
        return study.record.content()


def test_of_a_result_only_the_figures_of_the_table_are_kept(tmp_path):
    plan = make_plan(study_of())
    with open_study(tmp_path / "study", plan, "command") as study:
        for run in plan.runs:
            study.settle(run.id, finished=True)
            study.run_path(run.id).mkdir(parents=True)
            (study.run_path(run.id) / "metrics.json").write_text(json.dumps(metrics_of(0.5, [0.4, 0.6])))
            (study.run_path(run.id) / "run.json").write_text(json.dumps(content("run", seconds=1.5)))
        fill(study, plan)
        assert set(study.results) == {run.id for run in plan.runs}
        for kept in study.results.values():
            assert set(kept.figures) == set(CONTENT["columns"])
            assert kept.figures["accuracy"].value == 0.5 and (kept.n_images, kept.n_groups) == (48, 24)


def of_vit(record):
    return next(row for row in record["table"] if row["model"] == "timm:test_vit")


@pytest.mark.parametrize(
    ("ours", "within"), [(0.35, True), (0.31, True), (0.39, True), (0.29, False), (0.41, False)]
)  # the paper prints 35%, and the interval is 5 points to each side
def test_without_a_tolerance_the_papers_figure_lies_within_our_interval_or_not(tmp_path, ours, within):
    figure = of_vit(filled(tmp_path, {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): ours}))["figures"]["accuracy"]
    assert figure["within"] is within and figure["within_reason"] is None
    assert figure["paper"] == {"printed": "35%", "value": 0.35, "sd": None}
    assert figure["difference"] == pytest.approx(ours - 0.35)


@pytest.mark.parametrize(("ours", "within"), [(0.35, True), (0.37, True), (0.33, True), (0.371, False), (0.329, False)])
def test_a_tolerance_decides_whatever_the_interval_is(tmp_path, ours, within):
    columns = {"accuracy": {"figure": "accuracy", "tolerance": "2%"}, "auc_macro_ovr": "auc_macro_ovr"}
    accuracies = {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): ours}
    for interval in (True, False):
        record = filled(tmp_path / str(interval), accuracies, interval=interval, columns=columns)
        assert of_vit(record)["figures"]["accuracy"]["within"] is within


@pytest.mark.parametrize(("ours", "difference"), [(0.33, -0.01), (0.35, 0.0), (0.37, 0.01)])
def test_a_printed_range_is_compared_by_its_nearer_end(tmp_path, ours, difference):
    rows = [CONTENT["rows"][0], {**CONTENT["rows"][1], "printed": {"accuracy": "34% to 36%"}}]
    record = filled(tmp_path, {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): ours}, rows=rows)
    assert of_vit(record)["figures"]["accuracy"]["difference"] == pytest.approx(difference)


def test_where_nothing_can_be_compared_the_reason_is_said(tmp_path):
    accuracies = {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35}

    def vit(name, **options):
        figures = of_vit(filled(tmp_path / name, accuracies | options.pop("over", {}), **options))["figures"]
        assert figures["accuracy"]["within"] is None
        return figures["accuracy"]["within_reason"]

    assert vit("a", interval=False) == "no interval"
    assert vit("b", over={(0, "timm:test_vit"): None}) == "no finished run"
    assert vit("c", dataset="phantom") == "other data than the paper's"
    rows = [{key: row[key] for key in ("name", "model")} for row in CONTENT["rows"]]
    assert vit("d", rows=rows) == "the paper prints none"


def test_an_undefined_figure_and_an_absent_one_say_why(tmp_path):
    record = filled(
        tmp_path,
        {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35},
        columns=["accuracy", "auc_macro_ovr", "sensitivity.positive", "sensitivity.other"],
    )
    figures = of_vit(record)["figures"]
    assert figures["auc_macro_ovr"]["value"] is None and figures["auc_macro_ovr"]["within_reason"] == "no value"
    assert "no such figure" in figures["sensitivity.other"]["reason"]
    assert figures["sensitivity.positive"]["value"] == 0.5


def result_of(plan, study, values):
    """Write the result of each run of a chain; ``values`` maps the name of a step to its accuracy."""
    steps = {run: step for row in plan.rows for step, run in row.runs[0].items()}
    for run in plan.runs:
        value = values.get(steps[run.id])
        study.settle(run.id, finished=value is not None)
        if value is None:
            continue
        folder = study.run_path(run.id)
        folder.mkdir(parents=True)
        accuracy = {"value": value, "ci95": [value - 0.01, value + 0.01], "method": "Wilson", "n_groups": 9}
        name = "2-shot" if steps[run.id] == "few" else "10 nearest neighbours"
        kept = KEPT | {"step": 1, "val_accuracy": value}
        row = {"name": name, "accuracy": accuracy, "mean_class_accuracy": value}
        found = {"summary": [row]} if run.kind == "transfer" else {"kept": [kept]}
        (folder / f"{run.kind}.json").write_text(json.dumps(content(run.kind, **found)))
        if run.kind == "pretrain":
            (folder / "fold-0").mkdir()
            lines = [f"1,9.98,{value / 2}", f"2,20.0,{value}"]
            (folder / "fold-0" / "history.csv").write_text("\n".join(["step,epoch,val_accuracy", *lines, ""]))


def filled_chain(tmp_path, settings=CHAIN, **values):
    plan = make_plan(StudyConfig.model_validate(settings))
    with open_study(tmp_path / "study", plan, "command") as study:
        result_of(plan, study, values)
        fill(study, plan)
        return study.record


def rows_of(record):
    return {row["name"]: row for row in record.content()["table"]}


def test_a_row_shows_the_figures_of_all_its_runs(tmp_path):
    table = rows_of(filled_chain(tmp_path, train=0.31, tuned=0.5, knn=0.9, few=0.6))
    figures = table["DeiT-Ti"]["figures"]
    assert {name: figure["value"] for name, figure in figures.items()} == {
        "params": pytest.approx(5.717416),  # DeiT-Ti/16 has 5,717,416 parameters (timm)
        "upstream": 0.31,
        "knn": 0.9,
        "both": pytest.approx(0.75),
        "few": 0.6,
    }
    assert figures["params"]["within"] is True and figures["upstream"]["within"] is True, (
        "0.31 is 1 point above 20-30 %"
    )
    assert figures["knn"]["within"] is False and figures["knn"]["ci95"] == [0.89, 0.91]
    assert figures["both"]["ci95"] is None and figures["both"]["method"] == "mean over 2 runs"
    assert table["again"]["figures"]["few"]["reason"] == "the row has no run for it"


def test_a_figure_waits_for_all_of_its_runs(tmp_path):
    table = rows_of(filled_chain(tmp_path, train=0.31, knn=0.9))
    figures = table["DeiT-Ti"]["figures"]
    assert (figures["upstream"]["value"], figures["knn"]["value"]) == (0.31, 0.9)
    assert figures["both"]["value"] is None and table["DeiT-Ti"]["state"] == "waiting"


def test_a_column_may_be_a_difference(tmp_path):
    columns = {**CHAIN["columns"], "gain": {"figure": "accuracy", "of": "knn", "minus": "few"}}
    content = {**CHAIN, "columns": columns}
    first, again, _ = filled_chain(tmp_path, content, train=0.3, tuned=0.3, knn=0.9, few=0.6).table
    assert first.figures["gain"].value == pytest.approx(0.3) and first.figures["gain"].ci95 is None
    assert again.figures["gain"].reason == "the row has no run for it", "it has no few-shot probe"


def test_a_pretraining_has_a_figure_at_each_epoch_that_was_evaluated(tmp_path):
    """The evaluation nearest to an epoch may be a little before or after it, as steps do not fill epochs exactly."""
    columns = {f"at{epoch}": {"figure": f"val_accuracy.{epoch}", "of": "train"} for epoch in (10, 15, 20)}
    rows = [{"name": "DeiT-Ti", "model": "deit_ti"}]
    figures = filled_chain(tmp_path, {**CHAIN, "columns": columns, "rows": rows}, train=0.4).table[0].figures
    assert (figures["at10"].value, figures["at20"].value) == (0.2, 0.4)
    assert figures["at15"].reason == "the run was not evaluated at epoch 15"


def test_correlations_are_over_all_rows_and_seeds(tmp_path):
    accuracies = {(0, "timm:test_vit"): 0.3, (1, "timm:test_vit"): 0.36, (2, "timm:test_vit"): 0.45}
    accuracies |= {(0, "timm:test_resnet"): 0.5, (1, "timm:test_resnet"): 0.1, (2, "timm:test_resnet"): None}
    pairs = [["accuracy", "balanced_accuracy"], ["accuracy", "specificity.positive"]]
    columns = ["accuracy", "auc_macro_ovr", "balanced_accuracy", "specificity.positive"]
    record = filled(tmp_path, accuracies, seeds=[0, 1, 2], columns=columns, correlations=pairs)
    # metrics_of gives every run the same balanced accuracy, and its specificity is 1 - accuracy.
    constant, opposite = record["correlations"]
    assert constant == {"columns": pairs[0], "n": 5, "pearson": None, "spearman": None}
    assert opposite["n"] == 5 and opposite["pearson"] == opposite["spearman"] == pytest.approx(-1)


def test_counts_of_the_network_need_no_run(tmp_path):
    assert rows_of(filled_chain(tmp_path))["SGD"]["figures"]["params"]["value"] == pytest.approx(5.717416)


def test_the_spread_of_seeds_is_that_of_the_finished_runs(tmp_path):
    accuracies = {(seed, "timm:test_vit"): x for seed, x in enumerate([0.3, 0.36, 0.45])}
    accuracies |= {(0, "timm:test_resnet"): 0.5, (1, "timm:test_resnet"): None, (2, "timm:test_resnet"): None}
    record = filled(tmp_path, accuracies, seeds=[0, 1, 2])
    spread = {row["name"]: row["figures"]["accuracy"] for row in record["seed_spread"]}
    values = np.array([0.3, 0.36, 0.45])
    assert spread["Tiny/8"] == {
        "n": 3,
        "mean": pytest.approx(values.mean()),
        "sd": pytest.approx(values.std(ddof=1)),
        "min": 0.3,
        "max": 0.45,
    }
    assert spread["Tiny ResNet"] == {"n": 1, "mean": 0.5, "sd": None, "min": 0.5, "max": 0.5}
    assert record["seed_spread"][0]["figures"]["auc_macro_ovr"]["n"] == 0
    assert of_vit(record)["figures"]["accuracy"]["value"] == 0.3, "the table is of the first seed"


def test_a_single_seed_has_no_spread(tmp_path):
    assert filled(tmp_path, {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.35})["seed_spread"] == []


def test_a_run_on_the_pre_training_data_of_a_foundation_model_is_named_above_all_other_caveats(tmp_path):
    accuracies = {(0, "timm:test_resnet"): 0.5, (0, "timm:test_vit"): 0.6}
    record = StudyRecord.model_validate(filled(tmp_path / "a", accuracies, figures={"contamination": [CONTAMINATION]}))
    assert len(record.contamination) == 2
    lead = [block.words for block in study_document(record).lead[:2]]
    assert all("CONTAMINATED" in line and "bus_bra" in line for line in lead)
    clean = filled(tmp_path / "b", accuracies)
    assert "contamination" not in clean


def test_the_table_of_a_sweep_has_shape_compute_and_loss_of_every_row_and_seed(tmp_path):
    vit = {"width": 32, "depth": 2, "mlp": 48, "heads": 2, "patch": 8}
    settings = {"model": {"vit": vit, "image_size": 32}, "train": {"steps": 7, "epochs": None, "batch_size": 4}}
    study = StudyConfig.model_validate(
        {
            "name": "sweep",
            "title": "A sweep",
            "seeds": [0, 1],
            "steps": {"train": {"run": "pretrain", "recipe": "fractals"}},
            "columns": {
                **{name: name for name in ("width", "depth", "mlp", "gflops")},
                "loss": {"figure": "val_loss", "title": "loss"},
            },
            "rows": [
                {"name": "small", "group": "star, width", "model": "vit", "settings": settings},
                {"name": "resnet", "model": "resnet50", "settings": {"model": {"image_size": 32}}},
            ],
        }
    )
    plan = make_plan(study)
    first = plan.rows[0].runs[0]["train"]
    with open_study(tmp_path / "study", plan, "command") as opened:
        opened.settle(first, finished=True)
        folder = opened.run_path(first)
        (folder / "fold-0").mkdir(parents=True)
        (folder / "fold-0" / "history.csv").write_text("step,epoch,val_loss\n7,1,2.5\n")
        (folder / "pretrain.json").write_text(
            json.dumps(content("pretrain", kept=[KEPT | {"step": 7, "epoch": 1.0, "val_loss": 2.5}]))
        )
        (folder / "run.json").write_text(json.dumps(content("run", seconds=1.5)))
        fill(opened, plan)
        table = long_table(opened, plan)
    assert list(table.columns) == [
        *("group", "row", "model", "seed", "state", "width", "depth", "mlp", "gflops", "loss"),
    ]
    assert [(row.row, row.seed, row.state) for row in table.itertuples()] == [
        *(("small", 0, "finished"), ("small", 1, "waiting"), ("resnet", 0, "waiting"), ("resnet", 1, "waiting")),
    ]
    # 7 steps of 4 images, 6 FLOPs for each MAC: 17 tokens, 2 layers, 16 patches of 192 numbers.
    macs = 2 * (17 * (4 * 32**2 + 2 * 32 * 48) + 2 * 17**2 * 32) + 16 * 192 * 32
    assert table.loc[0, ["width", "depth", "mlp", "gflops", "loss"]].tolist() == pytest.approx(
        [32, 2, 48, 7 * 4 * 6 * macs / 1e9, 2.5]
    )
    assert np.isnan(table.loc[1, "loss"]) and table.loc[2, ["width", "depth", "mlp"]].isna().all()
