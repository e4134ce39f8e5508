"""How commands and background processes end: the names of the limits, and what results have in common."""

from __future__ import annotations

import signal as signals
from typing import Final, Literal, Protocol, get_args

LimitName = Literal["seconds", "cpu_seconds", "memory", "processes", "file_size", "disk", "output", "traffic"]
"""The names of the limits, as results report them."""

LIMIT_NAMES: Final[tuple[LimitName, ...]] = get_args(LimitName)
"""The same names, as a tuple."""


class _Fields(Protocol):
    @property
    def exit_code(self) -> int | None: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def limit(self) -> LimitName | None: ...


class Ending:
    """How a command ended, derived from its fields `exit_code`, `signal` and `limit`."""

    __slots__ = ()

    @property
    def ok(self: _Fields) -> bool:
        """Whether the command ended by itself with exit code 0."""
        return self.exit_code == 0 and self.limit is None

    @property
    def ending(self: _Fields) -> str:
        """How the command ended, as text for messages."""
        if self.limit is not None:
            return f"ended by its limit on {self.limit}"
        if self.signal is not None:
            try:
                return f"ended by {signals.Signals(self.signal).name}"
            except ValueError:  # most real-time signals have no name
                return f"ended by signal {self.signal}"
        return f"exit code {self.exit_code}"
