import pickle
import time
from pathlib import Path

import pytest
import torch
from huggingface_hub import constants

from tests.models.conftest import write_weights
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.build import build_model
from usvit.models.weights import Weights, read_state_dict, resolve_weights
from usvit.models.zoo import find_model

TINY = find_model("vit_ti16")
REPOSITORY = "timm/vit_tiny_patch16_224.augreg_in21k"


class RunsCode:
    """What a malicious file does when it is unpickled."""

    def __init__(self, proof: Path):
        self.proof = proof

    def __reduce__(self):
        return Path.write_text, (self.proof, "the code has been run")


def test_scratch_needs_nothing():
    assert resolve_weights("scratch", TINY) == Weights("scratch")


def test_file_is_recorded_by_name_and_hash_but_never_by_its_path(tmp_path):
    path = tmp_path / "secret project" / "tiny.safetensors"
    write_weights(path, "vit_ti16", n_classes=7)
    weights = resolve_weights(str(path), TINY)
    assert weights.path == path
    record = weights.describe()
    assert record == {"source": "file", "name": "tiny.safetensors", "sha256": sha256_of_file(path), "license": None}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gone.pth", "no such file"),
        ("imagenet", "no such file"),
        ("weights.npz", "not read"),
        ("folder.pth", "no such"),
    ],
)
def test_what_is_no_weights_file_is_told_by_its_name(tmp_path, name, says):
    if name == "folder.pth":
        (tmp_path / name).mkdir()
    elif name.endswith("npz"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsvitError, match=rf"--weights .*{name}: .*{says}(.|\n)*\.safetensors, \.pth, \.pt, \.bin"):
        resolve_weights(str(tmp_path / name), TINY)


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
def test_tensors_come_back_as_they_were_written(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    state = write_weights(path, "vit_ti16", n_classes=2)
    back = read_state_dict(path)
    assert set(back) == set(state)
    assert all(torch.equal(back[key], state[key]) for key in state)


@pytest.mark.parametrize("save", [torch.save, lambda value, path: path.write_bytes(pickle.dumps(value))])
@pytest.mark.parametrize("nested", [False, True])
def test_file_that_runs_code_is_refused_and_the_code_is_not_run(tmp_path, save, nested):
    proof, path = tmp_path / "proof", tmp_path / "evil.pth"
    evil = RunsCode(proof)
    save({"model": {"a": evil}} if nested else evil, path)
    with pytest.raises(UsvitError, match=r"hold Python objects, which can run code.*refused.*safetensors"):
        read_state_dict(path)
    assert not proof.exists()
    # The file does what it says when it is trusted: else the test would prove nothing.
    if save is not torch.save:
        pickle.loads(path.read_bytes())
        assert proof.exists()


def test_a_whole_pickled_network_is_refused_with_what_to_save_instead(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pth")
    with pytest.raises(UsvitError, match=r"save model.state_dict\(\) alone"):
        read_state_dict(tmp_path / "module.pth")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_file_is_named_and_not_called_dangerous(tmp_path, suffix, damage):
    path = tmp_path / f"w{suffix}"
    write_weights(path, "vit_ti16", n_classes=2)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "text": b"<html>404 not found</html>", "empty": b""}[damage])
    with pytest.raises(UsvitError, match=rf"{path} are damaged or no weights file.*Copy the file again"):
        read_state_dict(path)


@pytest.mark.parametrize("content", [{}, [1, 2], {"a": 3}, torch.zeros(2), {"model": {"a": "text"}}])
def test_what_holds_no_table_of_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UsvitError, match="hold no table of tensors"):
        read_state_dict(tmp_path / "w.pth")


@pytest.fixture
def hub_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty Hugging Face cache."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    return tmp_path


def put_in_cache(cache: Path, file: str) -> dict[str, torch.Tensor]:
    folder = cache / f"models--{REPOSITORY.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(commit)
    return write_weights(folder / "snapshots" / commit / file, "vit_ti16", n_classes=21)


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_cached_hub_weights_are_used_without_the_network(hub_cache, no_network, file):
    state = put_in_cache(hub_cache, file)
    weights = resolve_weights("hub", TINY)
    assert weights.source == "hub"
    assert weights.name == REPOSITORY
    assert weights.license == "apache-2.0"
    assert weights.sha256 == sha256_of_file(weights.path)
    model = build_model(TINY, weights, n_classes=3, image_size=224)
    own = model.state_dict()
    assert all(torch.equal(own[key], value) for key, value in state.items() if not key.startswith("head."))
    assert (model.head.weight == 0).all()


@pytest.mark.parametrize("offline", [True, False])
def test_weights_neither_cached_nor_reachable_stop_at_once_and_say_what_to_do(
    hub_cache, no_network, monkeypatch, offline
):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
    begun = time.perf_counter()
    with pytest.raises(UsvitError) as caught:
        resolve_weights("hub", TINY)
    assert time.perf_counter() - begun < 3
    text = str(caught.value)
    assert REPOSITORY in text
    assert "--weights scratch" in text
    assert "--weights FILE" in text
    assert ("HF_HUB_OFFLINE is set" in text) == offline


def test_an_address_of_the_hub_that_is_none_is_no_connection(hub_cache, monkeypatch):
    monkeypatch.setattr(constants, "ENDPOINT", "nonsense")
    with pytest.raises(UsvitError, match="neither in the Hugging Face cache nor reachable"):
        resolve_weights("hub", TINY)


def test_a_network_without_hub_weights_says_so(hub_cache, no_network):
    with pytest.raises(UsvitError, match=r"no hub weights for the model timm:vit_small_patch16_36x1_224.*scratch"):
        resolve_weights("hub", find_model("timm:vit_small_patch16_36x1_224"))
