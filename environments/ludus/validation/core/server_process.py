"""Run `ludus serve` in a child process, end it, and measure its memory, open files and child processes from outside.

How this works:

* The child runs `ludus serve … --port 0` with its output in a log file, in a session of its own, so that Ctrl-C in the
  terminal reaches only the parent, which then ends the child in order.
* The child gets SIGTERM when its parent dies for any reason, where the system is Linux.
* `TMPDIR` of the child is a folder of its own. It is removed at the end, and it marks the processes that the
  environment's code started: those that are left are killed, also if they have left the child's process group.
* `Surroundings` differ from those of the parent, if that is asked for: environment variables, the working folder, and
  what `changed_surroundings.py` changes inside of the child.
* If the child ends before it listens, its last message becomes an `AuthoringError`. `data` then holds the child's exit
  code and, if the environment's code raised, the lines of the traceback.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ludus.protocol.errors import AuthoringError, InfrastructureFailed
from ludus.protocol.text import shorten_traceback, split_lines
from ludus.validation.core.surroundings import Read, Surroundings

START_SECONDS: Final = 60.0
"""The longest time until an environment is served."""

END_SECONDS: Final = 20.0

LOG_SECONDS: Final = 5.0
"""The longest time until the log has the line of an incident that a reply has named."""

RESULT_TTL_SECONDS: Final = 0.15
"""How long the server keeps the results of closed episodes; their memory is free afterwards."""

_SERVING: Final = re.compile(r"^Serving .* at (http://\S+)")
"""Matches the line that the server prints once it listens."""

_WITH_PARENT: Final = """
SURROUNDINGS
import contextlib, ctypes, os, signal
with contextlib.suppress(AttributeError, OSError):
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG, where there is Linux
    if os.getppid() != PARENT:
        raise SystemExit
from ludus.cli import main
main()
"""
"""A program that runs the `ludus` command and terminates when its parent process ends for any reason."""

_COMMAND_ERROR: Final = "ludus: "
"""How a line begins in which the `ludus` command says why it failed."""

_SERVER_VARIABLES: Final = frozenset(
    {"LUDUS_TOKEN_FILE", "LUDUS_TOKENS", "LUDUS_CAPABILITY_KEY", "LUDUS_PUBLIC_URL", "LUDUS_LOG_FORMAT"}
)
"""Environment variables that configure another server than this one, which only the parent process can reach."""

THREADS: Final = 16
"""The number of threads for blocking environment code; a thread pool of this size is not a leak."""


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources that a process holds."""

    kilobytes: int
    """The kilobytes of its private (anonymous) resident memory."""
    files: int
    """The number of open file descriptors."""
    threads: int
    children: int
    """The number of its descendants, including processes that it started and that have detached from it."""
    left_files: int
    """The number of entries in its folder for temporary files."""


