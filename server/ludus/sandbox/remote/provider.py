"""The backend `sandboxd`: sandboxes on other machines, on each new one the host that has the most room."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from ludus.sandbox.core.errors import SandboxFailed, SandboxUnavailable
from ludus.sandbox.core.model import SandboxSettings
from ludus.sandbox.pool import PooledProvider
from ludus.sandbox.remote.box import RemoteBox
from ludus.sandbox.remote.host import UNIX, Host, HostSession, Timing
from ludus.sandbox.remote.tokens import read_token

__all__ = ["Sandboxd"]


HOSTS_VARIABLE: Final = "LUDUS_SANDBOXD"
AUTHORITY_VARIABLE: Final = "LUDUS_SANDBOXD_CA"

_AT_ONCE: Final = 1024
"""How many sandboxes are requested at the same time; each host starts as many of them at once as it can."""
_OTHERS_SECONDS: Final = 1.0
"""How long `open` waits for the other hosts when one is up."""
_START_SECONDS: Final = 120.0


class Sandboxd(PooledProvider):
    """The provider of sandboxes that `ludus sandboxd` runs on one or more hosts.

    Args:
        hosts: their addresses, `ws://…`, `wss://…` or, for one on this machine, `unix:/path/of/its/socket`; by default
            those in LUDUS_SANDBOXD, separated by commas.
        token: what the hosts require; by default that of LUDUS_SANDBOXD_TOKEN_FILE or LUDUS_SANDBOXD_TOKEN.
        timing: how long to wait for hosts.
    """

    name = "sandboxd"
    has_cassettes = False

    def __init__(
        self, hosts: Sequence[str] | None = None, *, token: str | None = None, timing: Timing | None = None
    ) -> None:
        super().__init__(at_once=_AT_ONCE)
        self._named = hosts
        self._token = token
        self._timing = timing or Timing()
        self._hosts: list[Host] = []
        self._checked: set[SandboxSettings] = set()

    async def open(self) -> None:
        """See `SandboxProvider.open`. At least one host must answer; the others may do so later."""
        named = self._named if self._named is not None else os.environ.get(HOSTS_VARIABLE, "").split(",")
        urls = list(dict.fromkeys(_check_url(url) for url in named if url.strip()))
        if not urls:
            raise SandboxUnavailable(
                f"sandboxd sandboxes need a host: start `ludus sandboxd` on one, and set {HOSTS_VARIABLE} to its "
                "address, such as wss://box1.example.org:8765; several are separated by commas"
            )
        token, tls = self._token or read_token(), _tls()
        self._hosts = [Host(url, token=token, tls=tls, timing=self._timing) for url in urls]
        for host in self._hosts:
            host.start()
        try:
            await self._wait_for_hosts()
        except BaseException:
            await self.aclose()
            raise
        if not any(host.usable for host in self._hosts):
            await self.aclose()
            raise SandboxUnavailable(f"no host of {HOSTS_VARIABLE} can be used: {self._reasons()}")

    async def _wait_for_hosts(self) -> None:
        """Wait until each host has answered or failed, but not long for the others when one is up."""
        waiting = {asyncio.create_task(host.tried.wait()) for host in self._hosts}
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timing.connect + 1.0
        try:
            while waiting and (remaining := deadline - loop.time()) > 0:
                _, waiting = await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
                if any(host.usable for host in self._hosts):
                    deadline = min(deadline, loop.time() + _OTHERS_SECONDS)
        finally:
            for task in waiting:
                task.cancel()

    async def aclose(self) -> None:
        """See `SandboxProvider.aclose`."""
        await super().aclose()
        await asyncio.gather(*(host.aclose() for host in self._hosts))

    async def _check(self, settings: SandboxSettings) -> None:
        if settings in self._checked:
            return
        session = self._best(set())
        if session is not None:
            with suppress(SandboxFailed):  # then `_start` tries the other hosts
                await session.request("check", settings=_described(settings), seconds=_START_SECONDS)
                self._checked.add(settings)

    async def _start(self, settings: SandboxSettings) -> RemoteBox:
        """Create a sandbox on the host with the most room; try the next one if that fails."""
        failed: dict[str, str] = {}
        while (session := self._best(set(failed))) is not None:
            number = session.number()
            session.starting += 1
            try:
                await session.request("create", settings=_described(settings), number=number, seconds=_START_SECONDS)
            except SandboxFailed as error:
                failed[session.host] = error.message
                continue
            finally:
                session.starting -= 1
            return RemoteBox(session, number, settings, self.create, self._pool.forget, self._pool.adopt)
        raise SandboxFailed(f"no host can create a sandbox: {self._reasons(failed)}")

    def _best(self, without: set[str]) -> HostSession | None:
        """Return the session of the host with the most room for its size, or None if there is no room on any."""
        sessions = [host.usable for host in self._hosts if host.url not in without]
        usable = [session for session in sessions if session is not None and session.room > 0]
        return max(usable, key=lambda host: host.room, default=None)

    def _reasons(self, failed: dict[str, str] | None = None) -> str:
        """Return why each host cannot be used."""
        return "; ".join(f"{host.url}: {(failed or {}).get(host.url) or _reason(host)}" for host in self._hosts)


def _reason(host: Host) -> str:
    session = host.session
    if session is None:
        return host.why
    if not session.connected:
        return "the connection is interrupted"
    return f"it has {session.load.boxes} sandboxes and room for {session.load.capacity}"


def _described(settings: SandboxSettings) -> dict[str, object]:
    return settings.but(background=()).model_dump(mode="json")  # this side starts it, to hold its process


def _check_url(text: str) -> str:
    """Return an address without a slash at its end.

    Raises:
        SandboxUnavailable: it is not the address of a host.
    """
    url = text.strip().rstrip("/")
    if url.startswith(f"{UNIX}/"):
        return url
    parts = urlsplit("")
    try:
        parts = urlsplit(url)
        more = parts.username or parts.query or parts.fragment
        sound = parts.scheme in ("ws", "wss") and bool(parts.hostname) and (parts.port or 1) > 0 and not more
    except ValueError:
        sound = False
    if not sound:
        raise SandboxUnavailable(
            f"{url!r} in {HOSTS_VARIABLE} is not the address of a host: it must be like wss://box1.example.org:8765"
        )
    return url


def _tls() -> ssl.SSLContext | None:
    """Return how to check certificates: by the authorities in the file that LUDUS_SANDBOXD_CA names, if it is set."""
    file = os.environ.get(AUTHORITY_VARIABLE)
    if not file:
        return None
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise SandboxUnavailable(f"the certificates in {file} ({AUTHORITY_VARIABLE}) cannot be read: {error}") from None
