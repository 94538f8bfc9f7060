"""Tasks against the plain loss: what the network sees and answers, for whole batches and portions alike."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from usvit.data.transforms.views import DeviceViews
from usvit.errors import UsvitError
from usvit.models.zoo import find_model
from usvit.seeding import derive_seed
from usvit.training.mixup import Mixup
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining.supervised import check_targets, hits, make, mixed_inputs
from usvit.upstream.pretraining.task import TaskContext

K, N, SIZE = 7, 12, 16
HALF = ((0.5,) * 3, (0.5,) * 3)


def plan_of(n_classes=K, **settings):
    settings.setdefault("train", {"epochs": 1, "batch_size": N})
    config = PretrainConfig.model_validate(settings)
    inputs = DeviceViews(config.views, *HALF, on_device=True)
    return TaskContext(config, find_model("vit_ti16"), n_classes, 100, inputs, torch.device("cpu"))


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * SIZE * SIZE, K))


def batch():
    generator = torch.Generator().manual_seed(3)
    return {
        "images": torch.randint(0, 256, (N, SIZE, SIZE, 3), generator=generator, dtype=torch.uint8),
        "targets": torch.arange(N) % K,
        "seeds": torch.tensor([derive_seed(0, "image", index) for index in range(N)]),
    }


def rows(whole, start, stop):
    return {name: values[start:stop] for name, values in whole.items()}


DEIT = {
    "mix": {"mixup": 0.8, "cutmix": 1.0},
    "loss": {"label_smoothing": 0.1},
    "views": {"erasing": 0.25, "color_jitter": 0.3},
}
DEIT3 = {"mix": {"mixup": 0.8, "cutmix": 1.0}, "loss": {"kind": "bce", "bce_threshold": 0.0}}


@pytest.mark.parametrize("settings", [{}, DEIT, DEIT3])
def test_portions_give_the_gradient_of_the_whole_batch(settings):
    gradients = []
    for cuts in ((0, N), (0, 4, N), (0, 2, 4, 6, 8, 10, N)):
        task = make(plan_of(**settings), network())
        for start, stop in pairwise(cuts):
            task.loss(task.module, rows(batch(), start, stop), step=5).backward()
        gradients.append(task.module[1].weight.grad)
    scale = gradients[0].abs().max()
    assert all((gradient - gradients[0]).abs().max() < 1e-5 * scale for gradient in gradients[1:])


def test_plain_loss_is_torch_s_cross_entropy_with_smoothing():
    plan = plan_of(loss={"label_smoothing": 0.2}, views={"hflip": 0.0})
    task, whole = make(plan, network()), batch()
    inputs = whole["images"].permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.5)
    expected = nn.CrossEntropyLoss(label_smoothing=0.2, reduction="sum")(task.module(inputs), whole["targets"])
    assert torch.allclose(task.loss(task.module, whole, 0), expected)
    assert task.normalizer(whole, 0) == N


def test_steps_and_seeds_of_the_run_change_the_mixing_and_nothing_else():
    still = {"mix": {"mixup": 0.8}}
    made = {
        (seed, step): mixed_inputs(plan_of(seed=seed, **still), batch(), step) for seed in (0, 1) for step in (0, 1)
    }
    shares = {key: labels.max(1).values[0].item() for key, (_, labels) in made.items()}
    assert len(set(shares.values())) == 4
    again = mixed_inputs(plan_of(seed=1, **still), batch(), 1)
    assert all(torch.equal(one, other) for one, other in zip(again, made[1, 1], strict=True))


def test_mixing_comes_after_augmentation():
    plan, whole = plan_of(**DEIT), batch()
    augmented = plan.inputs(whole["images"], whole["seeds"])
    expected = Mixup(plan.config.mix, K, 0.1)(augmented, whole["targets"], derive_seed(0, "mix", 9))
    assert all(torch.equal(one, other) for one, other in zip(mixed_inputs(plan, whole, 9), expected, strict=True))


def test_hits_are_counted():
    logits = torch.tensor([[9.0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 3, 4, 5, 9], [9, 8, 7, 6, 5, 4, 3]])
    figures = hits(logits, torch.tensor([0, 0, 4]))
    assert figures["val_accuracy"] == 1
    assert figures["val_top5"] == 2
    expected = -sum(logits.log_softmax(1)[row, label] for row, label in enumerate((0, 0, 4)))
    assert torch.allclose(figures["val_loss"], expected)
    assert "val_top5" not in hits(logits[:, :5], torch.tensor([0, 0, 4]))


def test_evaluation_sums_over_images():
    task, whole = make(plan_of(**DEIT3), network()), batch()
    inputs = whole["images"].permute(0, 3, 1, 2).float()
    parts = [task.evaluate(task.module, inputs[a:b], whole["targets"][a:b]) for a, b in ((0, 5), (5, N), (0, N))]
    for name in ("val_loss", "val_accuracy", "val_top5"):
        assert torch.allclose(parts[0][name] + parts[1][name], parts[2][name])


def test_an_overfitting_network_learns_mixed_labels():
    task = make(plan_of(mix={"mixup": 0.8, "cutmix": 1.0}, views={"hflip": 0.0}), network())
    optimizer, losses = torch.optim.Adam(task.module.parameters(), 0.003), []
    for step in range(60):
        loss = task.loss(task.module, batch(), step) / N
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    images = batch()["images"].permute(0, 3, 1, 2).float().div(255).sub(0.5).div(0.5)
    assert task.evaluate(task.module, images, batch()["targets"])["val_accuracy"] >= N - 1
    assert sum(losses[-10:]) < sum(losses[:10])


@pytest.mark.parametrize(
    ("settings", "n_classes", "says"),
    [
        ({}, 0, "fractals has no labels"),
        ({"loss": {"class_weights": "balanced"}}, K, r"loss\.class_weights to none"),
        ({"loss": {"kind": "bce", "bce_threshold": 0.0, "label_smoothing": 0.1}}, K, "all 7 classes are above"),
        (
            {"mix": {"mixup": 0.5}, "train": {"epochs": 1, "batch_size": 12, "micro_batch": 3}},
            K,
            r"train\.micro_batch is 3\. Set it to an even",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_told(settings, n_classes, says):
    with pytest.raises(UsvitError, match=says):
        make(plan_of(n_classes=n_classes, **settings), network())


def test_rsb_s_threshold_goes_with_smoothing():
    make(plan_of(loss={"kind": "bce", "bce_threshold": 0.2, "label_smoothing": 0.1}), network())


@pytest.mark.parametrize(("label", "says"), [(K, "the label 7, but the head has the outputs 0 to 6"), (-1, "no label")])
def test_labels_outside_the_head_stop_before_the_step(label, says):
    task, whole = make(plan_of(), network()), batch()
    whole["targets"][4] = label
    with pytest.raises(UsvitError, match=says):
        task.normalizer(whole, 0)
    check_targets(batch()["targets"], K)
