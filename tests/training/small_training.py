"""A small training, as a function and as what a process does (``tests.processes``)."""

import datetime
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import distributed as dist
from torch import nn

from usvit.config import EarlyStoppingConfig, OptimConfig, TrainConfig
from usvit.data.loading.infinite_loader import InfiniteLoader
from usvit.errors import UsvitError
from usvit.models.architectures.vit import ViT
from usvit.progress import NoProgress
from usvit.training import trainer
from usvit.training.device import Device
from usvit.training.distributed import World, full_state, launch
from usvit.training.losses import WeightedCrossEntropy
from usvit.training.step_log import StepLog
from usvit.training.task import ClassificationTask
from usvit.training.trainer import Trainer

N = 26


class Pictures:
    """26 images of noise, 32 x 32; two classes; with an accident that may happen while one batch is made."""

    def __init__(self, accident=None, at=None):
        self.pixels = np.random.default_rng(0).integers(0, 256, (N, 32, 32, 3), dtype=np.uint8)
        self.accident, self.at, self.made = accident, at, 0

    def __len__(self):
        return N

    def order(self, generator):
        return generator.permutation(N)

    def batch(self, items):
        if self.made == self.at and self.accident is not None:
            self.accident()
        self.made += 1
        rows = [position for position, _ in items]
        return {"images": torch.from_numpy(self.pixels[rows]), "targets": torch.tensor([row % 2 for row in rows])}


def vit(norm=False):
    torch.manual_seed(0)
    network = ViT(width=16, depth=2, mlp=32, heads=2, patch=8, img_size=32, num_classes=2)
    nn.init.normal_(network.head.weight, std=0.1)
    return nn.Sequential(nn.BatchNorm2d(3), network) if norm else network


def normalised(images):
    return images.permute(0, 3, 1, 2).float() / 127.5 - 1


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def asked():
    os.kill(os.getpid(), signal.SIGTERM)


def launcher_asked():
    """By the first of its processes, which goes on when the launcher has handed the signal on."""
    if os.environ["RANK"] == "0":
        came, comes = os.pipe()
        os.set_blocking(comes, False)
        signal.set_wakeup_fd(comes)
        os.kill(os.getppid(), signal.SIGTERM)
        os.read(came, 1)
        signal.set_wakeup_fd(-1)


def training(
    folder,
    *,
    fabric=None,
    examples=None,
    module=None,
    optim=None,
    workers=0,
    evaluate=None,
    statistics=None,
    identity="a",
    **train,
):
    """Its module, its result and the processes."""
    world = World(fabric or launch(Device("cpu", "fp32")))
    module = module or vit()
    torch.manual_seed(1)
    stream = InfiniteLoader(
        examples or Pictures(), batch_size=8, seed=0, workers=workers, rank=world.rank, world=world.size
    )
    loss = WeightedCrossEntropy(np.array([0.5, 2.0]), 2)  # so that processes hold unequal weights
    last = EarlyStoppingConfig(patience=None, keep="last")
    settings = {"steps": 8, "eval_every": 4, "log_every": 1, "early_stopping": last, **train}
    result = Trainer(
        ClassificationTask(module, loss, normalised),
        world.fabric,
        stream,
        evaluate or (lambda module: {"val_loss": 1.0, "val_accuracy": None, "val_auc": None}),
        train=TrainConfig(batch_size=8, **settings),
        optim=OptimConfig(**{"name": "adamw", "lr": 1e-3, **(optim or {})}),
        checkpoint=Path(folder) / "state.pt",
        name="test",
        progress=NoProgress(),
        statistics=statistics,
        log=StepLog(Path(folder), device=world.fabric.device),
        identity=identity,
    ).fit()
    return module, result, world


def member(rank, folder, accident, before=None):
    """One of two processes that no launcher watches; the second has an accident in its fourth step.

    ``before``: what the first does then.
    """
    told = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "GROUP_RANK": 0}
    os.environ |= {key: str(value) for key, value in told.items()} | {"TORCHELASTIC_RUN_ID": "none"}
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "0"}  # they meet in a file: no port is taken
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    happens = {"killed": killed, "silent": lambda: time.sleep(600)}[accident]
    try:
        training(folder, examples=Pictures(happens if rank else before, at=3), checkpoint_seconds=0.0)
    except UsvitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)


def impatient_member(rank, folder, accident):
    """From its fourth step on the first waits for three seconds instead of ``PATIENCE``; not before: a slow start is
    no silence."""
    patient, new_group = [], dist.new_group

    def noted(*arguments, timeout=None, **options):
        group = new_group(*arguments, timeout=timeout, **options)
        if timeout == trainer.PATIENCE:
            patient.append(group)
        return group

    def hurry():
        (control,) = patient
        dist.distributed_c10d._set_pg_timeout(datetime.timedelta(seconds=3), control)

    dist.new_group = noted
    member(rank, folder, accident, hurry)


CASES = {
    "adamw": {"optim": {"clip_norm": 0.5, "weight_decay": 0.05}, "micro_batch": 3},
    "lamb": {"optim": {"name": "lamb", "weight_decay": 0.02}},
    "mean": {"optim": {"name": "sgd", "lr": 0.1}, "ema": 0.7},
}


def main(orders):
    """Train as ``orders`` say, and save the weights of each case in ``orders['out']``."""
    out = Path(orders["out"])
    accident = {"kill": killed, "stop launcher": launcher_asked}.get(orders.get("accident"))
    examples = Pictures(accident, orders.get("at"))
    for strategy in orders["strategies"]:
        fabric = launch(Device("cpu", "fp32"), strategy)
        for case in orders["cases"]:
            module, _, world = training(
                out / f"{strategy}-{case}", fabric=fabric, examples=examples, **CASES[case], **orders["train"]
            )
            state = full_state(module)
            if world.is_main:
                torch.save(state, out / f"{strategy}-{case}.pt")


def script(orders):
    """``main`` as a command ends: a UsvitError is said, and is the exit code."""
    try:
        main(orders)
    except UsvitError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
