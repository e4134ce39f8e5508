"""The wires, as the fuzzer fires at them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
from attack import Fuzzer, announced
from target import REWARD, SECRET

from ludus.protocol.identifiers import CHANNEL_SUBPROTOCOL, EXTENSION_ID, METHOD_PREFIX

ANSWER_SECONDS = 20.0
MODERN = "2026-07-28"

Shot = Callable[[int], Awaitable[None]]


async def volley(shot: Shot, count: int, workers: int = 8) -> None:
    """Shots with the numbers 0 to `count` - 1, some at once."""
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await shot(number)

    await asyncio.gather(*(work() for _ in range(workers)))


# ── the channel ────────────────────────────────────────────────────────────────────────────────────────────────────


class ChannelWire:
    """Bursts of frames on one WebSocket, each burst closed by a request whose answer must come."""

    name = "channel"

    def __init__(self, fuzz: Fuzzer, http: aiohttp.ClientSession) -> None:
        self.fuzz, self.http = fuzz, http
        self.ids = 0
        self.poisoned = False
        """Whether this burst holds what must close the connection."""

    async def run(self, count: int) -> None:
        """Fire `count` requests."""
        while count > 0:
            url = self.fuzz.url.replace("http", "ws", 1) + "/channel"
            async with self.http.ws_connect(url, protocols=(CHANNEL_SUBPROTOCOL,), max_msg_size=0) as socket:
                while count > 0 and not socket.closed:
                    size = min(count, self.fuzz.rng.choice((1, 5, 40)))
                    count -= size
                    if not await self._burst(socket, size):
                        break

    async def _burst(self, socket: aiohttp.ClientWebSocketResponse, size: int) -> bool:
        fuzz = self.fuzz
        waiting: dict[Any, Any] = {}
        frames: list[Any] = [self._request(waiting) for _ in range(size)]
        fuzz.sent[self.name] += size
        self.poisoned = False
        grouped: Any = frames if fuzz.rng.random() < 0.3 else None
        try:
            for body in [grouped] if grouped is not None else frames:
                data = fuzz.encode(body, harm=0.03)
                binary = fuzz.rng.random() < 0.005
                self.poisoned = self.poisoned or data != data.decode(errors="replace").encode()
                await socket.send_frame(data, aiohttp.WSMsgType.BINARY if binary else aiohttp.WSMsgType.TEXT)
                if binary or data != self._faithful(body):
                    for request in body if isinstance(body, list) else [body]:
                        with contextlib.suppress(TypeError, AttributeError, KeyError):
                            waiting.pop(request["id"], None)
            self.ids += 1
            sentinel = f"sentinel-{self.ids}"
            waiting[sentinel] = "the sentinel"
            method = METHOD_PREFIX + "splits/list"
            params = {"environment": "target"}
            await socket.send_json({"jsonrpc": "2.0", "id": sentinel, "method": method, "params": params})
            return await self._collect(socket, waiting)
        except (ConnectionError, aiohttp.ClientError):
            fuzz.answers["channel: connection closed while sending"] += 1
            return False

    def _faithful(self, body: Any) -> bytes | None:
        for ascii_only in (True, False):
            with contextlib.suppress(ValueError, RecursionError):
                text = json.dumps(body, ensure_ascii=ascii_only, allow_nan=False)
                with contextlib.suppress(UnicodeEncodeError):
                    if json.loads(text) == body and "\\ud800" not in text:
                        return text.encode() if ascii_only else text.encode("utf-8")
        return None

    def _request(self, waiting: dict[Any, Any]) -> Any:
        fuzz = self.fuzz
        self.ids += 1
        method, params = fuzz.extension_request()
        request: Any = {"jsonrpc": "2.0", "id": self.ids, "method": method, "params": params}
        if fuzz.rng.random() < 0.5:
            request["params"] = fuzz.mutate(params)
        elif fuzz.rng.random() < 0.2:
            request = fuzz.mutate(request)
        if isinstance(request, dict) and request.get("id") == self.ids:
            waiting[self.ids] = request
        return request

    async def _collect(self, socket: aiohttp.ClientWebSocketResponse, waiting: dict[Any, Any]) -> bool:
        fuzz = self.fuzz
        while waiting:
            try:
                message = await socket.receive(timeout=ANSWER_SECONDS)
            except TimeoutError:
                fuzz.note(self.name, f"no answer to {len(waiting)} requests", next(iter(waiting.values())), "")
                return False
            if message.type is not aiohttp.WSMsgType.TEXT:
                code = socket.close_code
                fuzz.answers[f"channel: closed {code}"] += 1
                # What is left unread when the server closes for bad UTF-8 makes its kernel reset the connection.
                if code not in (1000, 1001, 1002, 1003, 1007, 1008, 1009, *((1006,) if self.poisoned else ())):
                    fuzz.note(self.name, f"closed with {code}", waiting, message)
                return False
            fuzz.learn(message.data)
            replies = json.loads(message.data)
            for reply in replies if isinstance(replies, list) else [replies]:
                asked = waiting.pop(reply.get("id"), None)
                if "error" in reply:
                    fuzz.judge_error(self.name, reply["error"], asked)
                else:
                    fuzz.answers["channel: result"] += 1
        return True


# ── MCP ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def modern(method: str, params: dict[str, Any], *, extension: bool = True) -> tuple[dict[str, str], dict[str, Any]]:
    """Headers and body of a request as the revision of 2026-07-28 wants it."""
    declared: dict[str, Any] = {"extensions": {EXTENSION_ID: {}}} if extension else {}
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": declared,
        "io.modelcontextprotocol/clientInfo": {"name": "fuzz", "version": "0"},
    }
    headers = {
        "MCP-Protocol-Version": MODERN,
        "Mcp-Method": method,
        "Accept": "application/json, text/event-stream",
    }
    if isinstance(name := params.get("name"), str) and name.isascii() and name.isprintable():
        headers["Mcp-Name"] = name
    return headers, {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


async def ask(http: aiohttp.ClientSession, url: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The reply to one valid request of the extension."""
    headers, body = modern(METHOD_PREFIX + method, params)
    async with http.post(url + "/mcp", json=body, headers=headers) as response:
        reply: dict[str, Any] = await response.json()
        return reply


