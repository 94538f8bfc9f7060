"""Several processes as one training, under ``torchrun``: who does what, and what all must agree on.

Each process holds its share of every batch (``usvit.data.stream``); the loss is divided by the weight of the whole
batch, so that any number of processes makes the same steps, to rounding. Batch normalisation alone counts the images
of one process, as everywhere; its running statistics are averaged before they are used.
"""

import datetime
import inspect
import logging
import os
from collections.abc import Callable, Mapping
from typing import Any

import lightning_fabric
import torch
import torch.distributed as dist
from lightning_fabric.plugins.environments import TorchElasticEnvironment
from lightning_fabric.strategies import DDPStrategy, ModelParallelStrategy
from lightning_fabric.wrappers import _FabricModule
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from usvit.errors import SaidElsewhere, UsvitError
from usvit.seeding import derive_seed
from usvit.train.device import Device

_BLOCKS = ("blocks", "blocks_token_only", "decoder_blocks")
"""What our networks and timm's call the layers that are dealt out one by one; the rest is dealt out together."""

_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")  # its name in new and old PyTorch
    if name in inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters
)


PATIENCE = datetime.timedelta(minutes=30)
"""So long a training waits at a step for a process that says nothing; PyTorch's own limit for exchanging gradients."""
A_DAY = datetime.timedelta(days=1)


def world_size() -> int:
    """Processes that ``torchrun`` started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


def check_share(batch_size: int, *, pairs: bool = False) -> None:
    """Raise unless the processes of ``torchrun`` can have equal shares of a batch.

    Args:
        batch_size: of all together.
        pairs: the images are mixed in pairs, so that shares must be even.

    Raises:
        UsvitError: they cannot.
    """
    if batch_size % world_size():
        raise UsvitError(
            f"torchrun started {world_size()} processes, and train.batch_size {batch_size}, which is of all together, "
            "is no multiple of that. Set another train.batch_size."
        )
    if pairs and batch_size // world_size() % 2:
        raise UsvitError(
            f"mix pairs the images of a process, and each of the {world_size()} processes of torchrun has "
            f"{batch_size // world_size()} of train.batch_size {batch_size}: set a multiple of {2 * world_size()}."
        )


def launch(device: Device, strategy: str = "auto") -> lightning_fabric.Fabric:
    """Fabric on this process's device, connected with the other processes of ``torchrun``, if any.

    Args:
        device: what to compute on; with several processes on a machine, each takes a GPU of its own.
        strategy: ``train.strategy``; with one process it means nothing.

    Raises:
        UsvitError: the machine has fewer GPUs than processes, or the processes do not find each other.
    """
    world = world_size()
    if world == 1:
        return device.fabric()
    local = int(os.environ["LOCAL_WORLD_SIZE"])
    if device.type == "cuda" and local > torch.cuda.device_count():
        raise UsvitError(
            f"torchrun started {local} processes on this machine, which has {torch.cuda.device_count()} GPUs. Pass "
            f"--nproc-per-node {torch.cuda.device_count()}, or --device cpu."
        )
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # we say ourselves what we use
    chosen: Any
    if strategy == "fsdp":
        # FSDP2; Fabric's own FSDPStrategy is FSDP1, which needs GPUs and cannot be tested without.
        chosen = ModelParallelStrategy(_shard, data_parallel_size=world, tensor_parallel_size=1)
    else:
        # Running statistics are averaged when they are wanted, not overwritten with the first process's every step.
        options: dict[str, Any] = {_SYNC_BUFFERS: False}
        chosen = DDPStrategy(**options)
    fabric = lightning_fabric.Fabric(
        accelerator=device.type,
        devices=local,
        num_nodes=world // local,
        strategy=chosen,
        precision="bf16-mixed" if device.precision == "bf16" else "32-true",
        plugins=[TorchElasticEnvironment()],  # also in a Slurm job, where Fabric would else ask Slurm
    )
    try:
        fabric.launch()
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The {world} processes of torchrun do not find each other: {reason}.") from error
    return fabric


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    mesh = mesh["data_parallel"]
    for name, container in list(module.named_modules()):
        if name.rpartition(".")[2] in _BLOCKS:
            for block in container.children():
                if any(True for _ in block.parameters()):
                    fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)  # in place
    return module


class Team:
    """The processes of one training. With one process, every method is the identity, or nothing.

    Args:
        fabric: connects them.
        patience: how long one waits for another that is there and says nothing. One that dies is noticed at once, by
            its closed connection; one whose machine lost power or network is not.
    """

    def __init__(self, fabric: lightning_fabric.Fabric, patience: datetime.timedelta = A_DAY):
        self.fabric, self.rank, self.world = fabric, fabric.global_rank, fabric.world_size
        self.first = self.rank == 0
        self.sharded = isinstance(fabric.strategy, ModelParallelStrategy)
        # The hosts' agreements do not wait for GPUs, and have time: one process may read a whole data set.
        self._control: Any = dist.new_group(backend="gloo", timeout=patience) if self.world > 1 else None

    def setup(
        self, module: nn.Module, make_optimizer: Callable[[], torch.optim.Optimizer]
    ) -> tuple[Any, torch.optim.Optimizer]:
        """A module and its optimiser, wrapped by Fabric: on the device, in its precision, over all processes.

        Args:
            module: stays what it is, in place; its parameters are dealt out over the processes where ``sharded``.
            make_optimizer: called when the parameters are where they stay.
        """
        wrapped: Any
        optimizer: Any
        if not self.sharded:
            wrapped, optimizer = self.fabric.setup(module, make_optimizer())
        else:
            wrapped = self.fabric.setup_module(module)
            optimizer = self.fabric.setup_optimizers(make_optimizer())
        return wrapped, optimizer

    def setup_mean(self, module: nn.Module) -> Any:
        """A module that is evaluated but has no gradients to exchange: on the device, in Fabric's precision."""
        if self.world == 1 or self.sharded:
            return self.fabric.setup_module(module)
        return _FabricModule(module.to(self.fabric.device), self.fabric.strategy)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over all processes of a tensor on the device, everywhere; does not wait for the device."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def _reduced(self, tensor: torch.Tensor, operation: Any) -> torch.Tensor:
        if self.world == 1:
            return tensor
        tensor = tensor.detach().clone()
        dist.all_reduce(tensor, operation)
        return tensor

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Of each flag: whether any process has raised it. All processes meet here."""
        if self.world == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, dist.ReduceOp.MAX, group=self._control)
        return tuple(bool(flag) for flag in raised.tolist())

    def from_first(self, value: Any) -> Any:
        """What the first process has, everywhere."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def together(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work`` makes in each process; an error in one ends all of them.

        Raises:
            UsvitError: as ``work``'s; each text is said by the first process that has it, the others end in silence.
        """
        if self.world == 1:
            return work(*arguments)
        value, error = None, None
        try:
            value = work(*arguments)
        except UsvitError as raised:
            error = raised
        told: list[Any] = [None] * self.world
        dist.all_gather_object(told, error and (str(error), error.exit_code), group=self._control)
        failed = [one for one in told if one is not None]
        if error is not None and str(error) not in [one[0] for one in told[: self.rank] if one is not None]:
            raise error
        if failed:
            raise SaidElsewhere(failed[0][1])
        return value

    def first_does(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What ``work`` makes in the first process, everywhere; an error there ends all, and is said once."""
        if self.world == 1:
            return work(*arguments)
        return self.from_first(self.together(work, *arguments) if self.first else self.together(lambda: None))

    def wait(self) -> None:
        """Go on when all processes are here."""
        self.any(False)

    def last_synced(self, module: Any, last: bool) -> Any:
        """A context in which gradients are exchanged only after the ``last`` portion of a batch."""
        return self.fabric.no_backward_sync(module, enabled=self.world > 1 and not last)

    def reseed(self, seed: int, step: int) -> None:
        """Of several processes, each draws its own random numbers (stochastic depth, dropout), step by step.

        They come from the step, so that a resumed training draws the same. One process keeps its generator.
        """
        if self.world > 1:
            torch.manual_seed(derive_seed(seed, "process", self.rank, step))

    @torch.no_grad()
    def average_statistics(self, module: nn.Module) -> None:
        """Let the running statistics of batch normalisation be the mean over the processes."""
        if self.world == 1:
            return
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                for buffer in (part.running_mean, part.running_var):
                    if buffer is not None:
                        dist.all_reduce(buffer)
                        buffer /= self.world

    def check_same(self, step: int) -> None:
        """Raise unless all processes go on from the same step.

        Raises:
            UsvitError: they do not: they see different folders.
        """
        if self.any(step != self.from_first(step))[0]:
            if not self.first:
                raise SaidElsewhere
            raise UsvitError(
                "The processes of this training found different checkpoints: all nodes must see the same folder. Put "
                "the run (--out) on a disk that they share."
            )


