"""What a sandbox is: its limits, what a run gives, and the two protocols that every backend implements."""

from __future__ import annotations

import signal as signals
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, Protocol, Self, get_args, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator

from ludus.sandbox.network.allowlist import Allowlist

LimitName = Literal["seconds", "cpu_seconds", "memory", "processes", "file_size", "disk", "output", "traffic"]
"""The limits by the names under which `RunResult.limit` reports them."""

LIMIT_NAMES: Final[tuple[LimitName, ...]] = get_args(LimitName)

_MIB: Final = 1024 * 1024


class Limits(BaseModel):
    """What one command may use; memory, disk, processes and traffic are the whole box's. Sizes are in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seconds: float = Field(default=10.0, gt=0)
    """Wall-clock time of one command."""
    cpu_seconds: float = Field(default=10.0, gt=0)
    """Processor time of one command, all of its processes together."""
    memory: int = Field(default=512 * _MIB, ge=16 * _MIB)
    """Memory of all processes together."""
    processes: int = Field(default=64, ge=1)
    """Processes and threads at one time."""
    file_size: int = Field(default=64 * _MIB, ge=0)
    """The largest single file."""
    disk: int = Field(default=256 * _MIB, ge=_MIB)
    """All files together, those in /tmp included; and one file per 16 KiB of it at most."""
    output: int = Field(default=_MIB, ge=0)
    """Standard output and standard error together."""
    traffic: int = Field(default=256 * _MIB, ge=0)
    """Bytes to and from the hosts of the allowlist in the whole life of a box, where there is one."""

    def but(self, **changes: Any) -> Limits:
        """These limits with some changed."""
        return Limits(**{**self.model_dump(), **changes})

    def within(self, outer: Limits) -> Limits:
        """For each limit, the lesser of both."""
        return Limits(**{name: min(getattr(self, name), getattr(outer, name)) for name in LIMIT_NAMES})

    @property
    def inodes(self) -> int:
        """How many files and directories `disk` allows."""
        return max(1024, self.disk // (16 * 1024))


class SandboxSettings(BaseModel):
    """What an environment wants of its sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    provider: str = "bubblewrap"
    """A name of the entry-point group `ludus.sandboxes`."""
    limits: Limits = Limits()
    image: str | None = None
    """The image to run in, for backends that have images."""
    readonly: tuple[tuple[str, str], ...] = ()
    """Further paths to show, read-only: (path on this machine, path in the box)."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables of every command, beside PATH, HOME, TMPDIR and LANG."""
    network: tuple[str, ...] = ()
    """Hosts that may be reached, through a proxy that the environment variables name: `pypi.org`, `*.example.org`,
    `192.0.2.7:8080`, `10.1.0.0/16`. Without a port, 80 and 443 are meant. None means no network at all."""
    warm: int = Field(default=1, ge=0)
    """Boxes kept ready."""

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: tuple[str, ...]) -> tuple[str, ...]:
        Allowlist(network)
        return network


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """Connections to one destination that a command asked for."""

    target: str
    """`host:port`."""
    refused: str | None
    """Why they were refused; None where they were let through."""
    connections: int

    def __str__(self) -> str:
        if self.refused is None:
            return f"network: allowed {self.target}"
        return f"network: refused {self.target}: {self.refused}"


