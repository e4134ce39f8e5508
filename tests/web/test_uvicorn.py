"""The parts of uvicorn that Ludus's HTTP protocol overrides or uses, in the installed version.

An override of a method that uvicorn no longer calls would switch a limit off without an error.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import sys
from typing import Any

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import Server, ServerState

from ludus.server import Environment, Task
from ludus.server.serving.serve import LudusServer, serving
from ludus.server.web.delivery import WatchedHttpProtocol
from ludus.server.web.http_protocol import BoundedHttpProtocol

OWN = {
    "hand_over", "watch", "holds_back", "sweep", "end", "stop", "waits_since", "declined_upgrade", "on_chunk_header",
}  # fmt: skip
"""Public methods that Ludus adds, or that httptools calls."""
REPLACED = {"_start_asgi_task", "_get_upgrade"}
"""Private methods of uvicorn that Ludus replaces."""


class Quiet(Environment[Task]):
    """An environment without tools."""

    splits = {"train": [Task(id="only")]}

    def prompt(self) -> str:
        return "Wait."

    def grade(self, answer: str) -> float:
        return 1.0


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that does nothing."""


def overrides(cls: type) -> set[str]:
    """The public methods that a class defines, and the private ones of uvicorn that it replaces."""
    names = {name for name, value in vars(cls).items() if inspect.isfunction(value) and not name.startswith("__")}
    return {name for name in names if not name.startswith("_") or name in REPLACED} - OWN


def parameters_of(cls: type, name: str) -> list[str]:
    """The parameters of a method as its class's source states them: sse-starlette replaces `Server.handle_exit`."""
    for base in cls.__mro__:
        tree = ast.parse(inspect.getsource(sys.modules[base.__module__]))
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == base.__name__:
                for method in node.body:
                    if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef) and method.name == name:
                        return [argument.arg for argument in method.args.args]
    raise AssertionError(f"uvicorn {uvicorn.__version__} has no {cls.__name__}.{name}")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(WatchedHttpProtocol, HttpToolsProtocol), (BoundedHttpProtocol, HttpToolsProtocol), (LudusServer, Server)],
)
def test_every_override_replaces_a_method_with_the_same_parameters(ours: type, theirs: type) -> None:
    names = overrides(ours)
    assert names
    for name in names:
        assert list(inspect.signature(getattr(ours, name)).parameters) == parameters_of(theirs, name), name


async def test_a_connection_has_the_state_that_the_limits_read() -> None:
    config = uvicorn.Config(nothing, http=BoundedHttpProtocol, log_config=None)
    config.load()
    protocol = BoundedHttpProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    for name in ("cycle", "pipeline", "headers", "connections", "transport", "flow", "config", "loop", "scope"):
        assert hasattr(protocol, name), f"uvicorn {uvicorn.__version__} has no HttpToolsProtocol.{name}"
    assert isinstance(STATUS_LINE[200], bytes)


def test_a_cycle_has_the_state_that_whole_answers_read_and_write() -> None:
    used = {
        "access_log", "body", "default_headers", "disconnected", "flow", "keep_alive", "message_event", "on_response",
        "response_complete", "response_started", "scope", "transport", "waiting_for_100_continue",
    }  # fmt: skip
    assert used <= set(RequestResponseCycle.__init__.__code__.co_names)
    assert {"write_paused", "read_paused"} <= set(FlowControl.__init__.__code__.co_names)
    assert callable(FlowControl.drain)


@pytest.mark.parametrize("connected", [False, True])
async def test_a_server_pauses_before_its_end_only_for_connections(
    connected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def record(seconds: float) -> None:
        pauses.append(seconds)
        await sleep(seconds)

    async with httpx.AsyncClient() as client:
        async with serving([Quiet]) as server:
            if connected:
                assert (await client.get(f"{server.url}/health")).status_code == 200
            monkeypatch.setattr(asyncio, "sleep", record)
        monkeypatch.undo()
    assert bool({0.05, 0.1} & set(pauses)) == connected
