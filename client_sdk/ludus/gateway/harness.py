"""Programs of others that play episodes: one process for each episode, or one process for many.

A harness is trusted code: it gets a scrubbed environment, but no sandbox. It can read the files of the user that runs
the trainer, and nothing keeps it from asking another model than the policy. `ludus box` is a command that runs another
one in a sandbox.

    command    runs once for each episode, in an empty folder of the episode's own, which is its home folder too. Its
               variables and one JSON object on its input say where to play. It ends with exit code 0 when the agent has
               stopped, for whatever reason; another exit code says that it broke. Those of `HarnessExit` name the
               reason, and `blame` decides whether the policy has caused it; otherwise the episode is unscored.
    worker     runs once and plays many episodes at the same time, which saves the start of a process for each. It reads
               one JSON object per line, and writes `{"id": …, "error": null}` when that episode is done; an `error` of
               text says that the harness broke. A line `{"cancel": id}` asks it to stop an episode.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shlex
import shutil
import signal
import tempfile
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

from ludus.gateway.folders import EpisodeFolders, end_leftovers
from ludus.gateway.routes import MODEL
from ludus.harnesses import NAMES, NotInstalled, find_program, harness_command
from ludus.protocol.harness import HarnessExit

KEPT_VARIABLES: Final = ("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "SYSTEMROOT")
"""The variables that a harness inherits. All others, such as tokens of clouds and trackers, are left out."""
STOP_SECONDS: Final = 3.0
"""How long a harness may take to end after SIGTERM."""
DRAIN_SECONDS: Final = 1.0
"""How long the output of a harness that has failed is read, if processes that it has left hold it open."""
TAIL: Final = 4_000
"""How many characters of a harness's output a message shows."""
LONGEST_VARIABLE: Final = 100_000
"""A longer prompt is not given as a variable, because Linux refuses those of 128 KiB; it is in the JSON object."""
LONGEST_LINE: Final = 1 << 20


HarnessEnd = Literal["error", "signal", "idle"]
"""How a harness failed: by an error of its own, by a signal, or because it went on without calling its model."""


class HarnessFailed(Exception):
    """A harness crashed, hung, or called no model. Unless the policy caused that, the episode is unscored.

    Args:
        message: what happened.
        how: how it ended.
        printed: whether it has said why.
    """

    def __init__(self, message: str, *, how: HarnessEnd = "error", printed: bool = True) -> None:
        super().__init__(message)
        self.how: Final[HarnessEnd] = how
        self.printed: Final[bool] = printed


class HarnessNetworkRefused(HarnessFailed):
    """A harness in a sandbox asked for a destination other than the gateway and its episode: another model, perhaps.

    The episode is unscored even if the environment has ended it, unless the policy has used tools of the program's own,
    which may have asked.
    """


class HarnessLimitReached(HarnessFailed):
    """A limit of the sandbox that a harness runs in has ended it. The message has the limit's name."""


class HarnessSandboxLost(HarnessFailed):
    """The sandbox of a harness could not be started, or was lost: a failure of the kind `infrastructure`."""


_FAILURES: Final[Mapping[int, type[HarnessFailed]]] = {
    HarnessExit.NETWORK: HarnessNetworkRefused,
    HarnessExit.LIMIT: HarnessLimitReached,
    HarnessExit.SANDBOX: HarnessSandboxLost,
}


@dataclass(frozen=True, slots=True)
class HarnessTask:
    """What a harness needs to play one episode."""

    id: str
    """A name that is unique in the run."""
    play_url: str
    """The agent endpoint of the episode, for any MCP client."""
    base_url: str
    """The base URL of the model for Anthropic's clients; OpenAI's need `/v1` after it."""
    api_key: str
    prompt: str
    """The prompt of the episode as text."""
    messages: tuple[dict[str, str], ...] = ()
    """The messages of the prompt, with `role` and `content`."""

    def to_json(self) -> dict[str, Any]:
        """Return the object for the harness's input."""
        return {
            "id": self.id,
            "play_url": self.play_url,
            "openai_base_url": f"{self.base_url}/v1",
            "anthropic_base_url": self.base_url,
            "api_key": self.api_key,
            "model": MODEL,
            "prompt": self.prompt,
            "messages": list(self.messages),
        }

    def variables(self) -> dict[str, str]:
        """Return the environment variables for the harness's process."""
        variables = {
            "LUDUS_PLAY_URL": self.play_url,
            "LUDUS_MODEL": MODEL,
            "OPENAI_BASE_URL": f"{self.base_url}/v1",
            "OPENAI_API_KEY": self.api_key,
            "ANTHROPIC_BASE_URL": self.base_url,
            "ANTHROPIC_API_KEY": self.api_key,
        }
        return variables | ({"LUDUS_PROMPT": self.prompt} if len(self.prompt.encode()) < LONGEST_VARIABLE else {})


