"""A `ludus serve --workers` of its own processes, whose workers can be found, killed and paused."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from free_ports import free_port
from waiting import wait_until

WORLD = Path(__file__).resolve().parents[1] / "durability" / "durable_world.py"
PATIENCE = 120.0


class WorkersServer:
    """A server of two workers at one port, with or without journals."""

    def __init__(
        self, folder: Path, *options: str, journal: bool | str, specs: tuple[str, ...] = (), files: Sequence[Path] = ()
    ) -> None:
        self.folder = folder
        for file in files:
            shutil.copy(file, folder / "edited_world.py")
        self.specs = specs or (f"{WORLD}:Ledger", f"{WORLD}:Drifting")
        self.options = options if "--workers" in options else (*options, "--workers", "2")
        if journal:
            name = journal if isinstance(journal, str) else str(folder / "journal.db")
            self.options = (*self.options, "--journal", name)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / "server.log"
        self.variables: dict[str, str] = {}
        self.process: subprocess.Popen[bytes] | None = None

    async def start(self, *options: str) -> str:
        """Start the server, wait until it answers, and return the line in which it says so."""
        least = self.options[self.options.index("--workers") + 1].partition("-")[0]
        names = [f"w{number}" for number in range(int(least))]
        before = {name: len(self.pids(name)) if self.log.exists() else 0 for name in names}
        command = [sys.executable, "-m", "ludus.cli", "serve", *self.specs, "--port", str(self.port)]
        with self.log.open("ab") as log:
            self.process = process = subprocess.Popen(  # noqa: ASYNC220 - it outlives the event loop of a test
                [*command, *self.options, *options], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log,
                cwd=self.folder, env={**os.environ, **self.variables},
            )  # fmt: skip
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), PATIENCE)
        assert line.startswith(b"Serving"), self.said
        await wait_until(lambda: all(len(self.pids(name)) > count for name, count in before.items()), PATIENCE)
        return line.decode()

    @property
    def said(self) -> str:
        """The log."""
        return self.log.read_text("utf-8")

    @property
    def pid(self) -> int:
        """The process id of the supervisor, which is the gateway."""
        assert self.process is not None
        return self.process.pid

    def pids(self, worker: str) -> list[int]:
        """The process ids that a worker has had, the latest last."""
        return [int(pid) for pid in re.findall(rf"worker {worker} serves \(process (\d+)", self.said)]

    def pid_of(self, worker: str) -> int:
        """The process id of a worker."""
        return self.pids(worker)[-1]

    async def kill(self, worker: str, number: int = signal.SIGKILL) -> int:
        """Send a signal to a worker, and return the process id that it had."""
        pid = self.pid_of(worker)
        os.kill(pid, number)
        return pid

    async def replaced(self, worker: str, pid: int) -> None:
        """Wait until another process than `pid` is this worker."""
        await wait_until(lambda: self.pid_of(worker) != pid, PATIENCE)

    async def end(self, number: int = signal.SIGKILL) -> int:
        """End the server with a signal, and return its exit status."""
        process = self.process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        status = await asyncio.to_thread(process.wait, PATIENCE)
        assert process.stdout is not None
        process.stdout.close()
        return status
