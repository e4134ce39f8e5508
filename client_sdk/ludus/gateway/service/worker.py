"""A worker: a process that plays episodes of many jobs, as the service asks.

    python -m ludus.gateway.service.worker FD       FD is its end of a pair of sockets

It ends when the service ends, after it has closed its episodes and ended its harnesses.
"""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import threading
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from ludus.common.heap import settle_heap
from ludus.gateway.service.link import Link
from ludus.gateway.service.places import Place, unscored_line
from ludus.gateway.service.playing import JobPlayer, Outcome
from ludus.gateway.service.processes import become_subreaper, end_orphans
from ludus.gateway.service.schema import RolloutRequest
from ludus.protocol import errors as e
from ludus.rendering import Renderer, RenderingError
from ludus.rendering.bounded import TemplateBounds, TemplateProcess

_encode: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode


class Renderers:
    """The renderers of a worker. Loading a tokenizer takes seconds, so each is loaded once.

    A chat template of the operator, that of the service's own tokenizer, is rendered in this process. All others come
    from a caller, who may write anything; each job has a process of its own for them.

    Args:
        default: the tokenizer of requests that name none.
        seconds: how long a caller's template may take to render a conversation.
    """

    def __init__(self, default: str | None, seconds: float) -> None:
        self._default = default
        self._bounds = TemplateBounds(seconds)
        self._tokenizers: dict[str, Any] = {}
        self._renderers: dict[str, Renderer] = {}
        self._lock = threading.Lock()

    async def open(self, request: RolloutRequest, stack: AsyncExitStack) -> Renderer:
        """Return the renderer of a request's model. What it needs is closed with `stack`.

        Raises:
            InvalidParams: no tokenizer is named.
            OSError, ValueError, RenderingError: it cannot be loaded or used.
        """
        model = request.model
        name = model.tokenizer or self._default
        if name is None:
            raise e.InvalidParams("model.tokenizer is missing, and the service was started without --tokenizer")
        if model.chat_template is None and name == self._default:
            return await asyncio.to_thread(self._own, name, model.tool_calls)
        tokenizer = await asyncio.to_thread(self._tokenizer, name)
        source = model.chat_template or tokenizer.chat_template
        if not isinstance(source, str):
            raise RenderingError(f"{name} has no chat template, or several: give one as model.chat_template")
        label = "model.chat_template" if model.chat_template is not None else f"the chat template of {name}"
        process = TemplateProcess(tokenizer, source, self._bounds, label)
        stack.callback(process.close)
        return await process.run(
            Renderer, tokenizer, chat_template=source, tool_calls=model.tool_calls, process=process
        )

    def _own(self, name: str, tool_calls: Any) -> Renderer:
        tokenizer = self._tokenizer(name)
        with self._lock:
            if tool_calls not in self._renderers:
                self._renderers[tool_calls] = Renderer(tokenizer, tool_calls=tool_calls)
            return self._renderers[tool_calls]

    def _tokenizer(self, name: str) -> Any:
        with self._lock:
            if name not in self._tokenizers:
                from transformers import AutoTokenizer

                self._tokenizers[name] = AutoTokenizer.from_pretrained(name)
            return self._tokenizers[name]


@dataclass(slots=True, eq=False)
class _Job:
    """A job in this worker. Its player is opened by the first task that needs it."""

    request: RolloutRequest
    tasks: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    player: JobPlayer | None = None


