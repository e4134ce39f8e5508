"""The sandboxes of a server and its episodes: providers open with the server, and sandboxes close with the episode."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, Literal, Self

from ludus.protocol.errors import LudusError
from ludus.sandbox.base import SandboxBase
from ludus.sandbox.core.errors import (
    CassetteError,
    SandboxFailed,
    SandboxFileError,
    SandboxUnavailable,
    SandboxUnsupported,
)
from ludus.sandbox.core.model import ImageProvider, Sandbox, SandboxProvider, SandboxSettings
from ludus.sandbox.core.registry import find_provider

log = logging.getLogger("ludus.sandbox")

_AT_ONCE: Final = 8
_REPORTED_IMAGES: Final = 10

VerifierPlace = Literal["shared", "separate"]
"""Where a verifier runs: in the agent's own sandbox, or in a new one that contains only the declared artifacts."""


class Sandboxes:
    """The providers of one server."""

    def __init__(self) -> None:
        self._providers: dict[str, SandboxProvider] = {}
        self._opening = asyncio.Lock()
        self._closed = False
        self.refusal: SandboxUnavailable | SandboxUnsupported | CassetteError | None = None
        """The error that kept a provider from opening; None before `open`, or if all opened."""

    async def open(self, requested: Iterable[SandboxSettings | None]) -> None:
        """Open every provider that the settings name, and start its warm sandboxes; None entries are skipped.

        Raises:
            SandboxUnavailable: a provider cannot work here, or cannot start a sandbox.
            SandboxUnsupported: a provider cannot do what its settings ask for.
        """
        self._closed = False
        try:
            for settings in dict.fromkeys(requested):
                if settings is None:
                    continue
                provider = await self._provider(settings.provider)
                await provider.prepare(settings)
        except BaseException as error:
            await self.aclose()
            if isinstance(error, SandboxFailed):  # such as a registry that does not answer
                self.refusal = SandboxUnavailable(error.message)
                raise self.refusal from None
            if isinstance(error, SandboxUnavailable | SandboxUnsupported | CassetteError):
                self.refusal = error
            raise

    async def lease(self, settings: SandboxSettings, secrets: Iterable[str] = ()) -> EpisodeSandboxes:
        """Return the sandboxes of one episode; the agent's sandbox has started when this returns.

        Args:
            settings: those of the sandboxes.
            secrets: the episode's, which a cassette must not keep.

        Raises:
            SandboxFailed: the agent's sandbox could not be started.
        """
        provider = await self._provider(settings.provider)
        return EpisodeSandboxes(provider, await provider.create(settings), tuple(secrets))

    async def obtain(self, requested: Iterable[SandboxSettings]) -> dict[SandboxSettings, LudusError]:
        """Obtain the images of settings ahead, several at a time, and open their providers.

        Returns:
            The settings whose image cannot be used, with the reason.

        Raises:
            SandboxUnavailable: a provider cannot work here.
        """
        every = tuple(dict.fromkeys(requested))
        for settings in every:
            await self._provider(settings.provider)
        queue = iter(every)
        failed: dict[SandboxSettings, LudusError] = {}
        finished = 0

        async def work() -> None:
            nonlocal finished
            for settings in queue:
                provider = self._providers[settings.provider]
                try:
                    if isinstance(provider, ImageProvider) and settings.prepull:
                        await provider.obtain(settings)
                except (SandboxUnsupported, SandboxFailed) as error:
                    failed[settings] = error
                finished += 1
                if finished % _REPORTED_IMAGES == 0:
                    log.info("%d of %d images are ready", finished - len(failed), len(every))

        await asyncio.gather(*(work() for _ in range(min(_AT_ONCE, len(every)))))
        return failed

    async def _provider(self, name: str) -> SandboxProvider:
        """Return an open provider, and open it if no environment named it at startup."""
        async with self._opening:
            provider = self._providers.get(name)
            if provider is None:
                if self._closed:
                    raise SandboxFailed("the sandboxes of this server have been closed")
                provider = find_provider(name)
                try:
                    await provider.open()
                except SandboxUnavailable as error:
                    self.refusal = self.refusal or error
                    raise
                self._providers[name] = provider
            return provider

    async def aclose(self) -> None:
        """Close every sandbox of every provider."""
        self._closed = True
        providers, self._providers = self._providers, {}
        for outcome in await asyncio.gather(
            *(provider.aclose() for provider in providers.values()), return_exceptions=True
        ):
            if isinstance(outcome, BaseException):
                log.error("closing a sandbox provider failed", exc_info=outcome)


