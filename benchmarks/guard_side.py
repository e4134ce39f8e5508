"""One side of `guard.py`: a process that has loaded one tree of Ludus, and performs operations of a figure on request.

    python benchmarks/guard_side.py TREE play|lead FIGURE FOLDER
    python benchmarks/guard_side.py TREE serve FIGURE PORT

`play` answers in lines of JSON: first with the file of `ludus.protocol`, then, for each line with a number of
operations, with how many were made and the CPU seconds that they took. The end of stdin ends it. `lead` does the same,
and first writes into FOLDER what both sides read. `serve` is the process of a figure's server. All of them run on one
and the same CPU: how a server's and its client's work overlap changes what an operation costs.

Each figure counts the CPU time of the product only: of the server for ORS, MCP and the gateway, whose clients here are
raw; of the server and of our client for the channel; of this process for the trainer.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from channel import Server

    from ludus.rendering.samples import Generation, Sampling

RECORDED: Final = "recorded"
"""The file that says that the model and the batch of the trainer's figure are there."""
IN_FLIGHT: Final = 16
"""Clients of the ORS and MCP servers."""


class Spent(NamedTuple):
    """What a round took."""

    operations: int
    seconds: float
    """Of CPU time."""


Operate = Callable[[int], Awaitable[Spent]]
"""Makes about that many operations."""


# ── only the tree under test ────────────────────────────────────────────────────────────────────────────────────────


class OnlyFrom:
    """Refuses to import a module of Ludus that is not in the tree: a finder for `sys.meta_path`."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """Find modules of Ludus as Python would, and leave all others to Python."""
        if name.partition(".")[0] != "ludus":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            locations = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
            foreign = [location for location in locations if not Path(location).is_relative_to(self._tree)]
            assert not foreign, f"{name} would be loaded from {foreign}, which is not in {self._tree}"
        return spec


def load_only_from(tree: Path) -> None:
    """Hide other installations of Ludus from this process, and check where each of its modules comes from."""
    assert not any(name.partition(".")[0] == "ludus" for name in sys.modules)
    sys.path[:] = [entry for entry in sys.path if Path(entry).is_relative_to(tree) or not Path(entry, "ludus").is_dir()]
    sys.meta_path.insert(0, OnlyFrom(tree))


# ── the figures ─────────────────────────────────────────────────────────────────────────────────────────────────────


def server_of(figure: str) -> tuple[str, ...]:
    """The command of a figure's server, without the port."""
    return sys.executable, __file__, sys.argv[1], "serve", figure


