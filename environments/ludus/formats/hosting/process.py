"""A foreign interpreter that serves an adapter (`inside/runner.py`), and the sessions of episodes with it.

How this works:

- `ForeignProcess.start` runs the interpreter and waits for its line "ready". Standard input stays open: its end is how
  the interpreter notices that the server is gone, whatever ended it.
- Each episode has a connection of its own to the interpreter's Unix socket, and usually a forked process behind it.
  Calls on a connection come one after the other, so a reply belongs to the last request.
- A call that is canceled, by a time limit for example, leaves its session broken: the connection is closed and the
  process behind it is killed. Other episodes are not affected.
- Tasks come over one more connection, which is blocking and belongs to the catalog.
- An interpreter that has ended is started again at the next episode.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, cast

from ludus.formats.hosting.description import Description, read_descriptions
from ludus.formats.hosting.errors import HostedCodeError, error_of
from ludus.formats.hosting.settings import HostingSettings
from ludus.formats.inside import frames
from ludus.protocol.errors import AuthoringError, InfrastructureFailed

log = logging.getLogger("ludus.formats")

_RUNNER: Final = Path(frames.__file__).with_name("runner.py")
_ERROR_LINES: Final = 20
_LINE_CHARS: Final = 2000
_CLOSE_SECONDS: Final = 2.0
_END_SECONDS: Final = 5.0
_TASK_SECONDS: Final = 60.0
_HELLO_SECONDS: Final = 30.0
_SECRET_VARIABLES: Final = (
    "LUDUS_TOKEN", "LUDUS_TOKENS", "LUDUS_TOKEN_FILE", "LUDUS_CAPABILITY_KEY", "LUDUS_TEST_SECRET",
)  # fmt: skip
"""Credentials and secrets of the server, which hosted code has no use for."""


class ForeignProcess:
    """An interpreter with one adapter, which serves any number of episodes.

    Args:
        format_name: the format, for messages.
        adapter: the file of its adapter.
        target: what the adapter serves.
        settings: how to run it, with the format's own options.
    """

    def __init__(self, format_name: str, adapter: Path, target: str, settings: HostingSettings) -> None:
        self.format = format_name
        self.adapter = adapter
        self.target = target
        self.settings = settings
        self.starts = 0
        """How often the interpreter was started."""
        self._process: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._remove: Any = None
        self._catalog: socket.socket | None = None
        self._messages: frames.Stream
        self._lock = threading.Lock()
        self._catalog_lock = threading.Lock()
        self._number = 0
        self._users = 0
        self._errors: deque[str] = deque(maxlen=_ERROR_LINES)

    # ── the interpreter ────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> tuple[Description, ...]:
        """Start the interpreter and return what the adapter describes. Blocks.

        Raises:
            AuthoringError: the interpreter does not run, a package is missing, or the target cannot be used.
        """
        with self._lock:
            return self._start()

    def _start(self) -> tuple[Description, ...]:
        folder = self._folder = Path(tempfile.mkdtemp(prefix="ludus-host-"))
        self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        address = str(folder / "s")
        isolation = self.settings.isolation
        command = [self.settings.python, "-u", str(_RUNNER), str(self.adapter), address, isolation]
        variables = {name: value for name, value in os.environ.items() if name not in _SECRET_VARIABLES}
        variables.setdefault("PYTHONHASHSEED", "0")  # so that equal seeds give equal orders of sets in each run
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=variables,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._remove()
            raise AuthoringError(
                f"the interpreter {self.settings.python!r} for the format {self.format!r} cannot be run: "
                f"{error.strerror or error}; name one with #python=PATH"
            ) from None
        self._process = process
        self.starts += 1
        self._errors.clear()
        threading.Thread(target=_drain, args=(process.stderr, self._errors), daemon=True, name="ludus-stderr").start()
        orders = {"target": self.target, "options": self.settings.for_adapter()}
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(orders).encode() + b"\n")
                process.stdin.flush()
            return read_descriptions(self._ready(process))
        except HostedCodeError as error:
            self._end()
            raise AuthoringError(f"{self.format}: {error}") from None
        except BaseException:
            self._end()
            raise

    def _ready(self, process: subprocess.Popen[bytes]) -> object:
        line = _read_line(process, self.settings.start_seconds)
        if line is None:
            raise AuthoringError(
                f"{self.format}: {self.target!r} was not ready within {self.settings.start_seconds:g} s; raise the "
                f"option start_seconds{self._said()}"
            )
        try:
            report: Mapping[str, Any] = json.loads(line)
        except ValueError:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_SECONDS)
            raise AuthoringError(
                f"the interpreter {self.settings.python} ended with code {process.poll()} before the format "
                f"{self.format!r} was ready; it must be Python 3.8 or newer{self._said()}"
            ) from None
        if "error" not in report:
            return report.get("ready")
        error = error_of(self.format, self.settings.python, report["error"])
        if isinstance(error, HostedCodeError):
            raise AuthoringError(f"{self.format}: {self.target!r} cannot be loaded: {error}") from None
        raise error

    def _said(self) -> str:
        return "; it printed: " + "\n".join(self._errors) if self._errors else ""

    def acquire(self) -> None:
        """Count one more environment that is served, and start the interpreter if it does not run. Blocks.

        Raises:
            AuthoringError: as for `start`.
        """
        with self._lock:
            if not self.is_running:
                self._end()
                self._start()
            self._users += 1

    def release(self) -> None:
        """Count one environment less, and end the interpreter after the last one. Blocks."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._end()

    @property
    def pid(self) -> int:
        """Return the process id of the interpreter; 0 if it does not run."""
        return self._process.pid if self._process is not None else 0

    @property
    def is_running(self) -> bool:
        """Return whether the interpreter runs."""
        return self._process is not None and self._process.poll() is None

    def close(self) -> None:
        """End the interpreter and all episodes in it. Blocks for a few seconds at most."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        process, self._process = self._process, None
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None
        if process is not None:
            assert process.stdin is not None
            assert process.stdout is not None
            with contextlib.suppress(OSError):
                process.stdin.close()
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()
        if self._remove is not None:
            self._remove()

    def kill_child(self, pid: int) -> None:
        """Kill the process of an episode, with everything that it started."""
        process = self._process
        if pid and process is not None and process.stdin is not None:
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(b"kill %d\n" % pid)
                process.stdin.flush()

    # ── tasks ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def ask(self, call: str, **parameters: Any) -> Any:
        """Ask the catalog's connection. Blocks, for a minute at most.

        Raises:
            HostedCodeError: the adapter failed.
            InfrastructureFailed: the interpreter is gone, or does not answer.
        """
        with self._catalog_lock:
            for last in (False, True):
                try:
                    return self._ask(call, parameters)
                except (OSError, frames.FrameError) as error:
                    if self._catalog is not None:
                        self._catalog.close()
                        self._catalog = None
                    if last or isinstance(error, TimeoutError):
                        raise InfrastructureFailed(
                            f"the interpreter of the format {self.format!r} does not answer: {error}"
                        ) from None
        raise AssertionError

    def _ask(self, call: str, parameters: Mapping[str, Any]) -> Any:
        if self._catalog is None:
            self._ensure_running()
            self._catalog = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._catalog.settimeout(_TASK_SECONDS)
            self._catalog.connect(self.address)
            self._messages = frames.Stream(self._catalog)
            self._messages.receive()
        self._number += 1
        self._messages.send({"id": self._number, "call": call, "with": dict(parameters)})
        reply = self._messages.receive()
        if reply is None:
            raise frames.FrameError("the connection ended")
        if "error" in reply:
            raise error_of(self.format, self.settings.python, reply["error"])
        return reply["value"]

    def _ensure_running(self) -> None:
        with self._lock:
            if not self.is_running:
                log.warning("the interpreter of the format %r has ended; it is started again", self.format)
                self._end()
                self._start()

    @property
    def address(self) -> str:
        """The path of the interpreter's socket."""
        assert self._folder is not None
        return str(self._folder / "s")

    # ── episodes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def prepare(self, environment: str, task: Mapping[str, Any]) -> None:
        """Let the adapter load what the episodes of a task share, before the next connection is accepted."""
        process = self._process
        if process is not None and process.stdin is not None:
            order = json.dumps({"environment": environment, "task": task}).encode()
            with contextlib.suppress(OSError, ValueError):
                process.stdin.write(b"prepare " + order + b"\n")
                process.stdin.flush()

    async def connect(self) -> ForeignSession:
        """Return a session for one episode.

        Raises:
            InfrastructureFailed: the interpreter is gone and does not start again.
        """
        for last in (False, True):
            if not self.is_running:
                try:
                    await asyncio.to_thread(self._ensure_running)
                except AuthoringError as error:
                    raise InfrastructureFailed(error.message) from None
            try:
                async with asyncio.timeout(_HELLO_SECONDS):
                    loop = asyncio.get_running_loop()
                    _, link = await loop.create_unix_connection(_Link, self.address)
                    try:
                        hello = await link.receive()
                    except BaseException:
                        link.close()
                        raise
                return ForeignSession(self, link, int(hello["pid"]))
            except (OSError, frames.FrameError) as error:
                if last:
                    raise InfrastructureFailed(
                        f"the interpreter of the format {self.format!r} cannot be reached: {error}"
                    ) from None
        raise AssertionError