def full_state(module: nn.Module, keep: bool = True) -> dict[str, torch.Tensor]:
    """``module.state_dict()`` with whole tensors on the CPU, also where parameters are dealt out over processes.

    All processes must call it; those that do not ``keep`` the result get nothing, and need no memory for it.
    """
    state = {key: _whole(value, keep) for key, value in module.state_dict().items()}
    return state if keep else {}


def full_optimizer_state(optimizer: torch.optim.Optimizer, keep: bool = True) -> dict[str, Any]:
    """``optimizer.state_dict()`` with whole tensors; as ``full_state``."""
    state = optimizer.state_dict()
    whole = {at: {key: _whole(value, keep) for key, value in one.items()} for at, one in state["state"].items()}
    return {**state, "state": whole} if keep else {}


def load_full_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """``module.load_state_dict`` of whole tensors, of which each process takes its share."""
    own = module.state_dict()
    module.load_state_dict({key: _share(value, own.get(key)) for key, value in state.items()})


def load_full_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """``optimizer.load_state_dict`` of whole tensors, of which each process takes its share."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    shared = {
        at: {key: _share(value, parameters[at]) for key, value in one.items()} for at, one in state["state"].items()
    }
    optimizer.load_state_dict({**state, "state": shared})


def _whole(value: Any, keep: bool) -> Any:
    if isinstance(value, DTensor):
        whole = value.full_tensor()
        return whole.detach().cpu() if keep else None
    return value.detach().cpu() if isinstance(value, torch.Tensor) and keep else value


def _share(value: Any, like: Any) -> Any:
    """The process's part of a whole tensor, dealt out as ``like`` is; a scalar, such as a count of steps, is not."""
    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    on_device = value.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