@asynccontextmanager
async def channel_step(folder: Path) -> AsyncIterator[Operate]:
    """Steps of an echo tool by our client, 64 episodes at a time."""
    from channel import AT_ONCE, running
    from processes import cpu_seconds

    from ludus.client import Episode, connect

    with running(*server_of("channel step")) as server:
        async with connect(server.url) as client:
            environment = client.environment("echo")

            async def operate(count: int) -> Spent:
                each = max(1, count // AT_ONCE)

                async def steps(episode: Episode) -> None:
                    for _ in range(each):
                        result = await episode.call("echo", text="hello")
                        assert result.content[0].text == "hello", result  # type: ignore[union-attr]

                async with AsyncExitStack() as stack:
                    entered = (stack.enter_async_context(environment.episode()) for _ in range(AT_ONCE))
                    episodes = [await episode for episode in entered]
                    before = time.process_time() + cpu_seconds(server.pid)
                    await asyncio.gather(*map(steps, episodes))
                    seconds = time.process_time() + cpu_seconds(server.pid) - before
                return Spent(each * AT_ONCE, seconds)

            yield operate


@asynccontextmanager
async def ors_call(folder: Path) -> AsyncIterator[Operate]:
    """Calls of an echo tool over ORS, by raw clients with a session each."""
    from channel import running
    from ors import CREATE, Connection, one_call
    from processes import cpu_seconds

    with running(*server_of("ORS call")) as server:

        async def operate(count: int) -> Spent:
            each = max(1, count // IN_FLIGHT)

            async def calls(connection: Connection, session: bytes) -> None:
                for _ in range(each):
                    await one_call(connection, session)

            async with AsyncExitStack() as stack:
                sessions = {}
                for _ in range(IN_FLIGHT):
                    connection = await stack.enter_async_context(Connection(port_of(server)))
                    sessions[connection] = uuid.uuid4().hex.encode()
                    await connection.request(b"POST", b"/create", sessions[connection], CREATE)
                before = cpu_seconds(server.pid)
                await asyncio.gather(*(calls(*session) for session in sessions.items()))
                seconds = cpu_seconds(server.pid) - before
                for connection, session in sessions.items():
                    await connection.request(b"POST", b"/delete", session)
            return Spent(each * IN_FLIGHT, seconds)

        yield operate


@asynccontextmanager
async def mcp_call(folder: Path) -> AsyncIterator[Operate]:
    """Calls of an echo tool at the agent endpoint of one episode, over raw HTTP."""
    from channel import running
    from mcp_play import MODERN, call, play_path, request
    from processes import cpu_seconds

    with running(*server_of("MCP call")) as server:
        port = port_of(server)

        async def operate(count: int) -> Spent:
            # A new episode each round: an episode that was stepped for long holds many outcomes.
            path = await asyncio.to_thread(play_path, port, uuid.uuid4().hex)
            payload = request(port, path, "tools/call", {"name": "echo", "arguments": {"text": "hello"}}, MODERN)
            before = cpu_seconds(server.pid)
            answer = json.loads(await call(port, payload, count, IN_FLIGHT))
            seconds = cpu_seconds(server.pid) - before
            assert answer["result"]["content"] == [{"type": "text", "text": "hello"}], answer
            return Spent(count, seconds)

        yield operate


@asynccontextmanager
async def harness_turn(folder: Path) -> AsyncIterator[Operate]:
    """Model calls of harnesses through the gateway, whose engine answers at once."""
    import aiohttp
    from gateway import AT_ONCE, CALLS, Side
    from processes import running

    with running(*server_of("harness turn")) as url:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
            side = Side(url, http)

            async def operate(count: int) -> Spent:
                episodes = max(AT_ONCE, count // CALLS)
                each, *_ = await side.round(episodes)
                return Spent(episodes * CALLS, each / 1e6 * episodes * CALLS)

            yield operate


def wait_for(file: Path) -> None:
    """Wait until the other side has written a file."""
    for _ in range(1_800):
        if file.exists():
            return
        time.sleep(0.05)
    raise TimeoutError(f"{file} was not written")


@asynccontextmanager
async def trainer_update(folder: Path) -> AsyncIterator[Operate]:
    """Optimizer steps of the tiny model, in one thread, on a batch that one side has recorded."""
    from dataclasses import replace

    from trainer_update import CASES, QUIET, load, prepare

    os.environ.update(QUIET)
    case = replace(CASES[0], threads=1, longest=128)
    if sys.argv[2] == "lead":
        prepare(case, folder)
        (folder / RECORDED).touch()
    else:
        wait_for(folder / RECORDED)
    learner, batch, objective = load(replace(case, folder=str(folder)))

    async def operate(count: int) -> Spent:
        before = time.process_time()
        for _ in range(count):
            learner.step(batch, objective)
        return Spent(count, time.process_time() - before)

    yield operate


FIGURES: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Operate]]]] = {
    "channel step": channel_step,
    "ORS call": ors_call,
    "MCP call": mcp_call,
    "harness turn": harness_turn,
    "trainer update": trainer_update,
}


# ── the servers ─────────────────────────────────────────────────────────────────────────────────────────────────────


def port_of(server: Server) -> int:
    """The port that a server listens on."""
    port = urlsplit(server.url).port
    assert port is not None
    return port


def serve(figure: str, port: int) -> None:
    """Serve a figure until a signal."""
    if figure == "harness turn":
        from gateway import call_ids, make_renderer, serve_sessions

        renderer = make_renderer()
        asyncio.run(serve_sessions(ScriptedEngine(call_ids(renderer)), renderer, port))
    elif figure == "channel step":
        import channel

        channel.serve(port)
    elif figure == "ORS call":
        import ors

        ors.serve_ours(port)
    else:
        import mcp_play

        mcp_play.serve_ludus(port)


class ScriptedEngine:
    """Answers every prompt with the same tokens, at once."""

    context = 1 << 20

    def __init__(self, ids: Sequence[int]) -> None:
        from ludus.rendering.samples import Generation

        self._generation = Generation(tuple(ids), (-0.5,) * len(ids), (0,) * len(ids), "stop")

    async def generate(self, ids: Sequence[int], sampling: Sampling, *, seed: int, session: str) -> Generation:
        return self._generation

    async def forget(self, session: str) -> None:
        return


# ── the process ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def play(figure: str, folder: Path) -> None:
    """Answer requests for rounds until stdin ends."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def reply(**fields: object) -> None:
        print(json.dumps(fields), file=out, flush=True)

    try:
        import ludus.protocol

        async with FIGURES[figure](folder) as operate:
            reply(loaded=ludus.protocol.__file__)
            while line := await asyncio.to_thread(sys.stdin.readline):
                reply(**(await operate(int(line)))._asdict())
    except (Exception, SystemExit) as error:
        reply(error=f"{type(error).__name__}: {error}")


def main() -> None:
    tree, verb, figure, argument = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    load_only_from(Path(tree))
    if verb == "serve":
        serve(figure, int(argument))
    else:
        asyncio.run(play(figure, Path(argument)))


if __name__ == "__main__":
    main()