class ForeignSession:
    """The connection of one episode."""

    def __init__(self, process: ForeignProcess, link: _Link, pid: int) -> None:
        self._process = process
        self._link = link
        self._pid = pid
        self._number = 0
        self.is_open = True
        """Whether calls can be made."""

    async def call(self, name: str, /, **parameters: Any) -> Any:
        """Call the adapter's episode and return what it returns.

        Raises:
            ToolError: the agent's action was refused.
            HostedCodeError: the hosted code failed, or its process ended.
            InfrastructureFailed: the interpreter is gone.
        """
        if not self.is_open:
            raise HostedCodeError("the hosted episode broke off earlier")
        self._number += 1
        try:
            self._link.send({"id": self._number, "call": name, "with": parameters})
            reply = await self._link.receive()
        except (OSError, frames.FrameError) as error:
            self.abort()
            if not self._process.is_running:
                raise InfrastructureFailed(
                    f"the interpreter of the format {self._process.format!r} has ended"
                ) from None
            raise HostedCodeError(f"the process of the hosted episode ended while it ran {name!r} ({error})") from None
        except BaseException:
            self.abort()
            raise
        if "error" in reply:
            raise error_of(self._process.format, self._process.settings.python, reply["error"])
        return reply["value"]

    def abort(self) -> None:
        """Close the connection, and kill the process behind it."""
        if self.is_open:
            self.is_open = False
            self._link.close()
            self._process.kill_child(self._pid)

    async def aclose(self) -> None:
        """Let the episode free what it holds, within a bound, and end its process."""
        if not self.is_open:
            return
        try:
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self.call("close")
        except (Exception, asyncio.CancelledError) as error:
            log.warning("closing a hosted episode failed: %s", error or type(error).__name__)
            if isinstance(error, asyncio.CancelledError):
                raise
        finally:
            self.abort()


