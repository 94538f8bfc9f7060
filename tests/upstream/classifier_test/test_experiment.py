"""Tests of a classifier whose answer to every image is known, on the sets that papers test on."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import top_k_accuracy_score
from statsmodels.stats.proportion import proportion_confint

import usvit
from tests.records.contents import network
from tests.upstream.classifier_test.colours import (
    SIZE,
    VIT,
    centre,
    colour_weights,
    log_probabilities,
    put,
    shown,
)
from tests.upstream.classifier_test.conftest import VALIDATION, write_objectnet, write_v2, write_wnids
from usvit.errors import LeakageError, UsvitError
from usvit.upstream.sources.imagenet import wnids
from usvit.upstream.sources.robustness_sets import subset_wnids

SETTINGS = {
    "model__vit": VIT,
    "model__image_size": SIZE,
    "views__test_crop": 1.0,
    "device": "cpu",
    "precision": "fp32",
}


@pytest.fixture
def tested(tmp_path, weights):
    """Test the network that knows colours: ``tested("imagenet", imagenet=ROOT)``."""

    def run(*sources, out="out", settings=None, **roots):
        return usvit.test(
            f"vit_ti16={weights}",
            source=sources,
            data_root=roots or None,
            out=tmp_path / out,
            **SETTINGS | (settings or {}),
        )

    return run


def images_of(run):
    return pd.read_csv(run.path / "predictions.csv", dtype={"label": str, "predicted": str})


def test_top_1_top_5_and_likelihood_of_imagenet_are_known(tested, imagenet):
    run = tested("imagenet", imagenet=imagenet)
    (row,) = run.result.results
    assert (row.source, row.rule, row.n_images, row.n_outputs) == ("imagenet:val", "all", 4, 1000)
    assert row.top1.value == 0.25 and row.top5.value == 0.75
    table = images_of(run)
    assert table["rank"].tolist() == [1, 2, 6, 5] and table["right"].tolist() == [True, False, False, False]
    assert table["predicted"].tolist() == [wnids()[colour] for colour, _ in VALIDATION.values()]
    assert table["label"].tolist() == [wnids()[label] for _, label in VALIDATION.values()]
    scores = np.array([log_probabilities(*shown(colour), 1000) for colour, _ in VALIDATION.values()])
    labels = [label for _, label in VALIDATION.values()]
    for k, value in ((1, row.top1.value), (5, row.top5.value)):
        assert value == top_k_accuracy_score(labels, scores, k=k, labels=np.arange(1000))
    assert np.allclose(table["probability"], np.exp(scores.max(axis=1)), atol=2e-3)
    assert row.nll == pytest.approx(-scores[np.arange(4), labels].mean(), abs=5e-3)
    assert row.top1.ci95 == pytest.approx(proportion_confint(1, 4, method="wilson"), abs=1e-9)
    assert row.mean_class_accuracy == 0.25  # four classes of one image
    assert run.result.sources[0].leaks == {"colours.safetensors": "not known: they are not on record"}


def test_any_of_the_reassessed_labels_is_right_and_images_without_one_are_counted(tested, imagenet):
    run = tested("imagenet_real", imagenet_real=imagenet)
    (row,), (source,) = run.result.results, run.result.sources
    assert (source.n_images, source.left_out, source.several_labels, source.n_classes_with_images) == (3, 1, True, 5)
    assert row.top1.value == pytest.approx(2 / 3) and row.top5.value == pytest.approx(2 / 3)
    table = images_of(run)
    assert table["label"].tolist() == [f"{wnids()[65]};{wnids()[3]}", f"{wnids()[971]};{wnids()[970]}", wnids()[1]]
    logs = [log_probabilities(*shown(colour), 1000)[labels] for colour, labels in ((65, [65, 3]), (970, [971, 970]))]
    logs.append(log_probabilities(*shown(809), 1000)[[1]])
    # of the sum of the probabilities of all labels, in single precision on numbers of some hundreds
    assert row.nll == pytest.approx(-np.mean([np.logaddexp.reduce(one) for one in logs]), rel=1e-3)
    # classes 65, 3, 971, 970 have the right images, class 1 the wrong one
    assert row.mean_class_accuracy == pytest.approx(4 / 5)


@pytest.mark.slow
def test_every_variant_of_v2_is_tested(tested, tmp_path):
    for variant, images in (
        ("matched-frequency", [(10, 10), (2, 2), (100, 101)]),
        ("threshold-0.7", [(9, 9), (10, 11)]),
        ("top-images", [(999, 999)]),
    ):
        write_v2(tmp_path / "v2", variant, images)
    run = tested("imagenet_v2", imagenet_v2=tmp_path / "v2")
    found = {row.source.partition(":")[2]: row.top1.value for row in run.result.results}
    assert found == {"matched-frequency": pytest.approx(2 / 3), "threshold-0.7": 0.5, "top-images": 1.0}
    one = tested("imagenet_v2:top-images", out="one", imagenet_v2=tmp_path / "v2")
    assert [row.source for row in one.result.results] == ["imagenet_v2:top-images"]


@pytest.mark.slow
@pytest.mark.parametrize("which", ["a", "r"])
def test_outputs_are_restricted_to_the_subset_as_in_the_public_code(tested, tmp_path, which):
    inside = [wnids().index(one) for one in subset_wnids(which)]
    outside = sorted(set(range(1000)) - set(inside))
    rng = np.random.default_rng(3)
    # Images whose nearest colour is that of a class outside: without the restriction all would be wrong.
    colours = [shown(int(k)) for k in rng.choice(outside, 12, replace=False)]
    nearest = [inside[int(np.argmax(log_probabilities(*one, 1000, inside)))] for one in colours]
    labels = [label if at % 3 else inside[at] for at, label in enumerate(nearest)]
    root = write_wnids(tmp_path / f"imagenet-{which}", subset_wnids(which), zip(colours, labels, strict=True))
    name = f"imagenet_{which}"
    (row,) = tested(name, **{name: root}).result.results
    assert (row.rule, row.n_outputs) == ("subset", 200)
    assert row.top1.value == pytest.approx(np.mean(np.equal(nearest, labels)))
    scores = np.array([log_probabilities(*one, 1000, inside) for one in colours])
    at = [inside.index(label) for label in labels]
    assert row.top5.value == pytest.approx(top_k_accuracy_score(at, scores, k=5, labels=np.arange(200)))
    (whole,) = tested(name, out="all", settings={"outputs": "all"}, **{name: root}).result.results
    assert (whole.rule, whole.n_outputs, whole.top1.value) == ("all", 1000, 0.0)


def test_objectnet_counts_a_decision_among_all_outputs_that_maps_to_the_class(tested, tmp_path):
    images = [(409, "alarm_clock"), (530, "alarm_clock"), (954, "banana"), (100, "banana"), (733, "still_camera")]
    write_objectnet(tmp_path / "objectnet", images)
    run = tested("objectnet", objectnet=tmp_path)
    (row,), (source,) = run.result.results, run.result.sources
    assert (row.rule, row.n_outputs, source.n_classes, source.left_out) == ("mapped", 1000, 3, 2)
    assert row.top1.value == pytest.approx(3 / 5)
    # The last one shows output 733, which is no camera; 733 - 1 is, and has rank 7 for the shown colour.
    assert images_of(run)["rank"].tolist()[:3] == [1, 1, 1] and images_of(run)["rank"].iloc[4] > 5
    assert row.mean_class_accuracy == pytest.approx((1 + 0.5 + 0) / 3)
    per_class = pd.read_csv(run.path / "per_class.csv").set_index("class")
    assert per_class["n_right"].to_dict() == {"alarm_clock": 2, "banana": 1, "still_camera": 0}


@pytest.fixture
def colour_run(tmp_path):
    """Weights of seven outputs beside metadata of a pre-training, which names their classes, and images of a folder."""
    from usvit.files import write_json
    from usvit.upstream.config.pretrain import PretrainConfig

    names = [f"colour{k}" for k in range(7)]
    folder = tmp_path / "trained"
    folder.mkdir()
    colour_weights(folder / "model.safetensors", 7)
    preprocessing = {"image_size": SIZE, "resize": "squash", "mean": [0.5] * 3, "std": [0.5] * 3, "crop": "tissue"}
    metadata = network(
        stage="pretrain",
        objective="supervised",
        architecture="vit_ti16",
        vit=VIT,
        classes=names,
        positive_class=None,
        preprocessing=preprocessing,
    )
    write_json(folder / "model.json", metadata)
    assert PretrainConfig().views.test_crop == 0.875
    for k, name in enumerate(names):
        for at in range(3):
            put(tmp_path / "images" / name / f"{at}.png", *(centre(k) + at).astype(int))
    return folder


def on_folder(colour_run, path, **settings):
    arguments = {"device": "cpu", "precision": "fp32", "out": colour_run.parent / "tested"} | settings
    return usvit.test(colour_run, source="folder", source__path=str(path), **arguments)


def test_weights_with_metadata_name_their_network_classes_and_input(colour_run):
    run = on_folder(colour_run, colour_run.parent / "images")
    (row,), (classifier,) = run.result.results, run.result.classifiers
    assert row.top1.value == 1.0 and row.source == "folder:train" and row.n_outputs == 7
    assert classifier.preprocessing.image_size == SIZE and classifier.preprocessing.test_crop == 0.875
    assert classifier.classes_origin == "the metadata of the weights"
    assert run.record.kind == "test" and run.record.state == "finished"
    assert {"test.json", "per_class.csv", "predictions.csv"} <= set(run.record.files)
    assert (run.path / "report.html").is_file()


def test_a_class_without_images_competes_unless_outputs_are_restricted(colour_run):
    """In a folder, a class may just have no images; a decision for it is wrong then."""
    images = colour_run.parent / "some"
    red, green = map(int, centre(1))
    put(images / "colour0" / "0.png", red, green - 2)  # nearest to 1, then to 0
    put(images / "colour2" / "0.png", *map(int, centre(2)))
    assert on_folder(colour_run, images).result.results[0].top1.value == 0.5
    restricted = on_folder(colour_run, images, outputs="subset", out=colour_run.parent / "restricted")
    assert restricted.result.results[0].top1.value == 1.0 and restricted.result.results[0].rule == "subset"


def test_one_class_alone_cannot_be_restricted_to(colour_run):
    put(colour_run.parent / "one" / "colour0" / "0.png", 4, 4)
    with pytest.raises(UsvitError, match="a single class, so restricting the outputs to it makes every decision right"):
        on_folder(colour_run, colour_run.parent / "one", outputs="subset")


def test_other_classes_are_one_paragraph(colour_run, tmp_path):
    put(tmp_path / "other" / "cat" / "0.png", 1, 1)
    put(tmp_path / "other" / "colour1" / "0.png", 1, 1)
    with pytest.raises(UsvitError, match=r"1 of 2 classes that the classifier \S* does not have \(cat\)") as error:
        on_folder(colour_run, tmp_path / "other")
    assert "\n" not in str(error.value) and not (tmp_path / "tested").exists()


def leaking(colour_run):
    """Put the pixels of one image into the record of what the weights have seen."""
    from usvit.data.io import pixel_sha256
    from usvit.files import read_json, write_json

    pixels = np.zeros((12, 12, 3), dtype=np.uint8)
    pixels[..., :2] = centre(3).astype(int)
    metadata = read_json(colour_run / "model.json")
    metadata["seen_sha256"]["upstream"] = [pixel_sha256(pixels)]
    write_json(colour_run / "model.json", metadata)


@pytest.mark.slow
def test_images_that_the_weights_have_seen_are_refused_dropped_or_reported(colour_run):
    leaking(colour_run)
    images = colour_run.parent / "images"
    with pytest.raises(LeakageError, match=r"has seen images of 1 groups \(1 images\).*colour3/0.png.*leaks=drop"):
        on_folder(colour_run, images)
    for how, n_images in (("drop", 20), ("report", 21)):
        run = on_folder(colour_run, images, leaks=how, out=colour_run.parent / how)
        (source,) = run.result.sources
        assert (source.n_images, source.seen, source.seen_dropped) == (n_images, 1, how == "drop")
        assert ('class="warning">folder:train' in (run.path / "report.html").read_text()) == (how == "report")
    unchecked = on_folder(colour_run, images, source__hashes=False, out=colour_run.parent / "unchecked")
    assert unchecked.result.sources[0].seen is None


def test_the_limit_draws_every_class_in_proportion(colour_run):
    run = on_folder(colour_run, colour_run.parent / "images", source__limit=7)
    assert run.result.sources[0].n_images == 7 and run.result.sources[0].n_classes_with_images == 7


def test_a_finished_test_is_read_again_and_other_settings_need_another_folder(colour_run):
    images = colour_run.parent / "images"
    first = on_folder(colour_run, images)
    before = (first.path / "test.json").read_bytes()
    assert on_folder(colour_run, images).result == first.result
    assert (first.path / "test.json").read_bytes() == before
    with pytest.raises(UsvitError, match=r"another configuration.*views.test_crop was None, now 1.0"):
        on_folder(colour_run, images, views__test_crop=1.0)
    put(images / "colour0" / "more.png", 4, 4)
    with pytest.raises(UsvitError, match="started with different images"):
        on_folder(colour_run, images)


def test_a_killed_test_starts_again(colour_run, monkeypatch):
    from usvit.upstream.classifier_test import experiment

    images = colour_run.parent / "images"

    def killed(tested):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(experiment, "disagreement", killed)
        with pytest.raises(KeyboardInterrupt):
            on_folder(colour_run, images)
    folder = colour_run.parent / "tested"
    assert not (folder / "test.json").exists()
    assert json.loads((folder / "run.json").read_text())["state"] == "running"
    assert on_folder(colour_run, images).result.results[0].top1.value == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": "mae", "classes": []}, r"has no classifier: its training \(objective mae\)"),
        ({"objective": "knn"}, "has no classifier"),
        ({"head": "untrained"}, "has no classifier"),
    ],
)
def test_networks_without_a_trained_head_are_refused(colour_run, change, message):
    from usvit.files import read_json, write_json

    write_json(colour_run / "model.json", read_json(colour_run / "model.json") | change)
    with pytest.raises(UsvitError, match=message):
        on_folder(colour_run, colour_run.parent / "images")


@pytest.mark.parametrize(
    ("classifiers", "more", "message"),
    [
        ((), {}, "There is nothing to test"),
        (("vit_b16=scratch",), {}, "random weights, so it has no classifier"),
        (("nowhere/run",), {}, r"'nowhere/run' is not a run, the folder of a fold, or a file of weights"),
        (("vit_ti16=nowhere.npz",), {}, "there is no such file"),
        (("vit_ti16",), {"source": "cifar1O"}, "Unknown source 'cifar1O'.*Nearest: cifar10"),
        (("vit_ti16",), {"source": "imagenet_v2:"}, "the split after the colon is missing"),
        (("vit_ti16",), {"source": "data:val"}, "it has no splits"),
        (("vit_ti16",), {"source": None}, "no images to test on"),
        (("vit_ti16",), {"head": "both"}, "setting head.* cannot be used"),
    ],
)
def test_mistakes_are_named_before_anything_is_written(classifiers, more, message, tmp_path):
    arguments = {"source": "fractals", "source__size": 4, "out": tmp_path / "out", "device": "cpu"} | more
    with pytest.raises(UsvitError, match=message):
        usvit.test(*classifiers, **arguments)
    assert not (tmp_path / "out").exists()


def test_weights_without_metadata_need_a_network_and_a_known_number_of_classes(tmp_path, weights):
    with pytest.raises(UsvitError, match=r"have no metadata .* Name it: MODEL="):
        usvit.test(weights, source="fractals", source__size=4, out=tmp_path / "out", **SETTINGS)
    seven = colour_weights(tmp_path / "seven.safetensors", 7)
    with pytest.raises(UsvitError, match="have 7 outputs, and no metadata"):
        usvit.test(model="vit_ti16", weights=seven, source="fractals", source__size=4, **SETTINGS)


def test_a_file_without_a_head_has_no_classifier(tmp_path, weights):
    from safetensors.torch import load_file, save_file

    state = {key: value for key, value in load_file(weights).items() if not key.startswith("head.")}
    save_file(state, tmp_path / "trunk.safetensors")
    with pytest.raises(UsvitError, match=r"trunk\.safetensors has no classifier: the file of its weights has no head"):
        usvit.test(f"vit_ti16={tmp_path / 'trunk.safetensors'}", source="fractals", source__size=4, **SETTINGS)


def test_several_classifiers_have_a_matrix_of_different_decisions(tmp_path, weights, imagenet):
    """A second classifier whose outputs 65 and 66 are exchanged decides one of the four images differently."""
    from safetensors.torch import load_file, save_file

    state = load_file(weights)
    for key in ("head.weight", "head.bias"):
        state[key][[65, 66]] = state[key][[66, 65]]
    save_file(state, tmp_path / "exchanged.safetensors")
    run = usvit.test(
        f"vit_ti16={weights}",
        f"vit_ti16={tmp_path / 'exchanged.safetensors'}",
        source="imagenet",
        data_root=imagenet,
        out=tmp_path / "out",
        **SETTINGS,
    )
    (matrix,) = run.result.disagreement
    assert matrix.names == ["labels", "colours.safetensors", "exchanged.safetensors"]
    assert matrix.share == [[0, 0.75, 1.0], [0.75, 0, 0.25], [1.0, 0.25, 0]]
