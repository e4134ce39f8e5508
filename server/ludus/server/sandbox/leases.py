"""The sandboxes of a server and of its episodes: opened with the server, given to an episode, gone with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Literal

from ludus.server.sandbox.errors import SandboxFailed, SandboxFileError, SandboxUnavailable, SandboxUnsupported
from ludus.server.sandbox.model import Sandbox, SandboxProvider, SandboxSettings
from ludus.server.sandbox.registry import find_provider

log = logging.getLogger("ludus.server.sandbox")

VerifierPlace = Literal["shared", "separate"]
"""Where a verifier runs: in the agent's own box, or in a fresh one that has the declared artifacts only."""


class Sandboxes:
    """The providers of one server."""

    def __init__(self) -> None:
        self._providers: dict[str, SandboxProvider] = {}
        self.refusal: SandboxUnavailable | SandboxUnsupported | None = None
        """Why they could not be opened, once that was tried."""

    async def open(self, wanted: Iterable[SandboxSettings | None]) -> None:
        """Open every provider that is wanted, and warm its boxes; None wants nothing.

        Raises:
            SandboxUnavailable: one cannot work here.
            SandboxUnsupported: one cannot do what settings ask for.
        """
        try:
            for settings in dict.fromkeys(wanted):
                if settings is None:
                    continue
                provider = self._providers.get(settings.provider)
                if provider is None:
                    provider = find_provider(settings.provider)
                    await provider.open()
                    self._providers[settings.provider] = provider
                await provider.prepare(settings)
        except BaseException as error:
            if isinstance(error, SandboxUnavailable | SandboxUnsupported):
                self.refusal = error
            await self.aclose()
            raise

    async def lease(self, settings: SandboxSettings) -> EpisodeSandboxes:
        """The sandboxes of one episode; its first box is there when this returns.

        Raises:
            SandboxFailed: it could not be started.
        """
        provider = self._providers.get(settings.provider)
        if provider is None:
            raise SandboxFailed(f"the sandboxes of {settings.provider!r} are not open")
        return EpisodeSandboxes(provider, await provider.create(settings))

    async def aclose(self) -> None:
        """Close every box of every provider."""
        providers, self._providers = self._providers, {}
        for outcome in await asyncio.gather(*(one.aclose() for one in providers.values()), return_exceptions=True):
            if isinstance(outcome, BaseException):
                log.error("a sandbox provider could not be closed", exc_info=outcome)


class EpisodeSandboxes:
    """The boxes of one episode."""

    def __init__(self, provider: SandboxProvider, agent: Sandbox) -> None:
        self.agent = agent
        """The box that the policy's tools use."""
        self._provider = provider
        self._boxes: set[Sandbox] = {agent}

    @asynccontextmanager
    async def verifier(self, where: VerifierPlace, artifacts: Sequence[str]) -> AsyncIterator[Sandbox]:
        """The box in which to verify.

        With "separate" it is a fresh one that ends with the context: nothing that the policy did to its own box is
        there, but for the files that `artifacts` names. One that is missing, is not a plain file, or does not fit
        beside those before it, is left out.
        """
        if where == "shared":
            yield self.agent
            return
        box = await self._provider.create(self.agent.settings)
        self._boxes.add(box)
        left = self.agent.limits.disk
        try:
            for path in artifacts:
                try:
                    content = await self.agent.read(path, limit=left)
                    await box.write(path, content)
                except SandboxFileError as error:
                    log.info("an artifact is left out: %s", error.message)
                else:
                    left -= len(content)
            yield box
        finally:
            self._boxes.discard(box)
            await box.aclose()

    async def aclose(self) -> None:
        """Close all of them."""
        boxes, self._boxes = self._boxes, set()
        await asyncio.gather(*(box.aclose() for box in boxes), return_exceptions=True)
