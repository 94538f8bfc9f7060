"""Ranks, probabilities and heads, against brute force, scikit-learn, and what timm and usvit compute themselves."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.metrics import log_loss, top_k_accuracy_score

import usvit
from tests.conftest import TINY
from usvit.errors import UsvitError
from usvit.upstream.classifier_test.inference import _answers, log_probabilities


def test_the_joint_decision_adds_the_softmax_outputs_as_the_thesis_says():
    """One head is sure of class 0, the other, with larger logits, leans to class 1: the two rules differ."""
    heads = [torch.tensor([[4.0, 0.0, 0.0]]), torch.tensor([[10.0, 15.0, 0.0]])]
    both = (softmax(heads[0].numpy(), axis=1) + softmax(heads[1].numpy(), axis=1)) / 2
    assert np.allclose(log_probabilities(heads, "joint").exp(), both, atol=1e-6)
    mean = log_softmax((heads[0].numpy() + heads[1].numpy()) / 2, axis=1)
    assert np.allclose(log_probabilities(heads, "logits"), mean, atol=1e-6)
    for at, head in ((0, "class"), (1, "distilled")):
        assert np.allclose(log_probabilities(heads, head), log_softmax(heads[at].numpy(), axis=1), atol=1e-5)
    rng = np.random.default_rng(0)
    pairs = [torch.tensor(rng.normal(0, 6, (200, 7)), dtype=torch.float32) for _ in range(2)]
    joint, logits = (log_probabilities(pairs, rule).argmax(dim=1) for rule in ("joint", "logits"))
    assert 0 < int((joint != logits).sum()) < 100


def test_ranks_and_likelihoods_agree_with_scikit_learn():
    rng = np.random.default_rng(1)
    log_prob = log_softmax(rng.normal(0, 2, (300, 12)), axis=1)
    label = rng.integers(0, 12, 300)
    found = _answers(torch.tensor(log_prob), torch.tensor(np.eye(12, dtype=bool)[label]), None)
    for k in (1, 2, 5, 11):
        assert np.mean(found.rank <= k) == top_k_accuracy_score(label, log_prob, k=k, labels=np.arange(12))
    assert -found.right_log_probability.mean() == pytest.approx(log_loss(label, np.exp(log_prob), labels=np.arange(12)))
    assert (found.predicted == log_prob.argmax(axis=1)).all()
    assert np.allclose(found.probability, np.exp(log_prob.max(axis=1)))


def test_of_equal_outputs_the_first_is_decided_for_and_several_right_ones_count_together():
    log_prob = torch.tensor([[0.4, 0.4, 0.1, 0.1]] * 4).log()
    right = torch.tensor([[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 1, 0]], dtype=torch.bool)
    found = _answers(log_prob, right, np.array([3, 5, 8, 9]))
    assert found.predicted.tolist() == [3, 3, 3, 3] and found.rank.tolist() == [2, 1, 4, 2]
    assert np.allclose(np.exp(found.right_log_probability), [0.4, 0.4, 0.1, 0.5])


@pytest.mark.slow
def test_both_heads_of_a_distilled_network_are_tested_in_one_pass(tmp_path):
    """timm's own answer is the mean of the logits; the class and the distillation head give it back."""
    import timm
    from PIL import Image
    from safetensors.torch import save_file
    from torchvision.transforms.functional import normalize, to_tensor

    from usvit.data.transforms import test_view
    from usvit.models import find_model

    torch.manual_seed(0)
    spec = find_model("deit_ti_distilled")
    network = timm.create_model(spec.architecture, num_classes=1000, img_size=32).eval()
    for head in network.get_classifier():
        torch.nn.init.normal_(head.weight, std=0.5)
    save_file(network.state_dict(), tmp_path / "deit.safetensors")
    names = timm.data.ImageNetInfo("imagenet-1k").label_names()[:3]
    rng = np.random.default_rng(0)
    for name in names:
        (tmp_path / "images" / name).mkdir(parents=True)
        for at in range(4):
            pixels = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((40, 50)).save(tmp_path / "images" / name / f"{at}.png")
    run = usvit.test(
        f"deit_ti_distilled={tmp_path / 'deit.safetensors'}",
        source="folder",
        source__path=str(tmp_path / "images"),
        head=["joint", "class", "distilled", "logits"],
        out=tmp_path / "out",
        model__image_size=32,
        device="cpu",
        precision="fp32",
    )
    (classifier,) = run.result.classifiers
    table = pd.read_csv(run.path / "predictions.csv").set_index(["classifier", "image"])
    view = classifier.preprocessing
    for image in sorted({image for _, image in table.index}):
        picture = Image.open(tmp_path / "images" / image)
        pixels = to_tensor(test_view(picture, 32, view.test_crop, interpolation=view.interpolation))
        inputs = normalize(pixels, view.mean, view.std)[None]
        with torch.no_grad():
            features = network.forward_features(inputs)
            heads = [network.head(features[:, 0]), network.head_dist(features[:, 1])]
            whole = network(inputs)
        expected = {
            "joint": (heads[0].softmax(1) + heads[1].softmax(1)) / 2,
            "class": heads[0].softmax(1),
            "distilled": heads[1].softmax(1),
            "logits": whole.softmax(1),
        }
        for rule, prob in expected.items():
            row = table.loc[(f"deit.safetensors [{rule}]", image)]
            assert row["predicted"] == timm.data.ImageNetInfo("imagenet-1k").label_names()[int(prob.argmax())]
            assert row["probability"] == pytest.approx(float(prob.max()), rel=1e-4)
    (matrix,) = run.result.disagreement
    decided = {rule: table.loc[f"deit.safetensors [{rule}]"]["predicted"] for rule in expected}
    for a, first in enumerate(expected, start=1):
        for b, second in enumerate(expected, start=1):
            assert matrix.share[a][b] == np.mean(decided[first] != decided[second])
    assert [row.top5 is None for row in run.result.results] == [False] * 4


