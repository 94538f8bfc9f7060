"""Fine-tuning over a sweep: validation chooses, finished cells stay, a diverged one is out, the result is a run."""

import json

import pandas as pd
import pytest
from safetensors.numpy import load_file

from tests.upstream.transfer_learning.test_experiment import Told, accuracy_of, run
from usvit.config import build
from usvit.errors import UsvitError
from usvit.models.weights import resolve_weights
from usvit.models.zoo import find_model
from usvit.upstream.api import transfer
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.transfer_learning import finetune as module
from usvit.upstream.transfer_learning.finetune import cell_config, choose

SWEEP = {
    "still": {"optim": {"lr": 1e-300, "name": "sgd"}},  # no weight moves: the head stays zero
    "moving": {"optim": {"lr": 1e-2}},
    "wild": {"optim": {"lr": 1e30, "name": "sgd"}},
}


@pytest.fixture
def sweep(settings):
    training = {
        "how": "finetune",
        "optim": {"name": "adamw", "lr": 1e-2},
        "train": {"steps": 15, "batch_size": 15},
        "views": {"test_crop": 1.0, "crop": "resize"},
        "cells": SWEEP,
    }
    return {**settings, **training}


@pytest.mark.slow
def test_validation_chooses_the_cell_and_the_chosen_is_tested_and_kept(sweep, tmp_path, monkeypatch):
    told = Told()
    outcome = run(sweep, tmp_path / "run", progress=told)
    chosen = outcome.result.chosen
    assert (chosen.cell, chosen.n_cells) == ("moving", 3)
    assert any("wild" in line and "diverged" in line for line in told.lines)
    results = pd.read_csv(outcome.path / "results.csv").set_index("cell")
    val = results[results.part == "val"]
    assert val.accuracy.idxmax() == "moving" and pd.isna(val.accuracy["wild"])
    assert val.accuracy["moving"] == pytest.approx(chosen.val_accuracy)
    tested = results[results.part == "test"]
    assert list(tested.index) == ["moving"]  # no other cell has seen the test
    assert tested.accuracy.item() == pytest.approx(accuracy_of(outcome.path))

    spec = find_model("vit_ti16", sweep["model"]["vit"])
    seen = resolve_weights(str(outcome.path), spec).metadata.seen_sha256
    assert (len(seen.train), len(seen.val)) == (30, 12)
    assert not list(outcome.path.glob("cells/*/fold-0/model.safetensors"))

    monkeypatch.setattr(module, "Pretraining", None)
    assert run(sweep, tmp_path / "run").result == outcome.result  # finished: nothing is trained


@pytest.mark.slow
def test_a_random_search_over_the_cells_is_simulated_from_the_tests_of_all(sweep, tmp_path):
    """Steiner et al. 2022, Figure 2: three cells, of which one diverges and counts as 0."""
    outcome = run(sweep, tmp_path / "run", {"trials": [1, 2, 10]})
    results = pd.read_csv(outcome.path / "results.csv")
    val = results[results.part == "val"].set_index("cell").accuracy
    test = results[results.part == "test"].set_index("cell")
    assert sorted(test.index) == ["moving", "still"] and test.chosen.to_dict() == {"still": False, "moving": True}
    found = {"still": test.accuracy["still"], "moving": test.accuracy["moving"], "wild": 0.0}
    assert val["moving"] > val["still"]
    pairs = [found[one] for one in ("moving", "moving", "still")]  # the better of still and moving, ...
    told = pd.read_csv(outcome.path / "random_search.csv").set_index("trials")
    assert told["mean"].tolist() == pytest.approx([sum(found.values()) / 3, sum(pairs) / 3, found["moving"]])
    assert told["low"][1] == 0.0 and told["high"][1] == found["moving"]
    lines = {line.name: line.accuracy.value for line in outcome.result.summary}
    assert list(lines)[:3] == ["best of 1", "best of 2", "best of 10"] and outcome.result.summary[-1].cell == "moving"
    assert [lines[f"best of {k}"] for k in (1, 2, 10)] == pytest.approx(
        [sorted(found.values())[1], found["moving"], found["moving"]]
    )


