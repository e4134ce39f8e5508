"""A `vllm serve` process started by the trainer: its environment, its end, and the end of its log."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from ludus.trainer.core.errors import ConfigError

SUPERVISOR: Final = Path(__file__).with_name("vllm_supervisor.py")
STOP_SECONDS: Final = 20.0
LOG_TAIL: Final = 262_144
"""The number of bytes of the log in which to look for the first error."""
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
                *(sys.executable, "-I", str(SUPERVISOR), program, *command[1:]),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
                env={**own, **variables},
            )
        return cls(process, log, begin)

    @property
    def pid(self) -> int:
        """The process id of the supervisor that runs the server, which is also the id of the process group."""
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
            status = "its process still runs"
        else:  # 128 plus the number of a signal that ended the server; negative if it ended the supervisor
            number = code - 128 if code > 128 else -code
            killed = number in signal.valid_signals()
            status = f"its process was killed by {signal.Signals(number).name}" if killed else f"it exited with {code}"
        return f"{status}; the end of its log:\n{self.log_tail()}"

    def log_tail(self) -> str:
        """Return the last lines of the log, and the first error in its last part, which usually caused the others."""
        with suppress(OSError), self._log.open("rb") as file:
            file.seek(max(self._begin, file.seek(0, os.SEEK_END) - LOG_TAIL))
            lines = [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]
            first = next((at for at, line in enumerate(lines) if _ERROR.search(line)), len(lines))
            tail = max(0, len(lines) - 6)
            chosen = [*lines[first : min(first + 1, tail)], *lines[tail:]]
            return "\n".join(f"  {line[:400]}" for line in chosen) + f"\n  (the whole log: {self._log})"
        return f"  (nothing can be read from {self._log})"

    async def stop(self) -> None:
        """Stop the process and everything that it started."""
        try:
            self._signal(signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self._process.wait()
        finally:
            self._signal(signal.SIGKILL)
            if self._process.stdin is not None:
                self._process.stdin.close()
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)
