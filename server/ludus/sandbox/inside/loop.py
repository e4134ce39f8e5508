"""The event loop of the program inside: it watches the streams of all commands and what their processes use."""

from __future__ import annotations

import os
import select
import time

from ludus.sandbox.inside.processes import RUN, SOCKET_BYTES, Census, socket_memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from ludus.sandbox.inside.processes import Account, Usages

    class Command(Protocol):
        """A command that runs."""

        keeper: int
        limits: dict[str, Any]
        account: Account
        began: float
        limit: str | None

        def look(self, usages: Usages, now: float) -> str | None:
            """Record what the processes use, and return the limit that they exceed, or None."""

        def finish(self) -> None:
            """End all processes of the command, and report how it ended."""

    class Run(Command, Protocol):
        """The command whose output is its reply."""

        pid: int
        status: int | None

        def start(self) -> None:
            """Start the command."""

    class Background(Command, Protocol):
        """A command with a keeper."""

        number: int
        ended: bool

        def write(self, data: bytes, eof: bool) -> None:
            """Add to its input."""

        def grant(self, stream: int, size: int) -> None:
            """Allow more of its output."""

        def signal(self, number: int, group: bool) -> None:
            """Send a signal to it."""

        def resize(self, rows: int, columns: int) -> None:
            """Set the size of its terminal."""

        def abandon(self) -> None:
            """End it and close its streams."""


TICK = 0.02
"""Seconds between two looks at what the processes of commands use."""
_IDLE_TICK, _COUNTED_IDLE_TICK = 0.1, 0.4
"""The most seconds between looks while commands use little CPU time. The first value is for sandboxes whose memory the
kernel does not limit, and only while no `run` is in progress."""
_IDLE_SHARE = 0.05


