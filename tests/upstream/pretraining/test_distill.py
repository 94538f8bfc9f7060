"""Distillation: the three losses written out, and what the teacher sees and knows."""

import math

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tests.oracles import authors
from tests.records import contents
from usvit.errors import UsvitError
from usvit.models.build import build_model
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining import distill
from usvit.upstream.pretraining.task import TaskContext
from usvit.upstream.pretraining.teacher import make_teacher

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
TINY = {"width": 16, "depth": 2, "heads": 2, "mlp": 32, "patch": 16}


class Inputs:
    mean, std = HALF

    def __call__(self, images, seeds):
        return (images.permute(0, 3, 1, 2).float() / 255 - 0.5) / 0.5


def config(**sections):
    base = {
        "model": {"name": "vit_ti16", "weights": "scratch", "image_size": 32, "vit": TINY},
        "device": "cpu",
        "precision": "fp32",
        "distill": {"kind": "hard", "teacher": "vit_ti16", "weights": "scratch"},
    }
    return PretrainConfig.model_validate({**base, **sections})


def plan_of(settings, n_classes=5, classes=()):
    spec = find_model(settings.model.name, settings.model.vit.model_dump(exclude_none=True))
    return TaskContext(settings, spec, n_classes, 100, Inputs(), torch.device("cpu"), classes)


class Student(nn.Module):
    """Logits that do not depend on the image, and (of a token) those of a second head."""

    def __init__(self, *logits):
        super().__init__()
        self.logits = logits

    def forward(self, images):
        return self.logits if len(self.logits) > 1 else self.logits[0]


class Says:
    """A teacher who says the same always."""

    origin = None

    def __init__(self, logits):
        self.logits = logits

    def __call__(self, inputs):
        self.inputs = inputs
        return self.logits


def portion(n=4, k=5):
    pixels = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8)
    return {"images": pixels, "targets": torch.arange(n) % k, "seeds": torch.arange(n)}


def softmax(row, temperature=1.0):
    terms = [math.exp(value / temperature) for value in row]
    return [term / sum(terms) for term in terms]


def logits(seed, n=4, k=5):
    return 2 * torch.randn(n, k, generator=torch.Generator().manual_seed(seed))


