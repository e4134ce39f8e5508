"""The output that is kept of a command in a container, and the limit that ended it."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass, field
from typing import Final

from ludus.sandbox import shell_scripts as scripts
from ludus.sandbox.cgroups import Usage
from ludus.sandbox.core.endings import LimitName
from ludus.sandbox.core.model import Limits, RunResult

LARGE_FILE: Final = b"\0ludus: large file\0"
"""What the shell of a command writes to standard error if a file is as large as it may be."""


@dataclass(slots=True)
class Output:
    """The output of a command: at most `room` bytes, by stream (1: standard output, 2: standard error)."""

    room: int
    parts: dict[int, bytearray] = field(default_factory=lambda: {1: bytearray(), 2: bytearray()})
    cut: set[int] = field(default_factory=set)
    full: asyncio.Event = field(default_factory=asyncio.Event)

    def take(self, stream: int, data: bytes) -> None:
        """Keep as much as there is room for; set `full` if some was dropped."""
        accepted = data[: self.room]
        self.parts[stream] += accepted
        self.room -= len(accepted)
        if len(accepted) < len(data):
            self.cut.add(stream)
            self.full.set()


def broken_limit(usage: Usage, before: Usage, allowed: Limits) -> LimitName | None:
    """Return the limit that a command exceeds, by what its sandbox used before it and uses now."""
    if usage.memory > allowed.memory:
        return "memory"
    if usage.tasks > allowed.processes + scripts.OVERHEAD_TASKS:
        return "processes"
    return "cpu_seconds" if usage.cpu - before.cpu > allowed.cpu_seconds else None


def limit_from_counters(before: tuple[int, int, int], after: tuple[int, int, int], allowed: Limits) -> LimitName | None:
    """Return the limit that made system calls of a command fail, or None.

    The kernel does not count refusals by the shell's own limit on processes. They are inferred from the peak number of
    tasks: the limit refuses a new process only when that many exist.
    """
    if after[0] > before[0]:
        return "memory"
    crowded = before[2] < allowed.processes + scripts.OVERHEAD_TASKS + 1 <= after[2]
    return "processes" if after[1] > before[1] or crowded else None


def result_of(
    output: Output, code: int | None, limit: LimitName | None, took: float, before: Usage, usage: Usage,
    after: Usage, allowed: Limits,
) -> RunResult:  # fmt: skip
    """Return the outcome of a command.

    Its shell reports a signal as an exit code, which the command may have chosen itself. So a code that means a limit
    counts only if the CPU time (where it can be measured), or the mark for a large file, confirms it.
    """
    number = None if code is None or not 128 < code <= 192 else code - 128
    errors = bytes(output.parts[2])
    if code is None or limit is not None:
        number = signal.SIGKILL
    elif number == signal.SIGXCPU:
        spent = after == Usage() or after.cpu - before.cpu >= allowed.cpu_seconds
        limit, number = ("cpu_seconds", number) if spent else (None, None)
    elif number == signal.SIGXFSZ:
        limit, number = ("file_size", number) if errors.endswith(LARGE_FILE) else (None, None)
    return RunResult(
        bytes(output.parts[1]), errors.removesuffix(LARGE_FILE), code if number is None else None, number, limit, took,
        max(0.0, after.cpu - before.cpu), max(usage.memory, after.memory), 1 in output.cut, 2 in output.cut,
    )  # fmt: skip