@pytest.mark.slow
def test_the_head_cannot_be_chosen_of_a_network_with_one(tmp_path, weights):
    from tests.upstream.classifier_test.colours import VIT

    with pytest.raises(UsvitError, match="none of the classifiers has one"):
        usvit.test(
            f"vit_ti16={weights}",
            source="fractals",
            source__size=4,
            head="class",
            model__vit=VIT,
            model__image_size=32,
            out=tmp_path / "out",
        )


@pytest.mark.slow
def test_folds_of_a_cross_validation_give_their_own_test_predictions_again(tmp_path, small_phantom, usvit):
    """The images of the run itself are refused, or all dropped: each fold has seen the others' test images."""
    run = tmp_path / "run"
    assert usvit("cv", "--dataset", "phantom", "--data-root", small_phantom, *TINY, "--out", run).code == 0
    words = (
        "test",
        run,
        "--dataset",
        "phantom",
        "--data-root",
        small_phantom,
        "--device",
        "cpu",
        "--precision",
        "fp32",
    )
    refused = usvit(*words, "--out", tmp_path / "out")
    assert refused.code == 2 and "has seen images of" in refused.err
    dropped = usvit(*words, "--set", "leaks=drop", "--out", tmp_path / "out")
    assert dropped.code == 2 and "none is left to test on" in dropped.err
    answer = usvit(*words, "--set", "leaks=report", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "a classifier was trained on 48 of these images" in " ".join(answer.out.split())
    assert re.search(r"^\s*data\s+48\s+\d+\s+3 of 3\b", answer.out, re.M), answer.out
    found = pd.read_csv(tmp_path / "out" / "predictions.csv")
    theirs = pd.read_csv(run / "predictions.csv")
    prob = [name for name in theirs.columns if name.startswith("prob_")]
    for fold, rows in theirs.groupby("fold"):
        ours = found[found.classifier == f"run/fold-{fold}"].set_index("image")
        ours = ours.loc[[f"phantom/{image}" for image in rows.image_id]]
        assert np.allclose(ours.probability, rows[prob].max(axis=1), atol=1e-5)
        assert (ours.label.to_numpy() == rows.label.to_numpy()).all()
        decided = rows[prob].to_numpy().argmax(axis=1)
        assert ours.predicted.tolist() == [prob[one].removeprefix("prob_") for one in decided]


def test_a_fold_of_ultrasound_is_prepared_as_in_its_training():
    from PIL import Image

    from usvit.data.transforms import Preprocessing, test_view

    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 61, 3), dtype=np.uint8))
    own = Preprocessing(32, "squash", (0.5,) * 3, (0.5,) * 3)
    for resize in ("squash", "pad"):
        expected = replace(own, resize=resize).resized(np.asarray(picture))
        assert (test_view(picture, 32, 1.0, resize=resize) == expected).all()
