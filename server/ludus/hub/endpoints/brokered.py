"""The sandboxes of an endpoint, as its own process uses them: the hub creates them.

`use_broker` lets the settings of environments mean what they mean everywhere: `bubblewrap` is a sandbox that the hub's
broker creates (`sandboxes.py`). Container engines are not reachable from an endpoint, and the message says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ludus.sandbox.core.errors import SandboxUnavailable, SandboxUnsupported
from ludus.sandbox.core.registry import replace_provider

if TYPE_CHECKING:
    from ludus.sandbox import Sandbox, SandboxProvider, SandboxSettings
    from ludus.sandbox.remote.box import RemoteBox

_START_SECONDS: Final = 30.0
"""How long the broker may take to start, which it does with the first connection."""
_ENGINES: Final = ("docker", "podman")


def use_broker(path: str) -> None:
    """Let the environments of this process have their sandboxes from the broker at a socket, if there is one."""
    if not Path(path).exists():
        return
    replace_provider("bubblewrap", lambda: _brokered(path))
    for name in _ENGINES:
        replace_provider(name, lambda name=name: Unreachable(name))  # type: ignore[misc]


def _brokered(path: str) -> SandboxProvider:
    from ludus.sandbox.remote.host import Timing  # imported here because most environments have no sandbox
    from ludus.sandbox.remote.provider import Sandboxd

    class Brokered(Sandboxd):
        """Sandboxes of the hub's broker."""

        name = "bubblewrap"

        async def _with_authority(self, settings: SandboxSettings) -> SandboxSettings:
            if settings.cassette is not None:
                raise SandboxUnsupported("sandboxes of an endpoint of a hub have no cassettes: remove `cassette`")
            return settings

        async def _start(self, settings: SandboxSettings) -> RemoteBox:
            with contextlib.suppress(TimeoutError):  # then the error says that the host cannot be used
                async with asyncio.timeout(_START_SECONDS):
                    await self._hosts[0].up.wait()  # if the broker was lost, the next one starts
            return await super()._start(settings)

    return Brokered([f"unix:{path}"], timing=Timing(connect=_START_SECONDS))


class Unreachable:
    """A container engine that an endpoint cannot reach.

    Args:
        name: the engine.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def open(self) -> None:
        """Refuse.

        Raises:
            SandboxUnavailable: always.
        """
        raise self._refusal()

    async def create(self, settings: SandboxSettings) -> Sandbox:
        """Refuse, as `open` does."""
        raise self._refusal()

    async def prepare(self, settings: SandboxSettings) -> None:
        """Refuse, as `open` does."""
        raise self._refusal()

    async def aclose(self) -> None:
        """Do nothing."""

    def _refusal(self) -> SandboxUnavailable:
        return SandboxUnavailable(
            f"an environment asks for {self.name} sandboxes, and a hub's endpoints cannot have containers: use "
            '`provider="bubblewrap"` without an image, or run the environment elsewhere with `ludus serve`'
        )
