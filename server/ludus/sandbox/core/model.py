"""The sandbox interface: limits, settings, results, and the two protocols that every backend implements."""

from __future__ import annotations

import re
import socket
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, runtime_checkable

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from ludus.sandbox.core.allowlist import Allowlist
from ludus.sandbox.core.cassette_settings import Cassette
from ludus.sandbox.core.endings import Ending, LimitName

if TYPE_CHECKING:
    from ludus.sandbox.core.ports import Port
    from ludus.sandbox.core.processes import Process
    from ludus.sandbox.core.terminal import Terminal

__all__ = ["Sandbox", "Snapshot"]


PullPolicy = Literal["missing", "always", "never"]
"""When a registry is asked for an image."""

_MIB: Final = 1024 * 1024
_IMAGE_CHARACTERS: Final = 512
_PART: Final = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_IMAGE: Final = re.compile(
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9a-fA-F:]+\])(?::\d{1,5})?/)?"  # the registry
    rf"{_PART}(?:/{_PART})*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_TOP_LEVEL: Final = re.compile(r"/[A-Za-z0-9_][A-Za-z0-9._-]*")
_OWN_DIRECTORIES: Final = frozenset(
    {"bin", "box", "dev", "etc", "lib", "lib32", "lib64", "libx32", "proc", "sbin", "sys", "tmp", "usr"}
)
_IMAGE_ID: Final = re.compile(r"(?:sha256:)?[0-9a-f]{64}")


