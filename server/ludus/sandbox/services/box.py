"""A sandbox of a service, as the server uses it.

How this works:

- Every operation is one command of the service: Python runs our program there (`helper`), which carries out the request
  and writes the answer to its standard output. Large inputs and answers travel as files, by the service's file API.
- The program watches the limits, measures the command, and ends all that it started. What comes back is a result that
  the policy caused. What the service reports about the program itself, such as an error or no answer, is judged here.
- Requests are numbered, and the program refuses a number that it has seen: a client that sends a request again after a
  lost connection cannot run a command twice.
- A canceled command is ended by a second request, `end`, before the next operation starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

from ludus.sandbox.base import Command, SandboxBase
from ludus.sandbox.core.endings import LimitName
from ludus.sandbox.core.errors import SandboxFailed, SandboxFileError
from ludus.sandbox.core.model import FileInfo, RunResult, SandboxSettings, Snapshot
from ludus.sandbox.services.machine import Executed, Machine, Overdue
from ludus.sandbox.services.program import INLINE, command_line, find_answer, pack, unpack

log = logging.getLogger("ludus.sandbox")

MARGIN_SECONDS: Final = 30.0
"""How much longer than a command's limit the service is given: the program inside ends the command itself."""
_FILE_SECONDS: Final = 120.0
_END_SECONDS: Final = 30.0
_CLOSE_SECONDS: Final = 60.0


class NoAnswer(Exception):
    """The program inside was ended before it could answer."""


