"""A hub in this event loop with packages whose environments run at a real Ludus server, and what plays them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from hubs import KEY, Release, WheelParts, release
from mcp import Client as McpClient

from ludus.client.agent_endpoint import open_agent_endpoint
from ludus.hub.access.viewers import Viewer
from ludus.hub.app import create_hub, parts_of
from ludus.hub.database.engine import sqlite_url
from ludus.hub.registry.publishing import Upload
from ludus.hub.results.played import PlayedRuns
from ludus.hub.results.store import ResultStore
from ludus.hub.serve import HubServer
from ludus.hub.settings.hub import HubSettings
from ludus.hub.settings.results import ResultLimits
from ludus.protocol.episodes import SplitInfo
from ludus.protocol.errors import InfrastructureFailed, LudusError
from ludus.registry.types.packages import EnvironmentEntry
from ludus.server import Environment, Private, Result, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token, write_token_file

OWNER = "ada"
BROKEN: Counter[str] = Counter()
"""How many times the tool `look` finds a broken machine, by task."""


class Lock(Task):
    """A lock."""

    code: Private[int]


class Locks(Environment[Lock]):
    """Open a lock."""

    version = "1.0"
    splits = {
        "train": [Lock(id=f"train-{index}", code=index) for index in range(4)],
        "test": [Lock(id=f"lock-{index}", code=index % 10) for index in range(40)],
    }
    reward_range = (0.0, 1.0)

    def prompt(self) -> str:
        return f"Open {self.task.id}."

    @tool
    def look(self) -> str:
        """Look at the lock."""
        if BROKEN[self.task.id] > 0:
            BROKEN[self.task.id] -= 1
            raise InfrastructureFailed("the machine is gone")
        return "It is a lock."

    @tool(ends=True)
    def turn(self, number: int) -> Result:
        """Turn the lock to a number."""
        return Result("It turns.", reward=float(number == self.task.code))

    @tool
    def kick(self) -> str:
        """Kick the lock."""
        raise RuntimeError("it breaks")


class Debts(Locks):
    """Open a lock, or pay."""

    reward_range = (-1.0, 1.0)

    @tool(ends=True)
    def turn(self, number: int) -> Result:
        """Turn the lock to a number."""
        return Result("It turns.", reward=1.0 if number == self.task.code else -1.0)


def entry(cls: type[Environment[Any]], name: str, package: str) -> EnvironmentEntry:
    splits = tuple(
        SplitInfo(name=one, type="test" if one == "test" else "train", count=len(tasks))  # type: ignore[arg-type]
        for one, tasks in cls.splits.items()
    )
    return EnvironmentEntry(
        name=name, source=f"{package}:Toss", version="1.0", splits=splits, reward_range=cls.reward_range
    )


CLASSES: dict[str, type[Environment[Any]]] = {"locks": Locks, "debts": Debts}


def locks_release(package: str, version: str = "1.0.0") -> Release:
    """Return a release of a package with all environments of `CLASSES`."""
    parts = WheelParts(package.replace("/", "-"), version)
    points = "".join(f"{name} = {parts.package}:Toss\n" for name in CLASSES)
    parts.entry_points = f"[ludus.environments]\n{points}"
    entries = tuple(entry(cls, name, parts.package) for name, cls in CLASSES.items())
    return release(package, version, parts=parts, key=KEY, environments=entries)


@dataclass
class ResultsHub:
    """A hub with tokens of alice, bob, the publisher ada, and the operator root."""

    data: Path
    address: str
    """Where the environments run."""
    database_url: str | None = None
    limits: ResultLimits = field(default_factory=lambda: ResultLimits(sweep_seconds=3600.0))
    url: str = ""
    tokens: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """The versions whose address was asked for."""
    more: dict[str, Any] = field(default_factory=dict)
    """Other settings of the hub."""
    _server: HubServer | None = None
    _serving: asyncio.Task[None] | None = None
    app: Any = None

    peer_port: int = 0
    """Where other processes reach it; 0 if they do not."""

    async def neighbor(self, data: Path, *, peer_port: int = 0) -> ResultsHub:
        """Start a second hub on the same database, with a data folder of its own."""
        await asyncio.to_thread(shutil.copytree, self.data, data, ignore=lambda _, names: {*names} - {"tokens.json"})
        other = ResultsHub(data, self.address, self.database_url or sqlite_url(self.data / "hub.sqlite"))
        other.tokens, other.limits = self.tokens, self.limits
        other.peer_port = peer_port
        await other.start()
        return other

    async def start(self) -> None:
        if not self.tokens:
            made = {
                name: new_token(name, ("admin",) if name == "root" else ("tasks:read", "episodes:run", "rewards:read"))
                for name in ("alice", "bob", OWNER, "root")
            }
            self.data.mkdir(parents=True, exist_ok=True)
            write_token_file(self.data / "tokens.json", TokenFile(tokens=tuple(record for _, record in made.values())))
            self.tokens = {name: token for name, (token, _) in made.items()}
        settings = HubSettings(
            data=self.data, port=self.peer_port, seed=False, database_url=self.database_url,
            token_file=self.data / "tokens.json", results=self.limits,
            peer_url=f"http://127.0.0.1:{self.peer_port}" if self.peer_port else None, **self.more,
        )  # fmt: skip

        def play_address(request: Any, owner: str, name: str, version: str) -> str:
            self.asked.append((f"{owner}/{name}", version))
            return self.address

        self.app = create_hub(settings, play_address=play_address)
        up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server = HubServer(self.app, settings, up.set_result)
        self._serving = asyncio.create_task(self._server.serve())
        self.url = await asyncio.wait_for(up, 60)

    async def stop(self) -> None:
        if self._server is not None and self._serving is not None:
            self._server.should_exit = True
            await self._serving
            self._server = None

    @property
    def played(self) -> PlayedRuns:
        found: PlayedRuns = parts_of(self.app).results.played
        return found

    @property
    def store(self) -> ResultStore:
        found: ResultStore = parts_of(self.app).results.store
        return found

    def client(self, who: str | None = "alice") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.tokens[who]}"} if who else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    def publish(self, package: str, version: str = "1.0.0") -> str:
        """Publish a package with all environments of `CLASSES`, and return the wheel's digest."""
        return self.publish_release(locks_release(package, version))

    def publish_release(self, one: Release) -> str:
        """Publish a release, and return the wheel's digest."""
        hub = parts_of(self.app).hub
        with hub.blobs.receiving(len(one.wheel)) as incoming:
            incoming.write(one.wheel)
            who = Viewer.of_administrator(OWNER)
            hub.publisher.publish(who, Upload(incoming, one.filename, one.manifest, one.card, one.signed))
        return one.sha256