class Loop:
    """The commands of a sandbox, and the descriptors that are watched for them.

    Args:
        control: the socket to the server.
        config: the configuration of the sandbox.
        hear: called when the control socket is readable.
    """

    def __init__(self, control: int, config: dict[str, Any], hear: Callable[[int], None]) -> None:
        self.control = control
        self.config = config
        self.census = Census(config["alone"], self.reap)
        self.run: Run | None = None
        self.background: dict[int, Background] = {}
        self.open = True
        self._poller = select.poll()
        self._calls: dict[int, Callable[[int], None]] = {}
        self._dismissed = 0.0
        """CPU seconds of background commands that have ended."""
        self._looked = self._used = 0.0
        self._pause = TICK
        self._sockets = socket_memory(config["tcp"]) if config["alone"] else 0
        """What sockets hold before any command: that of the egress proxy, if there is one."""
        self.watch(control, select.POLLIN, hear)

    def watch(self, end: int, events: int, call: Callable[[int], None]) -> None:
        """Call `call` with the descriptor `end` whenever it is ready."""
        self._calls[end] = call
        self._poller.register(end, events)

    def forget(self, end: int) -> None:
        """Stop watching a descriptor; it may be one that is not watched."""
        if self._calls.pop(end, None) is not None:
            self._poller.unregister(end)

    def serve(self) -> None:
        """Serve until `open` is False."""
        while self.open:
            for end, _ in self._poller.poll(self._timeout()):
                call = self._calls.get(end)
                if call is not None:
                    call(end)
            if self._commands() and time.monotonic() >= self._next():
                self._look()

    def begin(self, run: Run) -> None:
        """Start a `run`."""
        self.run = run
        self.census.runs = True
        self._looked, self._pause = time.monotonic(), TICK
        try:
            run.start()
        except BaseException:
            self.end_run()
            raise

    def end_run(self) -> None:
        """End all processes of the `run`."""
        self.census.end(RUN)
        self.run = None
        self.census.runs = False

    def add(self, job: Background) -> None:
        """Watch a background command that has started."""
        self.background[job.number] = job
        self.census.keepers.add(job.keeper)
        self._looked, self._pause = time.monotonic(), TICK

    def dismiss(self, job: Background) -> None:
        """End all processes of a background command, and record the CPU time that they used."""
        job.account.note(self.census.take().get(job.keeper, {}), self.config["alone"])
        self._dismissed += job.account.cpu()
        self.reap(False)
        if job.keeper in self.census.keepers:
            self.census.end(job.keeper)
        # A command can kill its keeper, at any moment up to here. Then its processes have none, and those that have
        # none belong to the run; without a run nothing else would end them.
        if self.run is None:
            self.census.end(RUN)

    def used_by_others(self) -> float:
        """Return the CPU seconds that background commands have used so far."""
        living = [job for job in self.background.values() if not job.ended]
        if living:
            usages = self.census.take()
            for job in living:
                job.account.note(usages.get(job.keeper, {}), self.config["alone"])
        return self._dismissed + sum(job.account.cpu() for job in living)

    def reap(self, wait: bool) -> None:
        """Reap ended children; with `wait`, until there is no child left."""
        while True:
            try:
                pid, status, used = os.wait4(-1, 0 if wait else os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self.census.keepers:
                self.census.keepers.discard(pid)
            elif self.run is not None:
                self.run.account.waited += used.ru_utime + used.ru_stime
                self.run.account.peak = max(self.run.account.peak, used.ru_maxrss * 1024)
                if pid == self.run.pid:
                    self.run.status = status

    @property
    def shared(self) -> bool:
        """Whether more than one command runs."""
        return len(self._commands()) > 1

    # ── limits ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _commands(self) -> list[Command]:
        living: list[Command] = [job for job in self.background.values() if not job.ended]
        return living if self.run is None else [*living, self.run]

    def _next(self) -> float:
        """Return when to look at the processes next: at the latest when a command has used up its time."""
        ends = min(command.began + command.limits["seconds"] for command in self._commands())
        return float(min(self._looked + self._pause, ends))

    def _timeout(self) -> float | None:
        return max(0.0, self._next() - time.monotonic()) * 1000 if self._commands() else None

    def _look(self) -> None:
        began = time.monotonic()
        usages = self.census.take()
        exceeded = []
        for command in self._commands():
            limit = command.look(usages.get(command.keeper, {}), began)
            if limit is not None:
                exceeded.append((command, limit))
        for command, limit in exceeded or self._exceeded_together():
            command.limit = command.limit or limit
            command.finish()
        self._set_pause(began)

    def _exceeded_together(self) -> list[tuple[Command, str]]:
        """Return the command that uses most of what all commands together use too much of."""
        commands = self._commands()
        if len(commands) < 2:
            return []
        memory = sum(command.account.memory for command in commands)
        if memory > self.config["memory"]:
            memory = sum(command.account.count_shared_pages_once(command.keeper) for command in commands)
        counts_sockets = self.config["alone"] and not self.config["counted"]
        if counts_sockets:  # the kernel may hold as much for each of them, and no process's memory counts it
            memory += max(0, socket_memory(self.config["tcp"]) - self._sockets)
        if memory > self.config["memory"]:
            shared_memory = {
                command: command.account.count_sockets() * SOCKET_BYTES if counts_sockets else 0 for command in commands
            }
            return [(max(commands, key=lambda command: command.account.memory + shared_memory[command]), "memory")]
        if sum(command.account.tasks for command in commands) > self.config["processes"]:
            return [(max(commands, key=lambda command: command.account.tasks), "processes")]
        return []

    def _set_pause(self, began: float) -> None:
        now = time.monotonic()
        used = self._dismissed + sum(command.account.cpu() for command in self._commands())
        counted = self.config["counted"]
        longest = _COUNTED_IDLE_TICK if counted else _IDLE_TICK
        idle = (self.run is None or counted) and used - self._used < _IDLE_SHARE * (now - self._looked)
        # Checking many processes takes long; spend at most a fifth of the time on it.
        self._pause = max(min(2 * self._pause, longest) if idle else TICK, 4 * (now - began))
        self._looked, self._used = now, used