class Limits(BaseModel):
    """The limits of one command; memory, disk, processes and traffic count per sandbox. Sizes are in bytes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    seconds: float = Field(default=10.0, gt=0)
    """Wall-clock seconds of one command."""
    cpu_seconds: float = Field(default=10.0, gt=0)
    """CPU seconds of one command, summed over all of its processes."""
    memory: int = Field(default=512 * _MIB, ge=16 * _MIB)
    """Memory of all processes together."""
    processes: int = Field(default=64, ge=1)
    """Processes and threads at one time."""
    file_size: int = Field(default=64 * _MIB, ge=0)
    """Size of the largest file."""
    disk: int = Field(default=256 * _MIB, ge=_MIB)
    """Size of all files together, including those in /tmp. It also allows at most one file per 16 KiB."""
    output: int = Field(default=_MIB, ge=0)
    """Standard output and standard error together."""
    traffic: int = Field(default=256 * _MIB, ge=0)
    """Bytes sent to and received from the hosts of the allowlist, if there is one, in the lifetime of a sandbox."""
    spawned: int = Field(default=16, ge=0, le=64)
    """Background processes at one time, terminals included."""
    spawned_seconds: float = Field(default=3600.0, gt=0)
    """Wall-clock seconds of one background process. A result reports it as `seconds`."""
    spawned_cpu_seconds: float = Field(default=600.0, gt=0)
    """CPU seconds of one background process and all that it started. A result reports it as `cpu_seconds`."""
    spawned_output: int = Field(default=64 * _MIB, ge=0)
    """Standard output and standard error of one background process together. A result reports it as `output`."""

    def but(self, **changes: Any) -> Limits:
        """Return a copy of these limits with the given changes."""
        return Limits(**{**self.model_dump(), **changes})

    def within(self, outer: Limits) -> Limits:
        """Return limits with the smaller of the two values for each."""
        return Limits(**{name: min(getattr(self, name), getattr(outer, name)) for name in Limits.model_fields})

    @property
    def inodes(self) -> int:
        """The number of files and directories that `disk` allows."""
        return max(1024, self.disk // (16 * 1024))

    @property
    def terminals(self) -> int:
        """How many terminals can be open in the sandbox: one for each background process, and four of programs."""
        return self.spawned + 4


class SandboxSettings(BaseModel):
    """The settings of an environment's sandboxes."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    provider: str = "bubblewrap"
    """The provider's name in the entry-point group `ludus.sandboxes`."""
    limits: Limits = Limits()
    image: str | None = None
    """The container image to run in, for backends that use images: a name with an optional tag or digest, such as
    `python:3.12-slim`, or the id of an image that the engine has."""
    build: str | None = None
    """A folder with a `Dockerfile` to build the image from, instead of `image`. A relative path starts at the folder
    of the environment's file."""
    pull: PullPolicy = "missing"
    """When to ask the registry for `image`, or for the images that `build` starts from: "missing", if the engine does
    not have it; "always", once per server, to find what its tag means now; "never"."""
    prepull: bool = True
    """Whether the server obtains the images of all tasks before it is ready, not at their first episodes."""
    image_bytes: int = Field(default=4 * 1024 * _MIB, ge=_MIB)
    """The maximum size of the image, unpacked."""
    readonly: tuple[tuple[str, str], ...] = ()
    """Further paths to mount read-only: (path on this machine, path in the sandbox)."""
    links: tuple[tuple[str, str], ...] = ()
    """Directories of the work directory that have an absolute path, too, through a link: (path in the sandbox, path in
    the work directory), such as ("/app", "app"). For `bubblewrap` only: an image can have such links itself."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment variables of every command, in addition to PATH, HOME, TMPDIR and LANG."""
    network: tuple[str, ...] = ()
    """Hosts that commands may reach, through a proxy named in the environment variables: `pypi.org`, `*.example.org`,
    `192.0.2.7:8080`, `10.1.0.0/16`. An entry without a port allows 80 and 443. Without entries there is no network."""
    cassette: Cassette | None = None
    """A file of recorded answers to the requests to `network`, by HTTP and HTTPS. Without it, requests reach their
    hosts."""
    loopback: bool = False
    """Whether commands may open sockets within the sandbox, so that they can serve its ports: see `Sandbox.expose`.
    An allowlist includes it."""
    warm: int = Field(default=1, ge=0)
    """Number of sandboxes kept ready."""
    background: tuple[str, ...] = ()
    """A command that each sandbox runs in the background from its start, for a program that starts slowly: sandboxes
    that are kept ready have started it. See `Sandbox.background`."""

    @field_validator("network")
    @classmethod
    def _check_network(cls, network: tuple[str, ...]) -> tuple[str, ...]:
        Allowlist(network)
        return network

    @field_validator("links")
    @classmethod
    def _check_links(cls, links: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        for path, inside in links:
            if not _TOP_LEVEL.fullmatch(path) or path[1:] in _OWN_DIRECTORIES:
                raise ValueError(f"{path!r} is not the path of a directory such as /app, or belongs to the system")
            if not inside or any(part in ("", ".", "..") for part in inside.split("/")):
                raise ValueError(f"{inside!r} is not a path in the work directory, such as `app`")
        return links

    @field_validator("image")
    @classmethod
    def _check_image(cls, image: str | None) -> str | None:
        if image is None or len(image) <= _IMAGE_CHARACTERS and (_IMAGE.fullmatch(image) or _IMAGE_ID.fullmatch(image)):
            return image
        raise ValueError(
            f"{image[:80]!r} is not the name of an image; write it like `python:3.12-slim` or "
            "`registry.example.org:5000/team/name:tag`, in lower case, with a tag or a digest `@sha256:…`"
        )

    @model_validator(mode="after")
    def _check_origin(self) -> Self:
        if self.image is not None and self.build is not None:
            raise ValueError(f"`image` ({self.image!r}) and `build` ({self.build!r}) exclude each other; remove one")
        if self.cassette is not None and not self.network:
            raise ValueError("`cassette` has the answers of the hosts in `network`, which is empty: name the hosts")
        if self.build is not None and (not self.build.strip() or "\0" in self.build):
            raise ValueError("`build` must name a folder")
        return self

    def but(self, **changes: Any) -> SandboxSettings:
        """Return a copy of these settings with the given changes, such as the image of one task.

        An `image` replaces a `build`, and the other way around.
        """
        if changes.get("image") is not None:
            changes.setdefault("build", None)
        elif changes.get("build") is not None:
            changes.setdefault("image", None)
        return SandboxSettings(**{**dict(self), **changes})


@dataclass(frozen=True, slots=True)
class NetworkUse:
    """The connections to one destination that a command requested."""

    target: str
    """`host:port`."""
    refused: str | None
    """The reason why they were refused; None if they were allowed."""
    connections: int

    def __str__(self) -> str:
        if self.refused is None:
            return f"network: allowed {self.target}"
        return f"network: refused {self.target}: {self.refused}"


@dataclass(frozen=True, slots=True)
class RunResult(Ending):
    """The outcome of one command."""

    stdout: bytes
    stderr: bytes
    exit_code: int | None
    """The exit code; None if a signal ended the command."""
    signal: int | None
    """The signal that ended the command; None if it exited."""
    limit: LimitName | None
    """The limit that ended the command or made it fail, by its name in `Limits`; None if there was no such limit."""
    seconds: float
    cpu_seconds: float
    """CPU time of all its processes; without control groups, only as far as it could be observed."""
    peak_memory: int
    """Bytes: the largest process or the largest observed sum over all processes."""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    network: tuple[NetworkUse, ...] = ()
    """The destinations that it requested, in order, if the settings allow a network; at most a hundred by name."""
    rebuilt: bool = False
    """Whether the sandbox had to be ended with the command. It is rebuilt at its next use, with the files of the work
    directory as far as they can be copied, and with an empty /tmp."""

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 become U+FFFD."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def refused(self) -> tuple[NetworkUse, ...]:
        """The network requests that were refused."""
        return tuple(use for use in self.network if use.refused is not None)


@dataclass(frozen=True, slots=True)
class FileInfo:
    """One entry of a directory."""

    name: str
    kind: Literal["file", "directory", "link", "other"]
    size: int
    """Size in bytes; meaningful for files only."""
    executable: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The files of a sandbox's work directory at one moment, as a tar archive."""

    data: bytes


@runtime_checkable
class Sandbox(Protocol):
    """A place where untrusted commands run, with one writable work directory in which they start.

    Commands and file operations run one at a time; background processes run at the same time. When a command ends, all
    processes that it started are ended too; its files stay until the sandbox is closed. Paths are relative to the work
    directory, and links are not followed.
    """

    limits: Limits
    """The limits of the sandbox; `run` can only tighten them."""
    settings: SandboxSettings
    background: Process | None
    """The process of the command `background` of the settings; it may have ended. None without such a command."""

    @abstractmethod
    async def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: str = ".",
        limits: Limits | None = None,
    ) -> RunResult:  # fmt: skip
        """Run one command until it ends.

        Args:
            argv: the program, looked up in PATH, and its arguments. No shell is involved.
            stdin: the command's standard input, followed by end of file.
            env: further environment variables.
            cwd: the directory in which it starts, relative to the work directory and inside it.
            limits: tighter limits for this command; see `Limits.but`.

        Returns:
            The outcome. A program that cannot be started has exit code 127 or 126, as in a shell.

        Raises:
            SandboxFileError: there is no directory `cwd`, or it is outside the work directory.
            SandboxFailed: the sandbox is gone for a reason other than the command: closed, or lost by the machine.
        """
        ...

    @abstractmethod
    async def spawn(
        self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, cwd: str = ".",
        limits: Limits | None = None,
    ) -> Process:  # fmt: skip
        """Start a background process, and return while it runs.

        It ends by itself, by `Process.kill`, by a limit (`spawned_seconds` and those that count per sandbox), or with
        the sandbox; then all processes that it started are ended too.

        Args:
            argv, env, cwd: as in `run`.
            limits: tighter limits for this process.

        Raises:
            SandboxFileError: there is no directory `cwd`, or it is outside the work directory.
            SandboxLimitReached: `Limits.spawned` processes run already, or `Limits.processes` leaves no room.
            SandboxUnsupported: this backend has no background processes.
            SandboxFailed: as in `run`.
        """
        ...

    @abstractmethod
    async def open_terminal(
        self, argv: Sequence[str] = ("/bin/sh",), *, rows: int = 24, columns: int = 80,
        env: Mapping[str, str] | None = None, cwd: str = ".", limits: Limits | None = None,
    ) -> Terminal:  # fmt: skip
        """Start a background process on a terminal: what it writes can be read as text on a screen.

        Args:
            argv: the program on the terminal, by default a shell.
            rows, columns: the size of the screen, each 1 to 1,000.
            env, cwd, limits: as in `spawn`. The variable TERM is `linux` unless `env` sets it.

        Raises:
            SandboxFileError, SandboxLimitReached, SandboxUnsupported, SandboxFailed: as in `spawn`.
        """
        ...

    @abstractmethod
    async def connect(self, port: int) -> socket.socket:
        """Return a connected, non-blocking socket to a TCP port on the sandbox's own loopback.

        The caller closes it. What arrives is untrusted.

        Raises:
            SandboxPortClosed: nothing listens on the port, or it does not accept the connection within 10 s.
            SandboxUnsupported: the settings have neither `loopback` nor an allowlist.
            SandboxFailed: as in `run`.
        """
        ...

    @abstractmethod
    async def expose(self, port: int, *, seconds: float = 30.0) -> Port:
        """Wait until a TCP port of the sandbox accepts connections, and return a client for HTTP and WebSockets on it.

        Only this server reaches the port: no address of the machine is opened for it.

        Args:
            port: the port on the sandbox's loopback.
            seconds: for how long to wait.

        Raises:
            SandboxPortClosed: nothing listens on the port after `seconds`.
            SandboxUnsupported, SandboxFailed: as in `connect`.
        """
        ...

    @abstractmethod
    async def read(self, path: str, *, limit: int = 16 * _MIB) -> bytes:
        """Return the content of a file of at most `limit` bytes.

        Raises:
            SandboxFileError: there is no such plain file, or it is larger.
        """
        ...

    @abstractmethod
    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file, replacing an existing one, and create missing directories.

        Raises:
            SandboxFileError: the path leads through a link, or the disk is full.
        """
        ...

    @abstractmethod
    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """Return the entries of a directory, sorted by name; at most 10,000.

        Raises:
            SandboxFileError: there is no such directory, or it has too many entries.
        """
        ...

    @abstractmethod
    async def snapshot(self) -> Snapshot:
        """Return all files of the work directory, except sockets, pipes and devices.

        In a container, files that their owner may not read become readable to it, and directories become writable in
        the copy.

        Raises:
            SandboxFileError: the files are larger than the limit on `disk`, which is possible with sparse files.
        """
        ...

    @abstractmethod
    async def restore(self, snapshot: Snapshot) -> None:
        """Replace the content of the work directory by a snapshot, taken in this sandbox or another."""
        ...

    @abstractmethod
    async def fork(self) -> Sandbox:
        """Return a new sandbox with the same settings and a copy of the files."""
        ...

    @abstractmethod
    async def aclose(self) -> None:
        """End everything in the sandbox and remove it; it may be called more than once."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


