"""The public wire of this tree compared with that of another commit.

    python benchmarks/wire_diff.py [--against 4fdde6b] [--save FOLDER]

Compares two things and prints what differs:

* The schemas in `spec/schema/`, without their prose (`description`, `summary`).
* Recorded traffic. A server of each tree serves the same environment, and the same scripted session goes over each
  transport: the channel, MCP control and the agent endpoint in both protocol revisions, and ORS. A record is one
  reply: its status, its content type, and its body byte by byte. Ids, keys, addresses and times are replaced by names
  in order of appearance.

The other tree's sources are taken from git and put in front of this tree's on `PYTHONPATH`. The exit code is 0 if
nothing differs and 1 otherwise.
"""

from __future__ import annotations

import argparse
import asyncio
import difflib
import importlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import aiohttp

HERE: Final = Path(__file__).resolve()
ROOT: Final = HERE.parents[1]
ROOTS: Final = ("protocol", "server", "client_sdk", "environments", "trainer")
MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
EXTENSION: Final = "dev.ludus/episodes"
PROSE: Final = frozenset({"description", "summary"})

ENVIRONMENT: Final = '''
from ludus.server import Environment, ImageBlock, Private, Result, Split, Task, TextBlock, ToolError, tool


class Sum(Task):
    question: str
    answer: Private[int]


class Toy(Environment[Sum]):
    """Add numbers."""

    splits = {
        "train": Split([Sum(id=f"t{i}", question=f"{i} + 1?", answer=i + 1) for i in range(3)], type="train"),
        "test": Split([Sum(id="x1", question="8 + 9?", answer=17)], type="test"),
    }

    def prompt(self) -> str:
        return self.task.question

    @tool
    def look(self) -> str:
        """Look around."""
        return "caf\\u00e9 \\u2603 " + "long " * 3

    @tool
    def add(self, a: int, b: float = 0.5, note: str | None = None) -> Result:
        """Add two numbers.

        Args:
            a: the first number.
        """
        return Result(f"{a + b}", reward=0.25, components={"size": 0.25}, metadata={"note": note})

    @tool
    def show(self) -> list[TextBlock | ImageBlock]:
        """Show a picture."""
        return [TextBlock(text="here"), ImageBlock(data="aGk=", mime_type="image/png")]

    @tool
    def refuse(self) -> str:
        """Refuse."""
        raise ToolError("not that way")

    @tool
    def fail(self) -> str:
        """Fail."""
        raise RuntimeError("a secret detail")

    @tool
    def finish(self) -> Result:
        """End the episode."""
        return Result("done", reward=1.0, finished=True)

    def grade(self, answer: str) -> float:
        return float(answer.strip() == str(self.task.answer))
'''

CALLS: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("look", {}),
    ("add", {"a": 2}),
    ("add", {"a": 2, "b": 3.25, "note": "é"}),
    ("add", {"a": "two"}),
    ("add", {"a": 2, "c": 1}),
    ("show", {}),
    ("refuse", {}),
    ("nothing", {}),
    ("finish", {}),
    ("look", {}),
)
"""The calls of one episode: each kind of outcome, the end, and a call after it."""


# ── the server, in either tree ─────────────────────────────────────────────────────────────────────────────────────


def serve(folder: Path) -> None:
    """Serve the environment at a free port, or over stdio, until SIGTERM. The tree on `PYTHONPATH` decides which."""
    loading = importlib.import_module("ludus.server.tasks.loading")
    classes = loading.load_environments([f"{folder}/toy.py:Toy"])
    settings = _first("ludus.server.serving.settings", "ludus.server.web.settings").ServerSettings(
        port=0, log_level="CRITICAL"
    )
    _first("ludus.server.serving.serve", "ludus.server.web.serve").run(classes, settings)


def _first(*modules: str) -> Any:
    for name in modules[:-1]:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not name.startswith(error.name):
                raise
    return importlib.import_module(modules[-1])


