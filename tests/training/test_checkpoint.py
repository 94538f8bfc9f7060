import os
import pickle

import pytest
import torch

from usvit.errors import UsvitError
from usvit.training.checkpoint import load_checkpoint, save_checkpoint


def test_there_is_none_before_the_first(tmp_path):
    assert load_checkpoint(tmp_path / "state.pt") is None


def test_state_and_random_numbers_come_back(tmp_path):
    torch.manual_seed(5)
    save_checkpoint(
        tmp_path / "state.pt", {"step": 7, "weights": {"w": torch.arange(3.0)}, "history": [{"loss": None}]}
    )
    expected = torch.rand(4)
    torch.manual_seed(99)
    state = load_checkpoint(tmp_path / "state.pt")
    assert torch.equal(torch.rand(4), expected)
    assert state["step"] == 7 and state["history"] == [{"loss": None}]
    assert torch.equal(state["weights"]["w"], torch.arange(3.0))


def test_a_damaged_checkpoint_is_named(tmp_path):
    save_checkpoint(tmp_path / "state.pt", {"step": 1})
    data = (tmp_path / "state.pt").read_bytes()
    (tmp_path / "state.pt").write_bytes(data[: len(data) // 2])
    with pytest.raises(UsvitError, match=r"state\.pt is damaged"):
        load_checkpoint(tmp_path / "state.pt")


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "evil"),)

    (tmp_path / "state.pt").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UsvitError):
        load_checkpoint(tmp_path / "state.pt")
    assert not (tmp_path / "evil").exists()


def test_a_full_disk_is_explained_and_keeps_the_older_checkpoint(small_disk):
    save_checkpoint(small_disk / "state.pt", {"step": 1})
    with pytest.raises(UsvitError, match="No space left on the disk"):
        save_checkpoint(small_disk / "state.pt", {"step": 2, "big": torch.zeros(2_000_000)})
    assert load_checkpoint(small_disk / "state.pt")["step"] == 1