class Worker:
    """The messages of the service, and the tasks that answer them.

    Args:
        link: the connection to the service.
        tokenizer: the tokenizer of requests that name none.
        harnesses: the harnesses that the service was started with, by name.
        alive_seconds: the interval between signs of life.
        template_seconds: see `Renderers`.
    """

    def __init__(
        self, link: Link, tokenizer: str | None, harnesses: dict[str, str], alive_seconds: float,
        template_seconds: float,
    ) -> None:  # fmt: skip
        self._link = link
        self._alive_seconds = alive_seconds
        self._harnesses = harnesses
        self._renderers = Renderers(tokenizer, template_seconds)
        self._jobs: dict[str, _Job] = {}
        self._closing: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until the service is gone, then end everything."""
        self._link.send({"did": "ready"})
        living = asyncio.create_task(self._live())
        while (received := await self._link.receive()) is not None:
            self._handle(received.head)
        living.cancel()
        await asyncio.gather(*(self._close(name, job) for name, job in list(self._jobs.items())))
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _live(self) -> None:
        """Say again and again that this worker does not hang."""
        while True:
            await asyncio.sleep(self._alive_seconds)
            self._link.send({"did": "live"})

    def _handle(self, message: dict[str, Any]) -> None:
        name = message["job"]
        match message["do"]:
            case "open":
                self._jobs[name] = _Job(RolloutRequest.model_validate(message["request"]))
            case "check":
                self._spawn(name, self._check(name, self._jobs[name]))
            case "play":
                self._spawn(name, self._play(self._jobs[name], _place(message)))
            case "release":
                self._spawn(name, self._release(self._jobs[name], _place(message)))
            case "close":
                closing = asyncio.create_task(self._close(name, self._jobs.pop(name)))
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            case other:
                raise ValueError(f"there is no message {other!r}")

    def _spawn(self, job: str, work: Coroutine[Any, Any, None]) -> None:
        tasks = self._jobs[job].tasks
        task = asyncio.create_task(work)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _close(self, name: str, job: _Job) -> None:
        """End the job's episodes, each of which answers for itself, and close its connections."""
        for task in job.tasks:
            task.cancel()
        await asyncio.gather(*job.tasks, return_exceptions=True)
        with suppress(Exception):  # what cannot be closed has been closed by its other end
            await job.stack.aclose()
        if job.request.harness is not None and not any(other.request.harness for other in self._jobs.values()):
            await end_orphans(TemplateProcess.living)  # what left the process group of its harness
        self._link.send({"did": "closed", "job": name})
        await self._link.drain()

    # ── work ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _player(self, job: _Job) -> JobPlayer:
        async with job.lock:
            if job.player is None:
                player = JobPlayer(job.request, self._renderers.open, self._harnesses)
                async with AsyncExitStack() as stack:
                    await stack.enter_async_context(player)
                    await player.open()
                    await job.stack.enter_async_context(stack.pop_all())
                job.player = player
            return job.player

    async def _check(self, name: str, job: _Job) -> None:
        problem: dict[str, Any] | None = None
        try:
            await (await self._player(job)).check()
        except Exception as error:
            known = error if isinstance(error, e.RequestError) else e.InfrastructureFailed(_described(error))
            problem = {"code": known.code, "message": known.message}
        self._link.send({"did": "checked", "job": name, "problem": problem})

    async def _play(self, job: _Job, place: Place) -> None:
        head: dict[str, Any] = {"did": "canceled", "job": place.job, "index": place.index, "attempt": place.attempt}
        body = b""
        try:
            try:
                outcome = await (await self._player(job)).play(place)
                body = _encode(outcome.line).encode()
            except Exception as error:
                outcome = broken_outcome(job.request, place, error)
                body = _encode(outcome.line).encode()
            head |= {"did": "result", "problem": outcome.problem, "retry": outcome.retry}
        finally:  # also if it is canceled
            self._link.send(head, body)
        await self._link.drain()

    async def _release(self, job: _Job, place: Place) -> None:
        head = {"did": "released", "job": place.job, "index": place.index, "attempt": place.attempt}
        try:
            async with JobPlayer(job.request, self._renderers.open, self._harnesses) as player:
                await player.connect()
                await player.release(place)
        except e.LudusError:
            pass  # the server is gone, and its episodes with it
        finally:
            self._link.send(head)


def broken_outcome(request: RolloutRequest, place: Place, error: Exception) -> Outcome:
    """Return the outcome of an attempt whose episode could not be played."""
    refused = isinstance(error, e.RequestError)
    message = _described(error)
    kind = "request" if refused else "infrastructure"
    problem = {"kind": kind, "error": type(error).__name__, "message": message, "attempt": place.attempt}
    return Outcome(unscored_line(request, place, problem), problem, retry=not refused)


def _described(error: Exception) -> str:
    return error.message if isinstance(error, e.LudusError) else f"{type(error).__name__}: {error}"


def _place(message: dict[str, Any]) -> Place:
    earlier = tuple(message.get("earlier", ()))
    return Place(message["job"], message["index"], message["attempt"], message["seed"], earlier)


async def main(descriptor: int) -> None:
    """Run a worker until the service is gone."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # Ctrl-C reaches it, too; the service decides
        loop.add_signal_handler(number, lambda: None)
    become_subreaper()
    settle_heap()
    link = await Link.open(socket.socket(fileno=descriptor))
    first = await link.receive()
    if first is not None:
        settings = first.head
        await Worker(
            link, settings["tokenizer"], settings["harnesses"], settings["alive_seconds"], settings["template_seconds"]
        ).run()
    link.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
