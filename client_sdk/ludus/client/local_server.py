"""Serve an environment in a process of its own, for programs that take a server's address.

The process runs `ludus serve`. It ends with `close`, when the `LocalServer` is collected, when the interpreter exits
and when this process is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ludus.protocol.errors import AuthoringError, InfrastructureFailed

__all__ = ["LocalServer"]


START_SECONDS: Final = 60.0
"""The longest time until an environment is served."""

END_SECONDS: Final = 10.0
"""How long the server has to end in order before it is killed."""

_OTHER_SERVERS: Final = frozenset(
    {"LUDUS_TOKEN", "LUDUS_TOKEN_FILE", "LUDUS_TOKENS", "LUDUS_CAPABILITY_KEY", "LUDUS_PUBLIC_URL", "LUDUS_LOG_FORMAT"}
)
"""Environment variables that are meant for another server than this one."""

_POLL_SECONDS: Final = 0.02
_SERVING: Final = re.compile(r"^Serving .* at (http://\S+)", re.MULTILINE)

_PROGRAM: Final = """
import os, signal, threading, time

def end_with_parent():
    while os.getppid() == PARENT:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=end_with_parent, daemon=True, name="ludus-parent").start()
from ludus.cli import main
main()
"""
"""Runs the `ludus` command, which gets SIGTERM when its parent dies.

Linux's `PR_SET_PDEATHSIG` does not serve here: it sends the signal when the thread that started the process ends.
"""


class LocalServer:
    """A running `ludus serve`, reachable from this machine only.

    Args:
        sources: what to serve: NAME, `module:Class`, `file.py:Class` or `FORMAT:TARGET`.
        python: the interpreter that has `ludus-rl[server]`; this one when None.

    Raises:
        AuthoringError: the environment cannot be served; the message is the server's own.
        InfrastructureFailed: it was not served within `START_SECONDS`.
    """

    def __init__(self, sources: Sequence[str], python: str | None = None) -> None:
        folder = Path(tempfile.mkdtemp(prefix="ludus-served-"))
        program = _PROGRAM.replace("PARENT", str(os.getpid()))
        own = {name: value for name, value in os.environ.items() if name not in _OTHER_SERVERS}
        command = [python or sys.executable, "-c", program, "serve", *sources, "--port", "0"]
        try:
            with (folder / "log").open("wb") as log:
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=own
                )
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise AuthoringError(f"{command[0]} cannot be run: {error.strerror}") from None
        self._finalize = weakref.finalize(self, _end, process, folder, os.getpid())
        try:
            self.url: Final = _address(process, folder / "log", sources[0])
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the server, if it has not ended."""
        self._finalize()


def _address(process: subprocess.Popen[bytes], log: Path, source: str) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None  # read before the log, which is then complete
        text = log.read_text(encoding="utf-8", errors="replace")
        if found := _SERVING.search(text):
            return found[1]
        if ended:
            lines = [line for line in text.splitlines() if line.strip()]
            refusals = [line.removeprefix("ludus: ") for line in lines if line.startswith("ludus: ")]
            said = [f"the server ended with exit code {process.returncode}", *lines[-1:], *refusals[-1:]]
            raise AuthoringError(f"{source} cannot be served: {said[-1]}")
        time.sleep(_POLL_SECONDS)
    raise InfrastructureFailed(f"the environment was not served within {START_SECONDS:g} s")


def _end(process: subprocess.Popen[bytes], folder: Path, owner: int) -> None:
    """End the server and the processes of its group, unless this is a forked child of the process that started it."""
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    shutil.rmtree(folder, ignore_errors=True)
