"""Which upstream network to take: both ways of Steiner et al. (2022), and their difference on the test."""

import json

import pytest

from tests.records.contents import content, network
from tests.upstream.transfer_learning.test_experiment import accuracy_of, run
from usvit.cli.printing import go_on
from usvit.errors import UsvitError
from usvit.upstream.records.training import TransferRecord
from usvit.upstream.transfer_learning.upstream_selection import UpstreamCandidate, recommend, upstream_figures


class Test12:
    __test__ = False

    def __len__(self):
        return 12


def candidate(name, upstream, downstream, validation="x"):
    figures = {"val_accuracy": upstream, "val_loss": None, "validation": validation, "name": "imagenet"}
    value = {"value": 0.5, "ci95": None, "method": "none", "n_groups": 12}
    result = content(
        "transfer",
        upstream=figures,
        chosen={"val_accuracy": downstream},
        summary=[{"name": "linear probe", "accuracy": value, "mean_class_accuracy": 0.5}],
        predictions=None,
        predictions_missing="none",
    )
    return UpstreamCandidate(name, f"runs/{name}", None, TransferRecord.model_validate(result), Test12())


def test_both_ways_choose_by_their_own_validation():
    found = recommend([candidate("a", 0.8, 0.6), candidate("b", 0.7, 0.9), candidate("c", 0.6, 0.7)])
    assert found.by_upstream_validation.name == "a"
    assert (found.by_adapting_all.name, found.kept) == ("b", "b")
    assert found.difference.accuracy.value is None  # without predictions


def test_where_both_choose_the_same_there_is_no_difference():
    found = recommend([candidate("a", 0.8, 0.9), candidate("b", 0.7, 0.6)])
    assert found.difference.accuracy.value == 0


@pytest.mark.parametrize(
    ("second", "reason"),
    [(candidate("b", None, 0.9), "known of b"), (candidate("b", 0.9, 0.9, "y"), "different images")],
)
def test_upstream_accuracies_that_do_not_compare_choose_nothing(second, reason):
    found = recommend([candidate("a", 0.8, 0.6), second])
    assert found.by_upstream_validation.name is None
    assert reason in found.by_upstream_validation.reason
    assert found.kept == "b" and found.difference is None


def test_upstream_figures_are_read_from_a_run_or_its_fold_and_null_of_anything_else(tmp_path):
    fold = tmp_path / "fold-0"
    fold.mkdir()
    (fold / "model.json").write_text(json.dumps(network()))
    (tmp_path / "fold-1").mkdir()
    (tmp_path / "fold-1" / "model.json").write_text(json.dumps(network()))
    (row,) = content("pretrain")["kept"]
    values = ((0, 0.75), (1, 0.5))
    kept = [row | {"fold": number, "val_accuracy": value, "val_loss": 1.5} for number, value in values]
    (tmp_path / "pretrain.json").write_text(json.dumps(content("pretrain", kept=kept)))
    sha256 = "ab" * 32
    validation = {"name": "fractals", "images": 100, "classes": 3, "listing_sha256": sha256}
    (tmp_path / "run.json").write_text(json.dumps(content("run-pretrain", data={"validation": validation})))
    expected = {"val_accuracy": 0.75, "val_loss": 1.5, "validation": sha256, "name": "fractals"}
    for place in (tmp_path, fold, fold / "model.json"):
        assert upstream_figures(str(place)).content() == expected
    assert upstream_figures(str(tmp_path / "fold-1")).val_accuracy == 0.5
    for other in ("hub", "scratch", str(tmp_path / "nothing")):
        assert upstream_figures(other).val_accuracy is None


@pytest.mark.slow
def test_several_weights_are_adapted_alike_and_the_best_by_validation_is_kept(settings, tmp_path):
    one = run(settings, tmp_path / "one", {"how": "linear", "seed": 1})
    more = {"how": "linear", "upstream": ["scratch", str(one.path)]}
    outcome = run({**settings, "source": {**settings["source"]}}, tmp_path / "both", more)
    found = outcome.result.recommended
    assert [row.name for row in found.candidates] == ["0-scratch", "1-one"]
    best = max(found.candidates, key=lambda row: row.downstream_val_accuracy)
    assert found.kept == best.name
    kept = outcome.path / "upstream" / found.kept
    for file in ("predictions.csv", "results.csv", "fold-0/model.safetensors", "fold-0/model.json"):
        assert (outcome.path / file).read_bytes() == (kept / file).read_bytes()
    assert accuracy_of(outcome.path) == outcome.result.summary[0].accuracy.value
    assert run({**settings}, tmp_path / "both", more).result == outcome.result


@pytest.mark.slow
def test_of_several_networks_the_record_names_the_one_that_is_kept(settings, tmp_path, monkeypatch):
    wider = settings["model"] | {"vit": settings["model"]["vit"] | {"width": 36, "heads": 3}}
    first, last = (
        run(settings | {"model": one}, tmp_path / str(n)) for n, one in enumerate((settings["model"], wider))
    )

    def keep_last(candidates):
        return recommend(candidates).model_copy(update={"kept": candidates[-1].name})

    monkeypatch.setattr("usvit.upstream.transfer_learning.experiment.recommend", keep_last)
    several = {**settings, "how": "knn", "upstream": [str(first.path), str(last.path)], "model": {"image_size": 32}}
    outcome = run(several, tmp_path / "both", named=False)
    assert outcome.record.model.vit == last.record.model.vit != first.record.model.vit
    assert str(last.record.model.vit["width"]) in go_on(outcome.path, outcome.record)
    assert outcome.record.name == "transfer-knn-folder-several-seed0"
    assert run(several, tmp_path / "both", named=False).result == outcome.result  # and goes on as the same run


@pytest.mark.slow
def test_a_metadata_without_its_network_is_named(settings, tmp_path):
    first = run(settings, tmp_path / "first", {"how": "knn"})
    metadata = first.path / "fold-0" / "model.json"
    told = json.loads(metadata.read_text())
    del told["architecture"]
    metadata.write_text(json.dumps(told))
    record = json.loads((first.path / "run.json").read_text())
    del record["files"]  # an older run: otherwise the changed file is refused before it is read
    (first.path / "run.json").write_text(json.dumps(record))
    again = {**settings, "model": {"weights": str(first.path)}}
    with pytest.raises(UsvitError, match=r"model\.json is damaged: key architecture: Field required"):
        run(again, tmp_path / "second", named=False)