class EpisodeSandboxes:
    """The sandboxes of one episode."""

    def __init__(self, provider: SandboxProvider, agent: Sandbox, secrets: Sequence[str] = ()) -> None:
        self._provider = provider
        self._secrets = secrets
        self._boxes: set[Sandbox] = set()
        self._taped: list[SandboxBase] = []
        """Those that have played a cassette; one that is closed may have missed an answer, too."""
        self._closed = False
        self.agent: Sandbox = self._hold(agent)
        """The sandbox that the agent's tools use."""

    def _hold(self, box: Sandbox) -> _Leased:
        """Wrap a sandbox so that it and its forks are closed with the episode."""
        leased = _Leased(box, self._adopt, self._boxes.discard)
        self._boxes.add(leased)
        if isinstance(box, SandboxBase) and box.tape is not None:
            self._taped.append(box)
            box.tape.secrets = tuple(self._secrets)
        return leased

    async def _adopt(self, fork: Sandbox) -> Sandbox:
        if self._closed:
            await fork.aclose()
            raise SandboxFailed("the episode's sandboxes have been closed")
        return self._hold(fork)

    @asynccontextmanager
    async def verifier(self, where: VerifierPlace, artifacts: Sequence[str]) -> AsyncIterator[Sandbox]:
        """Enter the context of the sandbox in which to verify.

        With "separate" it is a new one that closes with the context. It contains nothing from the agent's sandbox
        except the files that `artifacts` names. An artifact that is missing, is not a plain file, or does not fit in
        the disk space left by those before it, is left out.
        """
        if where == "shared":
            yield self.agent
            return
        box = await self._adopt(await self._provider.create(self.agent.settings))
        remaining = self.agent.limits.disk
        try:
            for path in artifacts:
                try:
                    content = await self.agent.read(path, limit=remaining)
                    await box.write(path, content)
                except SandboxFileError as error:
                    log.info("an artifact is left out: %s", error.message)
                else:
                    remaining -= len(content)
            yield box
        finally:
            await box.aclose()

    @property
    def plays_cassettes(self) -> bool:
        """Whether a sandbox of the episode plays a cassette."""
        return bool(self._taped)

    def check_cassettes(self) -> None:
        """Raise an error if a program in a sandbox has requested what the cassette does not have.

        Raises:
            CassetteMiss: so that the episode is unscored.
        """
        for box in self._taped:
            box.check_cassette()

    async def aclose(self) -> None:
        """Close all sandboxes of the episode, forks included."""
        self._closed = True
        await asyncio.gather(*(box.aclose() for box in tuple(self._boxes)), return_exceptions=True)


class _Leased:
    """A sandbox of an episode: it behaves like the provider's sandbox, and registers its forks with the episode."""

    def __init__(
        self, box: Sandbox, adopt: Callable[[Sandbox], Awaitable[Sandbox]], forget: Callable[[Sandbox], None]
    ) -> None:
        self._box = box
        self._adopt = adopt
        self._forget = forget
        self.settings, self.limits, self.background = box.settings, box.limits, box.background
        self.run, self.read, self.write, self.list = box.run, box.read, box.write, box.list
        self.snapshot, self.restore = box.snapshot, box.restore
        self.spawn, self.open_terminal = box.spawn, box.open_terminal
        self.connect, self.expose = box.connect, box.expose

    async def fork(self) -> Sandbox:
        """See `Sandbox.fork`; the new sandbox is closed at the latest with the episode."""
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
