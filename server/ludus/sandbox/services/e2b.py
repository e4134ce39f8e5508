"""The backend `e2b`: sandboxes of E2B (https://e2b.dev), which are small virtual machines.

`image` is the name of an E2B template. The client reads E2B_API_KEY, and E2B_DOMAIN or E2B_API_URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import e2b  # pyright: ignore[reportMissingImports]

from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.services.machine import Executed, Machine, Overdue
from ludus.sandbox.services.provider import BOOT_LABEL, Refusal, ServiceProvider

_REQUEST_SECONDS = 60.0


class E2BMachine(Machine):
    """A sandbox of E2B."""

    def __init__(self, sandbox: e2b.AsyncSandbox) -> None:
        self._sandbox = sandbox
        self.id = sandbox.sandbox_id

    async def execute(self, line: str, seconds: float) -> Executed:
        """See `Machine.execute`."""
        try:
            finished: Any = await self._sandbox.commands.run(
                line, user="root", cwd="/", timeout=seconds, request_timeout=_REQUEST_SECONDS
            )
        except e2b.CommandExitException as error:
            return Executed(error.exit_code, error.stdout, error.stderr)
        except (e2b.SandboxNotRunningException, e2b.SandboxUnreachableException):
            raise  # they are timeouts too
        except e2b.TimeoutException as error:
            raise Overdue(str(error)) from None
        return Executed(finished.exit_code, finished.stdout, finished.stderr)

    async def upload(self, path: str, data: bytes) -> None:
        """See `Machine.upload`."""
        await self._sandbox.files.write(path, data, user="root", request_timeout=_REQUEST_SECONDS)

    async def download(self, path: str) -> bytes:
        """See `Machine.download`."""
        content = await self._sandbox.files.read(path, format="bytes", user="root", request_timeout=_REQUEST_SECONDS)
        return bytes(content)

    async def end(self) -> None:
        """See `Machine.end`."""
        await self._sandbox.kill(request_timeout=_REQUEST_SECONDS)


class E2B(ServiceProvider):
    """The provider of E2B's sandboxes."""

    name = "e2b"
    key = "E2B_API_KEY"
    where = "a key of https://e2b.dev/dashboard"

    async def _left(self, boot: str) -> list[tuple[str, Mapping[str, str]]]:
        query = e2b.SandboxQuery(metadata={BOOT_LABEL: boot})
        sandboxes: list[tuple[str, Mapping[str, str]]] = []
        try:
            pages = e2b.AsyncSandbox.list(query=query, request_timeout=_REQUEST_SECONDS)
            while pages.has_next:
                sandboxes += [(sandbox.sandbox_id, sandbox.metadata or {}) for sandbox in await pages.next_items()]
        except e2b.AuthenticationException as error:
            raise Refusal(f"E2B refuses the key in E2B_API_KEY ({error})", SandboxUnavailable) from None
        return sandboxes

    async def _remove(self, name: str) -> None:
        await e2b.AsyncSandbox.kill(name, request_timeout=_REQUEST_SECONDS)

    async def _launch(self, settings: SandboxSettings, labels: dict[str, str]) -> Machine:
        try:
            sandbox = await e2b.AsyncSandbox.create(
                settings.image, timeout=self.lifetime, metadata=labels,
                allow_internet_access=False, request_timeout=_REQUEST_SECONDS,
            )  # fmt: skip
        except e2b.AuthenticationException as error:
            raise Refusal(f"the key in E2B_API_KEY is refused ({error})", SandboxFailed) from None
        except e2b.RateLimitException as error:
            raise Refusal(f"the account's limit on sandboxes or requests is reached ({error})", SandboxFailed) from None
        except e2b.TemplateException as error:
            raise Refusal(f"the template {settings.image!r} cannot be used: {error}", SandboxImageError) from None
        except e2b.SandboxException as error:
            if settings.image is not None and getattr(error, "status_code", None) in (400, 404):
                reason = f"the template {settings.image!r} (`image`) cannot be used: {error}"
                raise Refusal(reason, SandboxImageError) from None
            raise
        return E2BMachine(sandbox)
