"""Record `spec/transcripts/`: one episode over each transport, as a real server answers it.

    python scripts/generate_transcripts.py            record and write
    python scripts/generate_transcripts.py --check    record, exit with 1 when a transcript is stale, writing nothing

A server of `transcript_environment.py` runs on 127.0.0.1, and plain HTTP and WebSocket requests are sent to it.
Placeholders replace what differs between recordings: ids, the capability, times, the port and the server's version.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import textwrap
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import aiohttp
from generate_schema import ROOT, write_or_check
from transcript_environment import Arithmetic

from ludus.protocol.identifiers import (
    CHANNEL_PATH,
    CHANNEL_SUBPROTOCOL,
    CONTROL_PATH,
    EXTENSION_ID,
    EXTENSION_VERSION,
    METHOD_PREFIX,
    SUBMIT_TOOL,
)
from ludus.server.durability.journal import MemoryJournal
from ludus.server.serving.serve import serving
from ludus.server.serving.settings import ServerSettings

TRANSCRIPT_DIR: Final = ROOT / "spec" / "transcripts"
REVISION: Final = "2026-07-28"
"""The MCP revision of the core."""
WIDTH: Final = 120
"""The most columns of a line of JSON."""
SECONDS: Final = 20.0
"""How long to wait for one reply."""

HEADERS: Final = (
    "Accept", "Content-Type", "MCP-Protocol-Version", "Mcp-Method", "Mcp-Name", "X-Session-ID", "Connection", "Upgrade",
    "Sec-WebSocket-Protocol", "Ludus-Max-Frame",
)  # fmt: skip
"""The headers that are shown."""
SHOWN_ONCE: Final = frozenset({"Accept", "Content-Type", "MCP-Protocol-Version"})
"""The headers that are left out over MCP where they repeat those of the previous request or reply."""
TIME_FIELD: Final = "expiresAt"
TIME: Final = 1795000000.0
SERVER_FIELD: Final = "io.modelcontextprotocol/serverInfo"
SERVER_VERSION: Final = "1.0.0"

EPISODE: Final = "e_Yt81Lm"
GROUP: Final = "g_7Qw2Zr"
ADDRESS: Final = "http://127.0.0.1:8000"
PLAY_PATH: Final = "/play/play_AAAA/mcp"
SESSION: Final = "0f8b2c1e-6d43-4a57-9b10-2f6a7c9d4e85"
ORS_CALL: Final = "5be1c0a94d7f000"

ENVELOPE: Final = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION_ID: {"version": EXTENSION_VERSION}}},
}
"""The `_meta` of a client that uses the extension."""
STOCK_ENVELOPE: Final = {**ENVELOPE, "io.modelcontextprotocol/clientCapabilities": {}}
"""The `_meta` of a client that does not know the extension."""

SUM: Final = {"environment": "arithmetic", "split": "train", "task": "sum-0"}
CALL: Final = {"a": 2, "b": 2}

REPEATED: Final = (
    "Every request has the headers `Accept`, `Content-Type` and `MCP-Protocol-Version` and the `_meta` of the first, "
    "and every reply the `Content-Type` and the `_meta` of the first; they are shown once."
)
NO_TOKENS: Final = "This server has no tokens; to a server with tokens, a client also sends `Authorization: Bearer …`."


# ── layout ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def layout(value: Any) -> str:
    """Return JSON text of at most `WIDTH` columns: as many members on a line as fit, closing brackets together."""
    return _layout(value, "", 0, 0)


def _layout(value: Any, indent: str, column: int, after: int) -> str:
    """Return JSON text that begins in `column`, in a line with `indent`; `after` characters follow its last line."""
    text = _dumped(value)
    if column + len(text) + after <= WIDTH or not isinstance(value, (dict, list)) or not value:
        return text
    if isinstance(value, list) and len(value) == 1:
        return f"[{_layout(value[0], indent, column + 1, after + 1)}]"
    inner = indent + "  "
    keys = [f"{_dumped(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    items = list(value.values()) if isinstance(value, dict) else value
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    is_root = column == 0  # whose first members are on the line of its bracket
    line, base = (opening, indent) if is_root else (inner, inner)
    text = opening if is_root else f"{opening}\n{inner}"
    is_begun, was_split = False, False
    for place, (key, item) in enumerate(zip(keys, items, strict=True)):
        comma, behind = (",", 1) if place < len(items) - 1 else ("", after + 1)
        width = len(key) + len(_dumped(item)) + behind
        must_split = len(inner) + width > WIDTH and isinstance(item, (dict, list))
        room = WIDTH - len(line) - (1 if is_begun else 0)
        if is_begun and (was_split or (width > room and not (must_split and len(key) < room))):
            text, line, base, is_begun = f"{text}\n{inner}", inner, inner, False
        gap = " " if is_begun else ""
        member = _layout(item, base, len(line) + len(gap) + len(key), behind)
        text += f"{gap}{key}{member}{comma}"
        line, is_begun, was_split = text.rpartition("\n")[2], True, "\n" in member
    return text + closing


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Message:
    """One message: its first line, the headers to show, and its body as JSON or as text."""

    first: str
    headers: Mapping[str, str]
    body: Any
    kind: str = "http"
    """The language of the Markdown block."""

    @property
    def meta(self) -> Any:
        """The `_meta` of a JSON-RPC message; None without one."""
        inner = (self.body.get("params") or self.body.get("result")) if isinstance(self.body, dict) else None
        return inner.get("_meta") if isinstance(inner, dict) else None

    @property
    def common(self) -> tuple[dict[str, str], Any]:
        """The headers and the `_meta` that are shown once over MCP."""
        return {name: value for name, value in self.headers.items() if name in SHOWN_ONCE}, self.meta

    def without_common(self) -> Message:
        """Return the message without what is shown once."""
        headers = {name: value for name, value in self.headers.items() if name not in SHOWN_ONCE}
        body = {
            key: {name: item for name, item in value.items() if name != "_meta"} if isinstance(value, dict) else value
            for key, value in self.body.items()
        }
        return replace(self, headers=headers, body=body)


def shown_headers(headers: Mapping[str, str], *, has_body: bool) -> dict[str, str]:
    """Return the headers that the standard is about; no `Content-Type` of nothing, and no `Accept` of anything."""
    chosen = {name: headers[name] for name in HEADERS if name in headers}
    if not has_body:
        chosen.pop("Content-Type", None)
    if "Upgrade" not in chosen:
        chosen.pop("Connection", None)
    return {name: value for name, value in chosen.items() if value != "*/*"}


@dataclass
class Transcript:
    """A client of one server that keeps what it sends and receives.

    Attributes:
        http: sends the requests.
        url: the server's address.
        upgrade: the headers and the response of the last HTTP request, from the trace of `http`.
        names: the placeholder of each text that differs between recordings.
        exchanges: the messages so far, each request with its replies, with the sentence before them.
    """

    http: aiohttp.ClientSession
    url: str
    upgrade: list[Any]
    names: dict[str, str] = field(default_factory=dict)
    exchanges: list[tuple[str, list[Message]]] = field(default_factory=list)

    async def request(
        self, about: str, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
    ) -> Any:
        """Send an HTTP request, and return the reply's JSON value or text."""
        async with self.http.request(method, self.url + path, json=body, headers=headers) as response:
            text = await response.text()
        value = json.loads(text) if response.content_type == "application/json" else text
        sent = shown_headers(response.request_info.headers, has_body=body is not None)
        received = shown_headers(response.headers, has_body=bool(text))
        asked = Message(f"{method} {path} HTTP/1.1", sent, body)
        answered = Message(f"HTTP/1.1 {response.status} {response.reason}", received, value)
        self.exchanges.append((about, [asked, answered]))
        return value

    async def mcp(self, about: str, path: str, method: str, **params: Any) -> Any:
        """Call an MCP method, and return the result; only on the control endpoint, declare the extension.

        Raises:
            ValueError: the server refuses the request.
        """
        meta = ENVELOPE if path == CONTROL_PATH else STOCK_ENVELOPE
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": REVISION,
            "Mcp-Method": method,
            **({"Mcp-Name": str(params["name"])} if "name" in params else {}),
        }
        number = len(self.exchanges) + 1
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": meta}}
        answer = await self.request(about, "POST", path, headers, body)
        if "result" not in answer:
            raise ValueError(f"{method} is refused: {answer}")
        return answer["result"]

    async def open(self, about: str) -> aiohttp.ClientWebSocketResponse:
        """Open the channel."""
        socket = await self.http.ws_connect(self.url + CHANNEL_PATH, protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0)
        headers, response = self.upgrade
        asked = Message(f"GET {CHANNEL_PATH} HTTP/1.1", shown_headers(headers, has_body=False), None)
        received = shown_headers(response.headers, has_body=False)
        answered = Message(f"HTTP/1.1 {response.status} {response.reason}", received, None)
        self.exchanges.append((about, [asked, answered]))
        return socket

    async def frames(self, about: str, socket: aiohttp.ClientWebSocketResponse, body: Any) -> Any:
        """Send a text frame, and return the last frame that answers it."""
        await socket.send_str(json.dumps(body))
        messages = [Message("frame from the client", {}, body, "text")]
        waiting = len(body) if isinstance(body, list) else 1
        answer: Any = None
        while waiting:
            answer = json.loads(await socket.receive_str(timeout=SECONDS))
            waiting -= len(answer) if isinstance(answer, list) else 1
            messages.append(Message("frame from the server", {}, answer, "text"))
        self.exchanges.append((about, messages))
        return answer

    def name_episode(self, started: Mapping[str, Any]) -> str:
        """Set placeholders for what a `StartResult` of one episode holds, and return the episode's id."""
        (one,) = started["episodes"]
        self.names |= {started["group"]: GROUP, one["episode"]: EPISODE}
        if one.get("play"):
            self.names[one["play"]["path"]] = PLAY_PATH
        return str(one["episode"])

    def markdown(self, title: str, *about: str, common_once: bool = False) -> str:
        """Return the transcript as a page.

        Args:
            title: the page's title.
            about: the sentences before the first exchange.
            common_once: show `Message.common` only in the first exchange.

        Raises:
            ValueError: with `common_once`, a message differs in what is shown once.
        """
        note = "<!-- Recorded by `python scripts/generate_transcripts.py`. -->"
        parts = [f"# {title}", note, textwrap.fill(" ".join(about), WIDTH, break_long_words=False)]
        (_, first), *rest = self.exchanges
        exchanges = list(self.exchanges)
        if common_once:
            if any(
                message.common != model.common for _, pair in rest for message, model in zip(pair, first, strict=True)
            ):
                raise ValueError(f"{title}: the headers or the `_meta` of a message differ from those of the first")
            exchanges[1:] = [(sentence, [message.without_common() for message in pair]) for sentence, pair in rest]
        for sentence, messages in exchanges:
            parts.append(sentence)
            parts += [f"```{message.kind}\n{self._text(message)}\n```" for message in messages]
        return "\n\n".join(parts) + "\n"

    def _text(self, message: Message) -> str:
        head = [message.first, *(f"{name}: {value}" for name, value in message.headers.items())]
        lines = [str(self._stable(line)) for line in head]
        body = self._stable(message.body)
        if isinstance(body, str):
            lines += ["", *body.strip().splitlines()]
        elif body is not None:
            lines += ["", layout(body)]
        return "\n".join(lines)

    def _stable(self, value: Any) -> Any:
        """Return a copy in which placeholders replace all that differs between recordings."""
        if isinstance(value, dict):
            known = {key: self._stable(item) for key, item in value.items()}
            if TIME_FIELD in known:
                known[TIME_FIELD] = TIME
            if SERVER_FIELD in known:
                known[SERVER_FIELD] = {**known[SERVER_FIELD], "version": SERVER_VERSION}
            return known
        if isinstance(value, list):
            return [self._stable(item) for item in value]
        if isinstance(value, str):
            for actual, placeholder in self.names.items():
                value = value.replace(actual, placeholder)
        return value


