"""How new weights reach vLLM servers: over NCCL, as files, or as LoRA adapters."""

from __future__ import annotations

import asyncio
import queue
import secrets
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import accumulate, count
from pathlib import Path
from typing import Any, Final, TypeVar

import torch
from safetensors.torch import save_file

from ludus.trainer.engines.base import WeightUpdate
from ludus.trainer.engines.vllm_server import VllmServer, free_port
from ludus.trainer.errors import ConfigError, EngineError

BUCKET_BYTES: Final = 1 << 30
"""Weights gathered, sent and loaded at once."""

Bucket = list[tuple[str, torch.Tensor]]
T = TypeVar("T")


class NcclSender:
    """The trainer's end: vLLM's own packed broadcast (vLLM ≥ 0.28), so that both ends cut the stream alike.

    `open` and `broadcast` block, without a timeout, until the servers join in.
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
        """Become rank 0 of `world`."""
        torch.cuda.set_device(self._device)  # of this thread
        self._group = self._nccl.trainer_init({"master_address": address, "master_port": port, "world_size": world})

    def prepare(self, tensor: torch.Tensor) -> torch.Tensor:
        """On the GPU, without gradient and without gaps."""
        return tensor.detach().to(self._device, non_blocking=True).contiguous()

    def broadcast(self, bucket: Bucket) -> None:
        """Send the tensors once whatever computes them is done: the sender has CUDA streams of its own."""
        torch.cuda.synchronize(self._device)
        self._packed.packed_nccl_broadcast_producer(
            iterator=iter(bucket), group=self._group, src=0, post_iter_func=lambda item: item[1]
        )


class DaemonThread:
    """Calls functions in turn, in one thread that a process does not wait for when it ends.

    NCCL can neither time out nor be interrupted: a call that never returns is left behind, and the process can still
    report why and exit.
    """

    def __init__(self, name: str) -> None:
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def call(self, function: Callable[[], T]) -> asyncio.Future[T]:
        """Call `function` after those given before."""
        result: Future[T] = Future()

        def work() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                result.set_result(function())
            except BaseException as error:  # it belongs to whoever awaits the result
                result.set_exception(error)

        self._queue.put(work)
        return asyncio.wrap_future(result)

    def close(self) -> None:
        """End it after what it has to do."""
        self._queue.put(None)

    def _run(self) -> None:
        while (work := self._queue.get()) is not None:
            work()


class FileTransfer:
    """Safetensors files in a folder that trainer and servers see; see `ludus.trainer.engines.vllm_worker`."""

    def __init__(self, servers: Sequence[VllmServer], folder: Path, seconds: float) -> None:
        self._servers = servers
        self._folder = folder.absolute()
        self._seconds = seconds
        self._thread = DaemonThread("ludus-weights")

    async def open(self) -> None:
        """Make the folder."""
        self._folder.mkdir(parents=True, exist_ok=True)

    async def send(self, update: WeightUpdate) -> None:
        """Write a file, have it loaded, remove it, and so on."""
        await start_update(self._servers, self._seconds)
        buckets = buckets_of(update.tensors, lambda tensor: tensor.detach().cpu().contiguous())
        paths = (self._folder / f"v{update.version}-{number}.safetensors" for number in count())
        while path := await self._thread.call(lambda: self._write(buckets, next(paths))):
            body = {"update_info": {"path": str(path)}}
            try:
                await everywhere(self._servers, "/update_weights", body, self._seconds)
            finally:
                path.unlink(missing_ok=True)
        await finish_update(self._servers, update.version, self._seconds)

    async def aclose(self) -> None:
        """End the thread."""
        self._thread.close()

    def _write(self, buckets: Iterator[Bucket], path: Path) -> Path | None:
        bucket = next(buckets, None)
        if bucket is None:
            return None
        try:
            save_file(dict(bucket), path)
        except Exception as error:  # safetensors has its own class for what the disk says
            path.unlink(missing_ok=True)
            raise EngineError(f"weights for vLLM cannot be written to {path}: {error}") from error
        return path


class NcclTransfer:
    """Broadcasts from this process to all workers of all servers, in one process group.

    HTTP stays on the event loop, with timeouts, and NCCL on a daemon thread: when a server fails after it accepted a
    request, its answer says so while the broadcast would wait for ever. A bucket is gathered in full before its
    broadcast begins, so that a collective among the learner's ranks never waits for one between learner and servers.
    """

    def __init__(self, servers: Sequence[VllmServer], sender: NcclSender, address: str, seconds: float) -> None:
        self._servers = servers
        self._sender = sender
        self._address = address
        self._seconds = seconds
        self._thread = DaemonThread("ludus-nccl")

    async def open(self) -> None:
        """Meet the workers: the trainer is rank 0, and each server's workers follow those of the servers before it."""
        answers = await together(
            server.get("/get_world_size?include_dp=true", seconds=self._seconds) for server in self._servers
        )
        *offsets, world = accumulate((int(answer["world_size"]) for answer in answers), initial=1)
        port = free_port()
        common = {"master_address": self._address, "master_port": port, "world_size": world, "packed": True}
        joining = [
            server.post(
                "/init_weight_transfer_engine",
                {"init_info": {**common, "rank_offset": offset}},
                seconds=self._seconds,
            )
            for server, offset in zip(self._servers, offsets, strict=True)
        ]
        await self._meet(joining, lambda: self._sender.open(self._address, port, world), "the rendezvous")

    async def send(self, update: WeightUpdate) -> None:
        """Gather a bucket, broadcast it, and so on."""
        await start_update(self._servers, self._seconds)
        buckets = buckets_of(update.tensors, self._sender.prepare)
        while bucket := await self._thread.call(lambda: next(buckets, None)):
            await self._send_bucket(bucket)
        await finish_update(self._servers, update.version, self._seconds)

    async def aclose(self) -> None:
        """Have the servers leave the group; a thread that is stuck in it is left behind."""
        self._thread.close()
        with suppress(EngineError):
            await everywhere(self._servers, "/shutdown_weight_transfer_engine", None, 10)

    async def _send_bucket(self, bucket: Bucket) -> None:
        info = {
            "names": [name for name, _ in bucket],
            "dtype_names": [str(tensor.dtype).removeprefix("torch.") for _, tensor in bucket],
            "shapes": [list(tensor.shape) for _, tensor in bucket],
        }
        receiving = everywhere(self._servers, "/update_weights", {"update_info": info}, self._seconds)
        await self._meet([receiving], lambda: self._sender.broadcast(bucket), "a broadcast")

    async def _meet(self, calls: Iterable[Coroutine[Any, Any, Any]], blocking: Callable[[], None], what: str) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await together([self._thread.call(blocking), *calls])
        except TimeoutError:
            raise EngineError(
                f"NCCL: {what} did not end within {self._seconds:g} s (engine.vllm.sync_seconds). Can every server "
                f"reach this machine as {self._address} (engine.vllm.master_address)?"
            ) from None
        except RuntimeError as error:  # NCCL's and the rendezvous' own
            raise EngineError(f"NCCL: {what} failed: {error}") from error


