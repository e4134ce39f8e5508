"""The path of one step: which functions of Ludus a server runs between a request and its reply, by transport.

    python benchmarks/step_path.py [--list] [--json FILE]

A real server and a raw client share this process, so that `sys.setprofile` sees every call of a Python function. The
tool is `async` and returns a reward, without noise, judges or a journal. A function counts once for each call, however
often it waits. A coroutine that waited when the request came counts when it goes on to call something, as the loop that
reads frames does; the coroutines that await that loop do not. Functions outside the namespace `ludus` do not count.
Work that the server does every second, such as the expiry of episodes, falls into some steps only: a figure is the
smallest of several steps.
"""

from __future__ import annotations

import argparse
import asyncio
import dis
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, NamedTuple

import aiohttp

from ludus.protocol.identifiers import CHANNEL_PATH, CHANNEL_SUBPROTOCOL
from ludus.protocol.methods import START, STEP
from ludus.server import Environment, Result, Task, tool
from ludus.server.serving.serve import LudusServer, serving

STEPS: Final = 12
"""Steps per transport; the first `WARM` are not measured."""
WARM: Final = 4
ERA: Final = "2026-07-28"
FOLDERS: Final = tuple(
    f"{Path(__file__).resolve().parents[1] / folder}/ludus/" for folder in ("protocol", "server", "client_sdk")
)
INLINE: Final = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
"""Parts of a function that Python runs as functions of their own."""

Ask = Callable[[int], Awaitable[None]]
"""Makes the step with a number, and checks its reply."""


class Earning(Environment[Task]):
    """Has a tool that earns a reward."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Work."

    @tool
    async def work(self, text: str) -> Result:
        """Work."""
        return Result(text, reward=1.0)


class Visit(NamedTuple):
    """One call of a function."""

    file: str
    function: str
    line: int


class Tracer:
    """Records the calls of Ludus's functions while it is active (`with tracer:`)."""

    def __init__(self) -> None:
        self.visits: list[Visit] = []
        self._frames: set[FrameType] = set()
        self._places: dict[CodeType, tuple[Visit | None, int]] = {}

    def __enter__(self) -> None:
        self.visits, self._frames = [], set()
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        self._frames = set()

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_call":
            self._add(frame)
        elif event == "call" and frame.f_lasti <= self._place(frame.f_code)[1]:
            if frame.f_back is not None:
                self._add(frame.f_back)
            self._add(frame)

    def _add(self, frame: FrameType) -> None:
        visit = self._place(frame.f_code)[0]
        if visit is not None and frame not in self._frames:
            self._frames.add(frame)
            self.visits.append(visit)

    def _place(self, code: CodeType) -> tuple[Visit | None, int]:
        """Return the visit of a function, None if it is not Ludus's, and the position at which a call begins."""
        if code not in self._places:
            begin = next((one.offset for one in dis.get_instructions(code) if one.opname == "RESUME"), -1)
            self._places[code] = _visit(code), begin
        return self._places[code]


def _visit(code: CodeType) -> Visit | None:
    """Return the visit of a function; None if the function is not Ludus's."""
    for folder in FOLDERS:
        if code.co_filename.startswith(folder) and code.co_name not in INLINE:
            return Visit(code.co_filename.removeprefix(folder), code.co_qualname, code.co_firstlineno)
    return None


async def measure(ask: Ask) -> list[Visit]:
    """Return the visits of the step that has the fewest."""
    tracer, found = Tracer(), []
    for number in range(1, STEPS + 1):
        with tracer:
            await ask(number)
        if number > WARM:
            found.append(tracer.visits)
    return min(found, key=len)


# ── the transports ─────────────────────────────────────────────────────────────────────────────────────────────────


async def over_channel(server: LudusServer, session: aiohttp.ClientSession) -> list[Visit]:
    """Measure a step over the channel."""
    url = server.url.replace("http", "ws", 1) + CHANNEL_PATH
    async with session.ws_connect(url, protocols=[CHANNEL_SUBPROTOCOL], compress=0) as socket:

        async def call(method: str, params: dict[str, Any]) -> Any:
            await socket.send_str(json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))
            return (await socket.receive_json())["result"]

        episode = (await call(START.name, _start("channel")))["episodes"][0]["episode"]

        async def ask(number: int) -> None:
            assert (await call(STEP.name, _step(episode, number)))["reward"]["value"] == 1.0

        return await measure(ask)