# ── the transcripts ────────────────────────────────────────────────────────────────────────────────────────────────


async def record_mcp(talk: Transcript) -> str:
    """Record the core over MCP."""

    async def ask(about: str, method: str, **params: Any) -> Any:
        return await talk.mcp(about, CONTROL_PATH, METHOD_PREFIX + method, **params)

    about = "The client asks what the server offers; the key of `extensions` announces this standard."
    await talk.mcp(about, CONTROL_PATH, "server/discover")
    await ask("It lists the environments.", "environments/list")
    await ask("It reads a task.", "tasks/get", environment="arithmetic", split="train", index=0)
    started = await ask("It starts an episode of this task, with a key of its choice.", "episodes/start",
                        **SUM, seed=7, key="k1")  # fmt: skip
    episode = talk.name_episode(started)
    await ask("The policy calls a tool, which earns a reward of 0.5.", "episodes/step",
              episode=episode, step=1, tool="add", arguments=CALL, key="k2")  # fmt: skip
    await ask("It submits its final answer, which is graded and ends the episode.", "episodes/grade",
              episode=episode, answer="4", key="k3")  # fmt: skip
    await ask("The client reads the log of all rewards and their total.", "episodes/rewards", episode=episode)
    await ask("It closes the episode, so that the server can free what it holds.", "episodes/close", episode=episode)
    return talk.markdown(
        f"Transcript: the core over MCP {REVISION}",
        "A trainer runs one episode with plain HTTP requests.",
        "Ids, times and the server's version are placeholders.",
        REPEATED,
        NO_TOKENS,
        common_once=True,
    )