def test_soft_is_equation_3_2_image_by_image():
    settings = config(distill={"kind": "soft", "teacher": "vit_ti16", "weights": "scratch"})
    assert (settings.distill.balance, settings.distill.temperature) == (0.1, 3.0)  # thesis, section 3.4.5
    student, teacher, batch = logits(0), logits(1), portion()
    loss = distill.Distill(plan_of(settings), Student(student), Says(teacher)).loss(Student(student), batch, 0)
    total = 0.0
    for z_s, z_t, y in zip(student.tolist(), teacher.tolist(), batch["targets"].tolist(), strict=True):
        ce = -math.log(softmax(z_s)[y])
        p_s, p_t = softmax(z_s, 3.0), softmax(z_t, 3.0)
        kl = sum(t * math.log(t / s) for s, t in zip(p_s, p_t, strict=True))
        total += 0.9 * ce + 0.1 * 9 * kl
    assert loss.item() == pytest.approx(total, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_hard_is_equation_3_3_and_only_the_true_label_is_smoothed(smoothing):
    settings = config(loss={"label_smoothing": smoothing})
    student, teacher, batch = logits(0), logits(1), portion()
    loss = distill.Distill(plan_of(settings), Student(student), Says(teacher)).loss(Student(student), batch, 0)
    total = 0.0
    for z_s, z_t, y in zip(student.tolist(), teacher.tolist(), batch["targets"].tolist(), strict=True):
        p = softmax(z_s)
        target = [smoothing / 5 + (1 - smoothing) * (k == y) for k in range(5)]
        total += -0.5 * sum(q * math.log(s) for q, s in zip(target, p, strict=True))
        total += -0.5 * math.log(p[z_t.index(max(z_t))])
    assert loss.item() == pytest.approx(total, rel=1e-5)


def test_the_token_s_head_answers_to_the_teacher_and_the_class_head_to_the_label():
    settings = config(distill={"kind": "token", "teacher": "vit_ti16", "weights": "scratch"})
    of_class, of_token, teacher, batch = logits(0), logits(1), logits(2), portion()
    student = Student(of_class, of_token)
    loss = distill.Distill(plan_of(settings), student, Says(teacher)).loss(student, batch, 0)
    total = 0.0
    for z, z_d, z_t, y in zip(*map(torch.Tensor.tolist, (of_class, of_token, teacher, batch["targets"])), strict=True):
        total += -0.5 * math.log(softmax(z)[y]) - 0.5 * math.log(softmax(z_d)[z_t.index(max(z_t))])
    assert loss.item() == pytest.approx(total, rel=1e-5)


def test_the_teacher_sees_the_mixed_images_that_the_student_sees():
    settings = config(mix={"mixup": 0.8, "cutmix": 1.0}, train={"epochs": 1, "batch_size": 4})
    teacher, seen = Says(logits(1)), {}

    class Watched(Student):
        def forward(self, images):
            seen["images"] = images
            return super().forward(images)

    student, batch = Watched(logits(0)), portion()
    distill.Distill(plan_of(settings), student, teacher).loss(student, batch, 3)
    assert torch.equal(teacher.inputs, seen["images"])
    assert not torch.equal(seen["images"], Inputs()(batch["images"], batch["seeds"]))


def test_a_teacher_is_frozen_still_and_no_part_of_what_is_trained():
    task = distill.make(plan_of(config()), small("vit_ti16"))
    teacher = task.teacher
    assert not any(parameter.requires_grad for parameter in teacher.model.parameters())
    teacher.model.train()
    teacher(torch.zeros(1, 3, 32, 32))
    assert not teacher.model.training
    inside = {id(parameter) for parameter in task.module.parameters()}
    assert not inside & {id(parameter) for parameter in teacher.model.parameters()}


def small(name, n_classes=5, **options):
    spec = find_model(name, TINY if "distilled" not in name else None)
    return build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=32, **options)


@pytest.mark.slow
def test_a_teacher_comes_with_its_head(tmp_path):
    """What fine-tuning leaves out is what a teacher is asked for."""
    network = build_model(find_model("vit_ti16"), Weights("scratch"), n_classes=5, image_size=32)
    nn.init.normal_(network.head.weight)
    save_file(network.state_dict(), tmp_path / "teacher.safetensors")
    settings = config(distill={"kind": "hard", "teacher": "vit_ti16", "weights": str(tmp_path / "teacher.safetensors")})
    before = torch.get_rng_state()
    teacher = make_teacher(settings, HALF, n_classes=5, device=torch.device("cpu"))
    assert torch.equal(torch.get_rng_state(), before)
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.allclose(teacher(images), network.eval()(images), atol=1e-4)
    with pytest.raises(UsvitError, match=r"has 5 classes, but the images have 7.*distill\.teacher"):
        make_teacher(settings, HALF, n_classes=7, device=torch.device("cpu"))


def test_a_teacher_without_a_head_is_refused(tmp_path):
    network = build_model(find_model("vit_ti16"), Weights("scratch"), n_classes=5, image_size=32)
    body = {key: value for key, value in network.state_dict().items() if not key.startswith("head.")}
    save_file(body, tmp_path / "body.safetensors")
    settings = config(distill={"kind": "soft", "teacher": "vit_ti16", "weights": str(tmp_path / "body.safetensors")})
    with pytest.raises(UsvitError, match=r"has no head \(head\.weight, head\.bias\)"):
        make_teacher(settings, HALF, n_classes=5, device=torch.device("cpu"))