class McpWire:
    """POSTs of MCP messages, of both eras."""

    def __init__(self, fuzz: Fuzzer, http: aiohttp.ClientSession, *, play: bool) -> None:
        self.fuzz, self.http, self.play = fuzz, http, play
        self.name = "play" if play else "control"
        self.paths: list[str] = []

    async def run(self, count: int) -> None:
        """Fire `count` requests."""
        if self.play:
            await self._open(20)
        await volley(self._shot, count)

    async def _open(self, count: int) -> None:
        for _ in range(count):
            method = METHOD_PREFIX + "episodes/start"
            params = {"environment": "target", "split": "train", "key": f"play-{os.urandom(6).hex()}"}
            headers, body = modern(method, params)
            async with self.http.post(self.fuzz.url + "/mcp", json=body, headers=headers) as response:
                text = await response.text()
                self.fuzz.learn(text)
                paths = re.findall(r'"path":\s*"(/play/[^"]+)"', text)
                if not paths:
                    self.fuzz.note(self.name, "no play path in the answer to a start", body, text)
                self.paths += paths

    def _message(self) -> tuple[dict[str, str], Any]:
        fuzz, rng = self.fuzz, self.fuzz.rng
        tool, arguments = fuzz.arguments()
        choices: list[tuple[str, dict[str, Any]]] = [
            ("tools/list", {}),
            ("tools/call", {"name": tool, "arguments": arguments}),
            ("tools/call", {"name": tool, "arguments": arguments}),
            ("tools/call", {"name": "submit_answer", "arguments": {"answer": "x"}}),
            ("server/discover", {}),
            ("prompts/list", {}),
            ("resources/list", {}),
            fuzz.extension_request(),
        ]
        if not self.play:
            start = {"environment": "target", "split": "train"}
            choices += [
                ("tools/call", {"name": "start_episode", "arguments": start}),
                *([fuzz.extension_request()] * 5),
            ]
        method, params = rng.choice(choices)
        headers, body = modern(method, params, extension=not self.play)
        if rng.random() < 0.2:
            headers = {"Accept": headers["Accept"], "MCP-Protocol-Version": "2025-11-25"}
            del body["params"]["_meta"]
        if rng.random() < 0.4:
            mutant = fuzz.mutate(params)
            body["params"] = {**mutant, "_meta": body["params"].get("_meta")} if isinstance(mutant, dict) else mutant
        elif rng.random() < 0.3:
            body = fuzz.mutate(body)
        if rng.random() < 0.05:
            headers.pop(rng.choice(sorted(headers)))
        return headers, body

    async def _shot(self, number: int) -> None:
        if self.play and number % 500 == 499:
            await self._open(5)
        fuzz, rng = self.fuzz, self.fuzz.rng
        path = "/mcp"
        if self.play:
            path = rng.choice(self.paths[-30:])
            if rng.random() < 0.05:
                at = rng.randrange(6, len(path) - 4)
                path = path[:at] + rng.choice("aZ0-_.%") + path[at + 1 :]
        headers, body = self._message()
        data = fuzz.encode(body)
        fuzz.sent[self.name] += 1
        headers["Content-Type"] = "application/json" if rng.random() < 0.98 else "text/plain"
        method = "POST" if rng.random() < 0.98 else rng.choice(("GET", "DELETE", "PUT", "OPTIONS"))
        try:
            request = self.http.request(method, fuzz.url + path, data=data, headers=headers)
            async with asyncio.timeout(ANSWER_SECONDS), request as response:
                self._judge(body, response.status, await response.text(errors="replace"))
        except TimeoutError:
            if method == "POST":
                fuzz.note(self.name, "no answer", body, path)
        except aiohttp.ClientError as error:
            fuzz.note(self.name, "a broken answer", body, repr(error))

    def _judge(self, body: Any, status: int, text: str) -> None:
        fuzz = self.fuzz
        fuzz.answers[f"{self.name}: HTTP {status}"] += 1
        if status >= 500 and not announced(text):
            fuzz.note(self.name, f"HTTP {status}", body, text)
        if self.play and (str(REWARD) in text or SECRET in text):
            fuzz.note(self.name, "a secret on the play plane", body, text)
        if not self.play:
            fuzz.learn(text)
        with contextlib.suppress(ValueError):
            reply = json.loads(text)
            if isinstance(reply, dict) and "error" in reply and "jsonrpc" in reply:
                fuzz.judge_error(self.name, reply["error"], body)