async def record_channel(talk: Transcript) -> str:
    """Record an episode over the channel."""
    number = 0

    def request(method: str, **params: Any) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"jsonrpc": "2.0", "id": number, "method": METHOD_PREFIX + method, "params": params}

    socket = await talk.open(
        "The client opens a WebSocket, and the server gives the size of the largest frame it reads."
    )
    about = "The client starts an episode."
    started = await talk.frames(about, socket, request("episodes/start", **SUM, seed=7, key="k1"))
    episode = talk.name_episode(started["result"])
    step = request("episodes/step", episode=episode, step=1, tool="add", arguments=CALL, key="k2")
    await talk.frames("The policy calls a tool, which earns a reward of 0.5.", socket, step)
    about = "It submits its final answer, which is graded and ends the episode."
    await talk.frames(about, socket, request("episodes/grade", episode=episode, answer="4", key="k3"))
    both = [request("episodes/rewards", episode=episode), request("episodes/close", episode=episode)]
    await talk.frames("A batch reads the rewards and closes the episode.", socket, both)
    await socket.close()
    return talk.markdown(
        "Transcript: the channel",
        "A trainer runs one episode over a WebSocket.",
        "Ids and times are placeholders.",
        "Headers that have the same meaning for every WebSocket, such as `Sec-WebSocket-Key`, are left out.",
        NO_TOKENS,
    )


