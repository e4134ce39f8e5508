"""The backend `agent-sandbox`: pods of a Kubernetes cluster that runs agent-sandbox (https://agent-sandbox.sigs.k8s.io).

`image` is the name of a SandboxWarmPool, whose SandboxTemplate has the image, the size and the network policy. The
client finds the cluster as kubectl does. LUDUS_AGENT_SANDBOX_NAMESPACE is the namespace of the claims, and
LUDUS_AGENT_SANDBOX_ROUTER the URL of the sandbox router.
"""

from __future__ import annotations

import os
import secrets
import shlex
from collections.abc import Mapping
from typing import Any, Final

from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.services.machine import Executed, Machine, Overdue
from ludus.sandbox.services.provider import BOOT_LABEL, START_SECONDS, TOKEN_LABEL, Refusal, ServiceProvider

try:
    import k8s_agent_sandbox.exceptions as agent_errors  # pyright: ignore[reportMissingImports]
    from k8s_agent_sandbox.async_sandbox import AsyncSandbox  # pyright: ignore[reportMissingImports]
    from k8s_agent_sandbox.async_sandbox_client import AsyncSandboxClient  # pyright: ignore[reportMissingImports]
    from k8s_agent_sandbox.models import SandboxDirectConnectionConfig  # pyright: ignore[reportMissingImports]
    from kubernetes_asyncio.client import ApiException  # pyright: ignore[reportMissingImports]
    from kubernetes_asyncio.config import ConfigException  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as error:  # such as one of the extra `async`
    raise ModuleNotFoundError(str(error), name="k8s-agent-sandbox[async]") from error

NAMESPACE_VARIABLE: Final = "LUDUS_AGENT_SANDBOX_NAMESPACE"
NETWORK_VARIABLE: Final = "LUDUS_AGENT_SANDBOX_NETWORK"
ROUTER_VARIABLE: Final = "LUDUS_AGENT_SANDBOX_ROUTER"
_ROUTER: Final = "http://sandbox-router-svc.agent-sandbox-system.svc.cluster.local:8080"
_REQUEST_SECONDS = 60
_ACCEPT: Final = (
    "`template` to accept that the network policy of the SandboxTemplate decides what a sandbox reaches: Ludus cannot "
    "check it, so deny egress there"
)


class AgentSandboxMachine(Machine):
    """A claimed sandbox of a cluster.

    The runtime splits a command into words itself and starts it in its own directory, outside of which it may refuse to
    write and read files: so files pass through that directory.
    """

    def __init__(self, client: AsyncSandboxClient[Any], sandbox: AsyncSandbox) -> None:
        self._client = client
        self._sandbox = sandbox
        self.id = str(sandbox.claim_name)

    async def execute(self, line: str, seconds: float) -> Executed:
        """See `Machine.execute`."""
        words = f"/bin/sh -c {shlex.quote(line)}"
        done = await self._part("commands").run(words, timeout=int(seconds) + 11, command_timeout=int(seconds) + 1)
        if done.timed_out:
            raise Overdue(f"the command did not end within {seconds:g} s")
        return Executed(done.exit_code, done.stdout, done.stderr)

    async def upload(self, path: str, data: bytes) -> None:
        """See `Machine.upload`."""
        name = f".ludus-{secrets.token_hex(8)}"
        await self._part("files").write(name, data, timeout=_REQUEST_SECONDS)
        await self._must(f"mv -f ./{name} {shlex.quote(path)}")

    async def download(self, path: str) -> bytes:
        """See `Machine.download`."""
        name = f".ludus-{secrets.token_hex(8)}"
        await self._must(f"cp {shlex.quote(path)} ./{name}")
        try:
            return bytes(await self._part("files").read(name, timeout=_REQUEST_SECONDS))
        finally:
            await self._must(f"rm -f ./{name}")

    async def end(self) -> None:
        """See `Machine.end`."""
        await self._sandbox.terminate()
        await self._client.list_active_sandboxes()  # The client forgets those that have ended.

    def _part(self, name: str) -> Any:
        """Return the sandbox's `commands` or `files`."""
        part = getattr(self._sandbox, name)
        if part is None:
            raise SandboxFailed("the sandbox is gone: its connection was closed")
        return part

    async def _must(self, line: str) -> None:
        done = await self.execute(line, _REQUEST_SECONDS)
        if done.exit_code:
            raise SandboxFailed(f"the sandbox cannot move a file: {(done.stderr or done.stdout).strip()[-300:]}")


