"""The loop itself, on data where the answer is known."""

import math
from copy import deepcopy

import lightning_fabric
import numpy as np
import pytest
import torch
from torch import nn

from usvit.config import EarlyStoppingConfig, OptimConfig, TrainConfig
from usvit.data.loading.pixel_store import PixelStore, TrainBatches
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import Diverged, UsvitError
from usvit.progress import NoProgress
from usvit.training.losses import WeightedCrossEntropy
from usvit.training.task import ClassificationTask
from usvit.training.trainer import Trainer

PREPROCESSING = Preprocessing(8, "pad", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
TARGETS = np.arange(32, dtype=np.int64) % 2


def bright_or_dark():
    """32 images of 8 x 8: class 1 is brighter."""
    noise = np.random.default_rng(0).integers(0, 40, (32, 8, 8, 3))
    return PixelStore((noise + 120 * TARGETS[:, None, None, None]).astype(np.uint8))


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 2))


def run(tmp_path, model=None, *, evaluate=None, on_best=None, precision="32-true", optim=None, **train):
    model = model or network()
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1, precision=precision)
    batches = TrainBatches(bright_or_dark(), np.arange(32), TARGETS, batch_size=8, augment=None, seed=0)
    result = Trainer(
        ClassificationTask(model, WeightedCrossEntropy(None, 2), PREPROCESSING.normalised),
        fabric,
        batches,
        evaluate or (lambda model: {"val_loss": 1.0, "val_accuracy": 0.5, "val_auc": None}),
        train=TrainConfig(batch_size=8, **{"steps": 12, "eval_every": 4, **train}),
        optim=optim or OptimConfig(name="sgd", lr=0.01),
        checkpoint=tmp_path / "state.pt",
        name="test",
        progress=NoProgress(),
        on_best=on_best,
    ).fit()
    return model, result


def test_it_learns_what_can_be_learnt(tmp_path):
    model, result = run(tmp_path, steps=40, early_stopping=EarlyStoppingConfig(keep="last"))
    images = PREPROCESSING.normalised(torch.from_numpy(bright_or_dark().pixels))
    assert (model(images).argmax(1).numpy() == TARGETS).all()
    assert result.history.train_loss.iloc[-1] < 0.3 * result.history.train_loss.iloc[0]