async def record_play(talk: Transcript) -> str:
    """Record an episode that an agent plays with a stock MCP client."""
    trainer = Transcript(talk.http, talk.url, talk.upgrade)
    started = await trainer.mcp("", CONTROL_PATH, METHOD_PREFIX + "episodes/start", **SUM, seed=7, key="k1")
    talk.name_episode(started)
    path = started["episodes"][0]["play"]["path"]

    async def call(about: str, tool: str, **arguments: Any) -> Any:
        return await talk.mcp(about, path, "tools/call", name=tool, arguments=arguments)

    await talk.mcp("The agent's client connects, and finds the prompt in `instructions`.", path, "server/discover")
    await talk.mcp("It lists the tools: those of the episode, and one for the final answer.", path, "tools/list")
    await call("The model calls a tool and sees the observation.", "add", **CALL)
    await call("It submits its final answer, which ends the episode.", SUBMIT_TOOL, answer="4")
    await call("A call after the end runs nothing.", "add", **CALL)
    return talk.markdown(
        "Transcript: an agent on the play endpoint",
        "A trainer has started an episode with `episodes/start`, as in [mcp.md](mcp.md), and has given an agent the",
        f"address of its play endpoint, `{ADDRESS}{PLAY_PATH}`.",
        "The agent has a stock MCP client, which does not know this standard.",
        "No message says what a call or the answer is worth; the trainer reads that with `episodes/rewards`.",
        "The capability in the path and the server's version are placeholders.",
        REPEATED,
        common_once=True,
    )


