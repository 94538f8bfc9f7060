"""The first paragraph of a page, for every kind of initial weights, run and tested set."""

from types import SimpleNamespace

import pandas as pd
import pytest

from tests.records.contents import content
from usvit.records import MetricsRecord, RunRecord
from usvit.reports.lead import lead_of_run
from usvit.reports.run_files import Run


def make_run(kind="cv", folds=5, repeats=1, weights=None, unit="group", config=None, model=None):
    whole = content("run")
    config = {"recipe": "some_recipe", "seed": 7} if config is None else config
    named = {"name": "net", "timm": "net_timm", "params": 1000, "weights": weights or {}, **(model or {})}
    record = RunRecord.model_validate(
        whole
        | {
            "kind": kind,
            "config": {key: whole["config"][key] for key in ("data", "model") if key in whole["config"]} | config,
            "data": whole["data"] | {"datasets": ["busi"], "n_images": 90, "n_groups": 60},
            "folds": whole["folds"] | {"n": folds, "unit": unit},
            "model": {key: one for key, one in whole["model"].items() if key != "trainable"} | named,
        }
    )
    metrics = MetricsRecord.model_construct(n_images=30, n_groups=20, folds=[SimpleNamespace()] * folds * repeats)
    tested = pd.DataFrame()
    return Run(record, metrics, tested, tested, pd.DataFrame({"repeat": range(repeats)}), {}, {})


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ({"source": "scratch"}, "was trained from scratch, without pre-trained weights, with the recipe"),
        (
            {"source": "hub", "name": "augreg_in21k"},
            "was trained from pre-trained weights of the hub, augreg_in21k, with",
        ),
        ({"source": "file", "name": "phantom"}, "was trained from the weights phantom, with the recipe"),
        (
            {"source": "file", "name": "phantom", "pretrained_by": "usvit"},
            "was trained from the weights phantom (pre-trained by usvit), with the recipe",
        ),
        ({"source": "run", "name": "pre"}, "was trained from the weights of the run pre, with the recipe"),
        ({}, "was trained with the recipe some_recipe and seed 7, on busi: 90 images in 60 groups."),
    ],
)
@pytest.mark.parametrize("kind", ["cv", "train"])
def test_initial_weights_of_every_kind_are_named(weights, words, kind):
    lead = lead_of_run(make_run(kind, 5 if kind == "cv" else 1, weights=weights))
    assert lead.startswith("The network net (net_timm, 1,000 parameters) was trained ")
    assert words in lead
    assert "not recorded" not in lead and ", ," not in lead and "  " not in lead


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"recipe": "none", "seed": 0}, "was trained without a named recipe, with seed 0, on busi"),
        ({"recipe": "demo"}, "was trained with the recipe demo, on busi"),
        ({}, "was trained on busi"),
    ],
)
def test_recipe_and_seed_are_left_out_if_there_are_none(config, words):
    assert words in lead_of_run(make_run(config=config))


def test_every_tested_set_is_named():
    assert "In each of 5 folds a new model" in lead_of_run(make_run())
    assert "predicted once, by a model that was not trained on it or any other image of its group." in lead_of_run(
        make_run()
    )
    assert "any other image" not in lead_of_run(make_run(unit="image"))
    repeated = lead_of_run(make_run(repeats=3))
    assert "In each of 15 folds (3 repeats" in repeated and "predicted once in each repeat" in repeated
    held_out = lead_of_run(make_run("train", 1))
    assert "tested on 30 images in 20 groups that were held out: it was trained neither on them nor" in held_out
    assert "held out: it was not trained on them." in lead_of_run(make_run("train", 1, unit="image"))


def test_the_part_of_the_network_that_was_trained_is_counted():
    lead = lead_of_run(make_run(model={"trainable": 10}))
    assert "1,000 parameters, 10 of them trained) was trained" in lead


@pytest.mark.parametrize("folds", [5, 1])
def test_an_ensemble_is_described_as_one(folds):
    config = {"seed": 0, "ensemble": {"members": ["a", "b"], "weights": "validation"}}
    lead = lead_of_run(make_run("ensemble", folds, config=config, weights={"source": "several"}))
    assert lead.startswith("An ensemble of the network net: the probabilities of 2 networks (a and b, together 1,000")
    assert "averaged with weights that were chosen on inner validation images" in lead
    assert "Nothing was trained here: each network was trained in its own run from different initial weights," in lead
    assert "recipe" not in lead and "One model" not in lead and "not recorded" not in lead
    assert ("In each of 5 folds" in lead) == (folds == 5) and ("held out: its networks" in lead) == (folds == 1)
