"""The server gives none of its own credentials to an environment, over any transport and under any name."""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from ludus.client import connect
from ludus.protocol import text_of
from ludus.protocol.methods import Scope
from ludus.server import Environment, Task, tool
from ludus.server.auth.tokens import TokenFile, new_token

Serve = Callable[..., Awaitable[Any]]
SCOPES = [Scope.TASKS_READ, Scope.EPISODES_RUN, Scope.REWARDS_READ]


class Open(Environment[Task]):
    """Return its secrets."""

    splits = {"train": [Task(id="only")]}

    async def prompt(self) -> str:
        return "Look."

    @tool
    async def tell(self) -> str:
        """Tell the secrets."""
        return json.dumps(dict(self.secrets))


def given(token: str, other: str) -> dict[str, str]:
    return {
        "good": "a secret of the task",
        "api_key": token,
        "OPENREWARD_API_KEY": f" {token}\n",
        "header": f"Bearer {token}",
        "somebody_else": other,
    }


@pytest.fixture
async def served(serve: Serve) -> tuple[Any, str, str]:
    """A server with tokens: itself, the token to use, and another one."""
    (token, one), (other, two) = new_token("trainer", SCOPES), new_token("other", SCOPES)
    file = TokenFile(tokens=(one, two)).model_dump_json()
    return await serve(Open, variables={"LUDUS_TOKENS": file}), token, other


@pytest.mark.requirement("CRED-17")
@pytest.mark.parametrize("wire", ["channel", "mcp", "ors"])
async def test_no_token_reaches_an_environment(served: tuple[Any, str, str], wire: Any) -> None:
    server, token, other = served
    async with (
        connect(server.url, wire=wire, token=token) as client,
        client.environment("open").episode(split="train", index=0, secrets=given(token, other)) as episode,
    ):
        assert json.loads(text_of((await episode.call("tell")).content)) == {"good": "a secret of the task"}


async def told(url: str, headers: dict[str, str], in_body: dict[str, str], in_header: dict[str, str]) -> Any:
    """The secrets that an environment is given by `/create`."""
    encoded = base64.b64encode(json.dumps({name: {"value": text} for name, text in in_header.items()}).encode())
    async with aiohttp.ClientSession(url, headers={"X-Session-ID": "s", **headers}) as session:
        body = {"split": "train", "index": 0, "secrets": in_body}
        async with session.post("/create", json=body, headers={"X-Secrets": encoded.decode()}) as response:
            assert response.status == 200
        async with session.post("/call", json={"name": "tell", "input": {}}) as response:
            event = (await response.text()).split("event: end\r\ndata: ")[1]
        async with session.post("/delete") as response:
            assert response.status == 200
    return json.loads(json.loads(event)["output"]["blocks"][0]["text"])


@pytest.mark.requirement("CRED-17")
async def test_whichever_header_holds_the_credential(served: tuple[Any, str, str], serve: Serve) -> None:
    server, token, _ = served
    for headers in (
        {"X-API-Key": token},
        {"Authorization": f"Bearer {token}"},
        {"Authorization": f"bearer  {token}", "X-API-Key": "a key of a platform"},
    ):
        for in_body, in_header in (({"a": token}, {"b": "good"}), ({"b": "good"}, {"a": token})):
            assert await told(server.url, headers, in_body, in_header) == {"b": "good"}
        found = await told(server.url, headers, {"a": "a key of a platform"}, {})
        assert found == ({} if "a key of a platform" in headers.values() else {"a": "a key of a platform"})
    unguarded = await serve(Open)
    assert await told(unguarded.url, {"X-API-Key": "k"}, {"a": "k"}, {"b": "good"}) == {"b": "good"}
