"""The best of a study: tiny runs, and made-up candidates."""

import json
import shutil

import jsonschema
import numpy as np
import pytest

import usvit
from tests.conftest import REPOSITORY
from tests.upstream.studies.conftest import RESNET, VIT, study_of
from usvit.errors import UsvitError
from usvit.evaluation import read_predictions
from usvit.files import sha256_of_file
from usvit.metrics.basic import auc
from usvit.progress import NoProgress
from usvit.upstream.studies.engines import Sequential
from usvit.upstream.studies.execution import execute
from usvit.upstream.studies.plan import make_plan

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "best.schema.json").read_text())


@pytest.fixture
def study(finished, tmp_path):
    """A finished study of two runs that a test may change."""
    return shutil.copytree(finished.path, tmp_path / "study")


def predictions_of(study, run):
    import pandas as pd

    return pd.concat([read_predictions(study / "runs" / run / f"fold-{k}" / "predictions.csv") for k in range(2)])


def area(table, fold, part):
    own = table[(table.fold == fold) & (table.part == part)]
    return auc((own.label == "malignant").to_numpy(), own.prob_malignant.to_numpy())


def edit_record(study, change):
    record = json.loads((study / "study.json").read_text())
    change(record)
    (study / "study.json").write_text(json.dumps(record))


def test_the_record_keeps_to_its_schema_and_its_figures_are_those_of_the_runs(study):
    record = usvit.best_of_study(study)
    jsonschema.validate(json.loads((study / "best.json").read_text()), SCHEMA, jsonschema.Draft202012Validator)
    assert [one.name for one in record.candidates] == [RESNET, VIT]
    tables = {run: predictions_of(study, run) for run in (RESNET, VIT)}
    for one in record.candidates:
        metrics = json.loads((study / "runs" / one.name / "metrics.json").read_text())
        assert one.test.value == pytest.approx(metrics["headline"]["auc"]["value"])
        assert one.test.ci95 == pytest.approx(metrics["headline"]["auc"]["ci95"])
        val = [area(tables[one.name], fold, "val") for fold in range(2)]
        assert one.validation.value == pytest.approx(np.mean(val))
    for fold in record.folds:
        assert fold.test == pytest.approx(area(tables[fold.chosen], fold.fold, "test"))
        assert fold.chosen_validation == pytest.approx(area(tables[fold.chosen], fold.fold, "val"))
    assert record.nested.value == pytest.approx(np.mean([one.test for one in record.folds]))
    assert record.apparent.test.value == max(one.test.value for one in record.candidates)
    assert record.apparent_minus_nested.value == pytest.approx(record.apparent.test.value - record.nested.value)
    within = [one for one in record.candidates if one.within_one_se]
    assert record.winner.name == min(within, key=lambda one: one.parameters).name
    assert record.commands == [f"usvit score --model {study / 'runs' / record.winner.name} --input IMAGES --out SCORES"]


def test_the_test_images_have_no_say_in_the_choice(study):
    before = usvit.best_of_study(study)
    for run in (RESNET, VIT):
        folder = study / "runs" / run
        content = json.loads((folder / "run.json").read_text())
        for name in ("fold-0/predictions.csv", "fold-1/predictions.csv"):
            table = read_predictions(folder / name)
            test = table.part == "test"
            columns = [one for one in table if one.startswith(("logit_", "prob_"))]
            table.loc[test, columns] = table.loc[test, columns].to_numpy()[::-1]
            table.to_csv(folder / name, index=False)
            content["files"][name] = sha256_of_file(folder / name)
        (folder / "run.json").write_text(json.dumps(content))
    after = usvit.best_of_study(study)
    assert [one.chosen for one in after.folds] == [one.chosen for one in before.folds]
    assert after.winner == before.winner and after.nested != before.nested


