"""DINO against literal loops, closed forms and the schedules of its public code."""

import math
import os
import signal

import numpy as np
import pytest
import timm
import torch
from pydantic import ValidationError
from safetensors.torch import load_file
from torch import nn

from tests.oracles import authors
from tests.processes import command_line, start
from tests.upstream.pretraining.toy import Normalised, plan, tiny_vit
from usvit.errors import UsvitError
from usvit.models.trainable import train_mode
from usvit.training import half_cosine
from usvit.training.parameter_groups import decayed
from usvit.upstream.config.pretrain import DinoConfig, PretrainConfig
from usvit.upstream.pretraining.dino import distillation_loss, make, teacher_temperature
from usvit.upstream.pretraining.dino_head import DinoHead

SMALL = {"hidden": 12, "bottleneck": 6, "outputs": 10}
NO_CLASSES = {"num_classes": 0}


def dino(network=None, local=2, *, local_size=16, **settings):
    views = {"count": 2, "local_count": local, "local_size": local_size}
    config = {"objective": "dino", "dino": SMALL | settings, "views": views, "model": {"image_size": 32}}
    config["train"] = {"steps": 8, "epochs": None, "batch_size": 50}  # an epoch has two steps
    task = make(plan(**config), network or tiny_vit(**NO_CLASSES))
    train_mode(task.module)
    return task