class _Link(asyncio.Protocol):
    """A connection that carries messages, without the copies and tasks of a `StreamReader`.

    Each message answers a request, so a second one that was not received yet is an error, and holds no memory.
    """

    def __init__(self) -> None:
        self._decoder = frames.Decoder()
        self._arrived: dict[str, Any] | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._ended: Exception | None = None
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._decoder.feed(data)
        try:
            while (message := self._decoder.next()) is not None:
                if self._arrived is not None:
                    raise frames.FrameError("a message arrived that was not asked for")
                self._arrived = message
        except frames.FrameError as error:
            self._ended = error
            self._transport.abort()
        if self._arrived is not None or self._ended is not None:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = self._ended or exc or frames.FrameError("the connection ended")
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self._transport.write(frames.pack(message))

    async def receive(self) -> dict[str, Any]:
        """Return the next message; one caller at a time.

        Raises:
            OSError: the connection broke.
            FrameError: it ended, or what arrived is no message.
        """
        while self._arrived is None:
            if self._ended is not None:
                raise self._ended
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message, self._arrived = self._arrived, None
        return message

    def close(self) -> None:
        """Close the connection, after what was sent."""
        self._transport.close()


def _read_line(process: subprocess.Popen[bytes], seconds: float) -> bytes | None:
    """Return the first line of a process's output, or what there is if the output ends; None if it takes too long."""
    assert process.stdout is not None
    number = process.stdout.fileno()
    until = time.monotonic() + seconds
    found = b""
    while not found.endswith(b"\n"):
        left = until - time.monotonic()
        if left <= 0 or not select.select([number], [], [], left)[0]:
            return None
        part = os.read(number, 65536)
        if not part:
            break
        found += part
    return found


def _drain(stream: Any, lines: deque[str]) -> None:
    with stream:
        for line in stream:
            text = line.decode("utf-8", "replace").rstrip()[:_LINE_CHARS]
            lines.append(text)
            log.debug("hosted code: %s", text)