def test_trials_belong_to_fine_tuning():
    with pytest.raises(UsvitError, match="trials are cells of finetune, and knn has none"):
        build(TransferConfig, {"how": "knn", "trials": [1]})


def test_fixed_values_of_layer_scale_belong_to_pre_training():
    with pytest.raises(UsvitError, match=r"model\.layer_scale_from belongs to usvit pretrain"):
        build(TransferConfig, {"how": "finetune", "source": {"name": "pets"}, "model": {"layer_scale_from": "run"}})


@pytest.mark.slow
def test_a_head_of_two_layers_is_trained_tested_and_left_behind(sweep, tmp_path):
    outcome = run(sweep, tmp_path / "run", {"cells": {}, "model": {"head": "mlp"}})
    told = outcome.result.summary[0].accuracy.value
    assert told == pytest.approx(accuracy_of(outcome.path)) and told > 0.5
    weights = resolve_weights(str(outcome.path), find_model("vit_ti16", sweep["model"]["vit"]))
    assert {"head.0.weight", "head.1.running_mean", "head.3.weight"} <= set(weights.read().tensors)
    onward = {"cells": {}, "model": {"weights": str(outcome.path)}, "train": {"steps": 1}}
    again = run(sweep, tmp_path / "again", onward)
    skipped = json.loads((again.path / "run.json").read_text())["model"]["weights"]["loaded"]["skipped"]
    assert any("head.3.weight" in entry["names"] for entry in skipped)


@pytest.mark.slow
def test_the_hidden_layer_of_a_pretraining_head_is_left_behind(sweep, tmp_path):
    """Dosovitskiy et al. 2021, B.1.1: the whole head (two linear layers) is replaced by one, which starts at zero."""
    model = {**sweep["model"], "vit": {**sweep["model"]["vit"], "head": "hidden"}}
    keys = ("source", "views", "device", "precision")
    config = build(PretrainConfig, {key: sweep[key] for key in keys}, {"model": model}, {"train": {"steps": 1}})
    upstream = Pretraining(config, out=tmp_path / "upstream").run().path
    assert "hidden.fc.weight" in load_file(upstream / "fold-0" / "model.safetensors")
    still = {"cells": {}, "optim": SWEEP["still"]["optim"]}
    onward = still | {"model": {"name": "vit_b32", "weights": str(upstream), "vit": {}}}

    def network(name, *more):
        result = run({**sweep, **onward}, tmp_path / name, *more, named=False)
        tensors = load_file(result.path / "fold-0" / "model.safetensors")
        return tensors, json.loads((result.path / "fold-0" / "model.json").read_text())["vit"]

    tensors, vit = network("finetune")
    assert "head" not in vit and vit["width"] == 24
    heads = {key: value for key, value in tensors.items() if key.startswith(("hidden", "head"))}
    assert {key: value.shape for key, value in heads.items()} == {"head.weight": (3, 24), "head.bias": (3,)}
    assert not heads["head.weight"].any()  # this rate moves nothing: the layer starts at zero
    tensors, vit = network("linear", {"how": "linear"})
    assert "head" not in vit and not any(key.startswith("hidden") for key in tensors)
    tensors, vit = network("asked", {"model": {"vit": {"head": "hidden"}}})
    assert vit["head"] == "hidden" and "hidden.fc.weight" in tensors