def rows(size=4, local=2, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def pixels(*shape):
        return torch.randint(0, 256, (size, *shape, 3), generator=generator, dtype=torch.uint8)

    made = {"images": pixels(2, 32, 32), "seeds": torch.randint(0, 2**62, (size,), generator=generator)}
    return made | ({"local": pixels(local, 16, 16)} if local else {})


def centred(task):
    task.module.center.copy_(torch.linspace(-0.1, 0.1, SMALL["outputs"]))
    return task


def outputs_of(branch, images):
    """(B, T, K) outputs, one crop at a time."""
    crops = [branch(Normalised()(images[:, crop], None)) for crop in range(images.shape[1])]
    return torch.stack(crops, dim=1)


def softmax(values):
    weights = [math.exp(value) for value in values]
    return [weight / sum(weights) for weight in weights]


def loop(student, target):
    """The loss of the public code, written out: pairs of a global crop and any other crop."""
    losses = []
    for probabilities, logits in zip(target.tolist(), student.tolist(), strict=True):
        terms = []
        for i, wanted in enumerate(probabilities):
            for j, guessed in enumerate(logits):
                if i != j:
                    terms.append(-sum(p * math.log(q) for p, q in zip(wanted, softmax(guessed), strict=True)))
        losses.append(sum(terms) / len(terms))
    return losses


@pytest.mark.parametrize("crops", [2, 5])
def test_the_loss_is_the_mean_over_pairs_of_different_crops(crops):
    student, target = torch.randn(3, crops, 7), torch.randn(3, 2, 7).softmax(2)
    assert distillation_loss(student, target).tolist() == pytest.approx(loop(student, target), rel=1e-4)


@pytest.mark.parametrize("local", [0, 2])
def test_the_loss_of_a_batch_centres_and_sharpens_the_teacher_and_shows_it_no_local_crop(local):
    task, given = centred(dino(local=local, teacher_temperature=0.07)), rows(local=local)
    with torch.no_grad():
        for parameter in task.module.teacher.parameters():
            parameter.mul_(0.9)  # another network than the student
    student = outputs_of(task.module.student, given["images"])
    teacher = outputs_of(task.module.teacher, given["images"])
    if local:
        small = outputs_of(task.module.student, given["local"])
        student = torch.cat([student, small], dim=1)
    target = torch.tensor(
        [
            [
                softmax([(x - c) / 0.07 for x, c in zip(crop, task.module.center.tolist(), strict=True)])
                for crop in image
            ]
            for image in teacher.tolist()
        ]
    )
    assert task.loss(task.module, given, 0).item() == pytest.approx(sum(loop(student / 0.1, target)), rel=1e-4)


def test_the_teachers_temperature_is_the_public_codes():
    """numpy.linspace over the epochs of the warm-up, then the final value (main_dino.py, DINOLoss)."""
    config = DinoConfig(teacher_temperature=0.07, teacher_temperature_start=0.04, teacher_warmup_epochs=30)
    expected = np.concatenate([np.linspace(0.04, 0.07, 30), np.full(5, 0.07)])
    assert [teacher_temperature(config, epoch) for epoch in range(35)] == pytest.approx(expected.tolist())
    assert teacher_temperature(DinoConfig(teacher_warmup_epochs=1, teacher_temperature_start=0.02), 0) == 0.02


def test_the_temperature_of_a_step_is_that_of_its_epoch():
    """An epoch has two steps here."""
    settings = {"teacher_temperature": 0.2, "teacher_temperature_start": 0.02, "teacher_warmup_epochs": 2}
    task, given = dino(**settings), rows()
    losses = [task.loss(task.module, given, step).item() for step in range(4)]
    assert losses[0] == losses[1] != losses[2] == losses[3]


def test_the_center_is_a_moving_mean_of_the_teachers_outputs_over_all_portions():
    task, center = dino(center_decay=0.8), [0.0] * SMALL["outputs"]
    for step in range(3):
        given, outputs = rows(6, seed=step), []
        for first in (0, 4):
            part = {key: value[first : first + 4] for key, value in given.items()}
            outputs += outputs_of(task.module.teacher, part["images"]).flatten(0, 1).tolist()
            task.loss(task.module, part, step)
            assert task.module.center.tolist() == pytest.approx(center, abs=1e-6)  # changes after the step
        mean = [sum(column) / len(outputs) for column in zip(*outputs, strict=True)]
        center = [0.8 * old + 0.2 * new for old, new in zip(center, mean, strict=True)]
        task.on_step_end(step)
        assert len(outputs) == 12 and task.module.center.tolist() == pytest.approx(center, abs=1e-6)


def test_the_teacher_is_a_moving_mean_whose_decay_rises_to_one():
    task = dino(teacher_decay=0.9)
    module = task.module
    for step in (0, 4, 7):
        with torch.no_grad():
            for parameter in module.student.parameters():
                parameter.add_(0.1)
        decay = 1 - (1 - 0.9) * (math.cos(math.pi * step / 8) + 1) / 2  # of 8 steps
        expected = [
            decay * old + (1 - decay) * new
            for old, new in zip(module.teacher.parameters(), module.student.parameters(), strict=True)
        ]
        task.on_step_end(step)
        for mean, one in zip(module.teacher.parameters(), expected, strict=True):
            torch.testing.assert_close(mean, one)
    assert decay > 0.996


def test_a_step_changes_the_teacher_only_by_the_mean_and_every_trained_parameter():
    task = dino(freeze_epochs=0)
    task.loss(task.module, rows(), 0).backward()
    for name, parameter in task.module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, name
    trained = {name.split(".")[0] for name, one in task.module.named_parameters() if one.requires_grad}
    assert trained == {"student"}
    assert not task.module.student.head.last.parametrizations.weight.original0.requires_grad
    free = dino(norm_last_layer=False)
    assert free.module.student.head.last.parametrizations.weight.original0.requires_grad


def test_the_last_layer_has_no_gradient_in_the_first_epochs():
    task = dino(freeze_epochs=2)
    last = task.module.student.head.last
    for step, frozen in ((0, True), (3, True), (4, False)):
        task.module.zero_grad()
        task.loss(task.module, rows(), step).backward()
        task.on_gradients(step)
        grads = [one.grad for one in last.parameters() if one.requires_grad]
        assert len(grads) == 1 and (grads[0] is None) == frozen
        assert task.module.student.head.mlp[0].weight.grad is not None


def test_portions_change_nothing_where_there_is_no_batch_normalisation():
    whole, parts, given = centred(dino()), centred(dino()), rows(6)
    (whole.loss(whole.module, given, 0) / 6).backward()
    for first in (0, 2, 4):
        (parts.loss(parts.module, {key: value[first : first + 2] for key, value in given.items()}, 0) / 6).backward()
    whole.on_step_end(0)
    parts.on_step_end(0)
    for (name, one), other in zip(whole.module.named_parameters(), parts.module.parameters(), strict=True):
        if one.requires_grad:
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=1e-5, msg=name)
    torch.testing.assert_close(whole.module.center, parts.module.center)