def test_it_is_the_plain_loop_written_out(tmp_path):
    """Oracle: the same training in ten lines of bare PyTorch."""
    model, _ = run(
        tmp_path, steps=6, early_stopping=EarlyStoppingConfig(keep="last"), optim=OptimConfig(lr=0.01, warmup_steps=3)
    )
    plain = network()
    optimizer = torch.optim.SGD(plain.parameters(), momentum=0.9)
    batches = TrainBatches(bright_or_dark(), np.arange(32), TARGETS, batch_size=8, augment=None, seed=0)
    rates = [0.01 / 3, 0.02 / 3, 0.01, 0.01, 0.0075, 0.0025]  # warm-up 3, then half a cosine over 3
    for batch, rate in zip(batches.iterate(0, 6), rates, strict=True):
        images, targets = batch["images"], batch["targets"]
        optimizer.param_groups[0]["lr"] = rate
        loss = nn.functional.cross_entropy(plain(PREPROCESSING.normalised(images)), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def test_micro_batches_give_the_whole_batchs_step(tmp_path):
    whole, _ = run(tmp_path / "a", early_stopping=EarlyStoppingConfig(keep="last"))
    portions, _ = run(tmp_path / "b", micro_batch=3, early_stopping=EarlyStoppingConfig(keep="last"))
    for one, two in zip(whole.parameters(), portions.parameters(), strict=True):
        assert torch.allclose(one, two, atol=1e-5)


def test_gradients_are_clipped_to_the_norm(tmp_path):
    norms = []

    class Watched(nn.Sequential):
        pass

    model = Watched(nn.Flatten(), nn.Linear(192, 2))
    start = [parameter.detach().clone() for parameter in model.parameters()]
    run(
        tmp_path,
        model,
        steps=1,
        optim=OptimConfig(lr=1.0, momentum=0.0, clip_norm=0.01),
        early_stopping=EarlyStoppingConfig(keep="last"),
    )
    moved = torch.cat([(a - b).flatten() for a, b in zip(start, model.parameters(), strict=True)])
    norms.append(moved.norm().item())
    assert norms[0] == pytest.approx(0.01, rel=1e-3)


def test_each_gradient_is_clipped_to_the_norm_by_itself(tmp_path):
    model = network()
    start = [parameter.detach().clone() for parameter in model.parameters()]
    last = EarlyStoppingConfig(keep="last")
    optim = OptimConfig(lr=1.0, momentum=0.0, clip_norm=0.01, clip_each=True)
    run(tmp_path, model, steps=1, optim=optim, early_stopping=last)
    moved = [(a - b).norm().item() for a, b in zip(start, model.parameters(), strict=True)]
    assert moved == pytest.approx([0.01, 0.01], rel=1e-3)


def test_the_decay_of_weights_follows_its_course_and_spares_biases(tmp_path, monkeypatch):
    """SGD without a gradient: w <- w (1 - rate * decay)."""
    monkeypatch.setattr(ClassificationTask, "on_gradients", lambda task, step: task.module.zero_grad(set_to_none=False))
    model = network()
    with torch.no_grad():
        model[1].bias.fill_(1.0)
    weight = model[1].weight.detach().clone()
    optim = OptimConfig(lr=0.1, momentum=0.0, schedule="constant", weight_decay=0.1, weight_decay_end=0.9)
    run(tmp_path, model, steps=5, optim=optim, early_stopping=EarlyStoppingConfig(keep="last"))
    for step in range(5):
        weight = weight * (1 - 0.1 * (0.9 + (0.1 - 0.9) * 0.5 * (1 + math.cos(math.pi * step / 5))))
    torch.testing.assert_close(model[1].weight.detach(), weight)
    assert torch.equal(model[1].bias, torch.ones(2))


def test_the_best_weights_are_kept_and_the_training_stops_early(tmp_path):
    seen = []

    def evaluate(model):
        seen.append([parameter.detach().clone() for parameter in model.parameters()])
        return {"val_loss": [0.9, 0.5, 0.7, 0.8, 0.1][len(seen) - 1], "val_accuracy": 0.5, "val_auc": 0.5}

    model, result = run(tmp_path, evaluate=evaluate, steps=20, early_stopping=EarlyStoppingConfig(patience=2))
    assert (result.best_step, result.steps) == (8, 16)
    assert all(torch.equal(a, b) for a, b in zip(seen[1], model.parameters(), strict=True))


def test_the_caller_is_told_of_each_evaluation_that_is_the_best_so_far(tmp_path):
    losses, told = iter([0.5, 0.6, 0.4, 0.4, 0.3]), []

    def evaluate(_):
        told.append("evaluated")
        return {"val_loss": next(losses), "val_accuracy": None, "val_auc": None}

    run(tmp_path, evaluate=evaluate, steps=20, eval_every=4, on_best=lambda: told.append("best"))
    assert told == ["evaluated", "best", "evaluated", "evaluated", "best", "evaluated", "evaluated", "best"]


def test_the_last_evaluation_is_at_the_last_step(tmp_path):
    _, result = run(tmp_path, steps=10, eval_every=4)
    assert result.history.step.tolist() == [4, 8, 10]


def test_bf16_trains_too(tmp_path):
    model, _ = run(tmp_path, precision="bf16-mixed", steps=40, early_stopping=EarlyStoppingConfig(keep="last"))
    images = PREPROCESSING.normalised(torch.from_numpy(bright_or_dark().pixels))
    assert (model(images).argmax(1).numpy() == TARGETS).all()


class TwoParts(nn.Sequential):
    """A frozen part with everything that could move, and a head."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(192), nn.Dropout(0.5)), nn.Linear(192, 2))
        self[0].requires_grad_(False)


def test_what_is_frozen_is_the_same_bit_for_bit_after_training(tmp_path):
    model = TwoParts()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    modes = []

    def evaluate(wrapped):
        wrapped.eval()
        return {"val_loss": 1.0, "val_accuracy": 0.5, "val_auc": None}

    model[0][2].register_forward_pre_hook(lambda module, _: modes.append(module.training))
    model[1].register_forward_pre_hook(lambda module, _: modes.append(not module.training))
    run(
        tmp_path,
        model,
        evaluate=evaluate,
        early_stopping=EarlyStoppingConfig(keep="last"),
        optim=OptimConfig(name="adamw", weight_decay=0.1),
    )
    assert modes and not any(modes), "dropout of the frozen part worked, or the head was not training"
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]) is key.startswith("0."), key


def test_a_groups_share_of_the_rate_is_its_own(tmp_path):
    """With plain SGD, a group of half the rate moves half as far as it would."""

    class Layered(nn.Sequential):
        def group_matcher(self, coarse=False):
            return {"first": r"^1"}

    def moved(**optim):
        torch.manual_seed(0)
        model = Layered(nn.Flatten(), nn.Linear(192, 4), nn.Linear(4, 2))
        start = [parameter.detach().clone() for parameter in model.parameters()]
        run(
            tmp_path / str(optim),
            model,
            steps=1,
            optim=OptimConfig(lr=0.1, momentum=0.0, **optim),
            early_stopping=EarlyStoppingConfig(keep="last"),
        )
        return [after - before for before, after in zip(start, model.parameters(), strict=True)]

    whole, decayed = moved(), moved(layer_decay=0.5)
    for index, share in enumerate((0.5, 0.5, 1.0, 1.0)):
        assert torch.allclose(decayed[index], share * whole[index], atol=1e-7), index


@pytest.mark.slow
def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    """Of another network, of other settings, and a file that is none at all."""
    from tests.training.small_training import training, vit

    training(tmp_path / "one", checkpoint_seconds=0.0)
    for folder in ("other", "none"):
        (tmp_path / folder).mkdir()
    (tmp_path / "other" / "state.pt").write_bytes((tmp_path / "one" / "state.pt").read_bytes())
    with pytest.raises(UsvitError, match=r"other/state\.pt belongs to another training \(.*delete the file"):
        training(tmp_path / "other", module=vit(norm=True))
    with pytest.raises(UsvitError, match=r"another training \(it has other settings"):
        training(tmp_path / "one", identity="b")
    torch.save({"model": {}}, tmp_path / "none" / "state.pt")
    with pytest.raises(UsvitError, match=r"is not a checkpoint of usvit\. Delete it"):
        training(tmp_path / "none")


def test_a_last_step_that_was_one_too_many_is_not_kept(tmp_path):
    from tests.training.small_training import training, vit

    module = vit()
    module.head.weight.register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(Diverged, match=r"weights became NaN or infinite after step 1"):
        training(tmp_path, module=module, steps=1, eval_every=1)


def test_a_validation_loss_that_is_no_number_stops_the_training(tmp_path):
    from tests.training.small_training import training

    with pytest.raises(Diverged, match=r"validation loss .* after step 4 \(learning rate .*no checkpoint yet"):
        training(tmp_path, evaluate=lambda _: {"val_loss": float("nan"), "val_accuracy": None, "val_auc": None})


@pytest.mark.slow
def test_a_compiled_network_trains_and_goes_on_and_its_files_know_nothing_of_it(tmp_path, monkeypatch):
    """Two steps, stopped by a signal, and two more; against the same without a compiler, to rounding.

    What captures and differentiates is PyTorch's compiler; the code that it writes takes half a minute and is left out.
    """
    from torch._dynamo.utils import counters

    from tests.training.small_training import Pictures, asked, training
    from usvit.training.checkpoint import load_checkpoint
    from usvit.training.signals import Stopped

    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 8), nn.GELU(), nn.Linear(8, 2))
    settings = {"steps": 4, "ema": 0.5, "compile": True, "optim": {"name": "sgd", "lr": 0.01}}
    counters.clear()
    compile_with = nn.Module.compile
    monkeypatch.setattr(nn.Module, "compile", lambda self: compile_with(self, backend="aot_eager"))
    with pytest.raises(Stopped, match="at step 2"):
        training(tmp_path / "compiled", module=deepcopy(module), examples=Pictures(asked, at=2), **settings)
    state = load_checkpoint(tmp_path / "compiled" / "state.pt")
    compiled, result, _ = training(tmp_path / "compiled", module=deepcopy(module), **settings)
    assert counters["stats"]["calls_captured"] > 0 and result.steps == 4
    plain, _, _ = training(tmp_path / "plain", module=deepcopy(module), **settings | {"compile": False})
    names = set(plain.state_dict())
    assert set(state["model"]) == names == set(compiled.state_dict())
    assert set(state["mean"]) == {"n_averaged", *(f"module.{name}" for name in names)}
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], value, rtol=1e-4, atol=1e-6)


def test_compiling_without_a_compiler_is_refused_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UsvitError, match=r"train\.compile needs a compiler.*no-such-compiler.*train\.compile to false"):
        run(tmp_path, compile=True)
