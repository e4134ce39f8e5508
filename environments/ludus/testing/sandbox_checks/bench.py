"""What a check works with, and the list of all checks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from ludus.sandbox import Limits, Sandbox, SandboxProvider, SandboxSettings

MIB: Final = 1024 * 1024

Ability = Literal[
    "python", "isolation", "background", "terminals", "ports", "snapshots", "forks", "usage", "executable files",
    "signal numbers", "warm sandboxes",
    "limit: seconds", "limit: cpu_seconds", "limit: memory", "limit: processes", "limit: file_size", "limit: disk",
    "limit: output",
]  # fmt: skip
"""What a backend may declare that it cannot do:

- `python`: there is no `python3` in its sandboxes.
- `isolation`: one sandbox can see another.
- `background`: `spawn` raises `SandboxUnsupported`, or what is asked for while the process runs does.
- `terminals`, `ports`: `open_terminal`, `connect` and `expose` raise `SandboxUnsupported`.
- `snapshots`: `snapshot` and `restore` raise `SandboxUnsupported`; `forks` the same of `fork`.
- `usage`: results have no CPU time and no memory.
- `executable files`: a file cannot be made executable.
- `signal numbers`: a result does not have the signal that ended a command.
- `warm sandboxes`: `prepare` keeps none ready.
- `limit: …`: results do not have this limit by its name.
"""
ABILITIES: Final[tuple[Ability, ...]] = get_args(Ability)

LIMITS: Final = Limits(
    seconds=30, cpu_seconds=10, memory=96 * MIB, processes=24, file_size=8 * MIB, disk=24 * MIB, output=64 * 1024,
    spawned_seconds=60, spawned_cpu_seconds=10, spawned_output=16 * MIB,
)  # fmt: skip
"""The limits of the sandboxes in which checks run."""


@dataclass(frozen=True)
class Bench:
    """An open provider under test.

    Attributes:
        provider: the backend.
        settings: the settings of its sandboxes.
    """

    provider: SandboxProvider
    settings: SandboxSettings

    async def box(self, **limits: Any) -> Sandbox:
        """Return a new sandbox, with some of its limits changed."""
        return await self.provider.create(self.with_limits(self.settings.limits.but(**limits)))

    async def box_with_ports(self) -> Sandbox:
        """Return a new sandbox whose commands may open sockets."""
        return await self.provider.create(self.settings.model_copy(update={"loopback": True}))

    def with_limits(self, limits: Limits) -> SandboxSettings:
        """Return the settings with other limits."""
        return self.settings.model_copy(update={"limits": limits})


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: what must hold.
        needs: what the backend must be able to do; the check is skipped if it declares that it cannot.
        run: raises AssertionError if it does not hold.
    """

    name: str
    needs: tuple[Ability, ...]
    run: Callable[[Bench], Awaitable[None]]


CHECKS: Final[list[Check]] = []
"""All checks whose modules have been imported."""

Run = Callable[[Bench], Awaitable[None]]


def check(*needs: Ability) -> Callable[[Run], Run]:
    """Add a check to the list."""

    def add(run: Run) -> Run:
        CHECKS.append(Check(run.__name__, needs, run))
        return run

    return add
