"""A fake of Daytona: its REST API and the toolbox of its sandboxes, for the client package `daytona`."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

from aiohttp import BodyPartReader, MultipartWriter, web
from fake_machines import FakeMachine, FakeService
from waiting import wait_until


class FakeDaytona(FakeService):
    """Daytona on loopback."""

    variables = ("DAYTONA_API_KEY", "DAYTONA_API_URL")

    def environment(self) -> dict[str, str]:
        return {"DAYTONA_API_KEY": self.key, "DAYTONA_API_URL": f"{self.url}/api", "DAYTONA_TARGET": "us"}

    def authorized(self, request: web.Request) -> bool:
        return request.headers.get("Authorization") == f"Bearer {self.key}"

    def refuse(self, status: int, message: str) -> web.Response:
        return web.json_response({"statusCode": status, "message": message, "error": "Error"}, status=status)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/api/sandbox", self._create), web.get("/api/sandbox", self._list),
            web.get("/api/sandbox/{id}", self._get), web.delete("/api/sandbox/{id}", self._delete),
            web.get("/api/config", self._config), web.post("/toolbox/{id}/process/execute", self._execute),
            web.post("/toolbox/{id}/files/bulk-upload", self._upload),
            web.post("/toolbox/{id}/files/bulk-download", self._download),
            web.get("/toolbox/{id}/files/download", self._download_one),
        ]  # fmt: skip

    def _describe(self, name: str) -> dict[str, Any]:
        asked = self.machines[name].about
        return {
            "id": name, "organizationId": "org", "name": name, "user": asked.get("user", "daytona"), "env": {},
            "labels": asked["labels"], "public": False, "networkBlockAll": asked.get("networkBlockAll", False),
            "kvm": False, "target": "us", "cpu": 1, "gpu": 0, "memory": 1, "disk": 3, "state": "started",
            "toolboxProxyUrl": f"{self.url}/toolbox",
        }  # fmt: skip

    async def _config(self, _: web.Request) -> web.StreamResponse:
        return web.json_response({"version": "0", "proxyTemplateUrl": "", "proxyToolboxUrl": f"{self.url}/toolbox"})

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "create"):
            return failed
        asked = await request.json()
        if "no-such-image" in json.dumps(asked.get("buildInfo", "")):
            return self.refuse(400, "image no-such-image not found")
        return web.json_response(self._describe(self.create(asked)))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "list"):
            return failed
        return web.json_response({"items": [self._describe(name) for name in self.machines], "nextCursor": None})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        return web.json_response(self._describe(name)) if name in self.machines else self.refuse(404, "not found")

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["id"]
        if name not in self.machines:
            return self.refuse(404, "not found")
        about = {**self._describe(name), "state": "destroyed"}
        self.remove(name)
        return web.json_response(about)

    def _machine(self, request: web.Request) -> FakeMachine:
        machine = self.machines.get(request.match_info["id"])
        if machine is None:
            raise web.HTTPNotFound(
                text=json.dumps({"statusCode": 404, "message": "sandbox not found", "code": "NOT_FOUND"}),
                content_type="application/json",
            )
        return machine

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        machine, asked = self._machine(request), await request.json()
        running = asyncio.ensure_future(machine.run(["/bin/sh", "-c", asked["command"]], asked.get("timeout")))
        if self.faults.get("execute") == "twice":
            await machine.run(["/bin/sh", "-c", asked["command"]])
        elif self.faults.get("execute"):
            await wait_until(lambda: self.faults["execute"] != "kill" or machine.running)
            failed = await self.fault(request, "execute", request.match_info["id"])
            running.cancel()
            assert failed is not None
            return failed
        try:
            code, out, err = await running
        except TimeoutError:
            return self.refuse(408, "command execution timeout")
        return web.json_response({"exitCode": code, "result": (out + err).decode("utf-8", "replace")})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "upload"):
            return failed
        machine, path = self._machine(request), ""
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            if str(part.name).endswith(".path"):
                path = (await part.read()).decode()
            else:
                machine.write(path, bytes(await part.read()))
        return web.json_response({})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "download"):
            return failed
        (path,) = (await request.json())["paths"]
        with MultipartWriter("form-data") as writer:
            data = io.BytesIO(self._machine(request).read(path))
            part = writer.append(data, {"Content-Type": "application/octet-stream"})
            part.set_content_disposition("form-data", quote_fields=False, name="file", filename=path)
            return web.Response(body=writer)

    async def _download_one(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "download"):
            return failed
        return web.Response(body=self._machine(request).read(request.query["path"]))