async def record_ors(talk: Transcript) -> str:
    """Record an episode by an ORS client."""
    created = await talk.request("The client asks for a session id.", "POST", "/create_session")
    session = _task_id(created)
    talk.names[session] = SESSION
    headers = {"X-Session-ID": session}

    async def call(about: str, tool: str, **arguments: Any) -> None:
        body = {"name": tool, "input": arguments}
        answer = await talk.request(about, "POST", "/arithmetic/call", headers, body)
        talk.names[_task_id(answer)] = f"{ORS_CALL}{len(talk.names)}"

    about = "It starts an episode in this session."
    task = {"id": SUM["task"], "split": SUM["split"]}
    await talk.request(about, "POST", "/create", headers, {"env_name": SUM["environment"], "task_spec": task})
    await talk.request("It reads the prompt.", "GET", "/arithmetic/prompt", headers)
    await talk.request("It lists the tools of the task.", "GET", "/arithmetic/task_tools", headers)
    await call("The policy calls a tool. The reply is a stream of events, and `reward` is the step's.", "add", **CALL)
    about = "It submits its final answer: `reward` is the grade, and `finished` says that the episode has ended."
    await call(about, SUBMIT_TOOL, answer="4")
    await talk.request("The client closes the episode.", "POST", "/delete", headers)
    return talk.markdown(
        "Transcript: an ORS client",
        "A trainer with a client of the Open Reward Standard runs one episode.",
        "The session id and the ids of calls are placeholders.",
        NO_TOKENS,
    )


def _task_id(events: str) -> str:
    """Return the id in the first event of an ORS reply.

    Raises:
        ValueError: there is none.
    """
    match = re.match(r"event: task_id\r?\ndata: (\S+)", events)
    if match is None:
        raise ValueError(f"the reply does not begin with an event `task_id`: {events[:200]!r}")
    return match[1]


RECORDERS: Final[Mapping[str, Callable[[Transcript], Coroutine[Any, Any, str]]]] = {
    "mcp.md": record_mcp,
    "channel.md": record_channel,
    "play.md": record_play,
    "ors.md": record_ors,
}


async def record() -> dict[Path, str]:
    """Record every transcript with a server of its own."""
    found = {}
    for name, recorder in RECORDERS.items():
        upgrade: list[Any] = []
        trace = aiohttp.TraceConfig()

        # `Any`, because pyright does not always resolve the generic type of aiohttp's signals.
        async def keep(_: Any, __: Any, params: Any, kept: list[Any] = upgrade) -> None:
            kept[:] = [params.response.request_info.headers, params.response]

        trace.on_request_end.append(keep)
        timeout = aiohttp.ClientTimeout(total=SECONDS)
        async with (
            serving([Arithmetic], ServerSettings(port=0), None, MemoryJournal()) as server,
            aiohttp.ClientSession(trace_configs=[trace], timeout=timeout) as http,
        ):
            found[TRANSCRIPT_DIR / name] = await recorder(Transcript(http, server.url, upgrade))
    return found


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 when a transcript is stale")
    return write_or_check(asyncio.run(record()), parser.parse_args().check, "scripts/generate_transcripts.py")


if __name__ == "__main__":
    sys.exit(main())
