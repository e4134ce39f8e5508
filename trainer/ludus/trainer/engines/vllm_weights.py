"""Weight transfer to vLLM servers: over NCCL, as files, or as LoRA adapters."""

from __future__ import annotations

import asyncio
import queue
import secrets
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from safetensors.torch import save_file

from ludus.trainer.core.errors import ConfigError, EngineError
from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.vllm_server import VllmServers, free_port, together

BUCKET_BYTES: Final = 1 << 30
"""The size of the weights that are gathered, sent and loaded at once."""

Bucket = list[tuple[str, torch.Tensor]]
T = TypeVar("T")


class NcclSender:
    """The trainer's end of the broadcast. It uses vLLM's own packed broadcast (vLLM ≥ 0.28), so that both ends split
    the stream in the same way.

    `open` and `broadcast` block, without a timeout, until the servers take part.
    """

    def __init__(self, device: torch.device) -> None:
        if device.type != "cuda":
            raise ConfigError(
                f"engine.vllm.sync = 'nccl' needs the learner on a GPU, not on {device}: use 'file' or 'lora'"
            )
        try:
            from vllm.distributed.weight_transfer import (  # pyright: ignore[reportMissingImports]
                nccl_common,
                packed_tensor,
            )
        except ImportError as error:
            raise ConfigError(
                "engine.vllm.sync = 'nccl' needs vLLM in the trainer's environment too, because it brings the sender "
                f"({error}): `pip install vllm`, or use 'file' or 'lora'"
            ) from error
        self._device = device
        self._nccl = nccl_common
        self._packed = packed_tensor
        self._group: Any = None

    def open(self, address: str, port: int, world: int) -> None:
        """Join the process group of `world` ranks as rank 0."""
        torch.cuda.set_device(self._device)  # the device is set per thread
        self._group = self._nccl.trainer_init({"master_address": address, "master_port": port, "world_size": world})

    def prepare(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor on the GPU, without gradient and contiguous."""
        return tensor.detach().to(self._device, non_blocking=True).contiguous()

    def broadcast(self, bucket: Bucket) -> None:
        """Send the tensors. Wait first until they are computed, because the sender uses other CUDA streams."""
        torch.cuda.synchronize(self._device)
        self._packed.packed_nccl_broadcast_producer(
            iterator=iter(bucket), group=self._group, src=0, post_iter_func=lambda item: item[1]
        )


class DaemonThread:
    """A thread that calls functions one after the other, and that does not keep the process from ending.

    An NCCL call can neither time out nor be interrupted. One that never returns stays in this thread, and the process
    can still report the error and exit.
    """

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call `function` in the thread, after all earlier calls."""
        result: Future[T] = Future()

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except BaseException as error:  # raised where the result is awaited
                result.set_exception(error)

        self._queue.put(work)
        return asyncio.wrap_future(result)

    def close(self) -> None:
        """End the thread after the calls that are queued."""
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class BucketTransfer(ABC):
    """A transfer of whole weights, bucket by bucket.

    A bucket is gathered completely before it is sent, so that a collective among the learner's ranks never waits for
    one between learner and servers.
    """

    def __init__(self, servers: VllmServers, thread: str, prepare: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._servers = servers
        self._thread = DaemonThread(thread)
        self._prepare = prepare
        """Returns a tensor in the form in which it is sent."""

    @abstractmethod
    async def open(self) -> None:
        """Connect to the servers."""

    async def send(self, update: WeightUpdate) -> None:
        """Send the weights. Tokens sampled afterwards are reported with the update's version.

        Raises:
            EngineError: a server refused or failed, or the weights could not be sent in time.
        """
        await self._servers.start_update()
        buckets = buckets_of(update.tensors, self._prepare)
        for number in count():
            bucket = await self._thread.call(lambda: next(buckets, None))
            if bucket is None:
                break
            await self._send_bucket(bucket, f"v{update.version}-{number}")
        await self._servers.post("/finish_weight_update", {"weight_version": str(update.version)})

    async def aclose(self) -> None:
        """Disconnect from the servers. A call that blocks the thread stays behind."""
        self._thread.close()

    @abstractmethod
    async def _send_bucket(self, bucket: Bucket, name: str) -> None:
        """Send one bucket to all servers."""


class FileTransfer(BucketTransfer):
    """A transfer of safetensors files in a shared folder; see `ludus.trainer.engines.vllm_worker`."""

    def __init__(self, servers: VllmServers, folder: Path) -> None:
        super().__init__(servers, "ludus-weights", lambda tensor: tensor.detach().cpu().contiguous())
        self._folder = folder.absolute()

    async def open(self) -> None:
        """Create the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    async def _send_bucket(self, bucket: Bucket, name: str) -> None:
        path = self._folder / f"{name}.safetensors"
        try:
            await self._thread.call(lambda: save_file(dict(bucket), path))
        except Exception as error:  # safetensors raises its own class for errors of the disk
            path.unlink(missing_ok=True)
            raise EngineError(f"weights for vLLM cannot be written to {path}: {error}") from error
        try:
            await self._servers.post("/update_weights", {"update_info": {"path": str(path)}})
        finally:
            path.unlink(missing_ok=True)


class NcclTransfer(BucketTransfer):
    """A transfer by broadcast from this process to all workers of all servers, in one process group.

    HTTP runs on the event loop, with timeouts, and NCCL on a daemon thread. So if a server fails after it accepted a
    request, its answer reports the failure although the broadcast never returns.
    """

    def __init__(self, servers: VllmServers, sender: NcclSender, address: str) -> None:
        super().__init__(servers, "ludus-nccl", sender.prepare)
        self._sender = sender
        self._address = address

    async def open(self) -> None:
        """Create the process group: the trainer is rank 0, and the workers of the servers follow in order."""
        seconds, route = self._servers.seconds, "/init_weight_transfer_engine"
        answers = await together(
            server.get("/get_world_size?include_dp=true", seconds=seconds) for server in self._servers
        )
        *offsets, world = accumulate((int(answer["world_size"]) for answer in answers), initial=1)
        port = free_port()
        common = {"master_address": self._address, "master_port": port, "world_size": world, "packed": True}
        joining = [
            server.post(route, {"init_info": {**common, "rank_offset": offset}}, seconds=seconds)
            for server, offset in zip(self._servers, offsets, strict=True)
        ]
        await self._meet(joining, lambda: self._sender.open(self._address, port, world), "the rendezvous")

    async def aclose(self) -> None:
        """Make the servers leave the group. A thread that is blocked in it stays behind."""
        await super().aclose()
        with suppress(EngineError, TimeoutError):
            async with asyncio.timeout(10):
                await self._servers.post("/shutdown_weight_transfer_engine")

    async def _send_bucket(self, bucket: Bucket, name: str) -> None:
        info = {
            "names": [name for name, _ in bucket],
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket],
            "shapes": [list(tensor.shape) for _, tensor in bucket],
        }
        receiving = self._servers.post("/update_weights", {"update_info": info})
        await self._meet([receiving], lambda: self._sender.broadcast(bucket), "a broadcast")

    async def _meet(self, calls: Iterable[Coroutine[Any, Any, Any]], blocking: Callable[[], None], what: str) -> None:
        seconds = self._servers.seconds
        try:
            async with asyncio.timeout(seconds):
                await together([self._thread.call(blocking), *calls])
        except TimeoutError:
            raise EngineError(
                f"NCCL: {what} did not end within {seconds:g} s (engine.vllm.sync_seconds). Can every server reach "
                f"this machine as {self._address} (engine.vllm.master_address)?"
            ) from None
        except RuntimeError as error:  # raised by NCCL and by the rendezvous
            raise EngineError(f"NCCL: {what} failed: {error}") from error


class LoraAdapters:
    """A transfer of LoRA adapters, with a new name for each version: loading a new adapter under an existing name would
    leave caches of the old one (vLLM #41482).

    Open requests finish with the adapter with which they began. An adapter is unloaded when no request uses it.
    """

    def __init__(self, servers: VllmServers) -> None:
        self._servers = servers
        self._prefix = f"ludus-{secrets.token_hex(4)}"  # a server may have served another run
        self._loaded: list[str] = []
        self._frozen: list[str] = []
        """The adapters that an update does not unload."""
        self.running: Counter[str] = Counter()
        """The number of open requests, by the adapter's name."""

    @property
    def current(self) -> str | None:
        """The newest adapter's name; None if no adapter is loaded."""
        return self._loaded[-1] if self._loaded else None

    async def open(self) -> None:
        """Do nothing: there is nothing to connect."""

    async def send(self, update: WeightUpdate) -> None:
        """Load the adapter on all servers, then unload older adapters that no request uses.

        Raises:
            EngineError: a server refused it, or there is no adapter in `update`.
        """
        if update.adapter is None:
            raise EngineError("engine.vllm.sync = 'lora' needs an adapter to send: set model.lora")
        name = f"{self._prefix}-v{update.version}"
        body = {"lora_name": name, "lora_path": str(update.adapter.absolute())}
        await self._servers.post("/v1/load_lora_adapter", body)
        self._loaded.append(name)
        await self._unload([old for old in self._loaded[:-1] if not self.running[old]])

    async def load_frozen(self, folder: Path) -> str:
        """Load an adapter that stays until `unload_frozen`, and return its name on the servers."""
        name = f"{self._prefix}-{folder.name}-{secrets.token_hex(2)}"
        path = str(folder.absolute())  # noqa: ASYNC240 - asks the system for its folder only
        await self._servers.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path})
        self._frozen.append(name)
        return name

    async def unload_frozen(self, name: str) -> None:
        """Unload an adapter of `load_frozen`."""
        self._frozen.remove(name)
        await self._servers.post("/v1/unload_lora_adapter", {"lora_name": name})

    async def aclose(self) -> None:
        """Unload all adapters."""
        with suppress(EngineError):
            for name in list(self._frozen):
                await self.unload_frozen(name)
            await self._unload(list(self._loaded))

    async def _unload(self, names: Sequence[str]) -> None:
        for name in names:
            await self._servers.post("/v1/unload_lora_adapter", {"lora_name": name})
            self._loaded.remove(name)
            del self.running[name]


def buckets_of(
    tensors: Iterable[tuple[str, torch.Tensor]], prepare: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[Bucket]:
    """Yield the weights in buckets of at most `BUCKET_BYTES`; a larger tensor gets its own bucket."""
    bucket: Bucket = []
    size = 0
    for name, tensor in tensors:
        if bucket and size + tensor.nbytes > BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
        bucket.append((name, prepare(tensor)))
        size += tensor.nbytes
    if bucket:
        yield bucket