# ── ORS ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class OrsWire:
    """The Open Reward Standard's routes."""

    name = "ors"

    def __init__(self, fuzz: Fuzzer, http: aiohttp.ClientSession) -> None:
        self.fuzz, self.http = fuzz, http

    async def run(self, count: int) -> None:
        """Fire `count` requests."""
        for _ in range(20):
            await self._create(f"fuzz-{self.fuzz.next_number()}")
        await volley(self._shot, count)
        for sid in self.fuzz.sids:
            async with self.http.post(self.fuzz.url + "/delete", headers={"X-Session-ID": sid}) as response:
                await response.read()

    async def _create(self, sid: str) -> None:
        self.fuzz.sids.add(sid)
        body = {"env_name": "target", "split": "train", "index": 1}
        async with self.http.post(self.fuzz.url + "/create", json=body, headers={"X-Session-ID": sid}) as response:
            if response.status != 200:
                self.fuzz.note(self.name, f"create: HTTP {response.status}", body, await response.text())

    def _request(self) -> tuple[str, str, Any]:
        fuzz, rng = self.fuzz, self.fuzz.rng
        tool, arguments = fuzz.arguments()
        call = {"name": tool, "input": arguments}
        split = rng.choice(("train", "validation", "test"))
        method, path, body = rng.choice(
            (
                ("GET", "/list_environments", None),
                ("GET", "/target/tools", None),
                ("GET", "/target/splits", None),
                ("POST", "/target/tasks", {"split": "validation"}),
                ("POST", "/target/num_tasks", {"split": "validation"}),
                ("POST", "/target/task", {"split": split, "index": 1}),
                ("POST", "/target/task_range", {"split": split, "start": 0, "stop": 2}),
                ("POST", "/create_session", {}),
                ("POST", "/create", {"env_name": "target", "split": split, "index": 2}),
                ("GET", "/target/prompt", None),
                ("GET", "/target/messages", None),
                ("GET", "/target/task_tools", None),
                ("POST", "/target/call", call),
                ("POST", "/target/call", call),
                ("POST", "/call", call),
                ("POST", "/target/call", {**call, "task_id": "0" * 32}),
                ("POST", "/target/score_group", {"candidates": [{"messages": []}]}),
                ("POST", "/ping", None),
                ("POST", "/delete_session", None),
            )
        )
        if rng.random() < 0.05:
            path = rng.choice(
                ("/TARGET/tools", "/nosuch/tools", "/target/%ff", "//", "/target//call", "/" + "a" * 3000)
            )
        if body is not None and rng.random() < 0.5:
            body = fuzz.mutate(body)
        return method, path, body

    async def _shot(self, number: int) -> None:
        if number % 200 == 199:
            await self._create(f"fuzz-{self.fuzz.next_number()}")
        fuzz, rng = self.fuzz, self.fuzz.rng
        method, path, body = self._request()
        sid = rng.choice(sorted(fuzz.sids)[-30:]) if rng.random() < 0.9 else f"new-{rng.randrange(50)}"
        fuzz.sids.add(sid)
        headers = {"X-Session-ID": sid, "Content-Type": "application/json"}
        if rng.random() < 0.03:
            headers["X-Secrets"] = rng.choice(("", "!!!", "e30=", "W10=", "eyJhIjoxfQ=="))
        if rng.random() < 0.03:
            del headers["X-Session-ID"]
        fuzz.sent[self.name] += 1
        data = None if body is None else fuzz.encode(body)
        try:
            request = self.http.request(method, fuzz.url + path, data=data, headers=headers, allow_redirects=True)
            async with asyncio.timeout(ANSWER_SECONDS), request as response:
                text = await response.text(errors="replace")
        except TimeoutError:
            fuzz.note(self.name, "no answer", (method, path, body), "")
            return
        except aiohttp.ClientError as error:
            fuzz.note(self.name, "a broken answer", (method, path, body), repr(error))
            return
        fuzz.answers[f"ors: HTTP {response.status}"] += 1
        if response.status >= 500 and not announced(text):
            fuzz.note(self.name, f"HTTP {response.status}", (method, path, body), text)
        if (
            response.status == 200
            and path.endswith("/call")
            and "event: end" not in text
            and "event: error" not in text
        ):
            fuzz.note(self.name, "a call's stream without an end", (method, path, body), text)