class Harness(Protocol):
    """A program that plays episodes."""

    @property
    def offers_tools(self) -> bool:
        """Whether it always offers the policy the tools of its episode, so that without them it is not connected."""
        ...

    async def run(self, task: HarnessTask) -> None:
        """Play one episode until the agent stops. Cancellation ends the play.

        Raises:
            HarnessFailed: the harness itself broke; its subclasses name reasons.
        """
        ...

    async def aclose(self) -> None:
        """End everything that the harness started."""
        ...


class CommandHarness:
    """A process for each episode, in a folder of the episode's own.

    Args:
        command: the program and its arguments, as in a shell; no shell runs it. Relative names of files are those of
            the folder in which the run was started.
        variables: further environment variables.
        offers_tools: see `Harness.offers_tools`.

    Raises:
        HarnessFailed: there is no such program.
    """

    def __init__(self, command: str, variables: Mapping[str, str] | None = None, *, offers_tools: bool = False) -> None:
        self.offers_tools: Final[bool] = offers_tools
        self.arguments: Final[tuple[str, ...]] = tuple(_arguments(command))
        """The program and its arguments, with absolute paths."""
        self._variables = dict(variables or {})
        self._folders = EpisodeFolders()

    async def run(self, task: HarnessTask) -> None:
        """See `Harness.run`."""
        async with self._folders.folder() as folder:
            process = await _start(self.arguments, {**task.variables(), **self._variables}, folder)
            tail: deque[str] = deque(maxlen=TAIL)
            reading = asyncio.create_task(_read_tail(process, tail))
            try:
                await _give(process, task.to_json(), close=True)
                code = await process.wait()
                if code:  # its last line may name the reason
                    await asyncio.wait({reading}, timeout=DRAIN_SECONDS)
            finally:
                await _end(process)
                # A process in a session of its own has left the group, and still has the key of its episode.
                await end_leftovers(task.api_key)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            if code in _FAILURES:
                raise _FAILURES[code](_shown(tail).rpartition("\n")[2])
            if code:
                number = -code if code < 0 else code - 128  # a shell, or `ludus box`, reports a signal so
                is_signal = code < 0 or number in (signal.SIGKILL, signal.SIGTERM)
                how = f"signal {number}" if is_signal else f"exit code {code}"
                raise HarnessFailed(
                    f"{os.path.basename(self.arguments[0])} ended with {how}: {_shown(tail)}",
                    how="signal" if is_signal else "error",
                    printed=bool("".join(tail).strip()),
                )

    async def aclose(self) -> None:
        """See `Harness.aclose`; each process has ended with its episode."""
        self._folders.close()


