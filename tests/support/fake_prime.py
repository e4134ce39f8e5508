"""A fake of Prime Intellect: its REST API and the gateway to its sandboxes, for the client `prime-sandboxes`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from aiohttp import web
from fake_machines import FakeMachine, FakeService
from prime_sandboxes._proto.command_session import command_session_pb2  # pyright: ignore[reportMissingImports]
from waiting import wait_until

pb: Any = command_session_pb2


class FakePrime(FakeService):
    """Prime Intellect on loopback."""

    def environment(self) -> dict[str, str]:
        return {"PRIME_API_KEY": self.key, "PRIME_API_BASE_URL": self.url, "PRIME_TEAM_ID": ""}

    def authorized(self, request: web.Request) -> bool:
        wanted = "gateway-token" if request.path.startswith("/ns/") else self.key
        return request.headers.get("Authorization") == f"Bearer {wanted}"

    def refuse(self, status: int, message: str) -> web.Response:
        return web.json_response({"detail": message}, status=status)

    def routes(self) -> list[web.RouteDef]:
        api, gateway = "/api/v1/sandbox", "/ns/{id}"
        return [
            web.post(api, self._create), web.get(api, self._list), web.get(api + "/{id}", self._get),
            web.delete(api + "/{id}", self._delete), web.post(api + "/{id}/auth", self._auth),
            web.get(api + "/{id}/error-context", self._context), web.get(api + "/{id}/egress-policy", self._policy),
            web.post(gateway + "/{method:.*CommandSession.*}", self._start),
            web.post(gateway + "/upload", self._upload), web.get(gateway + "/download", self._download),
        ]  # fmt: skip

    def _describe(self, name: str) -> dict[str, Any]:
        asked = self.machines[name].about
        return {
            "id": name, "name": asked["name"], "dockerImage": asked["docker_image"], "cpuCores": 1, "memoryGB": 1,
            "diskSizeGB": 5, "diskMountPath": "/", "gpuCount": 0, "vm": True, "status": "RUNNING",
            "networkAllowlist": asked.get("network_allowlist"), "timeoutMinutes": asked["timeout_minutes"],
            "labels": asked["labels"], "createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-01-01T00:00:00Z",
        }  # fmt: skip

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "create"):
            return failed
        asked = await request.json()
        if asked["docker_image"] == "no-such-image":
            return self.refuse(422, "image no-such-image not found")
        return web.json_response(self._describe(self.create(asked)))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "list"):
            return failed
        found = [self._describe(name) for name in self.machines]
        return web.json_response({"sandboxes": found, "total": len(found), "page": 1, "perPage": 50, "hasNext": False})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        return web.json_response(self._describe(name)) if name in self.machines else self.refuse(404, "not found")

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        found = self.remove(request.match_info["id"])
        return web.json_response({}) if found else self.refuse(404, "not found")

    async def _auth(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        if name not in self.machines:
            return self.refuse(404, "not found")
        return web.json_response({
            "gateway_url": self.url, "user_ns": "ns", "job_id": name, "token": "gateway-token",
            "expires_at": "2099-01-01T00:00:00Z",
        })  # fmt: skip

    async def _context(self, request: web.Request) -> web.StreamResponse:
        alive = request.match_info["id"] in self.machines
        return web.json_response({"status": "RUNNING" if alive else "TERMINATED"})

    async def _policy(self, request: web.Request) -> web.StreamResponse:
        allowed = self.machines[request.match_info["id"]].about.get("network_allowlist")
        policy: dict[str, Any] = {"allowlist": allowed, "denylist": None if allowed is not None else []}
        return web.json_response({"policy": policy, "generation": 1, "applied_generation": 1, "applied": True})

    def _machine(self, request: web.Request) -> FakeMachine | None:
        return self.machines.get(request.match_info["id"])

    async def _start(self, request: web.Request) -> web.StreamResponse:
        machine = self._machine(request)
        response = web.StreamResponse(headers={"Content-Type": "application/connect+proto"})
        body = await request.read()
        if machine is None:
            await response.prepare(request)
            await _end(response, {"error": {"code": "not_found", "message": "no such sandbox"}})
            return response
        asked = pb.StartRequest.FromString(body[5 : 5 + int.from_bytes(body[1:5], "big")])
        words = [asked.command.cmd, *asked.command.args]
        self.asked.append(("START", "", {"cmd": words[0], "args": words[1:-1], "cwd": asked.command.cwd}))
        await response.prepare(request)
        started = pb.StartResponse()
        started.event.start.pid = 7
        await _send(response, started)
        timeout = request.headers.get("Connect-Timeout-Ms")
        running = asyncio.ensure_future(machine.run(words, int(timeout) / 1000 if timeout else None))
        wrong = self.faults.get("execute")
        if wrong == "twice":
            await machine.run(words)
        elif wrong:
            await wait_until(lambda: wrong != "kill" or machine.running)
            await self.fault(request, "execute", request.match_info["id"])
            running.cancel()
            return response
        try:
            code, out, err = await running
        except TimeoutError:
            await _end(response, {"error": {"code": "deadline_exceeded", "message": "too long"}})
            return response
        for kind, data in (("stdout", out), ("stderr", err)):
            for start in range(0, len(data), 32768):
                part = pb.StartResponse()
                setattr(part.event.data, kind, data[start : start + 32768])
                await _send(response, part)
        if machine.ended:
            await _end(response, {"error": {"code": "not_found", "message": "no such sandbox"}})
            return response
        ended = pb.StartResponse()
        ended.event.end.exit_code = code if code >= 0 else 128 - code
        await _send(response, ended)
        await _end(response, {})
        return response

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "upload"):
            return failed
        machine = self._machine(request)
        if machine is None:
            return self.refuse(404, "sandbox_not_found")
        (field,) = (await request.post()).values()
        assert isinstance(field, web.FileField)
        data = field.file.read()
        machine.write(request.query["path"], data)
        about = {"success": True, "path": request.query["path"], "size": len(data), "timestamp": "2026-01-01T00:00:00Z"}
        return web.json_response(about)

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "download"):
            return failed
        machine = self._machine(request)
        if machine is None:
            return self.refuse(404, "sandbox_not_found")
        return web.Response(body=machine.read(request.query["path"]))


async def _send(response: web.StreamResponse, message: Any) -> None:
    data = message.SerializeToString()
    await response.write(b"\0" + len(data).to_bytes(4, "big") + data)


async def _end(response: web.StreamResponse, trailer: dict[str, Any]) -> None:
    data = json.dumps(trailer).encode()
    await response.write(b"\2" + len(data).to_bytes(4, "big") + data)
    await response.write_eof()