@asynccontextmanager
async def server(tree: Path) -> AsyncIterator[str]:
    """Run the server of a tree, and yield its address."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "toy.py").write_text(ENVIRONMENT, encoding="utf-8")
        paths = os.pathsep.join(str(tree / root) for root in ROOTS)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-B", str(HERE), "--serve", name,
            stdout=asyncio.subprocess.PIPE, cwd=name, env={**os.environ, "PYTHONPATH": paths},
        )  # fmt: skip
        assert process.stdout is not None
        try:
            async with asyncio.timeout(120):
                line = (await process.stdout.readline()).decode()
            found = re.search(r"at (http://\S+)", line)
            if found is None:
                raise SystemExit(f"the server of {tree} did not start: {line!r}")
            yield found[1]
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(60):
                await process.wait()


# ── the sessions ───────────────────────────────────────────────────────────────────────────────────────────────────


class Recorder:
    """Sends requests, and records the replies by transport."""

    def __init__(self, url: str, http: aiohttp.ClientSession) -> None:
        self.url = url
        self.http = http
        self.records: dict[str, list[str]] = {}
        self._keys = 0

    def key(self) -> str:
        """Return a new idempotency key."""
        self._keys += 1
        return f"key-{self._keys}"

    def add(self, transport: str, what: str, reply: str) -> None:
        """Record one reply."""
        self.records.setdefault(transport, []).append(f"{what}\n    {reply}")

    async def send(
        self, transport: str, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        """Send an HTTP request, record its reply, and return the body as JSON if it is JSON."""
        sent = {"content-type": "application/json", **(headers or {})} if body is not None else headers
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.http.request(method, self.url + path, data=data, headers=sent) as reply:
            text = (await reply.read()).decode()
            kind = reply.headers.get("content-type", "-")
            retry = reply.headers.get("retry-after")
        label = f"{method} {path} {json.dumps(body) if not isinstance(body, bytes) else body!r}"
        self.add(transport, label, f"{reply.status} {kind}{f' retry-after {retry}' if retry else ''} {text!r}")
        try:
            return json.loads(text)
        except ValueError:
            return text


async def record_channel(to: Recorder) -> None:
    """Every method of the extension over the channel, with its refusals."""
    async with to.http.ws_connect(f"{to.url}/channel", protocols=("ludus.channel.v0.2",)) as socket:

        async def ask(method: str, params: Any) -> Any:
            request = {"jsonrpc": "2.0", "id": 7, "method": f"dev.ludus/{method}", "params": params}
            await socket.send_str(json.dumps(request))
            text = (await socket.receive(60)).data
            to.add("channel", f"{method} {json.dumps(params)}", repr(text))
            return json.loads(text).get("result")

        await record_methods(ask, to)
        for line in ("{", "[]", '{"jsonrpc":"2.0","id":1}', '{"jsonrpc":"2.0","id":1,"method":"no/such"}'):
            await socket.send_str(line)
            to.add("channel", line, repr((await socket.receive(60)).data))


async def record_methods(ask: Any, to: Recorder) -> None:
    """Send the methods of the extension through `ask`."""
    toy: dict[str, Any] = {"environment": "toy"}
    train: dict[str, Any] = {**toy, "split": "train"}
    await ask("environments/list", {})
    await ask("splits/list", toy)
    await ask("splits/list", {"environment": "none"})
    await ask("tasks/list", {**train, "limit": 2})
    await ask("tasks/list", {**toy, "split": "test"})
    await ask("tasks/get", {**train, "index": 1})
    await ask("tasks/get", {**train, "task": "none"})
    await ask("tasks/sample", {**train, "count": 2, "seed": 1})
    start = {**train, "index": 0, "seed": 5, "key": to.key()}
    episode = (await ask("episodes/start", start))["episodes"][0]["episode"]
    await ask("episodes/start", start)
    await ask("episodes/start", {**train, "index": 99, "key": to.key()})
    await ask("episodes/start", {**train, "unknown": 1, "key": to.key()})
    number = 0
    for tool, arguments in CALLS:
        number += 1
        step = {"episode": episode, "step": number, "tool": tool, "arguments": arguments, "key": to.key()}
        await ask("episodes/step", step)
        if number == 2:
            await ask("episodes/step", step)
            await ask("episodes/step", {**step, "step": 9, "key": to.key()})
    for method in ("episodes/get", "episodes/rewards", "episodes/close", "episodes/close"):
        await ask(method, {"episode": episode})
    (second,) = (await ask("episodes/start", {**train, "index": 2, "seed": 1, "key": to.key()}))["episodes"]
    await ask("episodes/step", {"episode": second["episode"], "step": 1, "tool": "look", "key": to.key()})
    await ask("episodes/grade", {"episode": second["episode"], "answer": "3", "key": to.key()})
    await ask("episodes/rewards", {"episode": second["episode"]})
    (third,) = (await ask("episodes/start", {**train, "index": 1, "seed": 1, "key": to.key()}))["episodes"]
    await ask("episodes/step", {"episode": third["episode"], "step": 1, "tool": "fail", "key": to.key()})
    await ask("episodes/get", {"episode": third["episode"]})
    await ask("episodes/get", {"episode": "none"})


def mcp_headers(era: str, method: str, params: dict[str, Any]) -> dict[str, str]:
    """Return the headers of an MCP request."""
    headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": era}
    if era == MODERN:
        headers["mcp-method"] = method
        if "name" in params:
            headers["mcp-name"] = params["name"]
    return headers


async def mcp(to: Recorder, transport: str, path: str, era: str, method: str, params: dict[str, Any]) -> Any:
    """Send an MCP request of either protocol revision."""
    if era == MODERN:
        prefix = "io.modelcontextprotocol/"
        meta = {
            prefix + "protocolVersion": era,
            prefix + "clientCapabilities": {"extensions": {EXTENSION: {"version": "0.2"}}},
            prefix + "clientInfo": {"name": "diff", "version": "1"},
        }
        params = {**params, "_meta": {**params.get("_meta", {}), **meta}}
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = await to.send(transport, "POST", path, body, mcp_headers(era, method, params))
    return reply.get("result") if isinstance(reply, dict) else None


async def record_mcp(to: Recorder, era: str) -> None:
    """The control endpoint, then the agent endpoint of an episode that it started."""
    control = f"mcp control {era}"

    async def ask(method: str, params: Any) -> Any:
        return await mcp(to, control, "/mcp", era, f"dev.ludus/{method}", params)

    opening = {"protocolVersion": era, "capabilities": {}, "clientInfo": {"name": "diff", "version": "1"}}
    await mcp(to, control, "/mcp", era, "server/discover" if era == MODERN else "initialize", opening)
    await mcp(to, control, "/mcp", era, "tools/list", {})
    await record_methods(ask, to)
    started = await mcp(
        to,
        control,
        "/mcp",
        era,
        "tools/call",
        {"name": "start_episode", "arguments": {"environment": "toy", "index": 0}},
    )
    await mcp(to, control, "/mcp", era, "tools/call", {"name": "list_environments", "arguments": {}})
    await mcp(to, control, "/mcp", era, "tools/call", {"name": "none", "arguments": {}})
    episode = re.search(r"Episode (\S+) of", json.dumps(started))
    assert episode is not None
    call = {"episode": episode[1], "tool": "add", "arguments": {"a": 1}}
    await mcp(to, control, "/mcp", era, "tools/call", {"name": "call_tool", "arguments": call})
    for body in (b"{", b'{"jsonrpc":"2.0","id":1,"method":"no/such"}'):
        await to.send(control, "POST", "/mcp", body, mcp_headers(era, "no/such", {}))
    await to.send(control, "GET", "/mcp")
    agent = f"mcp agent {era}"
    start = {"environment": "toy", "split": "train", "index": 0, "seed": 5, "key": to.key()}
    path = (await ask("episodes/start", start))["episodes"][0]["play"]["path"]
    await mcp(to, agent, path, era, "server/discover" if era == MODERN else "initialize", opening)
    for method in ("tools/list", "prompts/list", "no/such"):
        await mcp(to, agent, path, era, method, {})
    await mcp(to, agent, path, era, "prompts/get", {"name": "task"})
    for tool, arguments in CALLS:
        await mcp(to, agent, path, era, "tools/call", {"name": tool, "arguments": arguments})
    await mcp(to, agent, path[:-8] + "zzzz/mcp", era, "tools/list", {})


async def record_ors(to: Recorder) -> None:
    """A session of ORS, with and without the extension's header."""
    # Without /version: that is the version of the installed distribution, which is this tree's for both servers.
    for path in ("/list_environments", "/toy/tools", "/tools", "/toy/splits", "/none/splits", "/toy/task"):
        await to.send("ors", "GET", path)
    for path, body in (
        ("/toy/tasks", {"split": "train"}),
        ("/toy/tasks", {"split": "none"}),
        ("/toy/tasks", {"splits": "train"}),
        ("/toy/tasks", b"{"),
        ("/toy/num_tasks", {"split": "train"}),
        ("/toy/task", {"split": "train", "index": -1}),
        ("/toy/task", {"split": "train", "index": 9}),
        ("/toy/task_range", {"split": "train", "start": 1}),
        ("/create_session", {}),
        ("/create", {"env_name": "toy", "split": "train", "index": 0}),
    ):
        await to.send("ors", "POST", path, body)
    for extension in ({}, {"X-Ludus-Extension": "0.2"}):
        sid = {"X-Session-ID": f"session-{len(extension)}", **extension}
        await to.send("ors", "POST", "/create", {"env_name": "toy", "split": "train", "index": 0, "seed": 5}, sid)
        for path in ("/toy/prompt", "/toy/messages", "/toy/task_tools"):
            await to.send("ors", "GET", path, headers=sid)
        for tool, arguments in CALLS:
            await to.send("ors", "POST", "/toy/call", {"name": tool, "input": arguments}, sid)
        await to.send("ors", "POST", "/toy/call", {"name": "look"}, sid)
        await to.send("ors", "POST", "/toy/call", {"name": "look", "input": {}, "task_id": "f" * 32}, sid)
        await to.send("ors", "POST", "/toy/score_group", {"candidates": []}, sid)
        await to.send("ors", "POST", "/ping", {}, sid)
        await to.send("ors", "POST", "/delete", {}, sid)
        await to.send("ors", "GET", "/toy/prompt", headers=sid)
        sid = {"X-Session-ID": f"failing-{len(extension)}", **extension}
        await to.send("ors", "POST", "/create", {"env_name": "toy", "split": "train", "index": 1}, sid)
        await to.send("ors", "POST", "/toy/call", {"name": "fail", "input": {}}, sid)