def seconds_without_processor(pid: int) -> float:
    """Return how long the main thread of a process was ready to run and did not; 0 if the system does not say."""
    try:
        fields = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()
        return int(fields[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


class ServerProcess:
    """A running `ludus serve` and its log."""

    def __init__(self, process: asyncio.subprocess.Process, folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._lines: list[dict[str, Any]] = []
        self._read = 0
        self._ended = False
        self.url = ""

    @property
    def log(self) -> Sequence[dict[str, Any]]:
        """The lines of its log as JSON objects; a line that is not JSON becomes the `message` of an object."""
        if self._ended:
            return self._lines
        with (self._folder / "log").open("rb") as file:
            file.seek(self._read)
            new = file.read()
        complete = new[: new.rfind(b"\n") + 1]
        self._read += len(complete)
        self._lines += [_parsed(line) for line in split_lines(complete.decode("utf-8", "replace")) if line.strip()]
        return self._lines

    def seconds_without_processor(self) -> float:
        """Return how long the server's main thread has waited for a processor so far; 0 if the system does not say."""
        return seconds_without_processor(self._process.pid)

    async def cause_of(self, incident: str | None) -> str | None:
        """Return the reason of an incident from the server's log: the last line of the exception. None if unknown.

        The server writes its log in a thread, so the line may come later than the reply that names the incident.
        """
        if incident is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOG_SECONDS):
                while (line := self._line_of(incident)) is None:  # noqa: ASYNC110 — another process writes the file
                    await asyncio.sleep(0.01)
                return _cause(line)
        return None

    def _line_of(self, incident: str) -> dict[str, Any] | None:
        return next((line for line in self.log if line.get("incident") == incident), None)

    def errors(self) -> dict[str, list[str]]:
        """Return the tracebacks of the environment's code in the log, each once, by their last line.

        The log is complete only after the server has ended.
        """
        traces: dict[str, list[str]] = {}
        for line in self.log:
            trace = str(line.get("exception") or "").strip()
            if trace and line.get("incident"):
                traces.setdefault(trace.splitlines()[-1], shorten_traceback(trace))
        return traces

    @property
    def reads(self) -> list[Read]:
        """The places in the environment's code that have read its surroundings so far, if those are changed."""
        return Surroundings.reads_in(self._folder)

    async def end(self) -> None:
        """End the process and what it started, and keep its log."""
        try:
            await _end(self._process, self._folder)
        finally:
            _ = self.log
            self._ended = True

    @property
    def usage(self) -> Usage | None:
        """The resources that it holds now; None on systems without /proc."""
        root = Path(f"/proc/{self._process.pid}")
        try:
            status = (root / "status").read_text()
            files = len(list((root / "fd").iterdir()))
        except OSError:
            return None
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        kilobytes = int(fields.get("RssAnon", fields["VmRSS"]).split()[0])
        temporary = sum(1 for _ in (self._folder / "tmp").iterdir())
        children = {*_below(self._process.pid), *_marked(self._folder)} - {self._process.pid}
        return Usage(kilobytes, files, int(fields["Threads"]), len(children), temporary)

    async def settled_usage(self) -> Usage | None:
        """Wait until closed episodes are evicted and the usage is stable for a moment, then return it."""
        await asyncio.sleep(RESULT_TTL_SECONDS + 0.2)
        best = self.usage
        for _ in range(20):
            await asyncio.sleep(0.05)
            now = self.usage
            if now is None or best is None:
                return now
            if (now.files, now.threads, now.children, now.left_files) == (
                best.files, best.threads, best.children, best.left_files,
            ):  # fmt: skip
                return now
            best = now
        return best


@asynccontextmanager
async def serving(
    sources: Sequence[str],
    options: Sequence[str] = (),
    variables: Mapping[str, str] | None = None,
    surroundings: Surroundings | None = None,
) -> AsyncIterator[ServerProcess]:
    """Serve environments in a child process until the block is left.

    Args:
        sources: NAME, module:Class or file.py:Class.
        options: further options of `ludus serve`.
        variables: environment variables of the process, in addition to those of this one.
        surroundings: how the surroundings of the environments' code differ from those of this process.

    Raises:
        AuthoringError: the environments cannot be served; the message is the server's own, and `data` holds its
            `exit_code` and the `traceback` of the environment's code, a list of lines.
        InfrastructureFailed: the server did not listen in time.
    """
    surroundings = surroundings or Surroundings(inherited=True)
    folder = surroundings.folder or Path(tempfile.mkdtemp(prefix="ludus-serve-"))
    inherited = {name: value for name, value in os.environ.items() if name not in _SERVER_VARIABLES}
    program = _WITH_PARENT.replace("PARENT", str(os.getpid()))
    program = program.replace("SURROUNDINGS", surroundings.program(folder) if surroundings.affects_code else "")
    try:
        (folder / "tmp").mkdir(parents=True, exist_ok=True)
        cwd = surroundings.working_folder(folder)
        named = sources if cwd is None else [_absolute(source) for source in sources]
        command = [sys.executable, "-c", program, "serve", *named, "--port", "0", "--log-format", "json", *options]
        with (folder / "log").open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**inherited, **surroundings.variables(), **(variables or {}), "TMPDIR": str(folder / "tmp")},
                cwd=cwd,
            )  # fmt: skip
        server = ServerProcess(process, folder)
        try:
            server.url = await _address(server, process)
            yield server
        finally:
            await server.end()
    finally:
        if not surroundings.keeps:
            shutil.rmtree(folder, ignore_errors=True)