StartHub = Callable[..., Awaitable[ResultsHub]]
"""Starts a hub with other limits, which are named arguments."""


@contextlib.asynccontextmanager
async def starting_hubs(
    folder: Path, database_url: str | None, serve: Any, environments: Iterable[type]
) -> AsyncIterator[StartHub]:
    """Yield a function that starts a hub with other limits, and stop the hub afterwards.

    Args:
        folder: the hub's data.
        database_url: its database; None for SQLite.
        serve: the fixture that starts a server.
        environments: the environments of all packages.
    """
    async with contextlib.AsyncExitStack() as stack:

        async def start(**limits: Any) -> ResultsHub:
            ludus = await serve(*environments)
            hub = ResultsHub(folder, ludus.url, database_url)
            hub.limits = hub.limits.model_copy(update=limits)
            await hub.start()
            stack.push_async_callback(hub.stop)
            return hub

        yield start


async def ludus(hub: ResultsHub, *arguments: str, who: str = "alice") -> tuple[int, str, str]:
    """Run the command against a hub, and return its exit code and what it printed."""
    variables = {**os.environ, "LUDUS_HUB": hub.url, "LUDUS_HUB_TOKEN": hub.tokens[who], "COLUMNS": "200"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ludus.cli", *arguments, stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=variables,
    )  # fmt: skip
    async with asyncio.timeout(90):
        out, errors = await process.communicate()
    assert b"Traceback" not in errors, errors.decode()
    return process.returncode or 0, out.decode(), errors.decode()


