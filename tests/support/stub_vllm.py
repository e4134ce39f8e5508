"""A server that answers as vLLM does, without a model: for what a real one cannot be made to do at the right moment."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import torch
from aiohttp import web

from ludus.trainer.core.config import LoraConfig
from ludus.trainer.engines.vllm_weights import NcclSender

LORA = LoraConfig(rank=8, targets=("q_proj",))

Handler = Callable[[web.Request, Any], Awaitable[web.Response | None]]


class StubVllm:
    """Keeps what it was asked; `on[path]` is called before its own answer and may give another one."""

    def __init__(self, *, world: int = 1, ranks: int = 1, without: tuple[str, ...] = (), **facts: Any) -> None:
        self.world = world
        self.without = without
        self.facts: dict[str, Any] = {
            "model_config": {"logprobs_mode": "processed_logprobs", "dtype": "torch.float32", "max_model_len": 512},
            "parallel_config": {"data_parallel_size": ranks},
            "lora_config": {"max_lora_rank": 16, "target_modules": ["q_proj"]},
            "weight_transfer_config": {"backend": "ludus_file"},
        }
        for name, value in facts.items():
            known = self.facts[name]
            self.facts[name] = {**known, **value} if isinstance(value, dict) and known else value
        self.asked: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.on: dict[str, Handler] = {}
        self.versions: list[dict[str, Any]] | None = [{"version": "default", "start": 0, "end": 2}]
        self.url = ""

    @property
    def paths(self) -> list[str]:
        """What was asked, in order, without the questions before training."""
        return [path for path, _ in self.asked]

    def bodies(self, path: str) -> list[Any]:
        return [body for asked, body in self.asked if asked == path]

    async def answer(self, request: web.Request) -> web.Response:
        path = request.path_qs
        if request.method == "GET":
            if path in self.without:
                return web.Response(status=404)
            if path.startswith("/server_info"):
                return web.json_response({"vllm_config": self.facts})
            if path.startswith("/get_world_size"):
                return web.json_response({"world_size": self.world})
            return web.Response(status=200 if path == "/health" else 405)
        body: Any = await request.json() if request.can_read_body else None
        self.asked.append((path, body))
        self.headers.append(dict(request.headers))
        if (handler := self.on.get(request.path)) and (given := await handler(request, body)):
            return given
        if request.path != "/inference/v1/generate":
            return web.json_response({"message": "done"})
        ids = body["token_ids"]
        return web.json_response(
            {
                "prompt_logprobs": [None, *({str(token): {"logprob": -1.0}} for token in ids[1:])],
                "choices": [
                    {
                        "token_ids": [7, 8],
                        "finish_reason": "stop",
                        "logprobs": {"content": [{"logprob": -0.5}, {"logprob": -9999.0}]},
                        "weight_versions": self.versions,
                    }
                ],
            }
        )


class FakeSender(NcclSender):
    """The trainer's end of NCCL, on plain tensors."""

    def __init__(self) -> None:
        self.opened: tuple[str, int, int] | None = None
        self.sent: list[list[tuple[str, torch.Tensor]]] = []
        self.release = threading.Event()
        """Ends whatever a test has made hang."""
        self.during_open: Callable[[], object] = lambda: None
        self.during_broadcast: Callable[[], object] = lambda: None

    def open(self, address: str, port: int, world: int) -> None:
        self.opened = (address, port, world)
        self.during_open()

    def prepare(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def broadcast(self, bucket: list[tuple[str, torch.Tensor]]) -> None:
        self.sent.append(bucket)
        self.during_broadcast()


@asynccontextmanager
async def running(stub: StubVllm) -> AsyncIterator[StubVllm]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", stub.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        stub.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield stub
    finally:
        await runner.cleanup()