# ── bytes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class RawWire:
    """Connections that speak broken HTTP, stop in the middle, or leave before the answer."""

    name = "raw"

    def __init__(self, fuzz: Fuzzer) -> None:
        self.fuzz = fuzz
        host, _, port = fuzz.url.removeprefix("http://").partition(":")
        self.address = (host, int(port))

    async def run(self, count: int) -> None:
        """Open `count` connections."""
        await volley(self._shot, count)

    def _bytes(self) -> bytes:
        rng = self.fuzz.rng
        sid = rng.choice(sorted(self.fuzz.sids) or ["none"])
        body = self.fuzz.encode({"name": "echo", "input": {"text": "x" * rng.choice((1, 3000))}})
        good = (
            f"POST /target/call HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Session-ID: {sid}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        kinds: tuple[Callable[[], bytes], ...] = (
            lambda: good,
            lambda: good[: rng.randrange(1, len(good))],
            lambda: rng.randbytes(200),
            lambda: b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
            lambda: b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
            lambda: b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            lambda: b"GET /channel HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            lambda: b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 5_000 + b"\r\n",
            lambda: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        )
        return rng.choice(kinds)()

    async def _shot(self, number: int) -> None:
        self.fuzz.sent[self.name] += 1
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(self._bytes())
            await writer.drain()
            if self.fuzz.rng.random() < 0.5:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(0.05):
                        answer = await reader.read(4096)
                        if re.match(rb"HTTP/1\.1 5", answer) and not announced(answer.decode(errors="replace")):
                            self.fuzz.note(self.name, "a 5xx", "", answer)
        except ConnectionError:
            self.fuzz.answers["raw: reset by the server"] += 1
        finally:
            writer.transport.abort()
