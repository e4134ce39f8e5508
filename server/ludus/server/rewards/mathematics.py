"""Mathematical equivalence, decided by math-verify in a process of its own.

What a policy writes may keep a computer algebra system busy for ever (`9^9^9^9`), and math-verify's own time limits
need the main thread. So a helper process does it, whose memory is limited, and which is killed when it takes too long.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import select
import subprocess
import sys
import threading
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ludus.protocol.errors import AuthoringError
from ludus.server.rewards.attempt import Attempt, Of, answer_of, resolve
from ludus.server.rewards.nodes import Check
from ludus.server.rewards.text import short
from ludus.server.rewards.verdict import Verdict

ANSWER_CHARS: Final = 10_000
"""Longer answers are not read: they earn 0."""
_START_SECONDS: Final = 60.0


@dataclass(frozen=True)
class MathEqual(Check):
    """1 when the answer's mathematics equals what is expected: `1/2` and `\\frac{2}{4}`, `(x+1)^2` and `x^2+2x+1`.

    Both may be LaTeX, between dollars or in \\boxed, or a plain expression.

    Raises:
        AuthoringError: math-verify is not installed.
    """

    blocking: ClassVar[bool] = True

    expected: Of[str]
    seconds: float = 5.0
    """More time leaves the item unscored."""
    of: Of[str] = answer_of

    def __post_init__(self) -> None:
        super().__post_init__()
        if importlib.util.find_spec("math_verify") is None:
            raise AuthoringError("MathEqual needs the package math-verify; install it with: pip install 'ludus[math]'")

    def check(self, attempt: Attempt) -> Verdict:
        """Ask the helper."""
        said, wanted = resolve(self.of, attempt), str(resolve(self.expected, attempt))
        if len(said) > ANSWER_CHARS:
            return Verdict(0.0, f"the answer has {len(said)} characters")
        reply = _helper.ask({"expected": wanted, "answer": said}, self.seconds)
        if reply is None:
            return Verdict.unscored(f"comparing {short(said)} took longer than {self.seconds:g} s, or too much memory")
        if "error" in reply:
            return Verdict.unscored(reply["error"])
        if not reply["parsed"]:
            return Verdict(0.0, f"no mathematics was found in {short(said)}")
        return Verdict(float(reply["equal"]), f"read as {short(reply['parsed'])}")


class Helper:
    """The process that compares; started when first needed, again after it was killed, and ended with its parent."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, question: dict[str, str], seconds: float) -> dict[str, Any] | None:
        """The reply, or None when there was none in time. One question at a time; the others wait."""
        with self._lock:
            process = self._process or self._start()
            assert process.stdin is not None
            try:
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                self._stop()
                return None
            return self._read(process, seconds)

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            self._stop()

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "ludus.server.rewards._math_helper"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        if self._read(self._process, _START_SECONDS) is None:
            raise RuntimeError("the helper for mathematics did not start")
        return self._process

    def _read(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any] | None:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], seconds)
        line = process.stdout.readline() if ready else b""
        if not line:
            self._stop()
            return None
        reply: dict[str, Any] = json.loads(line)
        return reply

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except BrokenPipeError:
                        pass


_helper: Final = Helper()
atexit.register(_helper.close)
