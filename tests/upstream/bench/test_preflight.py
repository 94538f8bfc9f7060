"""What cannot work is said before anything is measured."""

import pytest
import torch

from usvit.config import ModelConfig
from usvit.errors import UsvitError
from usvit.training.device import Device
from usvit.upstream.bench.case import BenchmarkCase, Hardware
from usvit.upstream.bench.preflight import _check_precision, probe


def case(name, size=224, **hardware):
    model = ModelConfig(name=name, image_size=size).model_dump()
    return BenchmarkCase(model, "infer", 2, Hardware(device="cpu", **hardware))


@pytest.mark.slow
def test_networks_are_described_with_the_papers_figures():
    seen = probe([case("deit_s"), case("deit_s", precision="bf16")])
    (model,) = seen.models
    assert model.params == 22_050_664 and model.macs == pytest.approx(4.6e9, rel=0.01)
    assert {figure.protocol for figure in model.paper} >= {"v100_16gb_best", "v100_32gb_batch256_amp"}
    assert seen.machine.device == "cpu" and seen.versions["torch"] == torch.__version__.partition("+")[0]


def test_an_image_that_is_no_multiple_of_the_patch_is_refused():
    with pytest.raises(UsvitError, match=r"vit_ti16.*100 x 100"):
        probe([case("vit_ti16", 100)])


def test_compiling_without_a_compiler_is_refused_with_advice(monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(UsvitError, match=r"--compile needs a compiler.*g\+\+"):
        probe([case("vit_ti16", compile=True)])
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(UsvitError, match="no-such-compiler"):
        probe([case("vit_ti16", compile=True)])


def test_bfloat16_on_a_gpu_that_only_emulates_it_is_refused(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "an old card")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    with pytest.raises(UsvitError, match="an old card does not support bfloat16 natively"):
        _check_precision(Device("cuda", "bf16"))
    _check_precision(Device("cuda", "fp32"))


def test_a_gpu_that_is_not_there_is_refused():
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(UsvitError, match="--device cuda"):
        probe([BenchmarkCase(ModelConfig().model_dump(), "infer", 2, Hardware(device="cuda"))])
