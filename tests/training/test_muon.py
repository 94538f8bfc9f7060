"""Muon and NAdaMuon: which parameters they train, how large and how orthogonal a step is, and resumption."""

import pytest
import timm
import torch
from torch import nn

from tests.training.small_training import Pictures, asked, training
from usvit.config import LoraConfig, OptimConfig, RunConfig
from usvit.errors import UsvitError
from usvit.models.lora import add_lora
from usvit.models.trainable import set_trainable
from usvit.training.optimizers import check_optimizer, make_optimizer
from usvit.training.parameter_groups import hidden_matrices
from usvit.training.signals import Stopped


def vit(**options):
    torch.manual_seed(0)
    sizes = {"embed_dim": 24, "num_heads": 2, "depth": 2, "img_size": 32, "num_classes": 3}
    return timm.create_model("vit_tiny_patch16_224", **sizes, **options)


def backward(model):
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(4, 3, 32, 32, generator=generator)
    nn.functional.cross_entropy(model(images), torch.tensor([0, 1, 2, 0])).backward()


def orthogonal_part(matrix):
    """Oracle: U V^T of the singular value decomposition, in double precision."""
    u, _, vt = torch.linalg.svd(matrix.double(), full_matrices=False)
    return u @ vt


@pytest.mark.parametrize("shape", [(48, 16), (16, 48), (32, 32)])
def test_a_step_is_the_orthogonal_part_of_the_gradient_at_the_size_of_adamws(shape):
    """With match_rms_adamw, the step is lr 0.2 sqrt(max(shape)) U V^T (Liu et al. 2025, equation 4)."""
    torch.manual_seed(0)
    model = nn.Linear(shape[1], shape[0], bias=False)
    # Singular values from 0.1 to 1, which five Newton-Schulz steps bring near 1.
    u, _, vt = torch.linalg.svd(torch.randn(shape), full_matrices=False)
    model.weight.grad = u @ torch.linspace(0.1, 1, min(shape)).diag() @ vt
    before, expected = model.weight.detach().clone(), orthogonal_part(model.weight.grad)
    make_optimizer(model, OptimConfig(name="muon", lr=0.01)).step()
    step = (before - model.weight.detach()).double() / (0.01 * 0.2 * max(shape) ** 0.5)
    values = torch.linalg.svdvals(step)
    assert values.min() > 0.8 and values.max() < 1.2
    assert (step - expected).norm() / expected.norm() < 0.15


def test_nadamuons_step_has_the_root_mean_square_of_adamws():
    """AdaMuon, equation 8: 0.2 / RMS of the update, whatever the shape."""
    torch.manual_seed(0)
    model = nn.Linear(16, 48, bias=False)
    model.weight.grad = torch.randn(48, 16)
    before = model.weight.detach().clone()
    make_optimizer(model, OptimConfig(name="nadamuon", lr=0.01)).step()
    assert (before - model.weight.detach()).square().mean().sqrt().item() == pytest.approx(0.01 * 0.2, rel=1e-3)


@pytest.mark.parametrize("settings", [{}, {"weight_decay": 0.1}, {"layer_decay": 0.5, "weight_decay": 0.1}])
def test_matrices_of_blocks_alone_are_orthogonalised_and_the_rest_is_adamws(settings):
    model = vit()
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    blocks = {f"blocks.{i}.{name}.weight" for i in range(2) for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
    assert hidden_matrices(model) == blocks
    optimizer = make_optimizer(model, OptimConfig(name="muon", lr=0.01, betas=(0.9, 0.95), **settings))
    backward(model)
    optimizer.step()
    by_muon = {name for name, parameter in model.named_parameters() if "momentum_buffer" in optimizer.state[parameter]}
    assert by_muon == blocks
    # Oracle: torch's AdamW moves the others to the same place.
    if "layer_decay" not in settings:
        after = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        model.load_state_dict(start, strict=False)
        other = make_optimizer(model, OptimConfig(name="adamw", lr=0.01, betas=(0.9, 0.95), eps=1e-7, **settings))
        other.step()
        for name, parameter in model.named_parameters():
            if name not in blocks:
                torch.testing.assert_close(parameter.detach(), after[name], rtol=1e-4, atol=1e-6)


def test_the_matrices_of_adapters_are_hidden_matrices():
    model = vit()
    add_lora(model, LoraConfig(rank=4), 32)
    set_trainable(model, "lora")
    names = {f"blocks.{i}.attn.qkv.lora_{ab}.{part}" for i in range(2) for ab in "ab" for part in "qv"}
    assert hidden_matrices(model) == names


@pytest.mark.parametrize(("tune", "make"), [("head", vit), ("full", lambda: timm.create_model("test_resnet"))])
def test_a_network_without_a_trained_hidden_matrix_is_refused(tune, make):
    model = make()
    set_trainable(model, tune)
    with pytest.raises(UsvitError, match=r"optim\.name=muon trains hidden matrices.* none is trained"):
        check_optimizer(model, RunConfig(optim=OptimConfig(name="muon")))


@pytest.mark.parametrize("name", ["muon", "nadamuon"])
def test_a_stopped_training_resumes_to_the_same_bytes(tmp_path, name):
    optim = {"name": name, "lr": 1e-3, "weight_decay": 0.1}
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    whole, _, _ = training(tmp_path / "whole", optim=optim)
    with pytest.raises(Stopped):
        training(tmp_path / "cut", optim=optim, examples=Pictures(asked, at=5))
    cut, result, _ = training(tmp_path / "cut", optim=optim)
    assert result.steps == 8
    for key, value in whole.state_dict().items():
        assert torch.equal(value, cut.state_dict()[key]), key