class Player:
    """An account that plays a run with a stock MCP client."""

    def __init__(self, client: httpx.AsyncClient, run: dict[str, Any]) -> None:
        self.client = client
        self.run = run
        self.key: str = run["key"]

    @classmethod
    async def register(cls, client: httpx.AsyncClient, package: str, **params: Any) -> Player:
        """Register a run of the package's newest version."""
        answer = await client.post(f"/api/v1/environments/{package}/versions/latest/runs", json=run_params(**params))
        assert answer.status_code == 201, answer.text
        return cls(client, answer.json())

    async def next(self) -> dict[str, Any] | None:
        """The next ticket; None if there is none."""
        answer = await self.client.post(f"/api/v1/runs/{self.key}/episodes")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] | None = answer.json()["ticket"]
        return found

    async def end(self, ticket: dict[str, Any], **tokens: int) -> str | None:
        """Say that an episode is done, and return its end."""
        answer = await self.client.post(f"/api/v1/runs/{self.key}/episodes/{ticket['place']}/end", json=tokens)
        assert answer.status_code == 200, answer.text
        return answer.json()["end"]  # type: ignore[no-any-return]

    async def play(self, right: int, **tokens: int) -> dict[str, Any]:
        """Play the whole run; the first `right` episodes are opened, and the others are not. Return the ended run."""
        while (ticket := await self.next()) is not None:
            await self.act(ticket, right=right > 0)
            right -= 1
            await self.end(ticket, **tokens)
        return await self.info()

    async def act(self, ticket: dict[str, Any], *, right: bool) -> None:
        """Turn the lock of an episode."""
        async with open_agent_endpoint(ticket["playUrl"]) as episode:
            await episode.call("turn", number=answer_of(str(episode.prompt[0].content), right=right))

    async def call(self, ticket: dict[str, Any], tool: str, **arguments: Any) -> None:
        """Call a tool of an episode, whatever comes of it."""
        with contextlib.suppress(LudusError):
            async with open_agent_endpoint(ticket["playUrl"], reconnect_seconds=0.1) as episode:
                await episode.call(tool, **arguments)

    async def info(self) -> dict[str, Any]:
        """The run as it is now."""
        found: dict[str, Any] = (await self.client.get(f"/api/v1/runs/{self.key}")).json()
        return found

    async def rows(self) -> list[dict[str, Any]]:
        """The rows of the ended run."""
        answer = await self.client.get(f"/api/v1/runs/{self.key}/rows")
        assert answer.status_code == 200, answer.text
        return answer.json()["episodes"]  # type: ignore[no-any-return]


async def board_of(hub: ResultsHub, package: str, level: str = "played", **key: str) -> dict[str, Any]:
    """Return a board."""
    query = {"environment": "locks", "split": "test", "level": level, **key}
    version = query.pop("version", "1.0.0")
    async with hub.client(None) as client:
        answer = await client.get(f"/api/v1/environments/{package}/versions/{version}/board", params=query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def act_as_stock_client(ticket: dict[str, Any], *, right: bool) -> list[str]:
    """Turn the lock of an episode with a stock MCP client, and return what it saw."""
    async with McpClient(ticket["playUrl"]) as agent:
        prompt = (await agent.list_prompts()).prompts[0].name
        asked = str((await agent.get_prompt(prompt)).messages[0].content)
        result = await agent.call_tool("turn", {"number": answer_of(asked, right=right)})
        return [asked, str(result.model_dump(mode="json"))]


def answer_of(prompt: str, *, right: bool) -> int:
    """Return the number of a lock, or a wrong one."""
    found = re.search(r"(?:lock|train)-(\d+)", prompt)
    assert found is not None, prompt
    return (int(found[1]) + (0 if right else 1)) % 10


def run_params(
    environment: str = "locks", split: str = "test", tasks: int = 3, samples: int = 1, model: str = "m",
    harness: str = "h 1", **declared: Any,
) -> dict[str, Any]:  # fmt: skip
    """Return the body of a registration."""
    return {
        "environment": environment, "split": split, "tasks": tasks, "samples": samples,
        "declared": {"model": model, "harness": harness, **declared},
    }  # fmt: skip


def episode(sample: int = 0, reward: float | None = 1.0, end: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "sample": sample, "seed": 7, "reward": reward, "end": end, "input_tokens": 10, "output_tokens": 2, **more,
    }  # fmt: skip


def submission(sha256: str, *rewards: float | None, **changes: Any) -> dict[str, Any]:
    """Return an upload with one episode for each task; what it says of itself fits its rewards."""
    known = [one for one in rewards if one is not None]
    fields = {
        "sha256": sha256, "environment": "locks", "environmentVersion": "1.0", "split": "test", "samples": 1,
        "successAt": 1.0, "declared": {"model": "m", "harness": "h 1"}, "scored": len(known),
        "mean": sum(known) / len(known) if known else None,
        "tasks": [
            {"task": f"lock-{index}", "index": index,
             "episodes": [episode(reward=one, end="completed" if one is not None else "failed")]}
            for index, one in enumerate(rewards)
        ],
    }  # fmt: skip
    return fields | changes
