import pytest
import torch
from torch import distributed

from tests.processes import start
from tests.upstream.pretraining import test_dino
from tests.upstream.pretraining.test_grafit import grafit, rows
from tests.upstream.pretraining.test_tokenizer import tiny
from tests.upstream.pretraining.toy import batch
from usvit.training.distributed import gather_rows, sum_over_processes


def after_a_step(task, given):
    task.loss(task.module.train(), given, 0)
    task.on_step_end(0)
    return [buffer.clone() for name, buffer in task.module.named_buffers() if "running" not in name]


def followed(share):
    """What follows a batch of four: the tokenizer's vocabulary, Grafit's memory, and DINO's center (no batch
    normalisation before)."""
    return [
        *after_a_step(tiny(), {key: value[share] for key, value in batch(4).items()}),
        *after_a_step(grafit(projector="linear"), {key: value[share] for key, value in rows(4).items()}),
        *after_a_step(test_dino.dino(), {key: value[share] for key, value in test_dino.rows(4).items()}),
    ]


def process(rank, world, file):
    distributed.init_process_group("gloo", init_method=f"file://{file}.meet", rank=rank, world_size=world)
    torch.save(followed(slice(2 * rank, 2 * rank + 2)), f"{file}.{rank}")
    distributed.destroy_process_group()


def test_one_process_alone_has_everything():
    value = torch.arange(4.0)
    assert sum_over_processes(value) is value and gather_rows(value) is value


@pytest.mark.slow
def test_two_processes_remember_what_one_would(tmp_path):
    begun = [start(tmp_path / f"said-{rank}", process, rank, 2, tmp_path / "state") for rank in range(2)]
    for one in begun:
        assert one.wait().returncode == 0, one.wait().stderr
    expected = followed(slice(None))
    for rank in range(2):
        found = torch.load(tmp_path / f"state.{rank}", weights_only=True)
        assert len(found) == len(expected) > 4
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
