"""On a server with several environments, a session plays the one that the client named, or is refused with a reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from ludus.protocol.rewards import Reward
from ludus.server import Environment, Result, ServerLimits, Split, Task, tool

Serve = Callable[..., Awaitable[Any]]
SitPeer = Callable[..., Awaitable[Any]]

WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ors-sdk", {}),
    ("ors-sdk", {"use_task": True}),
    ("openreward", {}),
    ("openreward", {"use_task": True}),
    ("openreward", {"variant": "second"}),
    ("openreward", {"variant": "second", "use_task": True}),
    ("trl", {}),
)


class Named(Environment[Task]):
    """Says which one it is."""

    splits = {"train": [Task(id=f"t{number}") for number in range(3)]}

    async def prompt(self) -> str:
        return f"This is {type(self).__name__}."

    @tool
    async def who(self) -> Result:
        """Say which environment this is."""
        return Result(type(self).__name__, reward=1.0)

    @classmethod
    async def score_group(cls, task: Task, candidates: Any) -> list[Reward]:
        return [Reward(value=1.0) for _ in candidates]


class First(Named):
    """The first."""


class Second(Named):
    """The second."""

    splits = {"train": Named.splits["train"], "hard": Split([Task(id="h")], type="validation")}


@pytest.mark.suite("peers", first=1)
@pytest.mark.timeout(300)
@pytest.mark.requirement("ORS-17")
@pytest.mark.parametrize(("peer", "job"), WAYS)
async def test_a_peers_client_plays_the_environment_it_asked_for(
    serve: Serve, sit_peer: SitPeer, peer: str, job: dict[str, Any]
) -> None:
    server = await serve(First, Second)
    seat = await sit_peer(peer, server.url, environment="second", index=1, **job)
    assert "This is Second." in str(seat.seen["prompt"])
    assert (await seat.call("who"))["blocks"] == ["Second"]
    assert server.app.context.host.stats().started == {"second": 1 if peer != "trl" else 2}  # TRL looks at tools first


@pytest.mark.suite("peers")
@pytest.mark.timeout(300)
@pytest.mark.requirement("ORS-17")
@pytest.mark.parametrize(("peer", "environment"), [("openreward", "nosuch"), ("trl", "")])
async def test_a_name_that_none_of_several_environments_has_is_refused(
    serve: Serve, sit_peer: SitPeer, peer: str, environment: str
) -> None:
    server = await serve(First, Second)
    with pytest.raises(AssertionError, match="unknown environment .*; this server has first, second"):
        await sit_peer(peer, server.url, environment=environment)
    assert server.app.context.host.stats().started == {}


Ask = Callable[..., Awaitable[tuple[int, Any]]]


@pytest.fixture
async def ask(serve: Serve) -> AsyncIterator[Ask]:
    """`status, text = await ask(method, path, body, sid=…, header=…)` on a server with two environments."""
    server = await serve(First, Second, limits=ServerLimits(max_episodes=3, grace_seconds=0.5))
    async with aiohttp.ClientSession(server.url) as session:

        async def request(method: str, path: str, body: Any = None, sid: str = "s", **more: str) -> tuple[int, Any]:
            headers = {"X-Session-ID": sid, **{name.replace("_", "-"): value for name, value in more.items()}}
            data = None if body is None else json.dumps(body).encode()
            async with session.request(method, path, data=data, headers=headers) as response:
                return response.status, await response.text()

        yield request


GOOD = {"split": "train", "index": 0}
CALL = {"name": "who", "input": {}}
ROUTES: tuple[tuple[str, str, Any], ...] = (
    ("GET", "prompt", None),
    ("GET", "messages", None),
    ("GET", "task_tools", None),
    ("POST", "call", CALL),
    ("POST", "score_group", {"candidates": []}),
)


@pytest.mark.requirement("ORS-17")
@pytest.mark.parametrize("undecided", [False, True])
async def test_the_path_of_another_environment_is_refused(ask: Ask, undecided: bool) -> None:
    assert (await ask("POST", "/create", GOOD if undecided else {**GOOD, "env_name": "Second"}))[0] == 200
    assert "Second" in (await ask("GET", "/SECOND/prompt"))[1]
    for method, route, body in ROUTES:
        status, text = await ask(method, f"/first/{route}", body)
        assert (status, json.loads(text)["detail"]) == (
            400,
            "this session plays 'second', and the path is of 'first': use the paths under /second/, or create another "
            "session with `env_name` 'first'",
        )
        for path in (f"/second/{route}", f"/{route}"):
            assert (await ask(method, path, body))[0] == 200


@pytest.mark.requirement("ORS-17")
async def test_a_session_without_an_environment_begins_with_its_first_path(ask: Ask) -> None:
    for sid, path, headers, name in (
        ("a", "/second/call", {}, "Second"),
        ("b", "/call", {}, "First"),
        ("c", "/call", {"X_Deployment": "lab/Second"}, "Second"),
    ):
        assert (await ask("POST", "/create", GOOD, sid))[0] == 200
        assert (await ask("POST", "/ping", None, sid))[0] == 200
        assert f'"text":"{name}"' in (await ask("POST", path, CALL, sid, **headers))[1]


@pytest.mark.requirement("ORS-17")
async def test_what_an_environment_does_not_have_is_reported_when_the_session_uses_it(ask: Ask) -> None:
    for split, index, path, told in (
        ("hard", 0, "/second/prompt", (200, "This is Second.")),
        ("hard", 0, "/first/prompt", (400, "Invalid split")),
        ("train", 9, "/second/prompt", (400, "Invalid index")),
    ):
        assert (await ask("POST", "/create", {"split": split, "index": index}))[0] == 200
        for _ in range(2):
            status, text = await ask("GET", path)
            assert status == told[0]
            assert told[1] in text
        await ask("POST", "/delete")


@pytest.mark.requirement("ORS-17")
async def test_a_deployment_that_is_none_of_several_environments_is_refused(ask: Ask) -> None:
    for method, path, body in (("GET", "/tools", None), ("GET", "/splits", None), ("POST", "/create", GOOD)):
        status, text = await ask(method, path, body, X_Deployment="lab/third")
        assert (status, json.loads(text)["detail"]) == (
            404,
            "unknown environment 'third'; this server has first, second",
        )
    assert (await ask("GET", "/second/tools", X_Deployment="lab/third"))[0] == 200
    assert (await ask("GET", "/tools"))[0] == 200


async def test_sessions_that_never_say_their_environment_are_bounded(ask: Ask) -> None:
    for number in range(3):
        assert (await ask("POST", "/create", GOOD, f"s{number}"))[0] == 200
    status, text = await ask("POST", "/create", GOOD, "one more")
    assert status == 429
    assert "env_name" in text
    assert (await ask("GET", "/second/prompt", None, "s0"))[0] == 200
    assert (await ask("POST", "/create", GOOD, "one more"))[0] == 200