class AgentSandbox(ServiceProvider):
    """The provider of sandboxes in a Kubernetes cluster."""

    name = "agent-sandbox"
    key = NETWORK_VARIABLE
    where = _ACCEPT

    def __init__(self) -> None:
        super().__init__()
        self._client: AsyncSandboxClient[Any] | None = None
        self._namespace = "default"

    async def _connect(self) -> None:
        if os.environ[NETWORK_VARIABLE] != "template":
            raise Refusal(f"{NETWORK_VARIABLE} must be {_ACCEPT}", SandboxUnavailable)
        self._namespace = os.environ.get(NAMESPACE_VARIABLE) or "default"
        router = SandboxDirectConnectionConfig(api_url=os.environ.get(ROUTER_VARIABLE) or _ROUTER)
        self._client = AsyncSandboxClient(connection_config=router, cleanup=False)

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _left(self, boot: str) -> list[tuple[str, Mapping[str, str]]]:
        assert self._client is not None
        found: list[tuple[str, Mapping[str, str]]] = []
        try:
            for name in await self._client.list_all_sandboxes(self._namespace, f"{BOOT_LABEL}={boot}"):
                claim = await self._client.k8s_helper.get_sandbox_claim(name, self._namespace)
                if claim is not None:
                    found.append((name, claim["metadata"].get("labels") or {}))
        except ConfigException as error:
            raise Refusal(f"there is no configuration of a Kubernetes cluster: {error}", SandboxUnavailable) from None
        except ApiException as error:
            if error.status in (401, 403):
                raise Refusal(
                    f"Kubernetes does not let this account list SandboxClaims in the namespace {self._namespace!r} "
                    f"({_reason(error)})", SandboxUnavailable,
                ) from None  # fmt: skip
            if error.status == 404:
                raise Refusal("the cluster has no SandboxClaims: install agent-sandbox", SandboxUnavailable) from None
            raise
        return found

    async def _remove(self, name: str) -> None:
        assert self._client is not None
        await self._client.k8s_helper.delete_sandbox_claim(name, self._namespace)

    async def _check(self, settings: SandboxSettings) -> None:
        await super()._check(settings)
        if not settings.image:
            raise SandboxUnsupported("agent-sandbox sandboxes need `image`: the name of a SandboxWarmPool")

    async def _launch(self, settings: SandboxSettings, labels: dict[str, str]) -> Machine:
        assert self._client is not None
        name = f"ludus-{labels[TOKEN_LABEL]}"
        try:
            sandbox = await self._client.create_sandbox(
                str(settings.image), self._namespace, int(START_SECONDS), labels, claim_name=name,
                shutdown_after_seconds=self.lifetime,
            )  # fmt: skip
        except (agent_errors.SandboxWarmPoolNotFoundError, agent_errors.SandboxTemplateNotFoundError) as error:
            await self._remove(name)
            why = f"the SandboxWarmPool {settings.image!r} (`image`) cannot be used: {error}"
            raise Refusal(why, SandboxImageError) from None
        except ApiException as error:
            if error.status in (401, 403, 429):
                why = (
                    f"a quota or another limit of the namespace {self._namespace!r} is reached, or this account may "
                    f"not create SandboxClaims there ({_reason(error)})"
                )
                raise Refusal(why, SandboxFailed) from None
            raise
        return AgentSandboxMachine(self._client, sandbox)


def _reason(error: ApiException) -> str:
    return f"HTTP {error.status}: {' '.join(str(error.body or error.reason).split())[:300]}"
