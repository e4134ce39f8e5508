"""The check of weights that go from the learner to an engine on another rank: over NCCL between two GPUs, over gloo on
a CPU. It uses no vLLM, so it separates faults of the interconnect from those of vLLM."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import ProcessGroupGloo

from ludus.trainer.core.config import TorchEngineConfig
from ludus.trainer.core.probe import LIMITS, TEXT
from ludus.trainer.doctor.checksums import checksums, require_equal, sent_checksums
from ludus.trainer.doctor.context import CheckFailed, Context, gpu_variables
from ludus.trainer.doctor.divergence import changed, statistics_of
from ludus.trainer.doctor.learning import configuration, make_learner
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.torch import TorchEngine
from ludus.trainer.learning.learner import Learner
from ludus.trainer.learning.model import load_model, load_tokenizer

CONTEXT: Final = 256
WAIT: Final = timedelta(seconds=60)
"""The maximum time for the other process to answer."""
PORT: Final = "port"
Group = Any
"""torch's group over gloo or NCCL."""


def run(context: Context) -> None:
    """Send the weights twice, the second time after they have changed, and compare them and the probabilities."""
    store = TCPStore("127.0.0.1", 0, 2, is_master=True, timeout=WAIT, wait_for_workers=False)
    (context.folder / PORT).write_text(str(store.port))
    # The engine sees the second GPU only, as its first: some kernels run on a thread's first GPU.
    process = context.start(engine_part, **(gpu_variables(1) if context.setting.device == "cuda" else {}))
    learner = make_learner(context, configuration(context))
    ids = load_tokenizer(learner.config.model).encode(TEXT)[:64]
    store.set("ids", json.dumps(ids))
    group = _group(context, store, 0)
    context.record(backend="nccl" if context.setting.device == "cuda" else "gloo")
    _send(context, store, group, learner, 0, ids)
    with changed(learner, 1.0):
        _send(context, store, group, learner, 1, ids)
    store.set("end", "1")
    context.finish(process, "engine_part")


def _send(context: Context, store: TCPStore, group: Group, learner: Learner, version: int, ids: list[int]) -> None:
    """Send the weights, then compare what the engine holds and computes."""
    names = [(name, list(t.shape), str(t.dtype).removeprefix("torch.")) for name, t in learner.weights(learner.dtype)]
    store.set(f"names {version}", json.dumps(names))
    began, size = time.perf_counter(), 0
    for _, tensor in learner.weights(learner.dtype):
        broadcast(group, tensor.detach().contiguous())
        size += tensor.nbytes
    if learner.parallel.device.type == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    reply: dict[str, Any] = json.loads(store.get(f"found {version}"))
    if "error" in reply:
        raise CheckFailed(f"the engine's process failed: {reply['error']}")
    where = f"in the engine after update {version}"
    compared = require_equal(sent_checksums(learner), reply["checksums"], where, all_of_them=True)
    context.record(tensors=compared, bytes=size, seconds_per_update=seconds, bytes_per_second=size / seconds)
    figures = statistics_of(reply["logprobs"], learner.sequence_logprobs(ids))
    limit = LIMITS[context.setting.dtype][0]
    context.record(mean_difference_limit=limit, **figures)
    if not figures["mean_difference"] <= limit:
        raise CheckFailed(
            f"after update {version}, engine and learner differ by {figures['mean_difference']:.3g} nats "
            f"(limit {limit:g})"
        )


def engine_part(context: Context) -> None:
    """Hold the engine: receive the weights, and report their checksums and the probabilities of the tokens."""
    port = int((context.folder / PORT).read_text())
    store = TCPStore("127.0.0.1", port, 2, is_master=False, timeout=WAIT)
    asyncio.run(_serve(context, store))


async def _serve(context: Context, store: TCPStore) -> None:
    device = torch.device(context.setting.device)
    config = configuration(context)
    dtype: torch.dtype = getattr(torch, context.setting.dtype)
    model = load_model(config.model, device)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()  # so that weights which do not arrive are not there by chance
    group = _group(context, store, 1)
    engine = TorchEngine(model, TorchEngineConfig(slots=1, cache_tokens=CONTEXT), context=CONTEXT, dtype=dtype)
    try:
        ids: list[int] = json.loads(store.get("ids"))
        for version in (0, 1):
            names = json.loads(store.get(f"names {version}"))
            try:
                await engine.update_weights(WeightUpdate(version, received(group, names, device)))
                held_checksums = await engine.read_weights(lambda weights: checksums(weights.items()))
                (logprobs,) = (await engine.logprobs(ids)).values()
                reply: dict[str, Any] = {"checksums": held_checksums, "logprobs": logprobs}
            except Exception as error:
                store.set(f"found {version}", json.dumps({"error": f"{type(error).__name__}: {error}"}))
                raise
            store.set(f"found {version}", json.dumps(reply))
        store.get("end")
    finally:
        await engine.aclose()


def received(group: Group, names: list[Any], device: torch.device) -> Iterator[tuple[str, Tensor]]:
    """Receive the tensors in the order of `names`."""
    for name, shape, dtype in names:
        tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        broadcast(group, tensor)
        yield name, tensor


def broadcast(group: Group, tensor: Tensor) -> None:
    """Send a tensor from rank 0 into the other rank's tensor, and wait until it has arrived."""
    options = dist.BroadcastOptions()
    options.rootRank = 0
    group.broadcast([tensor], options).wait()


def _group(context: Context, store: TCPStore, rank: int) -> Group:
    """Join a group of two processes. It is not torch's default group, because the learner has its own."""
    prefixed = PrefixStore("weights", store)
    if context.setting.device == "cpu":
        return ProcessGroupGloo(prefixed, rank, 2, WAIT)
    from torch.distributed import ProcessGroupNCCL  # a build of torch for CPUs has none

    options = ProcessGroupNCCL.Options()
    options._timeout = WAIT
    return ProcessGroupNCCL(prefixed, rank, 2, options)
