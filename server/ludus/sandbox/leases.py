"""The sandboxes of a server and of its episodes: opened with the server, given to an episode, gone with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Literal, Self

from ludus.sandbox.errors import SandboxFailed, SandboxFileError, SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.model import Sandbox, SandboxProvider, SandboxSettings
from ludus.sandbox.registry import find_provider

log = logging.getLogger("ludus.sandbox")

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
        self._provider = provider
        self._boxes: set[Sandbox] = set()
        self._closed = False
        self.agent: Sandbox = self._hold(agent)
        """The box that the policy's tools use."""

    def _hold(self, box: Sandbox) -> _Leased:
        """The box as the episode sees it; it and its forks end with the episode."""
        held = _Leased(box, self._adopt, self._boxes.discard)
        self._boxes.add(held)
        return held

    async def _adopt(self, fork: Sandbox) -> Sandbox:
        if self._closed:
            await fork.aclose()
            raise SandboxFailed("the episode's sandboxes have been closed")
        return self._hold(fork)

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
        box = await self._adopt(await self._provider.create(self.agent.settings))
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
            await box.aclose()

    async def aclose(self) -> None:
        """Close all of them, forks included."""
        self._closed = True
        await asyncio.gather(*(box.aclose() for box in tuple(self._boxes)), return_exceptions=True)


class _Leased:
    """A box of an episode's: as the provider made it, but that the episode knows of its forks."""

    def __init__(
        self, box: Sandbox, adopt: Callable[[Sandbox], Awaitable[Sandbox]], forget: Callable[[Sandbox], None]
    ) -> None:
        self._box = box
        self._adopt = adopt
        self._forget = forget
        self.settings, self.limits = box.settings, box.limits
        self.run, self.read, self.write, self.list = box.run, box.read, box.write, box.list
        self.snapshot, self.restore = box.snapshot, box.restore

    async def fork(self) -> Sandbox:
        """See `Sandbox.fork`; the new box ends with the episode, if not before."""
        return await self._adopt(await self._box.fork())

    async def aclose(self) -> None:
        """See `Sandbox.aclose`."""
        await self._box.aclose()
        self._forget(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()