@pytest.mark.slow
def test_finished_cells_are_not_trained_again(sweep, tmp_path, monkeypatch):
    sweep = {**sweep, "cells": {"still": SWEEP["still"], "moving": SWEEP["moving"]}}
    train, begun = module.Pretraining.run, []

    def stops_in_the_second(self):
        begun.append(self.out.name)
        if len(begun) == 2:
            raise KeyboardInterrupt
        return train(self)

    monkeypatch.setattr(module.Pretraining, "run", stops_in_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(sweep, tmp_path / "run")
    before = (tmp_path / "run" / "cells" / "still" / "run.json").read_bytes()
    resumed = run(sweep, tmp_path / "run")
    assert (tmp_path / "run" / "cells" / "still" / "run.json").read_bytes() == before
    assert resumed.result.chosen.cell == "moving"


@pytest.mark.slow
def test_the_chosen_is_trained_again_on_all_images_where_the_recipe_says_so(sweep, tmp_path):
    outcome = run(sweep, tmp_path / "run", {"cells": {"moving": SWEEP["moving"]}, "final": "train+val"})
    record = json.loads((outcome.path / "final" / "run.json").read_text())
    assert record["data"]["sources"][0]["images"] == 42 and record["config"]["source"]["val"] is None
    assert outcome.result.chosen.final == "train+val"


@pytest.mark.slow
def test_each_cell_of_three_things_is_tested_in_a_run_of_its_own(settings, tmp_path, monkeypatch):
    """Touvron et al. 2022, Table 6, shows all three; nothing is selected, so all training images are used once."""
    monkeypatch.chdir(tmp_path)
    small = {"views__repeats": 1, "train__batch_size": 6, "train__epochs": None, "train__steps": 3}
    small |= {"optim__warmup_epochs": 0, "model__image_size": 32, "workers": 0, "device": "cpu", "precision": "fp32"}
    small |= {"model__vit": settings["model"]["vit"] | {"layer_scale": 0.1}}
    small |= {"source": "folder", "source__path": settings["source"]["path"], "source__split": "train"}
    chosen_on_nothing = {"source__val_share": 0.0, "final": None}
    runs = {}
    for cell in ("full", "attn", "ffn"):
        run_of_cell = transfer(
            weights="scratch", recipe="three_things", model="vit_ti16", cell=cell, **small, **chosen_on_nothing
        )
        runs[run_of_cell.path.name] = run_of_cell
    assert list(runs) == [f"transfer-finetune-folder-vit_ti16-scratch-three_things-{cell}-seed0" for cell in
                          ("full", "attn", "ffn")]  # fmt: skip
    for cell, one in zip(("full", "attn", "ffn"), runs.values(), strict=True):
        assert (one.result.tune, one.result.chosen.cell, one.result.images.n_test) == (cell, cell, 18)
        assert one.result.summary[0].name == f"fine-tuned ({cell})"
        assert [folder.name for folder in (one.path / "cells").iterdir()] == [cell]
    networks = [load_file(one.path / "fold-0" / "model.safetensors") for one in runs.values()]
    of_mlps, of_attention = "blocks.0.mlp.fc1.weight", "blocks.0.attn.qkv.weight"
    assert (networks[0][of_mlps] != networks[1][of_mlps]).any()  # attn alone leaves the MLPs as they were
    assert (networks[0][of_attention] != networks[2][of_attention]).any()


def test_a_cell_is_the_recipe_with_its_own_settings_and_nothing_of_the_transfer(sweep):
    config = build(TransferConfig, sweep)
    cell = cell_config(config, {"optim": {"lr": 0.5}, "train": {"epochs": 3}})
    assert (cell.optim.lr, cell.optim.name, cell.train.epochs, cell.train.steps) == (0.5, "adamw", 3, None)
    assert cell.source.path == config.source.path and not hasattr(cell, "shots")


@pytest.mark.parametrize("overrides", [{"source": {"split": "test"}}, {"model": {"weights": "hub"}}, {"seed": 3}])
def test_cells_do_not_differ_in_images_or_first_weights(sweep, overrides):
    with pytest.raises(UsvitError, match="same for all cells"):
        cell_config(build(TransferConfig, sweep), overrides)


def test_the_first_of_the_best_is_chosen_and_none_known_is_an_error():
    assert choose([0.5, 0.7, None, 0.7], ["a", "b", "c", "d"]) == "b"
    assert choose([None], ["a"]) == "a"
    with pytest.raises(UsvitError, match="all diverged"):
        choose([None, None], ["a", "b"])