@pytest.mark.slow
def test_a_teacher_of_other_names_is_refused(tmp_path):
    import json

    network = build_model(find_model("vit_ti16"), Weights("scratch"), n_classes=2, image_size=32)
    save_file(network.state_dict(), tmp_path / "model.safetensors")
    metadata = contents.network(architecture="vit_ti16", timm="vit_tiny_patch16_224", classes=["cat", "dog"])
    (tmp_path / "model.json").write_text(json.dumps(metadata))
    settings = config(distill={"kind": "hard", "teacher": "vit_ti16", "weights": str(tmp_path)})
    ask = {"n_classes": 2, "device": torch.device("cpu")}
    make_teacher(settings, HALF, classes=("cat", "dog"), **ask)
    with pytest.raises(UsvitError, match="class 0 is cat there and dog here"):
        make_teacher(settings, HALF, classes=("dog", "cat"), **ask)


def test_token_distillation_wants_a_network_with_the_token():
    settings = config(distill={"kind": "token", "teacher": "vit_ti16", "weights": "scratch"})
    with pytest.raises(UsvitError, match=r"no distillation token.*deit_ti_distilled, deit_s_distilled"):
        distill.make(plan_of(settings), small("vit_ti16"))


def test_an_impossible_size_names_the_setting_of_the_teacher():
    settings = config(distill={"kind": "hard", "teacher": "vit_ti16", "weights": "scratch", "image_size": 50})
    with pytest.raises(UsvitError, match=r"teacher vit_ti16 .*50 x 50 pixels \(distill\.image_size"):
        distill.make(plan_of(settings), small("vit_ti16"))


def test_a_distilled_network_learns_by_both_heads_and_answers_with_their_mean():
    settings = config(
        model={"name": "deit_ti_distilled", "weights": "scratch", "image_size": 32},
        distill={"kind": "token", "teacher": "vit_ti16", "weights": "scratch"},
    )
    network = small("deit_ti_distilled")
    task = distill.make(plan_of(settings), network)
    network.train()
    task.loss(network, portion(), 0).backward()
    for head in (network.head, network.head_dist):
        assert head.weight.grad.abs().sum() > 0
    with torch.no_grad():
        for head in network.get_classifier():
            nn.init.normal_(head.weight)
        network.eval()
        tokens = network.forward_features(torch.zeros(1, 3, 32, 32))
        mean = (network.head(tokens[:, 0]) + network.head_dist(tokens[:, 1])) / 2
        assert torch.allclose(network(torch.zeros(1, 3, 32, 32)), mean, atol=1e-5)


def test_without_the_token_s_recipe_a_distilled_network_gives_one_answer():
    """CaiT's hard distillation without a token: one head, both labels."""
    settings = config(model={"name": "deit_ti_distilled", "weights": "scratch", "image_size": 32})
    network = small("deit_ti_distilled").train()
    network.set_distilled_training(True)
    distill.make(plan_of(settings), network)
    assert isinstance(network(torch.zeros(2, 3, 32, 32)), torch.Tensor)


def test_the_losses_are_those_of_the_authors_code_but_for_the_number_of_classes_in_the_soft_one():
    """losses.py of DeiT; docs/reference/recipes.md: that code also divides the divergence by the number of classes."""
    of_class, of_token, teacher = (
        torch.from_numpy(4 * authors.numbers(name, (3, 5))) for name in ("class head", "distillation head", "teacher")
    )
    labels = nn.functional.cross_entropy(of_class, torch.tensor([0, 4, 2])).item()
    stored = authors.values("deit_distillation")
    hard = 0.5 * labels + 0.5 * distill.hard_distillation(of_token, teacher).mean().item()
    assert hard == pytest.approx(stored["hard"], rel=1e-5)
    soft = distill.soft_distillation(of_token, teacher, 3.0).mean().item()
    assert 0.9 * labels + 0.1 * soft / 5 == pytest.approx(stored["soft"], rel=1e-5)
