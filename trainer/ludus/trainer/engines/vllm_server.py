"""A vLLM server: HTTP requests with time limits and, if it was launched here, its process and the end of its log."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from ludus.trainer.errors import ConfigError, EngineError

# Kills the whole process group when the trainer has ended for any reason: its end of the pipe on stdin closes then.
_SUPERVISE: Final = """
exec 3<&0 </dev/null
"$@" 3<&- & child=$!
{ read -r _ <&3; kill -s KILL -- -$$; } &
trap 'wait $child' TERM
wait $child
"""
Headers = Mapping[str, str] | None
Limit = Callable[[float | None], AbstractAsyncContextManager[asyncio.Timeout]]
_STOP_SECONDS: Final = 20.0
_LAST_WORDS: Final = 262_144
_ERROR: Final = re.compile(r"(^|\] )[\w.]*(Error|Exception)\b")  # at the beginning of a line, or of what is logged
_TORCHRUN: Final = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE|NAME)|MASTER_(ADDR|PORT)|TORCHELASTIC_.*")


class VllmProcess:
    """A `vllm serve` process started here. It ends when this process ends, even if this process is killed."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, begin: int) -> None:
        self._process = process
        self._log = log
        self._begin = begin

    @classmethod
    async def start(cls, command: Sequence[str], variables: Mapping[str, str], log: Path) -> Self:
        """Run `command` and append its output to `log`.

        Raises:
            ConfigError: the program does not exist.
        """
        program = shutil.which(command[0]) or shutil.which(command[0], path=str(Path(sys.executable).parent))
        if program is None:
            raise ConfigError(
                f"engine.vllm.launch: there is no program {command[0]!r} here. Install vLLM (`pip install vllm`), name "
                "its program in engine.vllm.command, or give the addresses of running servers in engine.vllm.urls"
            )
        own = {name: value for name, value in os.environ.items() if not _TORCHRUN.fullmatch(name)}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            begin = output.tell()
            process = await asyncio.create_subprocess_exec(
                *("sh", "-c", _SUPERVISE, "sh", program, *command[1:]),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={**own, **variables},
            )
        return cls(process, log, begin)

    @property
    def pid(self) -> int:
        """The process id of the shell that runs the server, which is also the id of the process group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.returncode is not None

    async def exit_report(self) -> str:
        """Return how the process ended and the end of its log. Wait up to 5 s for a process that is about to end."""
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await self._process.wait()
        code = self._process.returncode
        if code is None:
            fate = "its process still runs"
        else:  # for a signal, a shell returns 128 plus its number, and asyncio returns the negative number
            number = code - 128 if code > 128 else -code
            killed = number in signal.valid_signals()
            fate = f"its process was killed by {signal.Signals(number).name}" if killed else f"it exited with {code}"
        return f"{fate}; its last words:\n{self.log_tail()}"

    def log_tail(self) -> str:
        """Return the last lines of the log, and the first error in its last part, which usually caused the others."""
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(self._begin, file.seek(0, os.SEEK_END) - _LAST_WORDS))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
            first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), len(lines))
            tail = max(0, len(lines) - 6)
            chosen = [*lines[first : min(first + 1, tail)], *lines[tail:]]
            return "\n".join(f"  {line[:400]}" for line in chosen) + f"\n  (all of them: {self._log})"
        return f"  (nothing can be read from {self._log})"

    async def stop(self) -> None:
        """Stop the process and everything that it started."""
        try:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_SECONDS):
                    await self._process.wait()
        finally:
            self._signal(signal.SIGKILL)
            if self._process.stdin is not None:
                self._process.stdin.close()
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class VllmServer:
    """A server at one address. Every call has a time limit; every failure is an `EngineError` that names the address
    and the cause."""

    def __init__(self, url: str, http: aiohttp.ClientSession, process: VllmProcess | None = None) -> None:
        self.url = url.rstrip("/")
        self.process = process
        self._http = http

    async def get(self, path: str, *, seconds: float) -> Any:
        """Return the decoded answer. Raise the errors of `post`."""
        return await self._decoded(path, await self._send("GET", path, seconds, attempts=2))

    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        seconds: float,
        headers: Headers = None,
        attempts: int = 1,
        limit: Limit = asyncio.timeout,
    ) -> Any:
        """Return the decoded answer. With two `attempts`, send the request again if the connection was lost. `limit`
        creates the time limit.

        Raises:
            EngineError: the server refused, is unreachable, or did not answer in time.
        """
        return await self._decoded(path, await self._send("POST", path, seconds, body, headers, attempts, limit))

    async def has(self, path: str, *, seconds: float) -> bool:
        """Return whether the POST route exists."""
        status, _ = await self._send("GET", path, seconds, attempts=2)
        return status != 404

    async def wait_ready(self, seconds: float) -> None:
        """Wait until the server answers.

        Raises:
            EngineError: its process ended, or it was not ready in time.
        """
        try:
            async with asyncio.timeout(seconds):
                while True:
                    with suppress(EngineError):
                        await self.get("/health", seconds=10)
                        return
                    if self.process is not None and self.process.ended:
                        raise EngineError(f"vLLM could not start: {await self.process.exit_report()}")
                    await asyncio.sleep(0.25)
        except TimeoutError:
            words = f"; its last words:\n{self.process.log_tail()}" if self.process else ": is it running?"
            raise EngineError(
                f"vLLM at {self.url} was not ready in {seconds:g} s (engine.vllm.start_seconds){words}"
            ) from None

    async def _decoded(self, path: str, answer: tuple[int, str]) -> Any:
        status, text = answer
        if status >= 400:
            cause = f". {await self.process.exit_report()}" if status >= 500 and self.process is not None else ""
            raise EngineError(f"vLLM at {self.url} refused {path} with HTTP {status}: {text[:2000]}{cause}")
        try:
            return json.loads(text) if text[:1] in ("{", "[") else text
        except ValueError as error:
            raise EngineError(f"vLLM at {self.url} answered {path} with broken JSON: {error}") from error

    async def _send(
        self,
        method: str,
        path: str,
        seconds: float,
        body: Any = None,
        headers: Headers = None,
        attempts: int = 1,
        limit: Limit = asyncio.timeout,
    ) -> tuple[int, str]:
        try:
            async with limit(seconds):
                while True:
                    attempts -= 1
                    try:
                        async with self._http.request(method, self.url + path, json=body, headers=headers) as response:
                            return response.status, await response.text()
                    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                        if attempts < 1:  # otherwise try again: the server may just have closed an idle connection
                            raise
        except TimeoutError:
            raise EngineError(f"vLLM at {self.url} did not answer {path} within {seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            cause = await self.process.exit_report() if self.process else "is it running? Its own log says more"
            raise EngineError(f"vLLM at {self.url} is gone ({path}: {error!r}): {cause}") from error


def free_port() -> int:
    """Return a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
        return port