async def record(tree: Path) -> dict[str, list[str]]:
    """Return the normalized records of a tree's server, by transport."""
    async with server(tree) as url, aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as http:
        to = Recorder(url, http)
        await record_channel(to)
        for era in (MODERN, LEGACY):
            await record_mcp(to, era)
        await record_ors(to)
        return {transport: [normalize(text, url) for text in texts] for transport, texts in to.records.items()}


VARIABLE: Final = (
    (re.compile(r"/play/[^/\"\s\\]+/mcp"), "/play/<capability>/mcp"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?( UTC|Z|\+00:00)?"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"((?:expiresAt|expires_at|time|seconds)\\*\":\s*)[0-9.e+]+"), r"\1<number>"),
    (re.compile(r"((?:incident|Incident) )[\w-]+"), r"\1<incident>"),
    (re.compile(r"(\"incident\\*\":\s*\\*\")[\w-]+"), r"\1<incident>"),
    (re.compile(r"\b[eg]_[\w-]{16,}"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<hex>"),
)
"""What differs between two runs of one server, and what replaces it."""


def normalize(text: str, url: str) -> str:
    """Return a record without what differs between two runs of one server."""
    text = text.replace(url.removeprefix("http://"), "<server>")
    for pattern, replacement in VARIABLE:
        text = pattern.sub(replacement, text)
    return text


# ── the comparison ─────────────────────────────────────────────────────────────────────────────────────────────────


def without_prose(value: Any) -> Any:
    """Return a schema without its descriptions and summaries."""
    if isinstance(value, dict):
        return {
            name: without_prose(item) for name, item in value.items() if name not in PROSE or isinstance(item, dict)
        }
    return [without_prose(item) for item in value] if isinstance(value, list) else value


def schemas(tree: Path) -> dict[str, list[str]]:
    """Return the definitions in a tree's schemas, by file and name, each as a text."""
    found: dict[str, list[str]] = {}
    for file in sorted((tree / "spec" / "schema").glob("*.json")):
        document = without_prose(json.loads(file.read_text(encoding="utf-8")))
        parts = document.pop("$defs", {}) | {part["name"]: part for part in document.pop("methods", [])}
        for name, part in {**parts, "the rest": document}.items():
            found[f"spec/schema/{file.name} {name}"] = [json.dumps(part, indent=1, sort_keys=True)]
    return found


def differences(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    """Return the differing lines of each schema or reply, by its name, without those that are equal."""
    found: dict[str, list[str]] = {}
    for name in sorted({*before, *after}):
        for number, (old, new) in enumerate(zip_longest(before.get(name, []), after.get(name, []), fillvalue="")):
            if old != new:
                request = (new or old).partition("\n")[0]
                lines = difflib.unified_diff(_pieces(old), _pieces(new), n=0, lineterm="")
                found[f"{name} #{number}: {request[:160]}"] = [
                    line for line in lines if line[:2] not in ("--", "++", "@@")
                ]
    return found


def _pieces(text: str) -> list[str]:
    """Cut a record before each name of JSON, so that a diff of lines shows which of them differ."""
    return re.split(r"\n|(?<=[,{\[])(?=\\*\")", text)


def checkout(commit: str, folder: Path) -> None:
    """Put the sources of a commit into a folder."""
    packed = subprocess.run(
        ["git", "archive", commit, *ROOTS, "spec"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", default="4fdde6b", help="The commit to compare with.")
    parser.add_argument("--save", type=Path, help="A folder for both recordings, as JSON.")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return 0
    with tempfile.TemporaryDirectory() as name:
        old = Path(name)
        checkout(options.against, old)
        found = differences(schemas(old), schemas(ROOT))
        before, after = asyncio.run(record(old)), asyncio.run(record(ROOT))
    if options.save:
        options.save.mkdir(parents=True, exist_ok=True)
        for label, records in (("before", before), ("after", after)):
            (options.save / f"{label}.json").write_text(json.dumps(records, indent=1, ensure_ascii=False) + "\n")
    found |= differences(before, after)
    for what, lines in found.items():
        print(f"━━ {what}")
        print("\n".join(lines))
    count = sum(len(records) for records in after.values())
    what = f"{count} replies on {len(after)} transports, and the schemas"
    print(f"{what}, compared with {options.against}: {len(found)} differ")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
