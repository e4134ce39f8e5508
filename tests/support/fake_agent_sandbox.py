"""A fake of a Kubernetes cluster with agent-sandbox: the API of its resources, and the router to its sandboxes."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Any

from aiohttp import BodyPartReader, web
from fake_machines import FakeMachine, FakeService
from kubernetes_asyncio.config import kube_config  # pyright: ignore[reportMissingImports]
from waiting import wait_until

_CLAIMS = "/apis/extensions.agents.x-k8s.io/v1beta1/namespaces/games/sandboxclaims"
_SANDBOXES = "/apis/agents.x-k8s.io/v1beta1/namespaces/games/sandboxes"


class FakeAgentSandbox(FakeService):
    """A cluster on loopback. Its runtime splits commands into words, and keeps files in /app."""

    def environment(self) -> dict[str, str]:
        """Return the variables, and write the configuration that the client reads from the home directory."""
        named = {"cluster": {"server": self.url}, "user": {"token": self.key}}
        about = {
            "apiVersion": "v1", "kind": "Config", "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            **{f"{kind}s": [{"name": "fake", kind: what}] for kind, what in named.items()},
        }  # fmt: skip
        file = Path.home() / ".kube" / "config"
        file.parent.mkdir(exist_ok=True)
        file.write_text(json.dumps(about), encoding="utf-8")
        kube_config.KUBE_CONFIG_DEFAULT_LOCATION = str(file)  # it is read from KUBECONFIG at the import
        return {
            "LUDUS_AGENT_SANDBOX_NETWORK": "template", "LUDUS_AGENT_SANDBOX_NAMESPACE": "games",
            "LUDUS_AGENT_SANDBOX_ROUTER": f"{self.url}/router",
        }  # fmt: skip

    def authorized(self, request: web.Request) -> bool:
        if not request.path.startswith("/apis/"):
            return True
        return request.headers.get("Authorization") == f"Bearer {self.key}"

    def refuse(self, status: int, message: str) -> web.Response:
        about = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": status}
        return web.json_response(about, status=status)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post(_CLAIMS, self._create), web.get(_CLAIMS, self._list), web.get(_CLAIMS + "/{id}", self._get),
            web.delete(_CLAIMS + "/{id}", self._delete), web.get(_SANDBOXES + "/{id}", self._sandbox),
            web.post("/router/execute", self._execute), web.post("/router/upload", self._upload),
            web.get("/router/download/{path:.*}", self._download),
        ]  # fmt: skip

    def create(self, about: dict[str, Any]) -> str:
        name = super().create(about)
        (self.machines[name].root / "app").mkdir()
        return name

    def _claim(self, name: str) -> dict[str, Any]:
        about = self.machines[name].about
        claim = str(about["metadata"].get("name", name))
        pool = about.get("spec", {}).get("warmPoolRef", {}).get("name")
        ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady"}
        if pool == "no-such-image":
            ready |= {"status": "False", "reason": "WarmPoolNotFound", "message": f"there is no {pool}"}
        return {
            **about, "metadata": {**about["metadata"], "name": claim, "uid": f"uid-{claim}", "resourceVersion": "7"},
            "status": {"sandbox": {"name": name}, "conditions": [ready]},
        }  # fmt: skip

    def _named(self, request: web.Request) -> str | None:
        wanted = request.match_info["id"]
        return next((name for name in self.machines if self._claim(name)["metadata"]["name"] == wanted), None)

    async def _create(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "create"):
            return failed
        claim = self._claim(self.create(await request.json()))
        return web.json_response({**claim, "status": {}}, status=201)  # it is ready a moment later

    async def _list(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "list"):
            return failed
        claims = [self._claim(name) for name in self.machines]
        if selector := request.query.get("labelSelector"):
            label, _, value = selector.partition("=")
            claims = [one for one in claims if one["metadata"]["labels"].get(label) == value]
        if selector := request.query.get("fieldSelector"):
            claims = [one for one in claims if one["metadata"]["name"] == selector.partition("=")[2]]
        if request.query.get("watch"):
            return web.Response(text="".join(json.dumps({"type": "ADDED", "object": one}) + "\n" for one in claims))
        return web.json_response({"kind": "SandboxClaimList", "metadata": {}, "items": claims})

    async def _get(self, request: web.Request) -> web.StreamResponse:
        name = self._named(request)
        return web.json_response(self._claim(name)) if name else self.refuse(404, "not found")

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = self._named(request)
        if name is None:
            return self.refuse(404, "not found")
        self.remove(name)
        return web.json_response({"kind": "Status", "status": "Success"})

    async def _sandbox(self, request: web.Request) -> web.StreamResponse:
        if request.match_info["id"] not in self.machines:
            return self.refuse(404, "not found")
        return web.json_response({"metadata": {"name": request.match_info["id"]}, "status": {"podIPs": ["10.0.0.7"]}})

    def _machine(self, request: web.Request) -> FakeMachine:
        machine = self.machines.get(request.headers["X-Sandbox-ID"])
        if machine is None or request.headers["X-Sandbox-Namespace"] != "games":
            raise web.HTTPBadGateway(text='{"detail": "Could not connect to the backend sandbox"}')
        return machine

    async def _execute(self, request: web.Request) -> web.StreamResponse:
        machine, asked = self._machine(request), await request.json()
        words = ["/bin/sh", "-c", 'cd /app && exec "$@"', "sh", *shlex.split(asked["command"])]
        running = asyncio.ensure_future(machine.run(words, asked.get("timeout_seconds")))
        if self.faults.get("execute") == "twice":
            await machine.run(words)
        elif self.faults.get("execute"):
            await wait_until(lambda: machine.running)  # a process that is just starting cannot be ended cleanly
            failed = await self.fault(request, "execute", request.headers["X-Sandbox-ID"])
            running.cancel()
            await asyncio.wait([running])
            assert failed is not None
            return failed
        try:
            code, out, err = await running
        except TimeoutError:
            return web.json_response({"stdout": "", "stderr": "timed out", "exit_code": 124, "timed_out": True})
        said = {"stdout": out.decode("utf-8", "replace"), "stderr": err.decode("utf-8", "replace")}
        return web.json_response({**said, "exit_code": code})

    async def _upload(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "upload"):
            return failed
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            self._machine(request).write(f"/app/{part.filename}", bytes(await part.read()))
        return web.json_response({"message": "uploaded"})

    async def _download(self, request: web.Request) -> web.StreamResponse:
        if failed := await self.fault(request, "download"):
            return failed
        return web.Response(body=self._machine(request).read(f"/app/{request.match_info['path']}"))
