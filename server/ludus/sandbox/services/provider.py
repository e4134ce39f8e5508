"""What the backends of services share: settings that they cannot honor, starting, and removal of what was left."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final

from ludus.sandbox.core.errors import SandboxFailed, SandboxImageError, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.core.stale import OWNER, boot, is_alive
from ludus.sandbox.pool import PooledProvider
from ludus.sandbox.services.box import NoAnswer, ServiceBox, describe, end_machine, request
from ludus.sandbox.services.machine import Machine, Overdue

log = logging.getLogger("ludus.sandbox")

LIFETIME_VARIABLE: Final = "LUDUS_SANDBOX_LIFETIME"
_LIFETIME_SECONDS: Final = 3600
_OPEN_SECONDS: Final = 60.0
_START_SECONDS: Final = 300.0

BOOT: Final = boot()
OWNER_LABEL: Final = "ludus-owner"
BOOT_LABEL: Final = "ludus-boot"
TOKEN_LABEL: Final = "ludus-token"


class Refusal(Exception):
    """A service refuses a request for a reason that the user can change."""

    def __init__(self, message: str, kind: type[SandboxUnsupported | SandboxUnavailable | SandboxFailed]) -> None:
        super().__init__(message)
        self.kind = kind


class ServiceProvider(PooledProvider):
    """A provider of sandboxes that a service runs.

    A subclass names its `key`, the environment variable with the credential, and implements the methods below through
    the service's client. It raises `Refusal` for what the user can change; any other exception means that the service
    failed.
    """

    has_cassettes = False
    key: ClassVar[str]
    """The environment variable without which the service cannot be used."""
    where: ClassVar[str]
    """Where to get its value, for messages."""

    def __init__(self) -> None:
        super().__init__()
        self.lifetime = _LIFETIME_SECONDS

    @abstractmethod
    async def _left(self, boot: str) -> list[tuple[str, Mapping[str, str]]]:
        """Return the sandboxes at the service whose label `BOOT_LABEL` is `boot`: their ids and labels.

        It is also the check of the key.
        """

    @abstractmethod
    async def _remove(self, name: str) -> None:
        """End the sandbox with this id; one that is gone already is no error."""

    @abstractmethod
    async def _launch(self, settings: SandboxSettings, labels: dict[str, str]) -> Machine:
        """Start a sandbox with these labels and without a network, which the service ends after `lifetime` seconds."""

    async def open(self) -> None:
        """See `SandboxProvider.open`. It checks the key, and removes sandboxes of servers here that no longer run."""
        if not os.environ.get(self.key):
            raise SandboxUnavailable(f"{self.name} sandboxes need {self.key}: set it to {self.where}")
        self.lifetime = _lifetime()
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                for name, labels in await self._left(BOOT):
                    if labels.get(BOOT_LABEL) == BOOT and not is_alive(labels.get(OWNER_LABEL, "")):
                        log.info("removing the sandbox %s of a server that no longer runs", name)
                        await self._remove(name)
        except Refusal as error:
            await self.aclose()
            raise SandboxUnavailable(f"{self.name} sandboxes cannot be used: {error}") from error
        except Exception as error:
            await self.aclose()
            raise SandboxUnavailable(f"{self.name} does not answer: {describe(error)}") from error

    async def _check(self, settings: SandboxSettings) -> None:
        if settings.network:
            raise SandboxUnsupported(
                f"{self.name} sandboxes have no allowlist (`network`): their requests do not pass through this server. "
                "Remove it, or use `bubblewrap`, `docker`, `podman` or `sandboxd`"
            )
        refused = [name for name in ("readonly", "links", "build") if getattr(settings, name)]
        if refused:
            raise SandboxUnsupported(f"{self.name} sandboxes cannot honor `{'`, `'.join(refused)}`; remove them")

    async def _start(self, settings: SandboxSettings) -> ServiceBox:
        token = secrets.token_hex(8)
        labels = {OWNER_LABEL: OWNER, BOOT_LABEL: BOOT, TOKEN_LABEL: token}
        machine: Machine | None = None
        began = time.monotonic()
        try:
            async with asyncio.timeout(_START_SECONDS):
                machine = await self._launch(settings, labels)
                user = 20_000 + secrets.randbelow(40_000)
                answer, _ = await request(machine, token, "start", seconds=60.0, user=user)
            if "refused" in answer:
                raise SandboxFailed(answer["refused"])
            expires = began + self.lifetime / 2
            return ServiceBox(machine, answer, token, expires, settings, self.create, self._pool.forget)
        except BaseException as error:
            if machine is not None:
                await end_machine(machine)
            elif not isinstance(error, Refusal):
                await self._remove_unanswered(token)
            if not isinstance(error, Exception):
                raise
            raise self._explain(error, settings) from error

    async def _remove_unanswered(self, token: str) -> None:
        """Remove the sandbox of a start that got no answer: the service may have started it all the same."""
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                for name, labels in await self._left(BOOT):
                    if labels.get(TOKEN_LABEL) == token:
                        await self._remove(name)
        except Exception as error:
            log.warning("a sandbox of %s may have been left, and ends later: %s", self.name, describe(error))

    def _explain(self, error: Exception, settings: SandboxSettings) -> Exception:
        """Return the error for a sandbox that did not start."""
        if isinstance(error, SandboxFailed | SandboxUnsupported):
            return error
        if isinstance(error, Refusal):
            return error.kind(f"{self.name}: {error}")
        if isinstance(error, NoAnswer) and "127" in str(error):
            named = f"the image {settings.image!r}" if settings.image else "the default image"
            return SandboxImageError(f"{named} of {self.name} cannot be used: it has no `python3` ({error})")
        if isinstance(error, Overdue | TimeoutError):
            return SandboxFailed(f"{self.name} did not start a sandbox in time: {describe(error)}")
        return SandboxFailed(f"{self.name} did not start a sandbox: {describe(error)}")


def _lifetime() -> int:
    """Return after how many seconds the service ends a sandbox.

    Raises:
        SandboxUnavailable: the variable is not a number of seconds.
    """
    text = os.environ.get(LIFETIME_VARIABLE, "")
    if text and (not text.isascii() or not text.isdigit() or int(text) < 60):
        raise SandboxUnavailable(f"{LIFETIME_VARIABLE} must be a number of seconds from 60, not {text!r}")
    return int(text) if text else _LIFETIME_SECONDS