def serving_measured(sources: Sequence[str], surroundings: Surroundings) -> AbstractAsyncContextManager[ServerProcess]:
    """Serve environments as `serving` does, so that what an episode leaves behind can be measured.

    Args:
        sources: NAME, module:Class or file.py:Class.
        surroundings: how the surroundings of the process differ from those of others.
    """
    options = ["--threads", str(THREADS), "--result-ttl-seconds", str(RESULT_TTL_SECONDS)]
    return serving(sources, options, surroundings=surroundings)


def _absolute(source: str) -> str:
    """Return a source so that it also names its file from another folder."""
    path, colon, name = source.rpartition(":") if not source.endswith(".py") else (source, "", "")
    return f"{Path(path).absolute()}{colon}{name}" if path.endswith(".py") else source


async def _address(server: ServerProcess, process: asyncio.subprocess.Process) -> str:
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                ended = process.returncode is not None  # read before the log, which is then complete
                for line in server.log:
                    if match := _SERVING.search(str(line.get("message", ""))):
                        return match[1]
                if ended:
                    raise _refusal(server.log, process.returncode)
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise InfrastructureFailed(f"the environment was not served within {START_SECONDS:g} s") from None


def _refusal(log: Sequence[dict[str, Any]], code: int | None) -> AuthoringError:
    """Return the error for a server that ended before it listened, from the last lines of its log."""
    lines = [str(line.get("message", "")) for line in log]
    index_of_error = max((index for index, line in enumerate(lines) if line.startswith(_COMMAND_ERROR)), default=None)
    if index_of_error is None:
        message, trace = " ".join(lines[-20:]).strip(), []
    else:
        message, trace = lines[index_of_error].removeprefix(_COMMAND_ERROR), lines[index_of_error + 1 :]
    return AuthoringError(message or f"the server ended with exit code {code}", exit_code=code, traceback=trace)


_SWEEPS: Final = 50
"""The most rounds of killing leftover processes, which may start others while they are being killed."""


async def _end(process: asyncio.subprocess.Process, folder: Path) -> None:
    try:
        await _stop(process)
    finally:
        # Processes that the environment left running end with its server. Most share its process group; the others
        # still have the server's folder for temporary files in their environment variables.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        for _ in range(_SWEEPS):
            if not (survivors := _marked(folder)):
                break
            for number in survivors:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(number, signal.SIGKILL)
            await asyncio.sleep(0.02)


def _marked(folder: Path) -> set[int]:
    """Return the live processes that inherited a server's folder for temporary files, directly or indirectly."""
    marker = f"TMPDIR={folder / 'tmp'}".encode()
    pids = set()
    for entry in _processes():
        with contextlib.suppress(OSError):
            if marker in (entry / "environ").read_bytes().split(b"\0"):
                pids.add(int(entry.name))
    return pids


def _processes() -> list[Path]:
    root = Path("/proc")
    return [entry for entry in root.iterdir() if entry.name.isdigit()] if root.is_dir() else []


async def _stop(process: asyncio.subprocess.Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()


def _cause(line: Mapping[str, Any]) -> str | None:
    trace = str(line.get("exception") or line.get("exc_info") or line.get("message") or "").strip()
    cause = trace.splitlines()[-1] if trace else None
    missing = re.fullmatch(r"KeyError: ['\"](\w+)['\"]", cause or "")
    if missing and re.search(r"secrets\[", trace):
        return f"{cause}, a secret that was not given: add --secret {missing[1]}=VALUE"
    return cause


def _parsed(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {"message": line}
    return value if isinstance(value, dict) else {"message": line}


def _below(process: int) -> set[int]:
    """Return the descendants of a process."""
    parents: dict[int, int] = {}
    for entry in _processes():
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    descendants: set[int] = set()
    new = {process}
    while new:
        new = {child for child, parent in parents.items() if parent in new} - descendants
        descendants |= new
    return descendants