@dataclass(frozen=True, slots=True)
class RunResult:
    """What came of one command."""

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    """None where a signal ended it."""
    signal: int | None
    """The signal that ended it."""
    limit: LimitName | None
    """The limit that ended it, by the name it has in `Limits`."""
    seconds: float
    cpu_seconds: float
    """Processor time of all its processes; without control groups, as far as they were waited for or seen."""
    peak_memory: int
    """Bytes: the largest process, or the largest sum that was seen."""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    network: tuple[NetworkUse, ...] = ()
    """What it asked for of the network, in order, where the settings allow one; a hundred destinations at most."""
    rebuilt: bool = False
    """Whether the box had to be ended with it. The box is rebuilt at its next use: with the files of the work
    directory as far as they can be copied, and an empty /tmp."""

    @property
    def ok(self) -> bool:
        """Whether it ended by itself, with exit code 0."""
        return self.exit_code == 0 and self.limit is None

    @property
    def text(self) -> str:
        """Standard output as text; what is not UTF-8 becomes U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def refused(self) -> tuple[NetworkUse, ...]:
        """What the allowlist did not let through."""
        return tuple(use for use in self.network if use.refused is not None)

    @property
    def ending(self) -> str:
        """How it ended, in words."""
        if self.limit is not None:
            return f"ended by its limit on {self.limit}"
        if self.signal is not None:
            try:
                return f"ended by {signals.Signals(self.signal).name}"
            except ValueError:  # most real-time signals have no name
                return f"ended by signal {self.signal}"
        return f"exit code {self.exit_code}"


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a directory."""

    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int
    """Bytes; for files."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a box's work directory at one moment, as a tar archive."""

    data: bytes


@runtime_checkable
class Sandbox(Protocol):
    """One box: a place where untrusted commands run, with one writable work directory, where they begin.

    Commands and file operations happen one at a time. When a command ends, whatever it started is ended with it; its
    files stay until the box is closed. Paths are relative to the work directory, and no link is followed.
    """

    limits: Limits
    """What commands may use at most."""
    settings: SandboxSettings

    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: str = ".",
        limits: Limits | None = None,
    ) -> RunResult:  # fmt: skip
        """Run one command to its end.

        Args:
            argv: the program, looked up in PATH, and its arguments. No shell is involved.
            stdin: what it reads; then comes the end of file.
            env: further environment variables.
            cwd: where it begins, below the work directory.
            limits: tighter limits for this command; see `Limits.but`.

        Returns:
            What came of it. A program that cannot be started has exit code 127 or 126, as in a shell.

        Raises:
            SandboxFileError: there is no directory `cwd`, or it is not below the work directory.
            SandboxFailed: the box is gone through no doing of the command's: closed, or lost by the machine.
        """
        ...

    async def read(self, path: str, *, limit: int = 16 * _MIB) -> bytes:
        """The content of a file of at most `limit` bytes.

        Raises:
            SandboxFileError: no such plain file, or a larger one.
        """
        ...

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file, replacing what was there; missing directories are made.

        Raises:
            SandboxFileError: the path leads through a link, or there is no room.
        """
        ...

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """What is in a directory, by name; at most 10,000 entries.

        Raises:
            SandboxFileError: no such directory, or one with too many entries.
        """
        ...

    async def snapshot(self) -> Snapshot:
        """All files of the work directory; sockets, pipes and open files are left out.

        In a container, files that their owner may not read become readable to it, and directories writable in the copy.

        Raises:
            SandboxFileError: they are larger than the limit on `disk`, as sparse files can be.
        """
        ...

    async def restore(self, snapshot: Snapshot) -> None:
        """Make the work directory what it was when the snapshot was taken, in this box or another."""
        ...

    async def fork(self) -> Sandbox:
        """A new box of the same settings, with the same files."""
        ...

    async def aclose(self) -> None:
        """End everything in the box and remove it; repeats are harmless."""
        ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@runtime_checkable
class SandboxProvider(Protocol):
    """Makes boxes of one kind; opened once per server, before the first episode."""

    name: str

    async def open(self) -> None:
        """Check that boxes can be made here, and remove what a crashed server left.

        Raises:
            SandboxUnavailable: they cannot; the message names the package to install, and the alternative.
        """
        ...

    async def create(self, settings: SandboxSettings) -> Sandbox:
        """A fresh box, from the warm pool where one is ready.

        Raises:
            SandboxUnsupported: the settings ask for what this backend cannot do.
            SandboxFailed: the box could not be started.
        """
        ...

    async def prepare(self, settings: SandboxSettings) -> None:
        """Have `settings.warm` boxes ready.

        Raises:
            SandboxUnsupported, SandboxFailed: as `create`.
        """
        ...

    async def aclose(self) -> None:
        """Close every box, those in use included."""
        ...
