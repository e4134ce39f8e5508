"""No reply of the agent endpoint, to any request, holds a reward, a private field or another episode's data."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ludus.protocol import METHODS
from ludus.protocol.episodes import StartParams
from ludus.protocol.identifiers import STEP_META_KEY
from ludus.server import ServerLimits
from ludus.server.auth.principal import Principal
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings

MODERN, LEGACY = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"

words = st.text("abcxyz 0123456789é\n", max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
arguments = st.fixed_dictionaries({"number": st.integers(-2, 9)}) | st.dictionaries(
    st.sampled_from(["number", "times", "combination", "answer", "episode", "x"]), values, max_size=3
)
marks = st.none() | st.fixed_dictionaries({"key": words}, optional={"step": st.integers(0, 4)}) | values
tool_calls = st.tuples(
    st.just("tools/call"),
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(
                ["look", "dial", "kick", "peek", "open", "submit_answer", "start_episode", "call_tool", "x"]
            )
        },
        optional={"arguments": arguments | values},
    ),
)
other_calls = st.tuples(
    st.sampled_from(
        [
            "tools/list", "prompts/list", "prompts/get", "server/discover", "initialize", "ping", "resources/list",
            "resources/read", "completion/complete", "logging/setLevel", "subscriptions/listen", *METHODS, "x",
        ]
    ),
    st.fixed_dictionaries({}, optional={"name": st.sampled_from(["task", "x"]), "episode": words, "uri": st.just("task://1")}),
)  # fmt: skip
requests = st.tuples(st.sampled_from([MODERN, LEGACY]), tool_calls | other_calls, marks)
"""Era, method with params, mark of the step."""


def encode(era: str, method: str, params: Any, mark: Any, episode: Any) -> Any:
    """One request, which names an episode of its own where it names one."""
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": era}
    params = dict(params)
    if "episode" in params:
        params["episode"] = episode
    meta = {} if mark is None else {STEP_META_KEY: mark}
    if era == MODERN:
        extensions = {"extensions": {"dev.ludus/episodes": {"version": "0.2"}}}
        meta |= {META + "protocolVersion": era, META + "clientCapabilities": extensions}
        headers["Mcp-Method"] = method
        if method in ("tools/call", "prompts/get") and "name" in params:
            headers["Mcp-Name"] = params["name"]
        if method == "resources/read":
            headers["Mcp-Name"] = params.get("uri", "")
    if meta:
        params["_meta"] = meta
    return headers, {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def replies_to(environment: Any, batch: Any) -> Any:
    """Everything the play plane of one episode says to the requests of `batch`, and what it must never say."""
    limits = ServerLimits(grace_seconds=0.2)
    async with serving([environment], ServerSettings(port=0, limits=limits, log_level="CRITICAL")) as server:
        host = server.app.context.host
        started = [
            (await host.start(StartParams(environment="vault", split=split, index=1, key=split), Principal.open()))
            for split in ("train", "test")
        ]
        (mine,), (other,) = (each.episodes for each in started)
        assert mine.play is not None
        assert other.play is not None
        said = []
        async with httpx.AsyncClient(timeout=20) as client:
            # The other episode has a story of its own, in case anything of it is shared.
            await client.post(
                server.url + other.play.path,
                **dict(zip(("headers", "json"), encode(LEGACY, "tools/call", {"name": "look"}, None, ""), strict=True)),
            )
            for era, (method, params), mark in batch:
                headers, body = encode(era, method, params, mark, mine.episode)
                response = await client.post(server.url + mine.play.path, headers=headers, json=body)
                assert response.status_code < 500, (body, response.text)
                said.append((body, f"{dict(response.headers)}\n{response.text}"))
        return said, [other.episode, started[0].group, started[1].group, "clue 51", str(mine.seed), str(other.seed)]


FORBIDDEN = (
    "PRIVATE", "combination-", "0.7312", '"reward"', '"rewards"', '"score"', '"components"', '"metadata"', '"seed"',
    '"task"', "RuntimeError", "Traceback", "structuredContent",
)  # fmt: skip
ALLOWED = {"prompts/list": '"task"'}
"""The one prompt is called `task`."""


# Each example is a server's life, so shrinking a failure would take minutes; it names the one request anyway.
@settings(
    max_examples=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(batch=st.lists(requests, min_size=8, max_size=25))
def test_no_reply_of_the_agent_endpoint_holds_what_agents_may_not_know(batch: Any, vault: Any) -> None:
    said, secrets = asyncio.run(replies_to(vault, batch))
    for body, text in said:
        for secret in (*FORBIDDEN, *secrets):
            if ALLOWED.get(body["method"]) != secret:
                assert secret not in text, json.dumps(body)