def test_the_state_holds_everything_that_a_killed_run_needs():
    one = dino()
    with torch.no_grad():
        for parameter in one.module.student.parameters():
            parameter.add_(0.05)
    one.loss(one.module, rows(), 0)
    one.on_step_end(0)
    other = dino()
    other.module.load_state_dict(one.module.state_dict())
    assert one.module.center.abs().sum() > 0
    for task in (one, other):
        task.last = task.loss(task.module, rows(seed=5), 5)
        task.on_step_end(5)
    assert torch.equal(one.last, other.last)
    assert all(torch.equal(a, b) for a, b in zip(one.module.buffers(), other.module.buffers(), strict=True))
    assert all(torch.equal(a, b) for a, b in zip(one.module.parameters(), other.module.parameters(), strict=True))


def test_the_teacher_normalises_by_its_own_batches_and_drops_no_path():
    network = timm.create_model("test_resnet", num_classes=0)
    task = dino(network)
    student, teacher = task.module.student, task.module.teacher
    norm = next(name for name, part in teacher.named_modules() if isinstance(part, nn.BatchNorm2d))
    before = teacher.get_submodule(norm).running_mean.clone()
    task.loss(task.module, rows(), 0)
    assert teacher.get_submodule(norm).training and not teacher.head.training
    own, seen = teacher.get_submodule(norm).running_mean, student.get_submodule(norm).running_mean
    assert not torch.equal(own, before) and not torch.equal(own, seen)  # the student also sees the local crops
    task.module.eval()
    task.evaluate(task.module, torch.zeros(2, 3, 32, 32), torch.zeros(2))
    assert not teacher.get_submodule(norm).training

    dropping = dino(tiny_vit(**NO_CLASSES, drop_path_rate=0.5))
    images = torch.randn(6, 3, 32, 32)
    (first, targets), (second, again) = dropping.module(images), dropping.module(images)
    assert torch.equal(targets, again) and not torch.equal(first, second)


def test_the_head_compares_directions():
    head = DinoHead(5, DinoConfig(**SMALL))
    features = torch.randn(4, 5)
    hidden = head.mlp(features)
    rows_of_last = head.last.parametrizations.weight.original1
    for image, outputs in enumerate(head(features).tolist()):
        expected = [nn.functional.cosine_similarity(hidden[image], row, dim=0).item() for row in rows_of_last]
        assert outputs == pytest.approx(expected, abs=1e-5)


def test_the_head_of_a_vit_s_has_the_public_codes_parameters():
    """DINOHead(384, 65536): three linear layers, g and v."""
    with torch.device("meta"):
        head = DinoHead(384, DinoConfig())
    layers = [(384 + 1) * 2048, (2048 + 1) * 2048, (2048 + 1) * 256, 256 * 65_536, 65_536]
    assert sum(one.numel() for one in head.parameters()) == sum(layers)


def test_figures_are_of_one_image_seen_by_both():
    task = centred(dino(teacher_temperature=0.5, teacher_warmup_epochs=3))
    task.module.eval()
    images = torch.randn(3, 3, 32, 32)
    figures = task.evaluate(task.module, images, torch.zeros(3))
    with torch.no_grad():
        student = (task.module.student(images) / 0.1).softmax(1).tolist()
        target = ((task.module.teacher(images) - task.module.center) / 0.5).softmax(1).tolist()
    loss = [
        -p * math.log(q) for wanted, got in zip(target, student, strict=True) for p, q in zip(wanted, got, strict=True)
    ]
    assert figures["val_loss"].item() == pytest.approx(sum(loss), rel=1e-4)
    assert figures["val_entropy"].item() == pytest.approx(
        -sum(p * math.log(p) for row in target for p in row), rel=1e-4
    )


