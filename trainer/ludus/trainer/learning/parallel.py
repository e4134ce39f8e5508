"""Ranks: the part of the model and of the batch that each process has, and their communication.

With torchrun, the world has replicate × shard processes. Ranks along `shard` share one copy of the parameters (FSDP2,
2304.11277), and ranks along `replicate` have their own copies (HSDP). All ranks get different tokens, and their
gradients are added.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import HashStore
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.utils import clip_grads_with_norm_, get_total_norm
from torch.utils.checkpoint import checkpoint
from transformers import AttentionInterface, PreTrainedModel

from ludus.trainer.core.config import ModelConfig, ParallelConfig
from ludus.trainer.core.errors import ConfigError
from ludus.trainer.learning.attention import NAME, attend
from ludus.trainer.learning.rows import decoder_of

T = TypeVar("T")

WAIT = timedelta(hours=12)
"""How long the other ranks wait for a batch of the first rank. If that rank dies, torchrun ends them at once."""


class Parallel:
    """This process among the ranks. Create one per process, before the model, and `close` it at the end.

    Args:
        config: the shape of the world.
        device: `auto`, `cpu` or `cuda`.

    Raises:
        ConfigError: the shape does not match the number of processes, or the device does not exist.
    """

    def __init__(self, config: ParallelConfig, device: str = "auto") -> None:
        self.world = int(os.environ.get("WORLD_SIZE", "1"))
        self.rank = int(os.environ.get("RANK", "0"))
        self.device = _device(device, int(os.environ.get("LOCAL_RANK", "0")))
        shard = config.shard if config.shard != -1 else self.world // config.replicate
        if config.replicate * shard != self.world:
            raise ConfigError(
                f"parallel: replicate × shard = {config.replicate} × {shard} is not the number of processes, "
                f"{self.world}; change [parallel], or torchrun's --nproc-per-node and --nnodes"
            )
        self._sizes = {"replicate": config.replicate, "shard": shard}
        self._mesh = self._start() if self.world > 1 else None
        self._control: Any = dist.new_group(backend="gloo", timeout=WAIT) if self.world > 1 else None

    def _start(self) -> DeviceMesh:
        """Return the mesh of all ranks. First start the process group, if it is not started; without torchrun it
        contains only this process."""
        if not dist.is_initialized():
            alone: dict[str, Any] = {"store": HashStore(), "rank": 0, "world_size": 1} if self.world == 1 else {}
            dist.init_process_group("cpu:gloo,cuda:nccl" if self.device.type == "cuda" else "gloo", **alone)
        return init_device_mesh(self.device.type, tuple(self._sizes.values()), mesh_dim_names=tuple(self._sizes))

    @property
    def first(self) -> bool:
        """Whether this is the first rank, which runs episodes and writes logs and files."""
        return self.rank == 0

    def wrap(self, policy: nn.Module, model: PreTrainedModel, dtype: torch.dtype) -> None:
        """Shard the parameters over the ranks, in place. Forward then computes in `dtype`, and gradients are summed.

        Args:
            policy: the module whose forward is called; it contains `model`.
            model: the model, whose layers are sharded separately, so that only one is gathered at a time.
            dtype: the dtype of computations. Parameters, gradients and the optimizer's state stay float32.
        """
        if self.world == 1 and dtype == torch.float32:
            policy.to(self.device)
            return
        self._mesh = self._mesh or self._start()  # FSDP keeps float32 master weights also for a single process
        mesh = self._mesh if self._sizes["replicate"] > 1 else self._mesh["shard"]
        precision = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
        for module in (*decoder_layers(model), policy):
            fully_shard(module, mesh=mesh, mp_policy=precision)
        for module in policy.modules():
            if isinstance(module, FSDPModule):  # the loss is a sum, so gradients are added; gloo supports only sums
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)

    def broadcast(self, value: T | None) -> T:
        """Return the first rank's `value` on every rank. Other ranks wait for it, and their `value` is ignored."""
        box = [value]
        if self._control is not None:
            dist.broadcast_object_list(box, src=0, group=self._control)
        return cast(T, box[0])

    def gather(self, value: T) -> list[T]:
        """Return the values of all ranks, in order of ranks, on every rank."""
        if self._control is None:
            return [value]
        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self._control)
        return values

    def close(self) -> None:
        """Leave the process group."""
        if self._mesh is not None:
            dist.destroy_process_group()


def _device(name: str, local_rank: int) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cpu":
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise ConfigError(
            f'device = "cuda": process {local_rank} of this machine needs GPU {local_rank}, and torch sees '
            f'{torch.cuda.device_count()}; set device = "cpu", or torchrun\'s --nproc-per-node to the number of GPUs'
        )
    torch.cuda.set_device(local_rank)
    return torch.device("cuda", local_rank)


def decoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """Return the model's transformer blocks in order: the longest list of modules in its decoder."""
    lists = [module for module in decoder_of(model).children() if isinstance(module, nn.ModuleList)]
    longest = max(lists, key=len)
    return list(longest)


def prepare(model: PreTrainedModel, config: ModelConfig) -> None:
    """Compile layers and recompute activations in the backward pass, as configured. In place; parameter names stay."""
    if config.compile:  # attention is not traced, so the graph does not depend on the samples' lengths
        untraced: Any = torch.compiler.disable
        AttentionInterface.register(NAME, untraced(attend))
    for layer in decoder_layers(model):
        forward = layer.forward
        if config.compile:
            forward = torch.compile(forward, dynamic=True)
        if config.checkpoint_activations:
            forward = functools.partial(checkpoint, forward, use_reentrant=False)
        layer.__dict__["forward"] = forward


def reshard(policy: nn.Module) -> None:
    """Free the gathered parameters that a forward pass without backward leaves on the outermost module. Otherwise they
    would be stale after the next update, and would replace the sharded parameters in `named_parameters`."""
    if isinstance(policy, FSDPModule):
        policy.reshard()


def whole(tensor: Tensor) -> Tensor:
    """Return a whole parameter or gradient. Collective if it is sharded: every rank calls it in the same order."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a parameter or gradient."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the 2-norm of the whole gradient, which is the same on all ranks."""
    return whole(get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None]))


def clip_gradient(parameters: Iterable[nn.Parameter], limit: float, norm: float) -> None:
    """Scale the gradient down to `limit` if its `norm` is greater."""
    clip_grads_with_norm_(parameters, limit, torch.tensor(norm))
