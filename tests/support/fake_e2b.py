"""A fake of E2B: its REST API, and the daemon of its sandboxes (Connect-RPC and files), for the client `e2b`."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from aiohttp import web
from e2b.envd.process import process_pb as pb  # pyright: ignore[reportMissingImports]
from fake_machines import FakeMachine, FakeService
from protobuf import Oneof  # pyright: ignore[reportMissingImports]
from waiting import wait_until

_VERSION = "0.6.2"


class FakeE2B(FakeService):
    """E2B on loopback."""

    variables = ("E2B_API_KEY", "E2B_API_URL", "E2B_SANDBOX_URL", "E2B_HTTP_VERSION")

    def environment(self) -> dict[str, str]:
        return dict(zip(self.variables, (self.key, self.url, self.url, "1.1"), strict=True))

    def authorized(self, request: web.Request) -> bool:
        if request.headers.get("E2b-Sandbox-Id"):
            return request.headers.get("X-Access-Token") == "envd-token"
        return request.headers.get("X-API-KEY") == self.key

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v2/sandboxes", self._create), web.get("/v2/sandboxes", self._list),
            web.delete("/sandboxes/{id}", self._delete), web.get("/health", self._health),
            web.post("/process.Process/Start", self._start), web.post("/files", self._upload),
            web.get("/files", self._download),
        ]  # fmt: skip

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "create"):
            return failed
        asked = await request.json()
        if asked["templateID"] == "no-such-image":
            return self.refuse(404, "template no-such-image not found")
        name = self.create(asked)
        about = {
            "templateID": asked["templateID"], "sandboxID": name, "clientID": "client", "envdVersion": _VERSION,
            "envdAccessToken": "envd-token", "domain": None,
        }  # fmt: skip
        return web.json_response(about, status=201)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "list"):
            return failed
        return web.json_response([
            {
                "templateID": "base", "sandboxID": name, "clientID": "client", "envdVersion": _VERSION,
                "startedAt": "2026-01-01T00:00:00Z", "endAt": "2026-01-01T01:00:00Z", "cpuCount": 2, "memoryMB": 512,
                "diskSizeMB": 1024, "state": "running", "metadata": machine.about["metadata"],
            } for name, machine in self.machines.items()
        ])  # fmt: skip

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        found = self.remove(request.match_info["id"])
        return web.Response(status=204) if found else self.refuse(404, "not found")

    def _machine(self, request: web.Request) -> FakeMachine | None:
        return self.machines.get(request.headers.get("E2b-Sandbox-Id", ""))

    def _gone(self, request: web.Request) -> web.Response:
        """Answer as the proxy in front of a sandbox that does not exist."""
        name = request.headers.get("E2b-Sandbox-Id")
        about = {"sandboxId": name, "message": "The sandbox was not found", "code": 502}
        return web.json_response(about, status=502)

    async def _health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=204) if self._machine(request) else self._gone(request)

    async def _start(self, request: web.Request) -> web.StreamResponse:
        machine = self._machine(request)
        if machine is None:
            return self._gone(request)
        asked = pb.StartRequest.from_json(_message(await request.read()))
        config = asked.process
        assert config is not None
        self.asked.append(("START", "", {
            "cmd": config.cmd, "args": list(config.args)[:2], "cwd": config.cwd, "envs": dict(config.envs),
            "user": base64.b64decode(request.headers["Authorization"].split()[1]).decode(),
        }))  # fmt: skip
        response = web.StreamResponse(headers={"Content-Type": "application/connect+json"})
        await response.prepare(request)
        event = pb.ProcessEvent
        await _send(response, event(event=Oneof("start", event.StartEvent(pid=7))))
        timeout = request.headers.get("Connect-Timeout-Ms")
        running = asyncio.ensure_future(
            machine.run([config.cmd, *config.args], int(timeout) / 1000 if timeout else None)
        )
        if self.faults.get("execute") == "twice":
            await machine.run([config.cmd, *config.args])
        if (wrong := self.faults.get("execute")) and wrong != "twice":
            await wait_until(lambda: wrong != "kill" or machine.running)
            await self.fault(request, "execute", request.headers["E2b-Sandbox-Id"])
            return response
        try:
            code, out, err = await running
        except TimeoutError:
            await _end(response, {"error": {"code": "deadline_exceeded", "message": "too long"}})
            return response
        for kind, data in (("stdout", out), ("stderr", err)):
            for start in range(0, len(data), 32768):
                part: Any = Oneof(kind, data[start : start + 32768])
                await _send(response, event(event=Oneof("data", event.DataEvent(output=part))))
        if machine.ended:
            await _end(response, {"error": {"code": "unavailable", "message": "the connection to the sandbox ended"}})
            return response
        ended = event.EndEvent(exit_code=code if code >= 0 else 128 - code, exited=code >= 0, status="exit status")
        await _send(response, event(event=Oneof("end", ended)))
        await _end(response, {})
        return response

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "upload"):
            return failed
        machine = self._machine(request)
        if machine is None:
            return self._gone(request)
        form = await request.post()
        (field,) = form.values()
        assert isinstance(field, web.FileField)
        path = request.query["path"]
        machine.write(path, field.file.read())
        return web.json_response([{"name": path.rpartition("/")[2], "type": "file", "path": path}])

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "download"):
            return failed
        machine = self._machine(request)
        if machine is None:
            return self._gone(request)
        return web.Response(body=machine.read(request.query["path"]))


def _message(body: bytes) -> bytes:
    """Return the first message of a Connect stream: a byte of flags, a length, the message."""
    assert body[0] == 0, "compressed"
    return body[5 : 5 + int.from_bytes(body[1:5], "big")]


async def _send(response: web.StreamResponse, event: pb.ProcessEvent) -> None:
    data = pb.StartResponse(event=event).to_json().encode()
    await response.write(b"\0" + len(data).to_bytes(4, "big") + data)


async def _end(response: web.StreamResponse, trailer: dict[str, Any]) -> None:
    data = json.dumps(trailer).encode()
    await response.write(b"\2" + len(data).to_bytes(4, "big") + data)
    await response.write_eof()