def test_what_the_run_keeps_is_the_teachers_network():
    task = dino()
    assert task.network(task.module) is task.module.teacher.network
    assert task.network(task.module) is not task.module.student.network


def test_with_decayed_embeddings_the_groups_are_those_of_the_public_code():
    """utils.py of DINO's code, get_params_groups: no decay for biases and for what has one axis."""
    module = dino().module
    trained = {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
    code = {name for name, value in trained.items() if value.ndim > 1 and not name.endswith(".bias")}
    assert {"student.network.pos_embed", "student.network.cls_token"} <= code
    assert decayed(module, embeddings=True) & trained.keys() == code
    assert code - decayed(module) == {"student.network.pos_embed", "student.network.cls_token"}


def test_views_or_networks_that_do_not_fit_are_refused():
    resmlp = timm.create_model("usvit_resmlp", img_size=32, width=16, depth=1, num_classes=0)
    with pytest.raises(UsvitError, match=r"cannot take local crops of 16 pixels .* views\.local_size to null"):
        dino(resmlp)
    given = rows(local=0)
    for task, batch in ((dino(resmlp, local=0), given), (dino(resmlp, local=2, local_size=None), _same_size(given))):
        assert math.isfinite(task.loss(task.module, batch, 0).item())
    with pytest.raises(UsvitError, match=r"views\.count=2"):
        make(plan(objective="dino", dino=SMALL), tiny_vit(**NO_CLASSES))
    with pytest.raises(ValidationError, match="local_count to 0"):
        PretrainConfig.model_validate({"objective": "mae", "views": {"local_count": 2}})


def _same_size(given):
    return given | {"local": given["images"]}


TINY = (
    *("--recipe", "dino", "--device", "cpu", "--precision", "fp32", "--source", "fractals"),
    *("--set", "dino.outputs=64", "--set", "dino.hidden=32", "--set", "dino.bottleneck=16"),
    *("--set", "source.size=24", "--set", "source.image_size=48", "--set", "source.classes=3"),
    *("--set", "model.image_size=32", "--set", "train.batch_size=8", "--set", "train.epochs=null"),
    *("--set", "train.log_every=1", "--set", "train.checkpoint_seconds=0", "--set", "optim.warmup_epochs=null"),
)
VIT = (
    *("--model", "vit_ti16", "--set", "model.vit.width=32", "--set", "model.vit.heads=2"),
    *("--set", "model.vit.depth=2", "--set", "model.vit.mlp=64"),
)
LOCAL = ("--set", "views.local_count=2", "--set", "views.local_size=16")
WITHOUT = ("--set", "views.local_count=0", "--set", "model.drop_path=0")
RESNET = ("--model", "timm:test_resnet", *LOCAL, "--set", "model.drop_path=0")


@pytest.mark.slow
@pytest.mark.parametrize(
    "network", [(*VIT, *LOCAL), RESNET, ("--model", "resmlp_s2", *WITHOUT)], ids=["vit", "resnet", "resmlp"]
)
def test_a_run_that_stopped_goes_on_to_the_same_bytes(network, tmp_path, monkeypatch):
    """Weights, losses and validation after SIGTERM at step 2 of 4; the kept network serves a kNN probe."""
    from tests.upstream.pretraining_run.test_experiment import usvit
    from usvit.training import StepLog

    validated = ("--set", "source.val=val", "--set", "train.eval_every=2")
    command, add = ("pretrain", *TINY, *network, *validated, "--set", "train.steps=4"), StepLog.add
    usvit(*command, "--out", tmp_path / "whole")

    def asked(log, row):
        add(log, row)
        if row["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(StepLog, "add", asked)
        assert usvit(*command, "--out", tmp_path / "run", check=False).returncode == 143
    assert (tmp_path / "run" / "fold-0" / "state.pt").exists()
    usvit(*command, "--out", tmp_path / "run")
    whole, resumed = (load_file(tmp_path / run / "fold-0" / "model.safetensors") for run in ("whole", "run"))
    assert whole.keys() == resumed.keys() and all(torch.equal(whole[key], resumed[key]) for key in whole)
    assert not any(key.startswith(("student", "teacher", "head.last")) for key in whole)
    curves = [(tmp_path / run / "fold-0" / "history.csv").read_text().splitlines() for run in ("whole", "run")]
    figures = [[row.split(",")[:5] + row.split(",")[8:] for row in curve] for curve in curves]
    assert figures[0] == figures[1] and "val_entropy" in figures[0][0] and len(figures[0]) == 3
    images = ("--source", "fractals", "--set", "source.size=24", "--set", "source.classes=3", "--set", "k=[2]")
    probe = ("--recipe", "knn", *images, "--set", "model.image_size=32", "--weights", tmp_path / "run")
    usvit("transfer", *probe, "--device", "cpu", "--out", tmp_path / "knn")
    assert (tmp_path / "knn" / "results.csv").read_text().count("accuracy") >= 1


@pytest.mark.slow
def test_two_processes_make_the_steps_of_one(tmp_path):
    """The network has no batch normalisation and drops no path, so only rounding differs."""
    command = ("pretrain", *TINY, *VIT, *LOCAL, "--set", "model.drop_path=0", "--set", "train.steps=3")
    for processes in (1, 2):
        out = tmp_path / str(processes)
        done = start(tmp_path / f"{out}.txt", command_line, *command, "--out", out, torchrun=processes).wait()
        assert done.returncode == 0, done.stderr
    one, two = (load_file(tmp_path / name / "fold-0" / "model.safetensors") for name in "12")
    assert one.keys() == two.keys()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-5, atol=1e-6)


def test_the_head_is_that_of_the_authors_code():
    """DINOHead of vision_transformer.py, with rows of other lengths than one."""
    state = {}
    for key, value in authors.state_of("dino_head").items():
        key = key.replace("last_layer.weight_g", "last.parametrizations.weight.original0")
        state[key.replace("last_layer.weight_v", "last.parametrizations.weight.original1")] = value
    head = DinoHead(32, DinoConfig(hidden=24, bottleneck=16, outputs=12))
    head.load_state_dict(state)
    outputs = head.double()(torch.from_numpy(authors.numbers("features", (4, 32))).double())
    theirs = torch.tensor(authors.network("dino_head")["outputs"]).double()
    torch.testing.assert_close(outputs.detach(), theirs, rtol=1e-5, atol=1e-6)


def test_losses_and_centers_of_five_epochs_are_those_of_the_authors_code():
    """DINOLoss of main_dino.py: two images, two global and two local crops, a warm-up of three epochs of six."""
    task = dino(teacher_temperature=0.07, teacher_temperature_start=0.04, teacher_warmup_epochs=3)
    student = torch.from_numpy(authors.numbers("student", (8, 10))).unflatten(0, (4, 2)).transpose(0, 1)
    for epoch, stored in enumerate(authors.values("dino_loss")):
        teacher = torch.from_numpy(authors.numbers("teacher", (4, 10))) + epoch
        target = task._target(teacher, epoch).unflatten(0, (2, 2)).transpose(0, 1)
        loss = distillation_loss(student / 0.1, target).mean()
        assert loss.item() == pytest.approx(stored["loss"], rel=1e-5)
        task._seen = [torch.cat([teacher.sum(0), torch.tensor([4.0])])]
        task.on_step_end(0)
        assert task.module.center.tolist() == pytest.approx(stored["center"], rel=1e-5, abs=1e-6)


def test_the_decay_of_the_teacher_is_the_authors_cosine_scheduler():
    decays = [half_cosine(0.996, 1.0, step, 20) for step in range(20)]
    assert decays == pytest.approx(authors.values("dino_teacher_decay"), rel=1e-6)