class LoraAdapters:
    """Adapters under a new name for each version: loading over a name leaves caches of the old one (vLLM #41482).

    Requests under way finish with the adapter they began with; it is unloaded when no request needs it any more.
    """

    def __init__(self, servers: Sequence[VllmServer], seconds: float) -> None:
        self._servers = servers
        self._seconds = seconds
        self._prefix = f"ludus-{secrets.token_hex(4)}"  # a server may have served another run
        self._loaded: list[str] = []
        self.running: Counter[str] = Counter()
        """Requests under way, by the adapter's name."""

    @property
    def current(self) -> str | None:
        """The newest adapter's name; None while the base model is all there is."""
        return self._loaded[-1] if self._loaded else None

    async def send(self, update: WeightUpdate) -> None:
        """Load the adapter everywhere, then unload those that nobody uses.

        Raises:
            EngineError: a server refused it, or there is no adapter in `update`.
        """
        if update.adapter is None:
            raise EngineError("engine.vllm.sync = 'lora' needs an adapter to send: set model.lora")
        name = f"{self._prefix}-v{update.version}"
        body = {"lora_name": name, "lora_path": str(update.adapter.absolute())}
        await everywhere(self._servers, "/v1/load_lora_adapter", body, self._seconds)
        self._loaded.append(name)
        await self._unload([old for old in self._loaded[:-1] if not self.running[old]])

    async def aclose(self) -> None:
        """Unload all."""
        with suppress(EngineError):
            await self._unload(list(self._loaded))

    async def _unload(self, names: Sequence[str]) -> None:
        for name in names:
            await everywhere(self._servers, "/v1/unload_lora_adapter", {"lora_name": name}, self._seconds)
            self._loaded.remove(name)
            del self.running[name]


async def together(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """All results; the first failure ends the others."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def everywhere(servers: Sequence[VllmServer], path: str, body: Any, seconds: float) -> list[Any]:
    """POST to all servers at once.

    Raises:
        EngineError: a server refused, is gone, or did not answer in time.
    """
    return await together(server.post(path, body, seconds=seconds) for server in servers)


async def start_update(servers: Sequence[VllmServer], seconds: float) -> None:
    """Begin an update everywhere; one that a killed trainer left open is ended first."""

    async def start(server: VllmServer) -> None:
        try:
            await server.post("/start_weight_update", seconds=seconds)
        except EngineError as error:
            if "already" not in str(error):
                raise
            await server.post("/finish_weight_update", {}, seconds=seconds)
            await server.post("/start_weight_update", seconds=seconds)

    await together(start(server) for server in servers)


async def finish_update(servers: Sequence[VllmServer], version: int, seconds: float) -> None:
    """End the update everywhere; tokens sampled from here on are reported as of `version`."""
    await everywhere(servers, "/finish_weight_update", {"weight_version": str(version)}, seconds)


def buckets_of(
    tensors: Iterable[tuple[str, torch.Tensor]], prepare: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[Bucket]:
    """Cut the weights into parts of at most `BUCKET_BYTES` (a larger tensor is alone), each whole when it is given."""
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