def test_a_mean_of_the_best_is_a_candidate_and_its_command_works(study, monkeypatch):
    record = usvit.best_of_study(study, ensembles=5)  # two runs: at most a mean of two
    assert [one.name for one in record.candidates] == [RESNET, VIT, "mean of the best 2"]
    mean = record.candidates[-1]
    assert mean.members == [RESNET, VIT] and mean.parameters == sum(one.parameters for one in record.candidates[:2])
    monkeypatch.setattr("usvit.experiments.ensembles.api.write_report", lambda path: None)
    runs = [study / "runs" / run for run in (RESNET, VIT)]
    made = usvit.ensemble(*runs, out=study / "best")
    assert mean.test.value == pytest.approx(made.result.headline.auc.value)
    from usvit.upstream.studies.best import _commands

    assert _commands(runs, study)[0] == f"usvit ensemble {runs[0]} {runs[1]} --out {study / 'best'}"


@pytest.mark.parametrize("figure", ["accuracy", "brier", "balanced_accuracy", "auc_macro_ovr"])
def test_other_figures_can_choose(study, figure):
    record = usvit.best_of_study(study, figure=figure)
    best = min if figure == "brier" else max
    assert record.apparent.test.value == best(one.test.value for one in record.candidates)
    sign = -1 if figure == "brier" else 1
    assert record.apparent_minus_nested.value == pytest.approx(
        sign * (record.apparent.test.value - record.nested.value)
    )


def test_runs_that_are_no_candidates_are_listed(study):
    def change(record):
        record["runs"].append({**record["runs"][0], "id": "other", "state": "failed", "error": "no room"})
        record["runs"].append({**record["runs"][0], "id": "upstream", "kind": "pretrain"})

    edit_record(study, change)
    record = usvit.best_of_study(study)
    assert [one.run for one in record.left_out] == ["other", "upstream"]
    assert "failed" in record.left_out[0].reason and "usvit pretrain" in record.left_out[1].reason


@pytest.mark.parametrize(
    ("change", "arguments", "says"),
    [
        (lambda record: record["runs"][0].update(state="waiting"), {}, "has 1 finished runs .* a choice needs two"),
        (lambda record: None, {"figure": "sensitivity"}, "Unknown figure 'sensitivity'"),
        (lambda record: None, {"ensembles": 0}, "ensembles"),
    ],
)
def test_what_leaves_nothing_to_choose_is_explained(study, change, arguments, says):
    edit_record(study, change)
    with pytest.raises(UsvitError, match=says):
        usvit.best_of_study(study, **arguments)


def test_a_folder_without_a_study_is_explained(tmp_path):
    with pytest.raises(UsvitError, match=r"There is no study in .*nothing"):
        usvit.best_of_study(tmp_path / "nothing")


@pytest.fixture(scope="module")
def seeds(finished, small_phantom, tmp_path_factory):
    """The same study with a second seed of each run, whose folds are different."""
    out = tmp_path_factory.mktemp("seeds")
    runs = shutil.copytree(finished.path / "runs", out / "study" / "runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reports.write_report", lambda path: None)
        execute(
            make_plan(study_of(), n_seeds=2),
            engine=Sequential(1),
            roots={"": small_phantom},
            out=out / "new",
            command="usvit study tiny.yaml --seeds 2",
            progress=NoProgress(),
            runs=runs,
        )
    return out / "new"


def test_seeds_with_different_folds_are_repeats(seeds):
    record = usvit.best_of_study(seeds)
    assert (record.n_repeats, record.n_folds) == (2, 4)
    assert [one.name for one in record.candidates] == [RESNET.removesuffix("-seed0"), VIT.removesuffix("-seed0")]
    assert record.candidates[0].runs == [RESNET, RESNET[:-1] + "1"]
    runs = seeds.parent / "study" / "runs"
    single = [json.loads((runs / run / "metrics.json").read_text()) for run in record.candidates[0].runs]
    assert record.candidates[0].test.value == pytest.approx(
        np.mean([one["headline"]["auc"]["value"] for one in single])
    )
    assert record.winner.runs[0].endswith("-seed0")


def test_a_configuration_that_lacks_a_seed_leaves_nothing_to_choose(seeds, tmp_path):
    shutil.copytree(seeds.parent, tmp_path / "all")
    study = tmp_path / "all" / "new"
    edit_record(study, lambda record: record["runs"][-1].update(state="failed"))
    with pytest.raises(UsvitError, match="2 different sets of folds, and fewer than two configurations"):
        usvit.best_of_study(study)
