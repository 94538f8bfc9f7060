"""The linear probe against its own equation, and as a network's head."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import log_softmax

from usvit.errors import UsvitError
from usvit.models.build import build_model
from usvit.models.features import logits_and_features
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.upstream.transfer_learning.affine import Affine
from usvit.upstream.transfer_learning.linear import choose, cross_entropy, fit_logistic


@pytest.fixture
def cloud():
    rng = np.random.default_rng(5)
    targets = np.arange(90) % 3
    return 4 + 3 * (rng.normal(size=(3, 4))[targets] + rng.normal(size=(90, 4))), targets


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("l2", [0.01, 1.0])
def test_probe_minimises_mean_cross_entropy_and_its_penalty(cloud, n_classes, l2):
    features, targets = cloud[0][cloud[1] < n_classes], cloud[1][cloud[1] < n_classes]
    x = (features - features.mean(0)) / (features.std(0) + 1e-5)
    free = slice(1, 2) if n_classes == 2 else slice(0, 3)  # of two classes, the first logit is 0
    columns = n_classes - free.start

    def objective(flat):
        logits = np.zeros((len(x), n_classes))
        weight = flat.reshape(5, columns)
        logits[:, free] = x @ weight[:4] + weight[4]
        loss = -log_softmax(logits, axis=1)[np.arange(len(x)), targets].mean()
        return loss + l2 / 2 * (weight[:4] ** 2).sum()

    best = minimize(objective, np.zeros(5 * columns), method="BFGS", options={"gtol": 1e-8})
    probe = fit_logistic(features, targets, n_classes, l2)
    logits = probe(features)
    raw = probe.weight * (features.std(0) + 1e-5)[:, None]
    value = cross_entropy(logits, targets) + l2 / 2 * (raw**2).sum()
    assert value == pytest.approx(best.fun, abs=1e-6)


def test_cross_entropy_is_scipys_and_does_not_overflow():
    logits = np.array([[1000.0, 0, -5], [2, 3, 4]])
    targets = np.array([0, 1])
    assert cross_entropy(logits, targets) == pytest.approx(-log_softmax(logits, axis=1)[[0, 1], targets].mean())


def test_accuracy_decides_and_cross_entropy_between_equals():
    assert choose([1, 2, 3], [0.5, 0.7, 0.7], [0.1, 0.9, 0.8]) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "vit"),
    [("vit_ti16", 32, {"patch": 16}), ("resnet18", 64, {}), ("deit_ti16_distilled", 32, {})],
)
def test_probe_becomes_the_networks_head(name, size, vit):
    try:
        spec = find_model(name, vit)
    except UsvitError:
        spec = find_model(f"timm:{name.replace('deit_ti16_distilled', 'deit_tiny_distilled_patch16_224')}", {})
    torch.manual_seed(0)
    model = build_model(spec, Weights("scratch"), n_classes=3, image_size=size).eval()
    images = torch.randn(4, 3, size, size)
    with torch.no_grad():
        features = logits_and_features(model, images)[1].numpy()
        rng = np.random.default_rng(0)
        probe = Affine(rng.normal(size=(features.shape[1], 3)), rng.normal(size=3))
        probe.write_into(model)
        np.testing.assert_allclose(model(images).numpy(), probe(features), rtol=1e-4, atol=1e-4)


def test_a_hidden_head_cannot_hold_a_linear_probe():
    model = build_model(find_model("vit_ti16", {"head": "hidden"}), Weights("scratch"), n_classes=3, image_size=32)
    with pytest.raises(UsvitError, match=r"model\.vit\.head"):
        Affine(np.zeros((192, 3)), np.zeros(3)).write_into(model)
