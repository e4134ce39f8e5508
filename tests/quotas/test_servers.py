"""Server processes that share a file of usage, as workers do, and one that comes back with its journal."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from durable_server import Process

from ludus.client import connect
from ludus.client.connecting import WireName
from ludus.protocol.errors import CapacityError, Unauthenticated
from ludus.server.auth.limits import TokenLimits
from ludus.server.auth.tokens import TokenFile, new_token, read_token_file, write_token_file

WORLD = (Path(__file__).parents[1] / "support" / "quota_world.py", ("Clicker",))
SCOPES = ("tasks:read", "episodes:run", "rewards:read")

Serve = Callable[..., Any]


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    """`server = await serve("a", "--limit", "…")`: a server process with its own folder."""
    async with AsyncExitStack() as stack:

        async def start(name: str, *options: str, journaled: bool = False) -> Process:
            folder = tmp_path / name
            folder.mkdir()
            server = Process(folder, *options, world=WORLD, journaled=journaled)
            stack.push_async_callback(server.end)
            await server.start()
            return server

        yield start


@pytest.fixture
def usage(tmp_path: Path) -> str:
    return str(tmp_path / "usage")


async def test_two_servers_share_the_limits_and_one_that_is_killed_gives_its_episodes_back(
    serve: Serve, usage: str
) -> None:
    options = (
        "--usage-file", usage, "--limit", "open_episodes=3", "--limit", "steps_per_second=0.01", "--limit",
        "step_burst=4",
    )  # fmt: skip
    first, second = await asyncio.gather(serve("first", *options), serve("second", *options))
    async with (
        connect(first.url, patience_seconds=0, reconnect_seconds=0) as one,
        connect(second.url, patience_seconds=0) as two,
    ):
        here = [await one.environment("clicker").start() for _ in range(2)]
        there = await two.environment("clicker").start()
        for client in (one, two):
            with pytest.raises(CapacityError, match="3 open episodes"):
                await client.environment("clicker").start()
        steps = [await here[0].call("click"), await there.call("click"), await here[0].call("click")]
        steps.append(await there.call("click"))
        assert [step.step for step in steps] == [1, 1, 2, 2]
        for episode in (here[1], there):
            with pytest.raises(CapacityError, match=r"0\.01 steps per second, and 4 at one time"):
                await episode.call("click")
        await first.end(signal.SIGKILL)
        for _ in range(2):
            await two.environment("clicker").start()
        with pytest.raises(CapacityError, match="3 open episodes"):
            await two.environment("clicker").start()
        for episode in here:
            one._session.discard(episode.id)


@pytest.mark.suite("breadth")
async def test_the_workers_behind_one_address_share_the_limits_over_every_wire(serve: Serve) -> None:
    server = await serve("many", "--workers", "2", "--limit", "open_episodes=3")
    wires: tuple[WireName, ...] = ("channel", "mcp", "ors")
    for wire in wires:
        async with connect(server.url, wire=wire, patience_seconds=0) as client:
            environment = client.environment("clicker")
            episodes = [await environment.start() for _ in range(3)]
            for _ in range(4):
                with pytest.raises(CapacityError, match="3 open episodes"):
                    await environment.start()
            for episode in episodes:
                await episode.close()


async def test_wrong_tokens_are_counted_together(serve: Serve, usage: str, tmp_path: Path) -> None:
    token, record = new_token("lab", SCOPES)
    write_token_file(tmp_path / "tokens.json", TokenFile(tokens=(record,)))
    tokens = str(tmp_path / "tokens.json")
    options = ("--usage-file", usage, "--limit", "wrong_tokens_per_minute=2", "--token-file", tokens)
    servers = await asyncio.gather(serve("first", *options), serve("second", *options))
    for server in servers:
        async with connect(server.url, token="ludus_" + "w" * 43, wire="mcp", patience_seconds=0) as guesser:
            with pytest.raises(Unauthenticated):
                await guesser.environments()
    for server in servers:
        async with connect(server.url, token="ludus_" + "x" * 43, wire="mcp", patience_seconds=0) as guesser:
            with pytest.raises(CapacityError, match="wrong tokens"):
                await guesser.environments()
        async with connect(server.url, token=token, wire="mcp", patience_seconds=0) as client:
            assert await client.environments()


async def test_episodes_that_come_back_with_the_journal_count_again_and_are_never_refused(serve: Serve) -> None:
    server = await serve("only", "--limit", "open_episodes=2", "--limit", "stored_bytes=1MiB", journaled=True)
    async with connect(server.url, patience_seconds=0) as client:
        environment = client.environment("clicker")
        episodes = [await environment.start() for _ in range(2)]
        for episode in episodes:
            await episode.call("click")
        server.options = ("--limit", "open_episodes=1")
        await server.restart()
        for episode in episodes:
            assert (await episode.call("click")).content[0].text == "2"  # type: ignore[union-attr]
        with pytest.raises(CapacityError, match="1 open episodes"):
            await environment.start()
        for episode in episodes:
            await episode.close()
        await (await environment.start()).close()


@pytest.mark.suite("breadth")
async def test_what_the_journal_holds_counts_as_stored(serve: Serve) -> None:
    server = await serve("only", "--limit", "stored_bytes=120000", journaled=True)
    async with connect(server.url, patience_seconds=60) as client:
        episode = await client.environment("clicker").start()
        await episode.call("fill", size=70_000)  # in memory and in the journal, that is more than is allowed
        async with connect(server.url, patience_seconds=0) as other:
            refused = None
            while refused is None:  # the bytes are counted once a second
                try:
                    await (await other.environment("clicker").start()).close()
                except CapacityError as error:
                    refused = error
        assert refused.data["limit"] == "stored_bytes"
        await server.restart()
        async with connect(server.url, patience_seconds=0) as other:
            refused = None
            while refused is None:
                try:
                    await (await other.environment("clicker").start()).close()
                except CapacityError as error:
                    refused = error
        await episode.close()


@pytest.mark.suite("breadth")
async def test_limits_in_the_token_file_are_followed_while_the_server_runs(serve: Serve, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token, record = new_token("lab", SCOPES)
    write_token_file(path, TokenFile(tokens=(record,)))
    server = await serve("only", "--token-file", str(path))
    async with connect(server.url, token=token, patience_seconds=0) as client:
        first = await client.environment("clicker").start()
        (known,) = read_token_file(path).tokens
        changed = known.model_copy(update={"limits": TokenLimits(open_episodes=1)})
        write_token_file(path, TokenFile(tokens=(changed,)))
        refused = None
        while refused is None:
            try:
                await (await client.environment("clicker").start()).close()
            except CapacityError as error:
                refused = error
        assert refused.data["maximum"] == 1
        await first.close()


@pytest.mark.suite("breadth", first=1)
@pytest.mark.parametrize("text", ["something else", ""])
async def test_a_server_does_not_start_with_a_file_of_something_else(tmp_path: Path, text: str) -> None:
    path = tmp_path / "usage"
    path.write_text(text or "x" * 70)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ludus.cli", "serve", "guess_number", "--port", "0", "--usage-file", str(path),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, errors = await process.communicate()
    assert process.returncode != 0
    said = " ".join(errors.decode().split())
    assert "it is no file of usage of this version" in said
    assert "Traceback" not in said


@pytest.mark.suite("breadth")
async def test_the_command_for_tokens_writes_and_shows_limits(tmp_path: Path) -> None:
    async def run(*arguments: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "ludus.cli", "token", *arguments, "--file", str(tmp_path / "tokens.json"),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await process.communicate()
        return process.returncode, " ".join(output.decode().split())

    code, said = await run("create", "--name", "lab", "--limit", "steps_per_second=20", "--limit", "open_episodes=2")
    assert (code, "limits: steps_per_second=20, open_episodes=2" in said) == (0, True)
    assert json.loads((tmp_path / "tokens.json").read_text())["tokens"][0]["limits"] == {
        "steps_per_second": 20.0, "open_episodes": 2,
    }  # fmt: skip
    assert "steps_per_second=20, open_episodes=2" in (await run("list"))[1]
    code, said = await run("create", "--name", "other", "--limit", "open_episodes=0")
    assert (code, "open_episodes: 0 is too small" in said) == (2, True)
    code, said = await run("create", "--name", "other", "--limit", "episodes=3")
    assert (code, "no limit 'episodes'" in said) == (2, True)
