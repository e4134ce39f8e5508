"""A server process with a journal, which is killed and started again at the same port."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from contextlib import suppress
from pathlib import Path

from free_ports import free_port

FOLDER = Path(__file__).resolve().parents[1] / "durability"
WORLD = (FOLDER / "durable_world.py", ("Ledger", "Drifting"))
SAVED = (
    FOLDER / "saved_world.py",
    ("Vault", "Sparse", "Workshop", "Mailer", "Fleeting", "Judged", "Racing", "Slow", "Lucky"),
)
PATIENCE = 60.0


class Process:
    """A `ludus serve` of its own process group, at one port, with one journal."""

    def __init__(
        self, folder: Path, *options: str, world: tuple[Path, tuple[str, ...]] = WORLD, journaled: bool = True,
        journal: str | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        file, classes = world
        self.environments = [f"{file}:{name}" for name in classes if name != "Workshop" or shutil.which("bwrap")]
        self.journaled = journaled
        self.journal = journal or str(folder / "journal.db")
        self.options = options
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: asyncio.subprocess.Process | None = None
        self.log = folder / "server.log"

    async def start(self, *options: str) -> None:
        """Start the server, and wait until it answers."""
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "ludus.cli", "serve", *self.environments, "--port", str(self.port),
                *(("--journal", self.journal) if self.journaled else ()), *self.options, *options,
                stdout=asyncio.subprocess.PIPE, stderr=log, cwd=self.folder,
            )  # fmt: skip
        assert self.process.stdout is not None
        line = await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)
        if not line.startswith(b"Serving"):
            await self.end()
            raise AssertionError(self.log.read_text("utf-8"))

    async def end(self, number: int = signal.SIGKILL) -> None:
        """End the server with a signal; one that has ended by itself is only waited for."""
        if self.process is not None:
            with suppress(ProcessLookupError):
                self.process.send_signal(number)
            await asyncio.wait_for(self.process.wait(), PATIENCE)

    async def whole_log(self) -> str:
        """End the server by SIGTERM, after which a thread has written all that was logged, and return its log."""
        await self.end(signal.SIGTERM)
        return self.log.read_text("utf-8")

    async def restart(self, number: int = signal.SIGKILL, *options: str) -> None:
        """End the server with a signal, and start it again."""
        await self.end(number)
        await self.start(*options)
