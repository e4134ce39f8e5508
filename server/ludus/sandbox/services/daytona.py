"""The backend `daytona`: sandboxes of Daytona (https://daytona.io), which are containers or virtual machines.

`image` is the name of an image, from which Daytona builds a snapshot at its first use. The client reads
DAYTONA_API_KEY, DAYTONA_API_URL and DAYTONA_TARGET.
"""

from __future__ import annotations

from collections.abc import Mapping

import daytona  # pyright: ignore[reportMissingImports]

from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.services.machine import Executed, Machine, Overdue
from ludus.sandbox.services.provider import BOOT_LABEL, START_SECONDS, Refusal, ServiceProvider, gibibytes

_REQUEST_SECONDS = 60


class DaytonaMachine(Machine):
    """A sandbox of Daytona."""

    def __init__(self, sandbox: daytona.AsyncSandbox) -> None:
        self._sandbox = sandbox
        self.id = sandbox.id

    async def execute(self, line: str, seconds: float) -> Executed:
        """See `Machine.execute`. Daytona returns both streams of output together."""
        try:
            done = await self._sandbox.process.exec(line, cwd="/", timeout=int(seconds) + 1)
        except daytona.DaytonaConnectionError:
            raise  # some are timeouts too
        except daytona.DaytonaTimeoutError as error:
            raise Overdue(str(error)) from None
        return Executed(int(done.exit_code), str(done.result))

    async def upload(self, path: str, data: bytes) -> None:
        """See `Machine.upload`."""
        await self._sandbox.fs.upload_file(data, path, timeout=_REQUEST_SECONDS)

    async def download(self, path: str) -> bytes:
        """See `Machine.download`."""
        read = await self._sandbox.fs.download_file(path, _REQUEST_SECONDS)
        return bytes(read)

    async def end(self) -> None:
        """See `Machine.end`."""
        try:
            await self._sandbox.delete(timeout=_REQUEST_SECONDS)
        except daytona.DaytonaNotFoundError:
            return


class Daytona(ServiceProvider):
    """The provider of Daytona's sandboxes."""

    name = "daytona"
    key = "DAYTONA_API_KEY"
    where = "a key of https://app.daytona.io/dashboard/keys"

    def __init__(self) -> None:
        super().__init__()
        self._client: daytona.AsyncDaytona | None = None

    async def _connect(self) -> None:
        self._client = daytona.AsyncDaytona()

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _left(self, boot: str) -> list[tuple[str, Mapping[str, str]]]:
        assert self._client is not None
        found: list[tuple[str, Mapping[str, str]]] = []
        try:
            query = daytona.ListSandboxesQuery(labels={BOOT_LABEL: boot})
            async for one in self._client.list(query, request_timeout=_REQUEST_SECONDS):
                found.append((one.id, one.labels or {}))
        except (daytona.DaytonaAuthenticationError, daytona.DaytonaForbiddenError) as error:
            raise Refusal(f"Daytona refuses the key in DAYTONA_API_KEY ({error})", SandboxUnavailable) from None
        return found

    async def _remove(self, name: str) -> None:
        assert self._client is not None
        try:
            await self._client.delete(await self._client.get(name, request_timeout=_REQUEST_SECONDS))
        except daytona.DaytonaNotFoundError:
            return

    async def _launch(self, settings: SandboxSettings, labels: dict[str, str]) -> Machine:
        assert self._client is not None
        minutes = -(-self.lifetime // 60)
        shared = {
            "labels": labels, "network_block_all": True, "ephemeral": True, "os_user": "root", "ttl_minutes": minutes,
            "auto_stop_interval": minutes,
        }  # fmt: skip
        try:
            if settings.image is None:
                params = daytona.CreateSandboxFromSnapshotParams(**shared)
                return DaytonaMachine(await self._client.create(params, timeout=START_SECONDS))
            resources = daytona.Resources(
                memory=gibibytes(settings.limits.memory), disk=gibibytes(settings.limits.disk)
            )
            built = daytona.CreateSandboxFromImageParams(image=settings.image, resources=resources, **shared)
            return DaytonaMachine(await self._client.create(built, timeout=START_SECONDS))
        except daytona.DaytonaAuthenticationError as error:
            raise Refusal(f"the key in DAYTONA_API_KEY is refused ({error})", SandboxFailed) from None
        except (daytona.DaytonaRateLimitError, daytona.DaytonaForbiddenError) as error:
            raise Refusal(
                f"the organization's limit is reached, or it may not do this ({error})", SandboxFailed
            ) from None
        except (daytona.DaytonaBadRequestError, daytona.DaytonaNotFoundError) as error:
            if settings.image is None:
                raise
            why = f"the image {settings.image!r} (`image`) cannot be used: {error}"
            raise Refusal(why, SandboxImageError) from None