@runtime_checkable
class SandboxProvider(Protocol):
    """A backend that creates sandboxes of one kind. It is opened once per server, before the first episode."""

    name: str

    async def open(self) -> None:
        """Check that sandboxes can be created here, and remove what a crashed server left.

        Raises:
            SandboxUnavailable: they cannot; the message names the package to install and the alternative.
        """
        ...

    async def create(self, settings: SandboxSettings) -> Sandbox:
        """Return a new sandbox, from the warm pool if one is ready.

        Raises:
            SandboxUnsupported: the settings ask for what this backend cannot do.
            SandboxFailed: the sandbox could not be started.
        """
        ...

    async def prepare(self, settings: SandboxSettings) -> None:
        """Start sandboxes until `settings.warm` are ready.

        Raises:
            SandboxUnsupported, SandboxFailed: as in `create`.
        """
        ...

    async def aclose(self) -> None:
        """Close every sandbox, including those in use."""
        ...


@runtime_checkable
class ImageProvider(Protocol):
    """A provider that runs sandboxes in images, and can obtain them ahead."""

    async def obtain(self, settings: SandboxSettings) -> None:
        """Pull or build the image of these settings, if the engine does not have it yet.

        Raises:
            SandboxUnsupported: the image cannot be used; the message names it.
            SandboxFailed: the engine or the registry does not answer.
        """
        ...


_LEAST_TCP_BUFFER: Final = 8192
"""In bytes; connections with less stall."""


def tcp_buffer(limits: Limits, files: int) -> int:
    """Return the bytes of one buffer of TCP with which all sockets of a sandbox take about as much as its memory.

    Args:
        limits: those of the sandbox.
        files: the open files of a process.
    """
    return max(_LEAST_TCP_BUFFER, limits.memory // (2 * limits.processes * files))
