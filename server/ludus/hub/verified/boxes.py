"""The sandbox of a harness: one for each start of an episode, by bubblewrap, without a network."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ludus.hub.endpoints.environments import Environments
from ludus.hub.verified.places import DOOR
from ludus.protocol.text import printable
from ludus.sandbox import Limits, SandboxFailed, SandboxSettings, find_provider

if TYPE_CHECKING:
    from ludus.hub.hub import Hub
    from ludus.hub.verified.door import Door
    from ludus.hub.verified.harnesses import Program
    from ludus.hub.verified.settings import VerifiedSettings
    from ludus.sandbox import SandboxProvider

PROVIDER: Final = "bubblewrap"

FOLDER: Final = "harnesses"
"""The folder of the harnesses' virtual environments in the hub's data folder."""

OUTPUT_BYTES: Final = 256 * 1024
KEPT_OUTPUT: Final = 8 * 1024


class Ended(NamedTuple):
    """How a harness has ended."""

    ending: str
    output: str
    lost: bool
    """Whether its sandbox was lost, which is not its fault."""


class Boxes:
    """Makes the sandboxes.

    Args:
        hub: the hub.
        settings: the limits.
    """

    def __init__(self, hub: Hub, settings: VerifiedSettings) -> None:
        self._hub = hub
        self._settings = settings
        self._opening = asyncio.Lock()
        self._provider: SandboxProvider | None = None
        self._environments: Environments | None = None

    async def open(self) -> Environments:
        """Open the provider at the first use, and return the virtual environments of harnesses.

        Raises:
            SandboxUnavailable: this machine has no bubblewrap.
        """
        async with self._opening:
            if self._environments is None:
                provider = find_provider(PROVIDER)
                folder: Path = self._hub.settings.data / FOLDER
                made = Environments(folder, self._hub.settings.endpoints, provider.create, self._hub.blobs.local)
                try:
                    await provider.open()
                    await asyncio.to_thread(made.open)
                except BaseException:
                    await provider.aclose()
                    raise
                self._provider, self._environments = provider, made
            return self._environments

    async def aclose(self) -> None:
        """End all sandboxes."""
        if self._provider is not None:
            await self._provider.aclose()

    async def run(self, program: Program, door: Door, model: str) -> Ended:
        """Run a harness until it ends or a limit ends it."""
        assert self._provider is not None
        given = self._settings
        limits = Limits(
            seconds=given.episode_seconds, cpu_seconds=given.cpu_seconds, memory=given.memory,
            processes=given.processes, disk=given.disk, file_size=given.disk, output=OUTPUT_BYTES, spawned=0,
        )  # fmt: skip
        settings = SandboxSettings(
            provider=PROVIDER, limits=limits, readonly=((door.folder, DOOR), *program.shown), loopback=True, warm=0
        )
        try:
            async with await self._provider.create(settings) as box:
                result = await box.run(program.argv, env={"LUDUS_MODEL": model})
        except SandboxFailed as error:
            return Ended(f"its sandbox was lost: {error.message}"[:500], "", lost=True)
        text = (result.stdout[-KEPT_OUTPUT:] + result.stderr[-KEPT_OUTPUT:]).decode("utf-8", "replace")
        return Ended(str(result.ending)[:500], _plain(text), lost=False)


def _plain(text: str) -> str:
    return "\n".join(printable(line) for line in text.splitlines())
