"""Training with several processes under ``torchrun``.

Each process holds its share of every batch (``usvit.data.loading.infinite_loader``). The loss is divided by the weight
of the whole batch, so that any number of processes makes the same steps, up to rounding. Only batch normalization uses
the images of one process, as is usual; its running statistics are averaged before they are used.
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
from usvit.training.device import Device

_BLOCKS = ("blocks", "blocks_token_only", "decoder_blocks")
"""Names of the containers whose layers FSDP shards one by one, in usvit's and timm's networks."""

_SYNC_BUFFERS = next(
    name
    for name in ("forward_sync_buffers", "broadcast_buffers")  # its names in new and old PyTorch
    if name in inspect.signature(nn.parallel.DistributedDataParallel.__init__).parameters
)


PATIENCE = datetime.timedelta(minutes=30)
"""Time that a training waits at a step for a process that does not respond; PyTorch's limit for gradients."""
_A_DAY = datetime.timedelta(days=1)


def world_size() -> int:
    """Return the number of processes that ``torchrun`` started; 1 without ``torchrun``."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


def check_share(batch_size: int, *, pairs: bool = False) -> None:
    """Raise unless the processes of ``torchrun`` can have equal shares of a batch.

    Args:
        batch_size: images of a batch over all processes.
        pairs: whether images are mixed in pairs, which needs even shares.

    Raises:
        UsvitError: the batch size is not a multiple of the number of processes, or the shares are odd.
    """
    if batch_size % world_size():
        raise UsvitError(
            f"train.batch_size {batch_size}, which counts the images of all processes, is not a multiple of the "
            f"{world_size()} processes that torchrun started. Set another train.batch_size."
        )
    if pairs and batch_size // world_size() % 2:
        raise UsvitError(
            f"mix pairs the images of a process, but each of the {world_size()} processes of torchrun has "
            f"{batch_size // world_size()} of train.batch_size {batch_size}: set a multiple of {2 * world_size()}."
        )


def launch(device: Device, strategy: str = "auto") -> lightning_fabric.Fabric:
    """Start Fabric on this process's device, connected with the other processes of ``torchrun``, if any.

    Args:
        device: type and precision. Several processes on a machine use one GPU each.
        strategy: ``train.strategy``; ignored with one process.

    Raises:
        UsvitError: the machine has fewer GPUs than processes, or the processes cannot connect.
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
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # usvit reports the device itself
    fabric = lightning_fabric.Fabric(
        accelerator=device.type,
        devices=local,
        num_nodes=world // local,
        strategy=make_strategy(strategy, world),
        precision="bf16-mixed" if device.precision == "bf16" else "32-true",
        plugins=[TorchElasticEnvironment()],  # in a Slurm job, Fabric would use Slurm's environment
    )
    try:
        fabric.launch()
    except (RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The {world} processes of torchrun could not connect: {reason}.") from error
    return fabric


def make_strategy(strategy: str, processes: int) -> Any:
    """Return Fabric's strategy for ``train.strategy`` and a number of processes, which may be 1."""
    if strategy == "fsdp":
        # FSDP2; Fabric's own FSDPStrategy is FSDP1, which cannot be tested without GPUs.
        return ModelParallelStrategy(_shard, data_parallel_size=processes, tensor_parallel_size=1)
    # Running statistics are averaged when they are used, not overwritten by the main process's at every step.
    options: dict[str, Any] = {_SYNC_BUFFERS: False}
    return DDPStrategy(**options)


def _shard(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    mesh = mesh["data_parallel"]
    for name, container in list(module.named_modules()):
        if name.rpartition(".")[2] in _BLOCKS:
            for block in container.children():
                if any(True for _ in block.parameters()):
                    fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)  # in place
    return module


class World:
    """The processes of one training. With one process, every method is the identity or does nothing.

    Args:
        fabric: connects the processes.
        patience: how long to wait for a process that does not respond. A process that dies is noticed at once by its
            closed connection; one whose machine lost power or network is not.
    """

    def __init__(self, fabric: lightning_fabric.Fabric, patience: datetime.timedelta = _A_DAY):
        self.fabric, self.rank, self.size = fabric, fabric.global_rank, fabric.world_size
        self.is_main = self.rank == 0
        self.sharded = isinstance(fabric.strategy, ModelParallelStrategy)
        # Control messages do not wait for GPUs, and have a long timeout: one process may read a whole data set.
        self._control: Any = dist.new_group(backend="gloo", timeout=patience) if self.size > 1 else None

    def setup(
        self, module: nn.Module, make_optimizer: Callable[[], torch.optim.Optimizer]
    ) -> tuple[Any, torch.optim.Optimizer]:
        """Wrap a module and its optimizer with Fabric, for the device, the precision and all processes.

        Args:
            module: changed in place; if ``sharded``, its parameters are sharded over the processes.
            make_optimizer: called after the parameters reached their final place.

        Returns:
            The wrapped module and the wrapped optimizer.
        """
        wrapped: Any
        optimizer: Any
        if not self.sharded:
            wrapped, optimizer = self.fabric.setup(module, make_optimizer())
        else:
            wrapped = self.fabric.setup_module(module)
            optimizer = self.fabric.setup_optimizers(make_optimizer())
        return wrapped, optimizer

    def setup_ema(self, module: nn.Module) -> Any:
        """Wrap a moving average, which is evaluated but has no gradients to exchange, with Fabric."""
        if self.size == 1 or self.sharded:
            return self.fabric.setup_module(module)
        return _FabricModule(module.to(self.fabric.device), self.fabric.strategy)

    def sum(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the sum over all processes of a tensor on the device, without waiting for the device."""
        return self._reduced(tensor, dist.ReduceOp.SUM)

    def max(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the maximum over all processes of a tensor on the device."""
        return self._reduced(tensor, dist.ReduceOp.MAX)

    def _reduced(self, tensor: torch.Tensor, operation: Any) -> torch.Tensor:
        if self.size == 1:
            return tensor
        tensor = tensor.detach().clone()
        dist.all_reduce(tensor, operation)
        return tensor

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return for each flag whether it is set in any process. Waits for all processes."""
        if self.size == 1:
            return flags
        raised = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(raised, dist.ReduceOp.MAX, group=self._control)
        return tuple(bool(flag) for flag in raised.tolist())

    def broadcast(self, value: Any) -> Any:
        """Return the main process's ``value`` in all processes."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def together(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work`` in each process; an error in one of them raises in all.

        Returns:
            The result of ``work`` in this process.

        Raises:
            UsvitError: raised by ``work``. Equal messages are raised by the first process that has them only; the
                other processes raise SaidElsewhere, which is silent.
        """
        if self.size == 1:
            return work(*arguments)
        value, error = None, None
        try:
            value = work(*arguments)
        except UsvitError as raised:
            error = raised
        errors: list[Any] = [None] * self.size
        dist.all_gather_object(errors, error and (str(error), error.exit_code), group=self._control)
        failed = [one for one in errors if one is not None]
        if error is not None and str(error) not in [one[0] for one in errors[: self.rank] if one is not None]:
            raise error
        if failed:
            raise SaidElsewhere(failed[0][1])
        return value

    def on_main(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call ``work`` in the main process and return its result in all; an error raises in all, with one message."""
        if self.size == 1:
            return work(*arguments)
        return self.broadcast(self.together(work, *arguments) if self.is_main else self.together(lambda: None))

    def barrier(self) -> None:
        """Wait for all processes."""
        self.any(False)

    def last_synced(self, module: Any, last: bool) -> Any:
        """Return a context in which gradients are exchanged only after the ``last`` portion of a batch."""
        return self.fabric.no_backward_sync(module, enabled=self.size > 1 and not last)

    def reseed(self, seed: int, step: int) -> None:
        """Seed this process for one step, so that each process draws its own numbers (stochastic depth, dropout).

        The seed depends on the step, so that a resumed training draws the same numbers. With one process, the
        generator is left as it is.
        """
        if self.size > 1:
            torch.manual_seed(derive_seed(seed, "process", self.rank, step))

    @torch.no_grad()
    def average_statistics(self, module: nn.Module) -> None:
        """Replace the running statistics of batch normalization by their mean over the processes."""
        if self.size == 1:
            return
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                for buffer in (part.running_mean, part.running_var):
                    if buffer is not None:
                        dist.all_reduce(buffer)
                        buffer /= self.size

    def check_same(self, step: int) -> None:
        """Raise unless all processes resume from the same step.

        Raises:
            UsvitError: the steps differ, because the processes see different folders.
        """
        if self.any(step != self.broadcast(step))[0]:
            if not self.is_main:
                raise SaidElsewhere
            raise UsvitError(
                "The processes of this training found different checkpoints: all nodes must see the same folder. Put "
                "the run (--out) on a disk that all nodes share."
            )


def sum_over_processes(value: torch.Tensor) -> torch.Tensor:
    """Return the sum over all processes, the same in each; with one process, ``value`` itself."""
    if not dist.is_initialized():
        return value
    value = value.clone()
    dist.all_reduce(value)
    return value


def gather_rows(rows: torch.Tensor) -> torch.Tensor:
    """Gather (B / world size, ...) rows of each process to (B, ...), in the order of the batch, in each process."""
    if not dist.is_initialized():
        return rows
    parts = [torch.empty_like(rows) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def full_state(module: nn.Module, keep: bool = True) -> dict[str, torch.Tensor]:
    """Return ``module.state_dict()`` with whole tensors on the CPU, even if parameters are sharded.

    All processes must call it. Those that do not ``keep`` the result get an empty dictionary and need no memory for it.
    """
    state = {key: _whole(value, keep) for key, value in module.state_dict().items()}
    return state if keep else {}


def full_optimizer_state(optimizer: torch.optim.Optimizer, keep: bool = True) -> dict[str, Any]:
    """Return ``optimizer.state_dict()`` with whole tensors on the CPU; ``keep`` as in ``full_state``."""
    state = optimizer.state_dict()
    whole = {at: {key: _whole(value, keep) for key, value in one.items()} for at, one in state["state"].items()}
    return {**state, "state": whole} if keep else {}


def load_full_state(module: nn.Module, state: Mapping[str, torch.Tensor]) -> None:
    """Load a state of whole tensors into a module; each process takes its shard."""
    own = module.state_dict()
    module.load_state_dict({key: _share(value, own.get(key)) for key, value in state.items()})


def load_full_optimizer_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state of whole tensors into an optimizer; each process takes its shard."""
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
    """Shard a whole tensor as ``like`` is sharded. Scalars, such as a number of steps, stay whole."""
    if not isinstance(like, DTensor) or not isinstance(value, torch.Tensor) or value.shape != like.shape:
        return value
    on_device = value.to(like.device)
    return distribute_tensor(on_device, like.device_mesh, like.placements, src_data_rank=None)
