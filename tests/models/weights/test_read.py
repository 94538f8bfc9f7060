import argparse
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from tests.models.conftest import SMALL_VIT, write_weights
from tests.models.weights import flax_files
from usvit.errors import UsvitError
from usvit.models.weights import parse_weights, read_state_dict


class RunsCode:
    """What a malicious file does when it is unpickled."""

    def __init__(self, proof: Path):
        self.proof = proof

    def __reduce__(self):
        return Path.write_text, (self.proof, "the code has been run")


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".pt", ".bin"])
def test_tensors_come_back_as_they_were_written(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    state = write_weights(path, "vit_ti16", n_classes=2, img_size=32, **SMALL_VIT)
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


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".npz"])
@pytest.mark.parametrize("damage", ["cut", "text", "empty"])
def test_damaged_file_is_named_and_not_called_dangerous(tmp_path, suffix, damage):
    path = tmp_path / f"w{suffix}"
    if suffix == ".npz":
        flax_files.write(path, flax_files.augreg())
    else:
        write_weights(path, "vit_ti16", n_classes=2, img_size=32, **SMALL_VIT)
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[: len(whole) // 2], "text": b"<html>404 not found</html>", "empty": b""}[damage])
    with pytest.raises(UsvitError, match=rf"{path} are damaged or are not a weights file.*Copy the file again"):
        read_state_dict(path)


@pytest.mark.parametrize("content", [{}, [1, 2], {"a": 3}, torch.zeros(2), {"model": {"a": "text"}}])
def test_what_holds_no_table_of_tensors_is_refused(tmp_path, content):
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(UsvitError, match="hold no table of tensors"):
        read_state_dict(tmp_path / "w.pth")


def test_arrays_come_back_as_they_were_written(tmp_path):
    arrays = flax_files.augreg()
    checkpoint = parse_weights(flax_files.write(tmp_path / "w.npz", arrays).read_bytes(), tmp_path / "w.npz")
    assert checkpoint.flax
    assert checkpoint.tensors.keys() == arrays.keys()
    assert all(np.array_equal(checkpoint.tensors[key], arrays[key]) for key in arrays)


def test_objects_in_an_archive_are_refused_and_their_code_is_not_run(tmp_path):
    proof = tmp_path / "proof"
    np.savez(tmp_path / "evil.npz", **{"embedding/kernel": np.array([RunsCode(proof)], dtype=object)})
    with pytest.raises(UsvitError, match=r"hold Python objects, which can run code"):
        read_state_dict(tmp_path / "evil.npz")
    assert not proof.exists()


@pytest.mark.parametrize("array", [np.zeros(3), np.array(["text"])])
def test_what_is_no_archive_of_numbers_is_refused(tmp_path, array):
    path = tmp_path / "w.npz"
    if array.dtype.kind == "U":
        np.savez(path, a=array)
    else:
        path.write_bytes(np.lib.format.magic(1, 0))
    with pytest.raises(UsvitError, match="are damaged or are not a weights file"):
        read_state_dict(path)


TENSOR = {"a": torch.ones(2)}


@pytest.mark.parametrize(
    ("content", "table"),
    [
        (TENSOR, None),
        ({"model": TENSOR, "epoch": 3, "args": argparse.Namespace(lr=1.0)}, "model"),
        ({"state_dict": {"module.a": torch.ones(2)}}, "state_dict"),
        ({"model": {"module.module.a": torch.ones(2)}}, "model"),
        ({"state_dict": {"_orig_mod.module.a": torch.ones(2)}}, "state_dict"),
        ({"model": {"a": torch.zeros(2)}, "model_ema": TENSOR}, "model_ema"),
        ({"model": TENSOR, "model_ema": None}, "model"),
        ({"model": {"state_dict": TENSOR}}, "model.state_dict"),
    ],
)
def test_the_table_of_a_training_checkpoint_is_found_and_told(tmp_path, content, table):
    torch.save(content, tmp_path / "w.pth")
    checkpoint = parse_weights((tmp_path / "w.pth").read_bytes(), tmp_path / "w.pth")
    assert checkpoint.table == table
    assert list(checkpoint.tensors) == ["a"]
    assert torch.equal(checkpoint.tensors["a"], torch.ones(2))


def test_tensors_come_in_the_same_order_each_time(tmp_path):
    names = [f"blocks.{number:02}" for number in range(30)]
    save_file({name: torch.zeros(1) for name in reversed(names)}, tmp_path / "w.safetensors")
    assert list(read_state_dict(tmp_path / "w.safetensors")) == names


def test_half_precision_is_kept_by_the_reader(tmp_path):
    save_file({"a": torch.ones(2, dtype=torch.bfloat16)}, tmp_path / "w.safetensors")
    assert read_state_dict(tmp_path / "w.safetensors")["a"].dtype == torch.bfloat16


def test_a_table_that_holds_itself_ends(tmp_path):
    table = {}
    table["model"] = table
    torch.save(table, tmp_path / "w.pth")
    with pytest.raises(UsvitError, match="hold no table of tensors"):
        read_state_dict(tmp_path / "w.pth")


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".npz", ".pth"])
def test_an_archive_of_little_that_unpacks_to_much_is_refused_unread(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("w.npy", "w") as member:
        for _ in range(120):
            member.write(bytes(1_000_000))
    with pytest.raises(UsvitError, match=r"would unpack to 120,000,000"):
        read_state_dict(path)


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        (torch.zeros(3, dtype=torch.complex64), "complex numbers"),
        (torch.zeros(1).expand(1_000_000, 1_000_000), "claims 1,000,000,000,000 values and holds fewer"),
        (torch.zeros(3).to_sparse(), "sparse"),
        (torch.empty(3, device="meta"), "has no values"),
    ],
)
def test_tensors_that_are_no_plain_weights_are_refused(tmp_path, tensor, says):
    torch.save({"head.weight": tensor}, tmp_path / "w.pth")
    with pytest.raises(UsvitError, match=f"tensor 'head.weight' in the weights .*w.pth .*{says}"):
        read_state_dict(tmp_path / "w.pth")


@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_complex_weights_are_refused_in_every_format(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    if suffix == ".npz":
        np.savez(path, a=np.zeros(3, np.complex64))
    else:
        save_file({"a": torch.zeros(3, dtype=torch.complex64)}, path)
    with pytest.raises(UsvitError, match="complex numbers"):
        read_state_dict(path)


def test_a_name_of_many_wrappers_is_read_in_linear_time(tmp_path):
    torch.save({"module." * 100_000 + "a": torch.zeros(1)}, tmp_path / "w.pth")
    assert list(read_state_dict(tmp_path / "w.pth")) == ["a"]


@pytest.mark.parametrize("suffix", [".safetensors", ".pth", ".npz"])
def test_a_file_that_cannot_be_sought_is_refused_with_advice(tmp_path, suffix):
    path = tmp_path / f"w{suffix}"
    path.symlink_to("/proc/self/mem")
    with pytest.raises(UsvitError, match="cannot be read"):
        read_state_dict(path)