class ServiceBox(SandboxBase):
    """A sandbox of a service.

    Args:
        machine: the service's sandbox.
        started: the answer to the request `start`: the work directory, the user of commands, and their environment.
        token: marks the processes of the program inside.
        expires: until when it can be handed out, by `time.monotonic`.
        settings, another, on_close: see `SandboxBase`.
    """

    def __init__(
        self, machine: Machine, started: dict[str, Any], token: str, expires: float, settings: SandboxSettings,
        another: Callable[[SandboxSettings], Awaitable[SandboxBase]], on_close: Callable[[SandboxBase], None],
    ) -> None:  # fmt: skip
        super().__init__(settings, started["env"], another, on_close)
        self._machine = machine
        self._home, self._user = started["home"], started["user"]
        self._token = token
        self._expires = expires
        self._gone: SandboxFailed | None = None
        self._asking: asyncio.Task[Any] | None = None
        self._stopped = False
        """Whether the request in progress was given up."""
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> bool:
        """See `SandboxBase.alive`. It is not handed out after half of its lifetime."""
        return self._closing is None and self._gone is None and time.monotonic() < self._expires

    async def _ask(self, op: str, data: bytes = b"", *, seconds: float, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Carry out a request.

        Raises:
            SandboxFailed: the service or the sandbox failed.
            Overdue: the service did not answer in time.
            NoAnswer: the program inside was ended.
        """
        fields |= {"home": self._home, "user": self._user, "disk": self.limits.disk, "number": next(self._numbers)}
        try:
            return await request(self._machine, self._token, op, data, seconds=seconds, **fields)
        except (Overdue, NoAnswer, SandboxFailed):
            raise
        except Exception as error:
            raise SandboxFailed(f"the sandbox is gone: {self.settings.provider}: {describe(error)}") from error

    async def _ask_stoppable(self, op: str, data: bytes, **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Carry out a request that `_stop` and `_kill` can give up; what it left is then ended."""
        if self._closing is not None or self._gone is not None:
            raise self._gone or SandboxFailed("the sandbox is gone: it was closed")
        asking = asyncio.get_running_loop().create_task(self._ask(op, data, **fields))
        self._asking, self._stopped = asking, False
        try:
            return await asking
        except (asyncio.CancelledError, SandboxFailed, Overdue, NoAnswer) as error:
            if self._closing is not None:
                raise SandboxFailed("the sandbox is gone: it was closed") from None
            # Some clients turn a cancellation into an error of theirs.
            if self._stopped or isinstance(error, asyncio.CancelledError):
                await self._end_commands()
                raise SandboxFailed("the operation was canceled") from None
            if isinstance(error, SandboxFailed):
                await self._lose(error)
            raise
        finally:
            self._asking = None

    async def _end_commands(self) -> None:
        """End what runs in the sandbox.

        Raises:
            SandboxFailed: the sandbox does not answer, and was closed.
        """
        try:
            await self._ask("end", seconds=_END_SECONDS)
        except (Overdue, NoAnswer, SandboxFailed) as error:
            failed = SandboxFailed(f"the sandbox is gone: it does not answer ({describe(error)})")
            await self._lose(failed)
            raise failed from None

    async def _lose(self, error: SandboxFailed) -> None:
        if self._closing is None:
            self._gone = self._gone or error
            await self.aclose()

    async def _run(self, command: Command) -> RunResult:
        began = time.monotonic()
        try:
            answer, output = await self._ask_stoppable(
                "run", command.stdin, seconds=command.limits.seconds + MARGIN_SECONDS, argv=command.argv,
                env=command.env, cwd=command.cwd, limits=command.limits.model_dump(),
            )  # fmt: skip
        except (Overdue, NoAnswer) as error:
            return await self._blame(error, command, time.monotonic() - began)
        _check(answer)
        try:
            return RunResult(
                output[: answer["out"]], output[answer["out"] :], answer["exit_code"], answer["signal"],
                answer["limit"], answer["seconds"], answer["cpu_seconds"], answer["peak_memory"], *answer["cut"],
            )  # fmt: skip
        except (KeyError, TypeError) as error:
            failed = SandboxFailed(f"the sandbox is gone: its answer has no {error}")
            await self._lose(failed)
            raise failed from None

    async def _blame(self, error: Exception, command: Command, took: float) -> RunResult:
        """Return the result of a command after which the program inside could not answer.

        If the sandbox still works, the command caused it: by using up the memory, or, where commands run as the same
        user as the program, by a signal to it. Otherwise the service failed.

        Raises:
            SandboxFailed: the sandbox does not work any more.
        """
        await self._end_commands()
        limit: LimitName | None = "memory" if self._user is not None else None
        if isinstance(error, Overdue):
            limit = "seconds"
        return RunResult(b"", b"", None, signal.SIGKILL, limit, took, 0.0, 0, True, True)

    async def _file(self, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        """Carry out a file operation in turn."""

        async def work() -> tuple[dict[str, Any], bytes]:
            try:
                return await self._ask_stoppable(op, data, seconds=_FILE_SECONDS, **fields)
            except (Overdue, NoAnswer) as error:
                failed = SandboxFailed(f"the sandbox is gone: a file operation got no answer ({describe(error)})")
                await self._lose(failed)
                raise failed from None

        answer, content = await self._in_turn(work)
        _check(answer)
        return answer, content

    async def read(self, path: str, *, limit: int = 16 * 1024 * 1024) -> bytes:
        """See `Sandbox.read`."""
        return (await self._file("read", path=str(path), limit=limit))[1]

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """See `Sandbox.write`."""
        await self._file("write", data, path=str(path), executable=executable)

    async def list(self, path: str = ".") -> tuple[FileInfo, ...]:
        """See `Sandbox.list`."""
        _, data = await self._file("list", path=str(path))
        return tuple(FileInfo(**entry) for entry in json.loads(data))

    async def snapshot(self) -> Snapshot:
        """See `Sandbox.snapshot`."""
        return Snapshot((await self._file("snapshot"))[1])

    async def restore(self, snapshot: Snapshot) -> None:
        """See `Sandbox.restore`."""
        await self._file("restore", snapshot.data)

    async def _rebuild(self) -> None:
        raise SandboxFailed("the sandbox is gone: the service cannot rebuild it")

    def _stop(self) -> None:
        if self._asking is not None:
            self._stopped = True
            self._asking.cancel()

    def _kill(self) -> None:
        self._stop()

    async def _close(self) -> None:
        await end_machine(self._machine)


async def request(
    machine: Machine, token: str, op: str, data: bytes = b"", *, seconds: float, **fields: Any
) -> tuple[dict[str, Any], bytes]:
    """Carry out a request in a sandbox of a service.

    Raises:
        Overdue: the service did not answer in time.
        NoAnswer: the program inside was ended.
        SandboxFailed: the answer cannot be read.
        Exception: whatever the service's client raises.
    """
    name = secrets.token_hex(8)
    control = f"/tmp/.ludus-{token}"
    fields |= {"op": op, "mark": f"ludus-{name}", "token": token, "control": control, "output": f"{control}/{name}.out"}
    async with _bounded(seconds + MARGIN_SECONDS):
        argument: bytes | str = pack(fields, data)
        if len(argument) > INLINE:
            uploaded = f"/tmp/.ludus-{name}.in"
            await machine.upload(uploaded, pack(fields, data))
            argument = uploaded
        executed = await machine.execute(command_line(token, argument), seconds)
        try:
            payload = find_answer(executed.stdout, fields["mark"])
            if payload == b"":
                payload = await machine.download(fields["output"])
            if payload is not None:
                return unpack(payload)
        except ValueError as error:
            raise SandboxFailed(f"the answer of the sandbox cannot be read: {error}") from None
    if executed.exit_code == 0:
        raise SandboxFailed("the service reports success but returned no answer of the program in the sandbox")
    raise NoAnswer(_last_words(executed))


def _last_words(executed: Executed) -> str:
    output = (executed.stderr or executed.stdout).strip()
    return f"exit code {executed.exit_code}: {output[-300:] or 'no output'}"


@contextlib.asynccontextmanager
async def _bounded(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise Overdue(f"no answer within {seconds:g} s") from None


async def end_machine(machine: Machine) -> None:
    """End a sandbox of a service, as far as the service answers; otherwise it ends at its own time limit."""
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await machine.end()
    except Exception as error:
        log.warning("ending the sandbox %s failed; the service ends it later: %s", machine.id, describe(error))


def describe(error: BaseException) -> str:
    """Return an error of a service's client in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def _check(answer: dict[str, Any]) -> None:
    if answer.get("refused") == "repeated":
        raise SandboxFailed("the service delivered the command twice; the second one was not run, the result is lost")
    if "refused" in answer:
        raise SandboxFileError(answer["refused"])
