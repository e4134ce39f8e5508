"""The backend `prime`: sandboxes of Prime Intellect (https://primeintellect.ai), which are virtual machines.

`image` is the name of an image, by default python:3.12-slim. The client reads PRIME_API_KEY, PRIME_TEAM_ID and
PRIME_API_BASE_URL.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import prime_sandboxes as prime  # pyright: ignore[reportMissingImports]

from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.services.machine import Executed, Machine, Overdue
from ludus.sandbox.services.provider import BOOT_LABEL, TOKEN_LABEL, Refusal, ServiceProvider, gibibytes

_REQUEST_SECONDS = 60
_IMAGE = "python:3.12-slim"
_GONE = ("HTTP 404", "HTTP 410")


class PrimeMachine(Machine):
    """A sandbox of Prime Intellect."""

    def __init__(self, client: prime.AsyncSandboxClient, name: str) -> None:
        self._client = client
        self.id = name

    async def execute(self, line: str, seconds: float) -> Executed:
        """See `Machine.execute`."""
        try:
            done = await self._client.execute_command(self.id, line, working_dir="/", timeout=int(seconds) + 1)
        except prime.CommandTimeoutError as error:
            raise Overdue(f"the command did not end within {seconds:g} s") from error
        return Executed(done.exit_code, done.stdout, done.stderr)

    async def upload(self, path: str, data: bytes) -> None:
        """See `Machine.upload`."""
        await self._client.upload_bytes(self.id, path, data, Path(path).name, timeout=_REQUEST_SECONDS)

    async def download(self, path: str) -> bytes:
        """See `Machine.download`. The client writes only to files."""
        with tempfile.TemporaryDirectory(prefix="ludus-") as folder:
            local = Path(folder) / "answer"
            await self._client.download_file(self.id, path, str(local), timeout=_REQUEST_SECONDS)
            return await asyncio.to_thread(local.read_bytes)

    async def end(self) -> None:
        """See `Machine.end`."""
        await _delete(self._client, self.id)


class Prime(ServiceProvider):
    """The provider of Prime Intellect's sandboxes."""

    name = "prime"
    key = "PRIME_API_KEY"
    where = "a key of https://app.primeintellect.ai with access to sandboxes"

    def __init__(self) -> None:
        super().__init__()
        self._client: prime.AsyncSandboxClient | None = None

    async def _connect(self) -> None:
        self._client = prime.AsyncSandboxClient()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _left(self, boot: str) -> list[tuple[str, Mapping[str, str]]]:
        assert self._client is not None
        found: list[tuple[str, Mapping[str, str]]] = []
        page = 1
        try:
            while True:
                wanted = [f"{BOOT_LABEL}={boot}"]
                answer: Any = await self._client.list(labels=wanted, page=page, per_page=50, exclude_terminated=True)
                for one in answer.sandboxes:
                    found.append((one.id, dict(label.split("=", 1) for label in one.labels if "=" in label)))
                if not answer.has_next:
                    return found
                page += 1
        except prime.UnauthorizedError as error:
            raise Refusal(f"Prime refuses the key in PRIME_API_KEY ({error})", SandboxUnavailable) from None

    async def _remove(self, name: str) -> None:
        assert self._client is not None
        await _delete(self._client, name)

    async def _launch(self, settings: SandboxSettings, labels: dict[str, str]) -> Machine:
        assert self._client is not None
        asked = prime.CreateSandboxRequest(
            name=f"ludus-{labels[TOKEN_LABEL]}", docker_image=settings.image or _IMAGE, network_allowlist=[],
            memory_gb=gibibytes(settings.limits.memory), disk_size_gb=max(5, gibibytes(settings.limits.disk)),
            timeout_minutes=-(-self.lifetime // 60), labels=[f"{name}={value}" for name, value in labels.items()],
        )  # fmt: skip
        try:
            name = (await self._client.create(asked)).id
        except (prime.UnauthorizedError, prime.PaymentRequiredError) as error:
            raise Refusal(f"the key or the account is refused ({error})", SandboxFailed) from None
        except prime.APIError as error:
            if str(error).startswith(("HTTP 400", "HTTP 422")):
                why = f"the image {asked.docker_image!r} or its size cannot be used: {error}"
                raise Refusal(why, SandboxImageError) from None
            if str(error).startswith(("HTTP 403", "HTTP 429")):
                raise Refusal(
                    f"the account's limit is reached, or it may not do this ({error})", SandboxFailed
                ) from None
            raise
        try:
            await self._client.wait_for_creation(name)
            await self._check_network(name)
        except BaseException as error:
            await asyncio.shield(_delete(self._client, name))
            if isinstance(error, prime.SandboxImagePullError):
                why = f"the image {asked.docker_image!r} (`image`) cannot be used: {error}"
                raise Refusal(why, SandboxImageError) from None
            raise
        return PrimeMachine(self._client, name)

    async def _check_network(self, name: str) -> None:
        """Wait until the service has applied that the sandbox may reach nothing.

        Raises:
            SandboxFailed: it has another policy.
        """
        assert self._client is not None
        while True:
            found: Any = await self._client.get_network(name)
            if found.policy.allowlist != [] or found.policy.denylist:
                raise SandboxFailed(f"prime started a sandbox that has a network: {found.policy}")
            if found.applied:
                return
            await asyncio.sleep(0.5)


async def _delete(client: prime.AsyncSandboxClient, name: str) -> None:
    try:
        await client.delete(name)
    except prime.APIError as error:
        if not str(error).startswith(_GONE):
            raise