async def over_mcp_control(server: LudusServer, session: aiohttp.ClientSession) -> list[Visit]:
    """Measure a step over MCP's control plane."""
    started = await _mcp(session, server.url + "/mcp", START.name, _start("control"))
    episode = started["episodes"][0]["episode"]

    async def ask(number: int) -> None:
        result = await _mcp(session, server.url + "/mcp", STEP.name, _step(episode, number))
        assert result["reward"]["value"] == 1.0

    return await measure(ask)


async def over_mcp_play(server: LudusServer, session: aiohttp.ClientSession) -> list[Visit]:
    """Measure a step over MCP's agent endpoint."""
    started = await _mcp(session, server.url + "/mcp", START.name, _start("play"))
    url = server.url + started["episodes"][0]["play"]["path"]

    async def ask(number: int) -> None:
        result = await _mcp(session, url, "tools/call", {"name": "work", "arguments": {"text": f"{number}"}})
        assert result["content"][0]["text"] == f"{number}"

    return await measure(ask)


async def over_ors(server: LudusServer, session: aiohttp.ClientSession) -> list[Visit]:
    """Measure a step over ORS."""
    headers = {"X-Session-ID": "one"}

    async def post(path: str, body: dict[str, Any]) -> str:
        async with session.post(server.url + path, json=body, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.text()

    await post("/create", {"env_name": "earning", "split": "train", "index": 0})

    async def ask(number: int) -> None:
        assert '"reward":1.0' in await post("/earning/call", {"name": "work", "input": {"text": f"{number}"}})

    return await measure(ask)


def _start(key: str) -> dict[str, Any]:
    return {"environment": "earning", "split": "train", "key": key}


def _step(episode: str, number: int) -> dict[str, Any]:
    return {"episode": episode, "step": number, "tool": "work", "arguments": {"text": "well"}, "key": f"{number}"}


async def _mcp(session: aiohttp.ClientSession, url: str, method: str, params: dict[str, Any]) -> Any:
    prefix = "io.modelcontextprotocol/"
    extensions = {"dev.ludus/episodes": {"version": "0.2"}}
    meta = {
        f"{prefix}protocolVersion": ERA,
        f"{prefix}clientCapabilities": {"extensions": extensions},
        f"{prefix}clientInfo": {"name": "step_path", "version": "1"},
    }
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": ERA, "Mcp-Method": method}
    if "name" in params:
        headers["Mcp-Name"] = params["name"]
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
    async with session.post(url, json=body, headers=headers) as response:
        answer = await response.json()
        return answer["result"]


TRANSPORTS: Final = {
    "channel": over_channel,
    "mcp_play": over_mcp_play,
    "mcp_control": over_mcp_control,
    "ors": over_ors,
}


async def trace() -> dict[str, list[Visit]]:
    """Return the visits of one step, by transport."""
    async with serving([Earning]) as server, aiohttp.ClientSession() as session:
        return {name: await transport(server, session) for name, transport in TRANSPORTS.items()}


def summarize(visits: list[Visit]) -> dict[str, int]:
    """Return the number of calls, of files, and of moves from one file to another."""
    files = [visit.file for visit in visits]
    moves = sum(before != after for before, after in zip(files, files[1:], strict=False))
    return {"calls": len(files), "files": len(set(files)), "moves": moves}


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print every call")
    parser.add_argument("--json", type=Path, help="where to write the figures and the calls")
    options = parser.parse_args()
    traced = asyncio.run(trace())
    print(f"{'':14}{'calls':>7}{'files':>7}{'moves':>7}")
    for name, visits in traced.items():
        print(f"{name:14}" + "".join(f"{count:7}" for count in summarize(visits).values()))
    if options.list:
        for name, visits in traced.items():
            print(f"\n{name}")
            for visit in visits:
                print(f"    {visit.file}:{visit.line} {visit.function}")
    if options.json:
        figures = {name: {**summarize(visits), "visits": visits} for name, visits in traced.items()}
        options.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