class WorkerHarness:
    """One process for many episodes. It is started with the first episode, and again after it ended.

    Args:
        command: the program and its arguments, as in a shell; no shell runs it.
        variables: further environment variables.

    Raises:
        HarnessFailed: there is no such program.
    """

    offers_tools = False
    """See `Harness.offers_tools`."""

    def __init__(self, command: str, variables: Mapping[str, str] | None = None) -> None:
        self._arguments = _arguments(command)
        self._variables = dict(variables or {})
        self._numbers = itertools.count(1)
        self._waiting: dict[str, asyncio.Future[str | None]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._tail: deque[str] = deque(maxlen=TAIL)
        self._tasks: list[asyncio.Task[None]] = []
        self._starting = asyncio.Lock()

    async def run(self, task: HarnessTask) -> None:
        """See `Harness.run`."""
        process = await self._running()
        name = f"{next(self._numbers)}.{task.id}"  # an attempt that was canceled may still answer
        future: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        self._waiting[name] = future
        try:
            await _give(process, {**task.to_json(), "id": name})
            error = await future
        except asyncio.CancelledError:
            await asyncio.shield(_give(process, {"cancel": name}))
            raise
        finally:
            self._waiting.pop(name, None)
        if error is not None:
            raise HarnessFailed(f"{os.path.basename(self._arguments[0])}: {error}")

    async def aclose(self) -> None:
        """See `Harness.aclose`."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        if self._home is not None:
            self._home.cleanup()
            self._home = None

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._process is None or self._process.returncode is not None:
                await self.aclose()
                self._home = tempfile.TemporaryDirectory(prefix="ludus-harness-", ignore_cleanup_errors=True)
                self._tail.clear()
                self._process = process = await _start(self._arguments, self._variables, self._home.name)
                reading = (self._read_answers(process), _read_tail(process, self._tail, errors=True))
                self._tasks = [asyncio.create_task(one) for one in reading]
            return self._process

    async def _read_answers(self, process: asyncio.subprocess.Process) -> None:
        """Deliver the lines of the worker. When its output ends, all waiting episodes fail."""
        assert process.stdout is not None
        try:
            async for line in process.stdout:
                self._deliver(line.decode(errors="replace"))
        except ValueError as error:  # a line longer than the limit of the stream
            self._tail.extend(f"{error}")
        finally:
            waiting, self._waiting = self._waiting, {}
            for future in waiting.values():
                if not future.done():
                    future.set_result(f"the worker ended: {_shown(self._tail)}")
        await _end(process)

    def _deliver(self, line: str) -> None:
        try:
            answer = json.loads(line)
            future, error = self._waiting.get(answer["id"]), answer.get("error")
        except (ValueError, KeyError, TypeError, AttributeError):
            self._tail.extend(line)  # a print of the program
            return
        if future is not None and not future.done():
            future.set_result(None if error is None else str(error))


def make_harness(text: str, variables: Mapping[str, str] | None = None) -> Harness:
    """Return the harness of a text: `command PROGRAM …`, `worker PROGRAM …`, or an agent program, such as `codex`.

    Raises:
        HarnessFailed: the text has another form, there is no such program, or it is not installed.
    """
    kind, _, command = text.strip().partition(" ")
    if kind in NAMES:
        try:
            words = harness_command(find_program(kind), shlex.split(command))
        except (NotInstalled, ValueError) as error:
            raise HarnessFailed(str(error)) from None
        return CommandHarness(shlex.join(words), variables, offers_tools=not find_program(kind).bridge)
    if kind == "command":
        return CommandHarness(command, variables)
    if kind == "worker":
        return WorkerHarness(command, variables)
    raise HarnessFailed(
        f"{text!r} is no harness: write `command PROGRAM …`, `worker PROGRAM …` or one of {', '.join(NAMES)}"
    )


def _arguments(command: str) -> list[str]:
    try:
        arguments = shlex.split(command)
    except ValueError as error:
        raise HarnessFailed(f"{command!r} is no command: {error}") from None
    program = shutil.which(arguments[0]) if arguments else None
    if program is None:
        raise HarnessFailed(f"there is no program {arguments[0] if arguments else ''!r} to run as a harness")
    # A harness runs in another folder than the one in which its command was written.
    return [os.path.abspath(program), *(_absolute(argument) for argument in arguments[1:])]


def _absolute(argument: str) -> str:
    """Return the absolute path of an argument that names a file or a folder here; a bare word may mean anything."""
    is_path = os.sep in argument or os.path.splitext(argument)[1]
    return (
        os.path.abspath(argument) if is_path and not argument.startswith("-") and os.path.exists(argument) else argument
    )


async def _start(arguments: Sequence[str], variables: Mapping[str, str], home: str) -> asyncio.subprocess.Process:
    kept = {name: value for name in KEPT_VARIABLES if (value := os.environ.get(name)) is not None}
    try:
        return await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**kept, "HOME": home, "TMPDIR": home, "LUDUS_RUN_FOLDER": os.getcwd(), **variables},
            cwd=home,
            start_new_session=True,
            limit=LONGEST_LINE,
        )
    except OSError as error:
        raise HarnessFailed(f"cannot run {arguments[0]}: {error}") from error


async def _give(process: asyncio.subprocess.Process, value: Mapping[str, Any], *, close: bool = False) -> None:
    """Write a line to a program, which may not want it, or have ended."""
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(json.dumps(value).encode() + b"\n")
        await process.stdin.drain()
    if close:
        process.stdin.close()


async def _read_tail(process: asyncio.subprocess.Process, tail: deque[str], *, errors: bool = False) -> None:
    """Read what a program writes, so that it never waits for a reader, and keep the end of it."""

    async def read(stream: asyncio.StreamReader | None) -> None:
        while stream is not None and (data := await stream.read(1 << 16)):
            tail.extend(data.decode(errors="replace"))

    await asyncio.gather(read(process.stderr), *([] if errors else [read(process.stdout)]))


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process and all others of its group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    if process.returncode is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def _shown(tail: deque[str]) -> str:
    return "".join(tail).strip()[-1000:] or "(no output)"
